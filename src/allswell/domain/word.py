"""The rules for what a holder says: which rows its words are about, and what follows for others than its task.

What a word makes of the task itself stands in hold.py. A word always names its task, with the lease, and its agent,
whose record it may clear. Words that are likely to ask a human something are about the task's run too, whose clock then
stands; where another one turns out to be, it is decided again with the run in sight.

A check-in is the hottest write there is, so it is about the lease alone, and about the record of an agent that has
missed check-ins. Where that says no, it may be said again as a word like any other (`said_again`).
"""

from __future__ import annotations

from msgspec.structs import replace

from allswell.domain.address import agent_of, role_of
from allswell.domain.case import Case
from allswell.domain.charging import charged, own_row
from allswell.domain.circle import refuse_circle
from allswell.domain.command import (
    Ask,
    CheckIn,
    CheckInAgain,
    Complete,
    Delegate,
    EndIdle,
    Fail,
    HolderCommand,
    Keep,
    Recover,
    Release,
    SendRequest,
    Word,
)
from allswell.domain.decision import Decision
from allswell.domain.hold import check_in, hold
from allswell.domain.names import NO_COMMAND, TaskId, is_request
from allswell.domain.rule import ASKING, Names, Reads, Rule
from allswell.domain.service import park
from allswell.domain.situation import Situation
from allswell.domain.standing import passed_over, standing_of
from allswell.domain.submit import accept_request, lanes_of
from allswell.errors import LeaseLost, Refused, TimeUp


def say(situation: Situation, command: HolderCommand) -> Decision:
    """Decide a holder's word."""
    task = command.task
    case = situation.case(task)
    agent = situation.agents.get(command.agent)
    lease = case.lease
    past = None if lease is not None and lease.token == command.token else situation.attempts.get((task, command.token))
    if agent is not case.agent or past is not case.past:
        case = replace(case, agent=agent, past=past)
    out = hold(case, command, situation.now, situation.chance, situation.run_of(case.task))
    standings = charged((out,), situation.agents, situation.now) if is_request(task) else ()
    return Decision(out.answer, out.error, (out,), ((command.agent, out.case.agent), *standings))


def fail(situation: Situation, command: Fail) -> Decision:
    """A failure; where it is a service's limit, that is parked."""
    decision = say(situation, command)
    until = decision.outcomes[0].park_until
    if until is not None:
        decision.services = [park(situation.service(name), until) for name in dict.fromkeys(command.failure.services)]
    return decision


def delegate(situation: Situation, command: Delegate | SendRequest) -> Decision:
    """A request for another agent, with the task that is made for it; one that was made before is known by its id."""
    known = situation.cases.get(command.request.id)
    if known is not None:
        return Decision(_delegated_before(known, command))
    decision = say(situation, command)
    (asked,) = decision.outcomes
    if asked.request is not None:
        decision.outcomes = (asked, accept_request(situation, asked.request))
    return decision


def send_request(situation: Situation, command: SendRequest) -> Decision:
    """A request of the mesh, with the task that is made for it; one that closes a circle of agents is refused."""
    to = agent_of(command.request.role)
    if to is not None and command.request.id not in situation.cases:
        refuse_circle(command.agent, to, situation.found.get(ASKING, ()), situation.cases)
    return delegate(situation, _routed(situation, command))


def _routed(situation: Situation, command: SendRequest) -> SendRequest:
    """A request to a role, with those barred from it that others are preferred to (standing.py), and who asks.

    Whoever asks may have the role itself: moving on to the next task, it would be given its own request.
    """
    if role_of(command.spec.to) is None:
        return command
    can_serve = {agent: standing_of(situation.agents.get(own_row(agent))) for agent in command.candidates}
    barred = (*command.request.barred, command.agent, *passed_over(can_serve, situation.now))
    return replace(command, request=replace(command.request, barred=barred))


def _delegated_before(known: Case, command: Delegate | SendRequest) -> TaskId:
    origin = known.task.spec.origin
    if origin is None or origin.command != command.id:
        raise Refused("id_taken", f"task {command.request.id} exists already and is another one", where="id")
    return known.task.id


def say_again(situation: Situation, command: CheckInAgain) -> Decision:
    """A check-in with all rows in sight; on a task that is not there, nobody holds a lease."""
    if command.task not in situation.cases:
        raise LeaseLost(command.task, command.token, "nobody holds the task")
    return say(situation, command)


def renew(situation: Situation, command: CheckIn) -> Decision:
    """A check-in, decided on the lease alone."""
    done = check_in(situation.lease(command.task), command, situation.now)
    forgiven = done.answered and situation.agents.get(command.agent) is not None
    return Decision(
        done.orders,
        leases=(done.lease,),
        agents=((command.agent, None),) if forgiven else (),
        events=() if done.event is None else (done.event,),
    )


def said_again(command: CheckIn, lost: LeaseLost) -> CheckInAgain | None:
    """A check-in that was refused, with all rows in sight; None where that could not come to more.

    What came late is kept with its attempt, and a limit that has moved with its run is found out. Of a renewal on a
    lease that is gone there is nothing to keep.
    """
    if not (command.proof or isinstance(lost, TimeUp)):
        return None
    said = command.proof, command.note, command.progress
    return CheckInAgain(NO_COMMAND, command.task, command.token, command.agent, *said, key=command.key)


def _names(command: Word) -> Names:
    task = (command.task,)
    agents = (command.agent, own_row(command.agent)) if is_request(command.task) else (command.agent,)
    return Names(held=task, agents=agents, perhaps_runs_of=task)


def _names_with_run(command: Word) -> Names:
    task = (command.task,)
    return Names(held=task, agents=(command.agent,), runs_of=task)


def _names_of_ask(command: Ask) -> Names:
    return _names(command) if command.hold else _names_with_run(command)


def _names_of_failure(command: Fail) -> Names:
    task = (command.task,)
    return Names(held=task, agents=(command.agent,), runs_of=task, services=command.failure.services)


def _names_of_request(command: Delegate | SendRequest) -> Names:
    task = (command.task,)
    return Names(
        held=task,
        agents=(command.agent,),
        perhaps_runs_of=task,
        tasks=(command.request.id,),
        lanes=lanes_of((command.request,)),
    )


def _names_of_mesh_request(command: SendRequest) -> Names:
    """As of a delegation; and where it is for one agent, all who wait for one: those who ask at once, ask in turn."""
    names = _names_of_request(command)
    if agent_of(command.request.role) is None:
        return {**names, "agents": (command.agent, *dict.fromkeys(map(own_row, command.candidates)))}
    return {**names, "searches": (ASKING,)}


def _names_of_renewal(command: CheckIn) -> Names:
    return Names(leases=(command.task,), agents=(command.agent,) if command.proof else ())


def past_of(command: Word, situation: Situation) -> Reads | None:
    """The attempt that a word names, where that is not the current one: it may be a repetition, or late."""
    case = situation.cases.get(command.task)
    if case is None or (case.lease is not None and case.lease.token == command.token):
        return None
    if command.token.bit_length() >= 63:
        return None
    return Reads(attempts=((command.task, command.token),))


RULES = (
    Rule(Complete, say, _names, reads=past_of),
    Rule(Release, say, _names, reads=past_of),
    Rule(Keep, say, _names, reads=past_of),
    Rule(Recover, say, _names_with_run, reads=past_of),
    Rule(EndIdle, say, _names_with_run, reads=past_of),
    Rule(Ask, say, _names_of_ask, reads=past_of),
    Rule(Fail, fail, _names_of_failure, reads=past_of, chance=True),
    Rule(Delegate, delegate, _names_of_request, reads=past_of),
    Rule(SendRequest, send_request, _names_of_mesh_request, reads=past_of),
    Rule(CheckInAgain, say_again, _names_with_run, reads=past_of),
    Rule(CheckIn, renew, _names_of_renewal),
)
