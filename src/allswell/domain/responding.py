"""The rules for whoever answers a request of the mesh, and for whoever waits for the answer (M2, M5).

**Who may answer**: the agent that it is for; whoever has the role that it is for; and, once the mesh was asked, whoever
has the role that the request names, or, if it names none, anybody but the one who asks. The first answer counts, and
ends it; a late one ends it too, and its task is queued again.

**Who waits** asks how it stands (`MoveOn`) when its last delivery has expired. If that blocks the task, or has blocked
it, something else is claimed in the same transaction: once for each request, so that a question whose answer was lost
brings the same task again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from allswell.domain import claim as claiming
from allswell.domain.address import agent_of, is_agent, role_of
from allswell.domain.case import Case, Outcome, come_to_rest, end_attempt, end_task
from allswell.domain.charging import charged, concerned, own_row, target
from allswell.domain.command import Claim, MoveOn, Respond
from allswell.domain.decision import Decision
from allswell.domain.event import Event
from allswell.domain.names import CommandId, Millis, TaskId
from allswell.domain.redelivery import passes, with_stand
from allswell.domain.rule import Names, Rule, Search
from allswell.domain.situation import Situation
from allswell.domain.submit import check_name, check_text
from allswell.domain.task import OPEN, RequestRecord, RequestSpec, State, Task
from allswell.errors import Refused


class RequestStands(msgspec.Struct, frozen=True, gc=False):
    """How a request stands that has not blocked its task."""

    state: str
    """`open`, or how it has ended."""
    due: Millis
    """When to ask again, while it is open."""


def _request(situation: Situation, id_: TaskId) -> tuple[Case, RequestSpec, RequestRecord]:
    case = situation.cases.get(id_)
    if case is None or case.task.spec.request is None or case.task.record.request is None:
        raise Refused("unknown_request", f"there is no request {id_}", where="request")
    return case, case.task.spec.request, case.task.record.request


# --- answering --------------------------------------------------------------------------------------------------------


def respond(situation: Situation, command: Respond) -> Decision:
    """Decide an answer; the same one, said again, is known by its id."""
    case, _, stand = _request(situation, command.request)
    task = case.task
    if task.state == State.DONE and task.record.ended_by == command.id:
        return Decision(task.id)
    check_name(command.agent, "agent")
    check_text(command.result, "answer")
    if task.state != OPEN:
        how = f"{stand.by} has answered it already" if stand.by else f"it is {task.state}: {task.record.reason}"
        raise Refused("request_closed", f"the request {task.id} takes no answer: {how}", where="request")
    check_may_answer(task, command.agent, command.roles)
    outcomes = _answered(case, stand, command, situation.now)
    return Decision(task.id, outcomes=outcomes, agents=charged(outcomes, situation.agents, situation.now))


def _answered(case: Case, stand: RequestRecord, command: Respond, now: Millis) -> list[Outcome]:
    """The request is taken and done in one, by whoever answers; somebody else who is at work on it has lost it."""
    steps: list[Outcome] = []
    if case.lease is None or case.lease.agent != command.agent:
        free = Outcome(case)
        if case.lease is not None:
            end_attempt(free, "answered_by_another", now, detail=command.agent)
        free.case = come_to_rest(free.case, now)
        taken = claiming.grant(free.case, Claim(command.id, command.agent), now)
        taken.events.clear()
        steps += (free, taken)
        case = taken.case
    out = Outcome(replace(case, task=with_stand(case.task, replace(stand, by=command.agent))))
    end_task(out, State.DONE, "answered", now, command=command.id)
    out.result = command.result
    task, (attempt,) = out.case.task, out.attempts
    told = {"elapsed_ms": now - attempt.granted_at}
    out.events.append(Event("task_completed", task.id, task.run, attempt.agent, attempt.token, told))
    return [*steps, out]


def check_may_answer(task: Task, agent: str, roles: Sequence[str]) -> None:
    """Refuse an answer by somebody whom nobody has asked."""
    spec, stand, origin = task.spec.request, task.record.request, task.spec.origin
    if spec is None or stand is None or origin is None:
        raise Refused("unknown_request", f"{task.id} is no request of the mesh", where="request")
    if agent == origin.agent:
        raise Refused("own_request", f"{agent} has asked {task.id} itself, and cannot answer it", where="agent")
    if not is_for(task, agent, roles):
        text = f"the request {task.id} is for {spec.to}, and {agent} cannot answer it"
        raise Refused("not_addressed", text, where="agent")


def is_for(task: Task, agent: str, roles: Sequence[str]) -> bool:
    """Whether a request can be answered by this agent, which has these roles."""
    spec, stand, to = task.spec.request, task.record.request, agent_of(task.role)
    if spec is None or stand is None:
        return False
    if to is not None and is_agent(agent, to):
        return True
    role = role_of(spec.to)
    return (role is not None and role in roles) or (stand.mesh and (not spec.role or spec.role in roles))


# --- waiting ----------------------------------------------------------------------------------------------------------


def move_on(situation: Situation, command: MoveOn) -> Decision:
    """Tell whoever waits how its request stands; where it has blocked the task, serve it something else."""
    case, _, stand = _request(situation, command.request)
    origin = case.task.spec.origin
    if origin is None or (origin.task, origin.token, origin.agent) != (command.task, command.token, command.agent):
        raise Refused("unknown_request", f"{command.request} is no request of {command.task}", where="request")
    if stand.moved_on:
        return Decision(_given(situation, command))
    if case.lease is not None and case.lease.agent not in situation.found.get(target(command.request), ()):
        return Decision(RequestStands(case.task.state, stand.due))  # it was taken only now: ask again
    outcomes = passes(case, situation.cases.get(command.task), situation.now, waiter=True)
    standings = charged(outcomes, situation.agents, situation.now)
    out = outcomes[0]
    stand = out.case.task.record.request or stand
    if stand.blocked_at is None:
        return Decision(RequestStands(out.case.task.state, stand.due), outcomes=outcomes, agents=standings)
    out.case = replace(out.case, task=with_stand(out.case.task, replace(stand, moved_on=True)))
    decision = _something_else(situation, command, outcomes)
    decision.agents = standings
    return decision


def _something_else(situation: Situation, command: MoveOn, outcomes: Sequence[Outcome]) -> Decision:
    """What follows the block: a claim, which tells of the block, if it was only now."""
    if not command.claims:
        return Decision([], outcomes=outcomes)
    told = None
    for blocked in outcomes[1:]:
        (told,) = blocked.events
        blocked.events = []
    claim = _claim(situation, command)
    claiming.check_claim(claim)
    return Decision(outcomes=outcomes, claim=replace(claim, after=told))


def _claim(situation: Situation, command: MoveOn) -> Claim:
    roles = command.roles
    if roles is None:
        roles = (situation.case(command.task).task.role,)
    return Claim(_next(command), command.agent, roles, 1, command.length, command.outside)


def _given(situation: Situation, command: MoveOn) -> object:
    """What it was given before and still has, or nothing."""
    if not command.claims:
        return []
    before = claiming.claim(situation, _claim(situation, command))
    return [] if before.claim is not None else before.answer


def _next(command: MoveOn) -> CommandId:
    return CommandId(f"next.{command.request}")


def _names(command: MoveOn) -> Names:
    both, searches = (command.task, command.request), [target(command.request)]
    if command.claims:
        searches.append(Search("claimed", _next(command)))
    return Names(held=both, agents=(command.agent,), searches=searches)


def _names_given(command: MoveOn, found: Mapping[Search, Sequence[str]]) -> Names:
    given = [*map(TaskId, found.get(Search("claimed", _next(command)), ()))]
    return Names(held=given, payloads=given, agents=concerned(found.get(target(command.request), ())))


def _names_of_answer(command: Respond) -> Names:
    return Names(held=(command.request,), agents=(own_row(command.agent),))


RULES = (
    Rule(Respond, respond, _names_of_answer),
    Rule(MoveOn, move_on, _names, _names_given, last=True),
)
