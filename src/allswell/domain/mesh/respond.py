"""The rules for answering a request of the mesh, and for waiting for the answer (M2, M5).

**Who may answer**: the agent that it is for; agents with the role that it is for; and, once the mesh was asked, agents
with the role that the request names, or, if it names none, all but the one that asks. The first answer counts, and ends
it; a late one ends it too, and its task is queued again.

**Who may decline**: the agent that it is for, and then it has failed; and each that has the role that it is for, which
is not given it any more. It has failed, too, once all have declined that were known to have the role when it was asked.

**Who waits** asks how it stands (`MoveOn`) when its last delivery has expired. If that blocks the task, or has blocked
it, something else is claimed in the same transaction: once for each request, so that a question whose answer was lost
brings the same task again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from allswell.domain.agents.result import message_in
from allswell.domain.ids import AgentId, CommandId, Millis, TaskId, Token, asker_of
from allswell.domain.lease.claim import check_claim, grant
from allswell.domain.lease.claim import claim as decide_claim
from allswell.domain.mesh.delivery import BLOCKED, passes, unanswered, with_stand
from allswell.domain.mesh.health import charged, concerned, target
from allswell.domain.mesh.routing import agent_of, family, may_be_asked, role_of
from allswell.domain.rules.command import Claim, Decline, MoveOn, NoteListed, Respond
from allswell.domain.rules.event import Event
from allswell.domain.rules.rule import Decision, ReadSet, RowSearch, RowSnapshot, Rule, past_of
from allswell.domain.task.aggregate import TaskAggregate, TaskChange, end_attempt, end_task, event, requeue
from allswell.domain.task.model import OPEN, RequestAnswer, RequestRecord, RequestSpec, State, Task
from allswell.domain.task.submit import check_name, check_text
from allswell.domain.values import to_json
from allswell.errors import Refused

DECLINED = "declined"
"""How the attempt at a request ends whose holder declines it."""
LISTED_TO = 16
"""So many are known to whom a delivery was shown."""
ANSWERS_KEPT = 8
"""So many of a task's newest answers are handed to its next attempts."""
ANSWER_SHOWN = 4_000
"""Characters of an answer that are handed over with the task; the whole of it is the request's result."""


class RequestStands(msgspec.Struct, frozen=True, gc=False):
    """How a request stands that has not blocked its task."""

    state: str
    """`open`, or how it has ended."""
    due: Millis
    """When to ask again, while it is open."""


def _request(situation: RowSnapshot, id_: TaskId) -> tuple[TaskAggregate, RequestSpec, RequestRecord]:
    case = situation.cases.get(id_)
    if case is None or case.task.spec.request is None or case.task.record.request is None:
        raise Refused("unknown_request", f"there is no request {id_}", where="request")
    return case, case.task.spec.request, case.task.record.request


# --- answering --------------------------------------------------------------------------------------------------------


def respond(situation: RowSnapshot, command: Respond) -> Decision:
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
    check_may_answer(task, command.agent, command.roles, command.asked_as)
    outcomes = _answered(case, stand, command, situation.now)
    outcomes += answer_entered(situation, outcomes[-1])
    return Decision(task.id, outcomes=outcomes, health=charged(outcomes, situation.health, situation.now))


def _answered(case: TaskAggregate, stand: RequestRecord, command: Respond, now: Millis) -> list[TaskChange]:
    """The answering agent takes the request and does it in one step; another agent that works on it has lost it."""
    steps: list[TaskChange] = []
    if case.lease is None or case.lease.agent != command.agent:
        free = TaskChange(case)
        if case.lease is not None:
            end_attempt(free, "answered_by_another", now, detail=command.agent)
        free.case = requeue(free.case, now)
        taken = grant(free.case, Claim(command.id, command.agent), now)
        taken.events.clear()
        steps += (free, taken)
        case = taken.case
    out = TaskChange(replace(case, task=with_stand(case.task, replace(stand, by=command.agent))))
    end_task(out, State.DONE, "answered", now, command=command.id)
    out.result = command.result
    task, (attempt,) = out.case.task, out.attempts
    told = {"elapsed_ms": now - attempt.granted_at}
    out.events.append(Event("task_completed", task.id, task.run, attempt.agent, attempt.token, told))
    return [*steps, out]


def answer_entered(situation: RowSnapshot, out: TaskChange) -> list[TaskChange]:
    """The asking task with what its request was answered with, for its attempts to come; nothing if it is over."""
    if out.case.task.state != State.DONE or out.result is None:
        return []
    return _entered(situation, out.case.task, out.attempts[-1].agent, out.result)


def _entered(
    situation: RowSnapshot, task: Task, by: AgentId, result: str, *, declined: bool = False
) -> list[TaskChange]:
    spec, asking = task.spec.request, situation.cases.get(asker_of(task.id))
    if spec is None or asking is None or asking.task.state != OPEN:
        return []
    message = message_in(msgspec.json.decode(result))
    result = result if message is None else to_json(message, "message")
    origin, text, now = task.spec.origin, result[:ANSWER_SHOWN], situation.now
    token = origin.token if origin is not None else Token(0)
    about = (task.id, task.name, spec.to, by, task.created_at, now)
    cut = len(text) < len(result)
    answer = RequestAnswer(*about, text, token, cut=cut, waited=spec.blocks, declined=declined)
    record = asking.task.record
    left = record.handover
    if left is not None and left.message == unanswered(spec.to, task.id, task.name):
        left = replace(left, message=f"{spec.to} had not answered {task.id} in time: {task.name}")
    record = replace(record, answers=(*record.answers, answer)[-ANSWERS_KEPT:], handover=left)
    return [TaskChange(replace(asking, task=replace(asking.task, record=record)))]


def decline(situation: RowSnapshot, command: Decline) -> Decision:
    """Decide a refusal; the same one, said again, is known by who has said it."""
    case, spec, stand = _request(situation, command.request)
    task, now = case.task, situation.now
    check_name(command.agent, "agent")
    check_text(command.reason, "reason")
    if command.agent in stand.declined:
        return Decision(task.id)
    if task.state != OPEN:
        how = f"{stand.by} has answered it already" if stand.by else f"it is {task.state}: {task.record.reason}"
        raise Refused("request_closed", f"the request {task.id} cannot be declined: {how}", where="request")
    origin = task.spec.origin
    if origin is not None and command.agent == origin.agent:
        text = f"{command.agent} has asked {task.id} itself, and cannot decline it; `allswell cancel` cancels it"
        raise Refused("own_request", text, where="agent")
    if not is_addressed_to(task, command.agent, command.roles, command.asked_as):
        text = f"the request {task.id} is for {spec.to}; {command.agent} need not decline it"
        raise Refused("not_addressed", text, where="agent")
    left = _left_to_answer(spec, stand, command.agent)
    stand = replace(stand, declined=(*stand.declined, command.agent))
    out = TaskChange(replace(case, task=with_stand(task, stand)))
    told: dict[str, object] = {"request": task.id, "kind": spec.kind, "to": spec.to}
    told |= {"by": command.agent, "reason": command.reason, "final": not left}
    asker = (None, None, None) if origin is None else (origin.task, origin.agent, origin.token)
    out.events.append(Event("request_declined", asker[0], task.run, asker[1], asker[2], told))
    if left:
        _go_without(out, command.agent, now)
        return Decision(task.id, outcomes=(out,))
    reason = f"{command.agent} declined it" + (f": {command.reason}" if command.reason else "")
    end_task(out, State.FAILED, reason, now, command=command.id)
    out.events.append(event(task, "task_failed", case.lease, reason=DECLINED, message=reason))
    outcomes = [out, *_entered(situation, task, command.agent, to_json(command.reason, "reason"), declined=True)]
    return Decision(task.id, outcomes=outcomes)


def _left_to_answer(spec: RequestSpec, stand: RequestRecord, agent: str) -> list[str]:
    """Of those that were known to have the role when it was asked, those that have not declined it."""
    if role_of(spec.to) is None:
        return []
    gone = {family(one) for one in (*stand.declined, agent)}
    return [one for one in spec.asked if family(one) not in gone]


def _go_without(out: TaskChange, agent: AgentId, now: Millis) -> None:
    """It is left to the others that have the role; an agent that this delivery leaves out is barred already."""
    case, spec = out.case, out.case.task.spec.request
    stand = case.task.record.request
    if spec is None or stand is None:
        return
    is_barred = agent in spec.passed_over and stand.attempt == 1 and stand.blocked_at is None
    out.barred = () if is_barred else (agent,)
    if case.lease is not None and case.lease.agent == agent:
        end_attempt(out, DECLINED, now)
        out.case = requeue(out.case, now)


def note_listed(situation: RowSnapshot, command: NoteListed) -> Decision:
    """Note to whom deliveries were shown; what has ended meanwhile is passed over."""
    outcomes = []
    for id_ in command.requests:
        case = situation.cases.get(id_)
        stand = None if case is None else case.task.record.request
        if case is None or stand is None or case.task.state != OPEN or command.agent in stand.listed:
            continue
        listed = (*stand.listed, command.agent)[-LISTED_TO:]
        outcomes.append(TaskChange(replace(case, task=with_stand(case.task, replace(stand, listed=listed)))))
    return Decision(None, outcomes=outcomes)


def check_may_answer(task: Task, agent: str, roles: Sequence[str], asked_as: Sequence[str] | None = None) -> None:
    """Refuse an answer from an agent that was not asked."""
    spec, stand, origin = task.spec.request, task.record.request, task.spec.origin
    if spec is None or stand is None or origin is None:
        raise Refused("unknown_request", f"{task.id} is not a request of the mesh", where="request")
    if agent == origin.agent:
        raise Refused("own_request", f"{agent} has asked {task.id} itself, and cannot answer it", where="agent")
    if not is_for(task, agent, roles, asked_as):
        text = f"the request {task.id} is for {spec.to}, and {agent} cannot answer it"
        raise Refused("not_addressed", text, where="agent")


def is_for(task: Task, agent: str, roles: Sequence[str], asked_as: Sequence[str] | None = None) -> bool:
    """Whether a request can be answered by this agent, which has these roles."""
    spec, stand = task.spec.request, task.record.request
    if spec is None or stand is None or agent in stand.declined:
        return False
    if is_addressed_to(task, agent, roles, asked_as):
        return True
    return stand.mesh and (not spec.role or spec.role in roles)


def is_addressed_to(task: Task, agent: str, roles: Sequence[str], asked_as: Sequence[str] | None = None) -> bool:
    """Whether it is for this agent, or for a role that it has; and not for another, with all asked for help."""
    spec, to = task.spec.request, agent_of(task.role)
    if spec is None:
        return False
    if to is not None and may_be_asked(agent, to, asked_as):
        return True
    role = role_of(spec.to)
    return role is not None and role in roles


# --- waiting ----------------------------------------------------------------------------------------------------------


def move_on(situation: RowSnapshot, command: MoveOn) -> Decision:
    """Answer a waiting caller with the state of its request; if it has blocked the task, serve it another one."""
    case, _, stand = _request(situation, command.request)
    origin = case.task.spec.origin
    if origin is None or (origin.task, origin.token, origin.agent) != (command.task, command.token, command.agent):
        raise Refused("unknown_request", f"{command.request} is not a request of {command.task}", where="request")
    if stand.moved_on:
        return Decision(_given(situation, command))
    ended = situation.attempts.get((command.task, command.token))
    if ended is not None and ended.outcome == BLOCKED and stand.blocked_at is None:
        # Another request of the same attempt has blocked the task: the caller that waits for this one goes on, too.
        out = TaskChange(replace(case, task=with_stand(case.task, replace(stand, moved_on=True))))
        return _something_else(situation, command, [out])
    if case.lease is not None and case.lease.agent not in situation.found.get(target(command.request), ()):
        return Decision(RequestStands(case.task.state, stand.due))  # it was taken only now: ask again
    outcomes = passes(case, situation.cases.get(command.task), situation.now, waiter=True)
    health = charged(outcomes, situation.health, situation.now)
    out = outcomes[0]
    stand = out.case.task.record.request or stand
    if stand.blocked_at is None:
        return Decision(RequestStands(out.case.task.state, stand.due), outcomes=outcomes, health=health)
    out.case = replace(out.case, task=with_stand(out.case.task, replace(stand, moved_on=True)))
    decision = _something_else(situation, command, outcomes)
    decision.health = health
    return decision


def _something_else(situation: RowSnapshot, command: MoveOn, outcomes: Sequence[TaskChange]) -> Decision:
    """What follows the block: a claim, which tells of the block, if that has ended the attempt only now."""
    if not command.claims:
        return Decision([], outcomes=outcomes)
    told = None
    for blocked in outcomes[1:]:
        if blocked.attempts:
            (told,) = blocked.events
            blocked.events = []
    claim = _claim(situation, command)
    if told is None and (given := _given(situation, command)):
        return Decision(given, outcomes=outcomes)
    check_claim(claim)
    return Decision(outcomes=outcomes, claim=replace(claim, after=told))


def _claim(situation: RowSnapshot, command: MoveOn) -> Claim:
    roles = command.roles
    if roles is None:
        roles = (situation.case(command.task).task.role,)
    return Claim(_next(command), command.agent, roles, 1, command.length, command.outside)


def _given(situation: RowSnapshot, command: MoveOn) -> object:
    """What it was given before and still has, or nothing."""
    if not command.claims:
        return []
    before = decide_claim(situation, _claim(situation, command))
    return [] if before.claim is not None else before.answer


def _next(command: MoveOn) -> CommandId:
    """Of one attempt, whichever of its requests is asked about: it is given one task to go on with."""
    return CommandId(f"next.{command.task}.{command.token}")


def _names(command: MoveOn) -> ReadSet:
    both, searches = (command.task, command.request), [target(command.request)]
    if command.claims:
        searches.append(RowSearch("claimed", _next(command)))
    return ReadSet(held=both, agents=(command.agent,), searches=searches)


def _names_given(command: MoveOn, found: Mapping[RowSearch, Sequence[str]]) -> ReadSet:
    given = [*map(TaskId, found.get(RowSearch("claimed", _next(command)), ()))]
    return ReadSet(held=given, payloads=given, health=concerned(found.get(target(command.request), ())))


def _names_of_listing(command: NoteListed) -> ReadSet:
    return ReadSet(held=command.requests)


def _names_of_answer(command: Respond | Decline) -> ReadSet:
    return ReadSet(held=(command.request, asker_of(command.request)), health=(family(command.agent),))


RULES = (
    Rule(Respond, respond, _names_of_answer),
    Rule(Decline, decline, _names_of_answer),
    Rule(NoteListed, note_listed, _names_of_listing),
    Rule(MoveOn, move_on, _names, _names_given, past_of, last=True),
)
