"""What commands make of a service: may it be called, what came of it, and what a human says (F5, F8).

The machine is `breaker.py`, the row `service.py`. What stands here is around them: each command is decided
under the row's lock, with the events and the one question that follow.

**Commands can be repeated.** The row knows the last command that changed it. A probe that was given out is given out
again to the command that got it; a failure is counted once. All else is fenced by the generation.

**One question.** A transaction that asks, answers or withdraws it holds the service's lock, so that lock covers its
questions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from allswell.domain.duration import show
from allswell.domain.ids import NO_COMMAND, CommandId, Millis, QuestionId, service_question_id
from allswell.domain.lease.cost import BUDGET, budget_answered, is_budget, said
from allswell.domain.question import SERVICE_OPTIONS, AnswerAction, Option, Question
from allswell.domain.rules.command import Admit, Answer, AskForHelp, Park, Report, Unpark
from allswell.domain.rules.event import Event
from allswell.domain.rules.rule import Decision, ReadSet, RowReads, RowSnapshot, Rule
from allswell.domain.service import breaker
from allswell.domain.service.breaker import BreakerChange, BreakerNotice, BreakerPolicy, CallRefused, Permit, Service
from allswell.domain.service.classify import shortened
from allswell.domain.service.retry import ErrorClass
from allswell.domain.service.service import ServiceRow, open_question, park, question_about, shut
from allswell.domain.task.answer import choice_of, closed_with, withdraw
from allswell.errors import Bug, Refused

# What only a human can mend about a service: a key that is refused, a quota that is used up, a limit without end (F7).
#
# A guard that gives up for such a cause asks, once per service and cause, however many calls and processes meet it: the
# service's row knows which question is open about which cause. It is no failure of the service and moves no breaker.
#
# **An account of agents is held.** A supervisor asks the same way about an account whose provider refuses it. There one
# refusal would meet every task, so its agents get nothing to do before the answer (`ServiceRow.holds`); a human who
# puts the answer off keeps the account unused for that long.
#
# The question stays until it is answered. It is not withdrawn when a call goes well: two programs with two keys
# share a service, and a question that came and went with each of their calls would be worse than one too many.

ESCALATION = "service_needs_help"
"""The kind of the question about a cause."""
QUIET = 3_600_000
"""For so long no question is asked about a cause that a human has put off."""
_MESSAGE_SHOWN = 300
AGAIN = "limited again"
"""Why a supervisor asks about an account that is tried again by itself."""

WHAT: dict[ErrorClass, str] = {
    ErrorClass.AUTH: "refuses who we say we are",
    ErrorClass.PERMANENT: "refuses this account (a quota, a suspension, a certificate)",
    ErrorClass.RATE_LIMIT: "goes on saying that it is called too often",
}
OPTIONS = (
    Option("mended", "It is fixed: go on, and ask again if it happens again", AnswerAction.PROBE),
    Option("later", "Ask again in an hour, if it still happens", AnswerAction.QUIET),
)
ACCOUNT: dict[ErrorClass, tuple[str, str]] = {
    ErrorClass.AUTH: ("the login is refused", "Log in again, or give its agents another key; then answer."),
    ErrorClass.PERMANENT: ("the provider refuses the account", "See to its quota, payment or plan; then answer."),
    ErrorClass.RATE_LIMIT: ("the account is limited again and again", "See whether its limit is what you expect."),
}
"""What is asked about an account of agents, and what a human can do about it."""
ACCOUNT_OPTIONS = (
    Option("mended", "It is fixed: give its agents tasks again", AnswerAction.PROBE),
    Option("later", "Leave this account alone for an hour, then try it again", AnswerAction.QUIET),
)


def ask(
    row: ServiceRow, command: AskForHelp, now: Millis
) -> tuple[ServiceRow, Question | None, tuple[Event, ...]] | None:
    """The question about a cause; None where one is open, or a human wants to hear of it later."""
    if command.cause not in WHAT:
        raise Refused("bad_cause", f"{command.cause} is not a problem that only a human can fix", where="cause")
    cause = command.cause.value
    holds = (*row.holds, cause) if command.holds and cause not in row.holds else row.holds
    if cause in row.causes:  # asked about already, perhaps by a guard, which holds no task back
        return None if holds == row.holds else (replace(row, holds=holds, command=command.id), None, ())
    if now < row.quiet.get(cause, 0):
        return None
    number = row.questions + 1
    said = shortened(command.message).strip()
    said = said if len(said) <= _MESSAGE_SHOWN else said[:_MESSAGE_SHOWN] + "…"
    about_account = cause in holds or command.reason == AGAIN
    options = ACCOUNT_OPTIONS if about_account else OPTIONS
    text = _about_account(row.id, command, said) if about_account else _about_calls(row.id, command, said)
    question = Question(service_question_id(row.id, number), None, None, ESCALATION, text, options, now, "allswell")
    failing = row.questions if row.state.asked and not row.failing else row.failing
    causes = {**row.causes, cause: number}
    asked = replace(row, questions=number, failing=failing, causes=causes, holds=holds, command=command.id)
    about = {"question": question.id, "kind": ESCALATION, "text": text, "options": [option.label for option in options]}
    told = {"service": row.id, "cause": cause, "reason": command.reason, "question": question.id}
    return asked, question, (Event("service_escalated", data=told), Event("question_asked", data=about))


def _about_calls(service: str, command: AskForHelp, said: str) -> str:
    quote = f" ({said})" if said else ""
    return f"Service {service} {WHAT[command.cause]}{quote}. Calls that meet this are given up. How should we proceed?"


def _about_account(account: str, command: AskForHelp, said: str) -> str:
    """One question for all tasks of an account."""
    trouble, advice = ACCOUNT[command.cause]
    quote = f" ({said})" if said else ""
    meanwhile = (
        "Its agents get no tasks before you answer, and no attempt is used up."
        if command.holds
        else "It is tried again by itself, and no attempt is used up."
    )
    return f"Account {account}: {trouble}{quote}. {meanwhile} {advice}"


def answered(row: ServiceRow, question: QuestionId, option: Option, now: Millis) -> ServiceRow:
    """The row after a human's answer about a cause."""
    asked = {service_question_id(row.id, number): cause for cause, number in row.causes.items()}
    if question not in asked:
        raise Bug(f"question {question} is open, and its service knows nothing of it")
    cause = asked[question]
    causes = {name: number for name, number in row.causes.items() if name != cause}
    quiet = {name: until for name, until in row.quiet.items() if name != cause}
    held = cause in row.holds
    if option.act is AnswerAction.QUIET:
        quiet[cause] = Millis(now + QUIET)
        row = park(row, quiet[cause]) if held else row
    elif held or cause == ErrorClass.RATE_LIMIT:
        held = True  # it was parked by that limit, or while its client tried again
        row = replace(row, state=replace(row.state, parked_until=None))
    holds = tuple(name for name in row.holds if name != cause)
    return replace(row, causes=causes, quiet=quiet, holds=holds, since=now if held else row.since)


KIND = "service_failing"
"""The kind of the question about a service."""


class ServiceReply(msgspec.Struct, frozen=True, gc=False):
    """The answer to a caller: how the service stands now, and how long the caller has to wait."""

    state: Service
    wait: Millis | None
    """When to ask again; 0 if a call may go now, None while a human is waited for."""
    effects: tuple[BreakerNotice, ...] = ()
    given: Permit | CallRefused | None = None


class ServiceDecision(msgspec.Struct, frozen=True, gc=False):
    """What a command makes of a service; a row that is the same object has not changed."""

    row: ServiceRow
    answer: object
    events: tuple[Event, ...] = ()
    asked: Question | None = None
    closed: Question | None = None


def admit(row: ServiceRow, question: Question | None, command: Admit, now: Millis) -> ServiceDecision:
    """Let one call through, or say when to ask again."""
    state = row.state
    if _is_repeated(row, command.id) and state.probe_until is not None and now < state.probe_until:
        again = Permit(row.id, state.generation, probe=True)
        return ServiceDecision(row, ServiceReply(state, breaker.pause_left(state, now), (), again))
    given, change = breaker.admit(row.id, state, command.policy, now)
    decided = _decide(row, question, change, command, now)
    told = ServiceReply(change.service, breaker.pause_left(change.service, now), change.effects, given)
    events = decided.events
    if isinstance(given, Permit) and given.probe:
        events = (*events, _event("breaker_probe", row.id, lease_ms=command.policy.probe_lease))
    return replace(decided, answer=told, events=events)


def report(row: ServiceRow, question: Question | None, command: Report, now: Millis) -> ServiceDecision:
    """Take a permit back with what came of it."""
    state = row.state
    if _is_repeated(row, command.id):
        return ServiceDecision(row, ServiceReply(state, breaker.pause_left(state, now)))
    change = breaker.report(state, command.policy, command.permit, command.outcome, now)
    told = ServiceReply(change.service, breaker.pause_left(change.service, now), change.effects)
    return replace(_decide(row, question, change, command, now), answer=told)


def pause(row: ServiceRow, command: Park, now: Millis) -> ServiceDecision:
    """All callers wait, because the service asked one of them to."""
    parked = row if _is_repeated(row, command.id) else park(row, Millis(now + command.delay))
    told = ServiceReply(parked.state, breaker.pause_left(parked.state, now))
    if parked is row:
        return ServiceDecision(row, told)
    said = _event("service_parked", row.id, until=parked.state.parked_until)
    return ServiceDecision(replace(parked, command=command.id), told, (said,))


def unpark(row: ServiceRow, command: Unpark, now: Millis) -> ServiceDecision:
    """End the pause of a service, because a human knows better than what it said; a question is answered instead."""
    if _is_repeated(row, command.id):
        return ServiceDecision(row, None)
    if is_budget(row.id):
        raise Refused("not_parked", f"{said(row.id)} is a budget; answer the question about it", where="service")
    if shut(row, now) is None:
        raise Refused("not_parked", f"{row.id} is not parked: it can be called", where="service")
    if (asked := question_about(row)) is not None and shut(replace(row, state=breaker.unpark(row.state, now)), now):
        text = f"{row.id} waits for an answer to {asked}"
        raise Refused("not_parked", text, where="service", hint=f"`allswell why {asked}` lists the answers")
    told = _event("service_unparked", row.id, by=command.by)
    changed = replace(row, state=breaker.unpark(row.state, now), since=now, command=command.id)
    return ServiceDecision(changed, None, (told,))


def answer(row: ServiceRow, question: Question, command: Answer, now: Millis) -> ServiceDecision:
    """Carry out a human's choice."""
    option = choice_of(question, command)
    if option is None:
        return ServiceDecision(row, question.id)
    if question.kind == BUDGET:
        after = budget_answered(row, option, now)
    elif question.kind == ESCALATION:
        after = answered(row, question.id, option, now)
    else:
        after = replace(row, state=_state_after(row.state, question, option, now))
    closed = closed_with(question, option, command, now)
    said = Event("question_answered", data={"question": question.id, "choice": option.key, "by": command.by})
    return ServiceDecision(replace(after, command=command.id), question.id, (said,), closed=closed)


def _state_after(state: Service, question: Question, option: Option, now: Millis) -> Service:
    match option.act:
        case AnswerAction.PROBE:
            return breaker.answered(state, now)
        case AnswerAction.WAIT:
            return breaker.acknowledged(state, now)
        case _:
            raise Bug(f"question {question.id} offers {option.act}, which no service can do")


def ask_for_help(row: ServiceRow, command: AskForHelp, now: Millis) -> ServiceDecision:
    """Ask a human about what only a human can mend, unless that is asked already."""
    made = None if _is_repeated(row, command.id) else ask(row, command, now)
    told = ServiceReply(row.state, breaker.pause_left(row.state, now))
    if made is None:
        return ServiceDecision(row, told)
    changed, question, events = made
    return ServiceDecision(changed, told, events, asked=question)


def _is_repeated(row: ServiceRow, command: CommandId) -> bool:
    return row.command == command != NO_COMMAND


def _event(kind: str, service: str, **data: object) -> Event:
    return Event(kind, data={"service": service, **data})


def _decide(
    row: ServiceRow, question: Question | None, change: BreakerChange, command: Admit | Report, now: Millis
) -> ServiceDecision:
    """The row after a step of the machine, with what its effects come to."""
    before, after, policy = row.state, change.service, command.policy
    if after == before:
        return ServiceDecision(row, None)
    since = row.since
    if (before.open_until is None) != (after.open_until is None):
        since = now
    elif before.parked_until is not None and after.parked_until is None:
        since = max(since, before.parked_until)
    events: list[Event] = []
    asked = closed = None
    for effect in change.effects:
        match effect:
            case BreakerNotice.OPENED:
                said = {"failures": after.failures, "pause_ms": policy.pause}
                events.append(_event("breaker_opened", row.id, **said))
            case BreakerNotice.CLOSED:
                events.append(_event("breaker_closed", row.id, shut_ms=now - row.since))
            case BreakerNotice.ASK:
                asked = _ask(row, after, policy, now)
                labels = [option.label for option in asked.options]
                about = {"question": asked.id, "kind": asked.kind, "text": asked.text, "options": labels}
                events.append(_event("breaker_escalated", row.id, failures=after.failures, question=asked.id))
                events.append(Event("question_asked", data=about))
            case BreakerNotice.WITHDRAW:
                if question is None:
                    raise Bug(f"the question about {row.id} is open and was not read")
                closed = withdraw(question, now)
                events.append(Event("question_withdrawn", data={"question": question.id}))
    number = row.questions + (asked is not None)
    failing = number if asked is not None else row.failing
    changed = replace(row, state=after, questions=number, since=since, command=command.id, failing=failing)
    return ServiceDecision(changed, None, tuple(events), asked, closed)


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


def decision(decided: ServiceDecision) -> Decision:
    """What is decided about a service, for the one place that writes it."""
    return Decision(
        decided.answer,
        events=decided.events,
        services=(decided.row,),
        asked=() if decided.asked is None else (decided.asked,),
        closed=() if decided.closed is None else (decided.closed,),
    )


def _asked(situation: RowSnapshot, row: ServiceRow) -> Question | None:
    """The question that is open about a service's failures."""
    id_ = open_question(row)
    return None if id_ is None else situation.questions.get(id_)


def _admit(situation: RowSnapshot, command: Admit) -> Decision:
    row = situation.service(command.service)
    return decision(admit(row, _asked(situation, row), command, situation.now))


def _report(situation: RowSnapshot, command: Report) -> Decision:
    row = situation.service(command.permit.service)
    return decision(report(row, _asked(situation, row), command, situation.now))


def _alone(decide: Callable[[ServiceRow, Any, Millis], ServiceDecision]) -> Callable[[RowSnapshot, Any], Decision]:
    """A rule that is about a service's row and nothing else."""
    return lambda situation, command: decision(decide(situation.service(command.service), command, situation.now))


def _names(command: Admit | Park | Unpark | AskForHelp) -> ReadSet:
    return ReadSet(services=(command.service,))


def _reads(command: Admit | Report, situation: RowSnapshot) -> RowReads | None:
    """The open question about the service, whose lock covers it."""
    row = situation.services.get(command.permit.service if isinstance(command, Report) else command.service)
    id_ = None if row is None else open_question(row)
    return None if id_ is None else RowReads(questions=(id_,))


RULES = (
    Rule(Admit, _admit, _names, reads=_reads),
    Rule(Report, _report, lambda command: ReadSet(services=(command.permit.service,)), reads=_reads),
    Rule(Park, _alone(pause), _names),
    Rule(Unpark, _alone(unpark), _names),
    Rule(AskForHelp, _alone(ask_for_help), _names),
)
