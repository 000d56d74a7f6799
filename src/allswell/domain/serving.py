"""What commands make of a service: may it be called, what came of it, and what a human says (F5, F8).

The machine is `domain.breaker`, the row `domain.service`. What stands here is around them: each command is decided
under the row's lock, with the events and the one question that follow.

**Commands can be repeated.** The row knows the last command that changed it. A probe that was given out is given out
again to the command that got it; a failure is counted once. All else is fenced by the generation.

**One question.** Whoever asks, answers or withdraws it holds the service's lock, so that lock covers its questions.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from allswell.domain import breaker, escalation
from allswell.domain.answer import choice_of, closed_with, withdraw
from allswell.domain.breaker import BreakerPolicy, Change, Effect, Permit, Refusal, Service
from allswell.domain.command import Admit, Answer, AskForHelp, Park, Report
from allswell.domain.decision import Decision
from allswell.domain.duration import show
from allswell.domain.event import Event
from allswell.domain.names import NO_COMMAND, CommandId, Millis, service_question_id
from allswell.domain.paying import BUDGET, budget_answered
from allswell.domain.question import SERVICE_OPTIONS, Act, Option, Question
from allswell.domain.rule import Names, Reads, Rule
from allswell.domain.service import ServiceRow, open_question, park
from allswell.domain.situation import Situation
from allswell.domain.submit import check_name
from allswell.errors import Bug, Refused

KIND = "service_failing"
"""The kind of the question about a service."""


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
    option = choice_of(question, command)
    if option is None:
        return Decided(row, question.id)
    if question.kind == BUDGET:
        after = budget_answered(row, option, now)
    elif question.kind == escalation.KIND:
        after = escalation.answered(row, question.id, option, now)
    else:
        after = replace(row, state=_state_after(row.state, question, option, now))
    closed = closed_with(question, option, command, now)
    said = Event("question_answered", data={"question": question.id, "choice": option.key, "by": command.by})
    return Decided(replace(after, command=command.id), question.id, (said,), closed=closed)


def _state_after(state: Service, question: Question, option: Option, now: Millis) -> Service:
    match option.act:
        case Act.PROBE:
            return breaker.answered(state, now)
        case Act.WAIT:
            return breaker.acknowledged(state, now)
        case _:
            raise Bug(f"question {question.id} offers {option.act}, which no service can do")


def ask_for_help(row: ServiceRow, command: AskForHelp, now: Millis) -> Decided:
    """Ask a human about what only a human can mend, unless that is asked already."""
    made = None if _is_repeated(row, command.id) else escalation.ask(row, command, now)
    told = Told(row.state, breaker.pause_left(row.state, now))
    if made is None:
        return Decided(row, told)
    asked, question, events = made
    return Decided(asked, told, events, asked=question)


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
    number = row.questions + (asked is not None)
    failing = number if asked is not None else row.failing
    changed = replace(row, state=after, questions=number, since=since, command=command.id, failing=failing)
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


# --- the commands -----------------------------------------------------------------------------------------------------


def decision(decided: Decided) -> Decision:
    """What is decided about a service, for whoever enters it."""
    return Decision(
        decided.answer,
        events=decided.events,
        services=(decided.row,),
        asked=() if decided.asked is None else (decided.asked,),
        closed=() if decided.closed is None else (decided.closed,),
    )


def _row(situation: Situation, service: str) -> ServiceRow:
    check_name(service, "service")
    return situation.service(service)


def _asked(situation: Situation, row: ServiceRow) -> Question | None:
    """The question that is open about a service's failures."""
    id_ = open_question(row)
    return None if id_ is None else situation.questions.get(id_)


def _admit(situation: Situation, command: Admit) -> Decision:
    row = _row(situation, command.service)
    return decision(admit(row, _asked(situation, row), command, situation.now))


def _report(situation: Situation, command: Report) -> Decision:
    row = _row(situation, command.permit.service)
    return decision(report(row, _asked(situation, row), command, situation.now))


def _pause(situation: Situation, command: Park) -> Decision:
    return decision(pause(_row(situation, command.service), command, situation.now))


def _ask_for_help(situation: Situation, command: AskForHelp) -> Decision:
    return decision(ask_for_help(_row(situation, command.service), command, situation.now))


def _names(command: Admit | Park | AskForHelp) -> Names:
    return Names(services=(command.service,))


def _names_of_report(command: Report) -> Names:
    return Names(services=(command.permit.service,))


def _reads(command: Admit | Report, situation: Situation) -> Reads | None:
    """The open question about the service, whose lock covers it."""
    row = situation.services.get(command.permit.service if isinstance(command, Report) else command.service)
    id_ = None if row is None else open_question(row)
    return None if id_ is None else Reads(questions=(id_,))


RULES = (
    Rule(Admit, _admit, _names, reads=_reads),
    Rule(
        Report,
        _report,
        _names_of_report,
        reads=_reads,
    ),
    Rule(Park, _pause, _names),
    Rule(AskForHelp, _ask_for_help, _names),
)
