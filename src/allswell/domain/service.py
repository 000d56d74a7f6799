"""A service as a store keeps it: its breaker, shared by every process, and what was asked about it (F5, F8).

The machine is `domain.breaker`. What stands here is around it: one row per service, the commands that move it, each
decided under the row's lock, the events and the one question that follow, and when the row lets claims through.

**A row is made by the first thing that is held against a service, and stays.** Its generation must not begin anew, or
a permit from before would count again. A service that nothing was ever held against has no row, and a row in which
nothing is held changes by no success.

**Commands can be repeated.** The row knows the last command that changed it. A probe that was given out is given out
again to the command that got it; a failure is counted once. All else is fenced by the generation.

**One question.** A row with `asked` set has exactly one open question, the last that was asked about it. Everybody who
asks, answers or withdraws it holds the service's lock, so that lock covers its questions.

**Reopening is staggered.** When a service may be used again, its agents are let in one after the other within
`REOPENING`, each at a place of its own that follows from its name: nothing has to be counted, or written, for that.
"""

from __future__ import annotations

from zlib import crc32

import msgspec
from msgspec.structs import replace

from allswell.domain import breaker
from allswell.domain.answer import TEXT_MAX, withdraw
from allswell.domain.breaker import CLEAN, BreakerPolicy, Change, Effect, Permit, Refusal, Service, Stand
from allswell.domain.command import Admit, Answer, Park, Report
from allswell.domain.duration import show
from allswell.domain.event import Event
from allswell.domain.names import NO_COMMAND, AgentId, CommandId, Millis, QuestionId, service_question_id
from allswell.domain.question import SERVICE_OPTIONS, Act, Question, choose
from allswell.domain.submit import check_name, check_text
from allswell.errors import Bug, Refused

KIND = "service_failing"
"""The kind of the question about a service."""
REOPENING = 5_000
"""Agents that wait for a service come back within so many milliseconds of one another, not all at once."""


class ServiceRow(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One service: how it stands, and what has been asked about it."""

    id: str
    state: Service = CLEAN
    questions: int = 0
    """How many were asked about it so far."""
    since: Millis = Millis(0)
    """When it was shut or, if it is not, when it was last opened again."""
    command: CommandId = NO_COMMAND
    """The last one that changed the row."""


class Told(msgspec.Struct, frozen=True, gc=False):
    """What a caller is told: how the service stands now, and how long it has to be waited for."""

    state: Service
    wait: Millis | None
    """When to ask again; 0 if a call may go now, None while a human is waited for."""
    effects: tuple[Effect, ...] = ()
    given: Permit | Refusal | None = None


class Decided(msgspec.Struct, frozen=True, gc=False):
    """What a command makes of a service; a row that is the same object has not changed."""

    row: ServiceRow
    answer: object
    events: tuple[Event, ...] = ()
    asked: Question | None = None
    closed: Question | None = None


def _check_policy(policy: BreakerPolicy) -> None:
    broken = [text for holds, text in breaker.breaker_rules(policy) if not holds]
    if broken:
        raise Refused("bad_policy", "impossible policy: " + "; ".join(broken), where=broken[0].split(" ", 1)[0])


def admit(row: ServiceRow, question: Question | None, command: Admit, now: Millis) -> Decided:
    """Let one call through, or say when to ask again."""
    _check_policy(command.policy)
    state = row.state
    if _is_repeated(row, command.id) and state.probe_until is not None and now < state.probe_until:
        again = Permit(row.id, state.generation, probe=True)
        return Decided(row, Told(state, breaker.pause_left(state, now), (), again))
    given, change = breaker.admit(row.id, state, command.policy, now)
    decided = _decide(row, question, change, command, now)
    told = Told(change.service, breaker.pause_left(change.service, now), change.effects, given)
    events = decided.events
    if isinstance(given, Permit) and given.probe:
        events = (*events, _event("breaker_probe", row.id, lease_ms=command.policy.probe_lease))
    return replace(decided, answer=told, events=events)


def report(row: ServiceRow, question: Question | None, command: Report, now: Millis) -> Decided:
    """Take a permit back with what came of it."""
    _check_policy(command.policy)
    state = row.state
    if _is_repeated(row, command.id):
        return Decided(row, Told(state, breaker.pause_left(state, now)))
    change = breaker.report(state, command.policy, command.permit, command.outcome, now)
    told = Told(change.service, breaker.pause_left(change.service, now), change.effects)
    return replace(_decide(row, question, change, command, now), answer=told)


def park(row: ServiceRow, until: Millis) -> ServiceRow:
    """The service parked until then, or longer where it already was."""
    state = breaker.park(row.state, until)
    return row if state == row.state else replace(row, state=state)


def pause(row: ServiceRow, command: Park, now: Millis) -> Decided:
    """Everybody waits, because a caller was told to."""
    if command.delay < 0:
        raise Refused("bad_delay", f"a service cannot be parked for {command.delay} ms", where="delay")
    parked = row if _is_repeated(row, command.id) else park(row, Millis(now + command.delay))
    told = Told(parked.state, breaker.pause_left(parked.state, now))
    if parked is row:
        return Decided(row, told)
    said = _event("service_parked", row.id, until=parked.state.parked_until)
    return Decided(replace(parked, command=command.id), told, (said,))


def answer(row: ServiceRow, question: Question, command: Answer, now: Millis) -> Decided:
    """Carry out a human's choice."""
    if question.closed_at is not None:
        if question.command == command.id:
            return Decided(row, question.id)
        raise Refused("closed", f"question {question.id} is closed: {question.choice}", where="question")
    option = choose(question, command.option)
    check_text(command.text, "text", TEXT_MAX)
    if command.by:
        check_name(command.by, "by")
    match option.act:
        case Act.PROBE:
            state = breaker.answered(row.state, now)
        case Act.WAIT:
            state = breaker.acknowledged(row.state, now)
        case _:
            raise Bug(f"question {question.id} offers {option.act}, which no service can do")
    closed = replace(
        question,
        closed_at=now,
        choice=option.key,
        answer=command.text,
        answered_by=command.by,
        command=command.id,
    )
    said = Event("question_answered", data={"question": question.id, "choice": option.key, "by": command.by})
    return Decided(replace(row, state=state, command=command.id), question.id, (said,), closed=closed)


def _is_repeated(row: ServiceRow, command: CommandId) -> bool:
    return row.command == command != NO_COMMAND


def _event(kind: str, service: str, **data: object) -> Event:
    return Event(kind, data={"service": service, **data})


def _decide(
    row: ServiceRow, question: Question | None, change: Change, command: Admit | Report, now: Millis
) -> Decided:
    """The row after a step of the machine, with what its effects come to."""
    before, after, policy = row.state, change.service, command.policy
    if after == before:
        return Decided(row, None)
    since = row.since
    if (before.open_until is None) != (after.open_until is None):
        since = now
    elif before.parked_until is not None and after.parked_until is None:
        since = max(since, before.parked_until)
    events: list[Event] = []
    asked = closed = None
    for effect in change.effects:
        match effect:
            case Effect.OPENED:
                said = {"failures": after.failures, "pause_ms": policy.pause}
                events.append(_event("breaker_opened", row.id, **said))
            case Effect.CLOSED:
                events.append(_event("breaker_closed", row.id, shut_ms=now - row.since))
            case Effect.ASK:
                asked = _ask(row, after, policy, now)
                labels = [option.label for option in asked.options]
                about = {"question": asked.id, "kind": asked.kind, "text": asked.text, "options": labels}
                events.append(_event("breaker_escalated", row.id, failures=after.failures, question=asked.id))
                events.append(Event("question_asked", data=about))
            case Effect.WITHDRAW:
                if question is None:
                    raise Bug(f"the question about {row.id} is open and was not read")
                closed = withdraw(question, now)
                events.append(Event("question_withdrawn", data={"question": question.id}))
    changed = ServiceRow(row.id, after, row.questions + (asked is not None), since, command.id)
    return Decided(changed, None, tuple(events), asked, closed)


def _ask(row: ServiceRow, state: Service, policy: BreakerPolicy, now: Millis) -> Question:
    meanwhile = (
        "Nothing calls it until you answer."
        if state.held
        else f"One call every {show(policy.pause)} tries it; whatever else needs it waits."
    )
    text = f"Service {row.id} has failed {state.failures} times in a row. {meanwhile} How should we proceed?"
    id_ = service_question_id(row.id, row.questions + 1)
    return Question(id_, None, None, KIND, text, SERVICE_OPTIONS, now, "allswell")


def open_question(row: ServiceRow) -> QuestionId | None:
    """The id of the question that is open about a service."""
    return service_question_id(row.id, row.questions) if row.state.asked else None


# --- claims -----------------------------------------------------------------------------------------------------------


class Shut(msgspec.Struct, frozen=True, gc=False):
    """Why a service lets nobody in."""

    stand: Stand | str
    """`parked`, or where its breaker stands."""
    until: Millis | None
    """When it is asked again; None while a human is waited for."""


def shut(row: ServiceRow, now: Millis) -> Shut | None:
    """Whether, why and until when a service is shut; what is half-open is not: somebody has to be the probe."""
    state = row.state
    if state.parked_until is not None and state.parked_until > now:
        return Shut("parked", state.parked_until)
    where = breaker.stand(state, now)
    match where:
        case Stand.OPEN:
            return Shut(where, state.open_until)
        case Stand.HELD:
            return Shut(where, None)
        case Stand.PROBING if state.probe_until is not None and state.probe_until > now:
            return Shut(where, state.probe_until)
        case _:
            return None  # a probe whose lease is over has failed, as the next caller will find


def opened_at(row: ServiceRow) -> Millis:
    """When a service that is not shut was opened again; 0 if it always was open."""
    state = row.state
    return max(
        row.since, *(moment or Millis(0) for moment in (state.parked_until, state.open_until, state.probe_until))
    )


def lets_in(row: ServiceRow, agent: AgentId, now: Millis) -> bool:
    """Whether an agent may be given a task that needs this service."""
    if shut(row, now) is not None:
        return False
    opened = opened_at(row)
    return not opened or now >= opened + crc32(f"{row.id} {agent}".encode()) % REOPENING
