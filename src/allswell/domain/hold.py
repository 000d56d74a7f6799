"""What a holder may say: check in, complete, fail, release, ask. Every word carries its token.

A holder whose token is not the current one, or whose lease has run out even if no sweeper has noticed yet, changes
nothing. What it said is kept with its ended attempt (late.py), and the caller is told `LeaseLost`. A command that was
already carried out is recognised by its id and answered as before.

A check-in reads its lease alone. Where that says no, it is said again as `CheckInAgain`, with all rows in sight: it may
be late, and is kept then, or the clock of its run may have stood.
"""

from __future__ import annotations

from typing import assert_never

import msgspec
from msgspec.structs import replace

from allswell.domain.case import (
    Asked,
    Case,
    Outcome,
    ask,
    come_to_rest,
    due_of,
    end_attempt,
    end_task,
    event,
    run_of,
)
from allswell.domain.checkin import check_progress
from allswell.domain.checkpoint import progress_in
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
    Verified,
)
from allswell.domain.event import Event
from allswell.domain.flow import leave
from allswell.domain.late import is_news, kept, why_over
from allswell.domain.lease import Lease, ends_at, is_asked
from allswell.domain.names import NO_COMMAND, Millis, question_id
from allswell.domain.question import BY_AGENT, ESCALATION_OPTIONS, REPLY, SERVICE_ACTS, Act, Option
from allswell.domain.redelivery import put_off
from allswell.domain.request import delegate, send
from allswell.domain.retry import Again, Escalate, Failure, GiveUp, Weather, judge
from allswell.domain.run import Run
from allswell.domain.submit import check_name, check_text
from allswell.domain.task import OPEN, State
from allswell.domain.tick import end_idle, recover, tick
from allswell.domain.verification import judge_work, say_done, verify_of
from allswell.errors import LeaseLost, Refused, TimeUp

NOTE_MAX = 16_384
QUESTION_MAX = 16_384
_CAUSE = 160
"""Characters of an error's message that are repeated where it ends a task; the attempt has all of it."""
_DONE = State.DONE


class Orders(msgspec.Struct, frozen=True, gc=False):
    """What the holder should know and do now; every answer to it carries them."""

    remaining_ms: int
    asked: bool
    """A check-in is owed."""
    deadline: Millis = Millis(0)
    """The attempt's limit as it is now."""
    by_run: bool = False
    """Whether that is the limit of its run, which moves while the run's clock stands."""


class CheckedIn(msgspec.Struct, frozen=True, gc=False):
    """A check-in's outcome: the lease as it shall be, and the agent's record cleared if `answered`."""

    lease: Lease
    orders: Orders
    event: Event | None
    answered: bool


def check_in(lease: Lease | None, said: CheckIn, now: Millis) -> CheckedIn:
    """Renew a lease, and note progress where it was proved. Reads the lease alone: it is the hottest write of all."""
    if lease is None or lease.token != said.token or lease.agent != said.agent:
        raise LeaseLost(said.task, said.token, _why_lost(lease, said.token, said.agent))
    if now >= ends_at(lease):
        raise TimeUp(said.task, said.token, "its time ran out")
    if not said.proof:
        renewed = replace(lease, renewed_at=now)
        return CheckedIn(renewed, _orders(lease, now, asked=is_asked(lease, now)), None, answered=False)
    if said.note:
        check_text(said.note, "note", NOTE_MAX)
    check_progress(said.progress)
    progress = said.progress
    if progress is None and said.note:
        progress = progress_in(said.note)
    renewed = replace(
        lease,
        renewed_at=now,
        checkin_at=now,
        stalled_at=None,
        progress=lease.progress if progress is None else progress,
        note=said.note or lease.note,
    )
    told = None
    if said.note:
        data = {"note": said.note, "progress": renewed.progress}
        told = Event("task_checked_in", lease.task, None, lease.agent, lease.token, data)
    return CheckedIn(renewed, _orders(lease, now, asked=False), told, answered=True)


def _orders(lease: Lease, now: Millis, *, asked: bool) -> Orders:
    return Orders(lease.deadline - now, asked, lease.deadline, lease.own is not None)


def hold(case: Case, command: HolderCommand, now: Millis, draw: float, run: Run | None = None) -> Outcome:
    """Decide a holder's word on its task; `run` is the task's, where it was read."""
    out = Outcome(case, answer=case.task.id, run=run)
    if not isinstance(command, Complete):  # most words are, and what something is, is told sooner than what it is not
        record = case.task.record
        if isinstance(command, Ask) and record.asked_by == command.id:
            out.answer = question_id(case.task.id, record.questions)
            return out
        if isinstance(command, Keep):
            return _keep(out, command)
    lease = case.lease
    if lease is not None and now >= ends_at(lease) and lease.agent == command.agent:
        out = tick(case, now, run)
        lease = out.case.lease
    if lease is None or lease.token != command.token or lease.agent != command.agent:
        return _too_late(out, command, now)
    _carry_out(out, lease, command, now, draw)
    return out


def _carry_out(
    out: Outcome,
    lease: Lease,
    command: Complete | Verified | Fail | Release | Recover | EndIdle | Ask | Delegate | SendRequest | CheckInAgain,
    now: Millis,
    draw: float,
) -> None:
    """What the holder of the task says, done."""
    match command:
        case Complete():
            _complete(out, lease, command, now)
        case Verified():
            judge_work(out, lease, command, now)
        case Fail():
            check_text(command.failure.message, "message", NOTE_MAX)
            _fail(out, lease, command, now, draw)
        case Release():
            check_text(command.reason, "reason", NOTE_MAX)
            _give_back(out, command, now)
            out.events.append(event(out.case.task, "task_returned", lease, reason=command.reason))
        case Recover() | EndIdle():
            _take_back(out, lease, command, now)
            return
        case Ask():
            _ask(out, lease, command, now)
        case Delegate():
            delegate(out, lease, command, now)
        case SendRequest():
            send(out, lease, command, now)
        case CheckInAgain():
            if not _check_in_again(out, lease, command, now):
                return
        case _:
            assert_never(command)
    if out.case.agent is not None and out.case.agent.id == command.agent:
        out.case = replace(out.case, agent=None)


def _complete(out: Outcome, lease: Lease, command: Complete, now: Millis) -> None:
    """The task is done; or, where that has to be verified first, is said to be."""
    check_text(command.result, "result")
    task = out.case.task
    if task.spec.policy.verify and verify_of(task):
        say_done(out, lease, command, now)
        return
    told = {"elapsed_ms": now - lease.granted_at}
    end_task(out, _DONE, "completed", now, command=command.id)
    out.result = command.result
    out.events.append(Event("task_completed", task.id, task.run, lease.agent, lease.token, told))


def _check_in_again(out: Outcome, lease: Lease, command: CheckInAgain, now: Millis) -> bool:
    """The lease lives after all; whether the holder has answered for itself."""
    said = CheckIn(lease.task, lease.token, lease.agent, command.proof, command.note, command.progress)
    done = check_in(lease, said, now)
    out.case = replace(out.case, lease=done.lease, due=due_of(out.case.task, done.lease))
    out.answer = done.orders
    if done.event is not None:
        out.events.append(done.event)
    return done.answered


def _give_back(out: Outcome, command: Release, now: Millis) -> None:
    end_attempt(out, "released", now, command=command.id, detail=command.reason)
    if out.case.task.spec.flow:
        leave(out, command.reason, now)
    else:
        out.case = come_to_rest(out.case, now, until=now + max(command.delay, 0))


def _take_back(out: Outcome, lease: Lease, command: Recover | EndIdle, now: Millis) -> None:
    """What a supervisor says when it has ended an agent; nothing that is held against the agent is answered by that."""
    if isinstance(command, EndIdle):
        check_text(command.said, "said", NOTE_MAX)
        end_idle(out, lease, now, command)
    elif lease.stalled_at is None:
        raise Refused("not_stalled", f"{lease.agent} is not marked as stalled", where="task")
    else:
        recover(out, lease, now, command=command.id)


def _too_late(out: Outcome, command: HolderCommand, now: Millis) -> Outcome:
    past = out.case.past
    for ended in out.attempts:
        if ended.token == command.token:
            past = ended
    if past is not None and past.command == command.id != NO_COMMAND and past.agent == command.agent:
        out.answer = past.task
        return out
    why = _why_lost(out.case.lease, command.token, command.agent)
    if past is not None and past.agent == command.agent:
        why = why_over(past.outcome)
        if (late := kept(past, command, now)) is not None:
            out.late, verb = late
            if is_news(out.late, verb):
                task, kind = out.case.task, "late_result" if verb in ("complete", "fail") else "late_word"
                out.events.append(Event(kind, task.id, task.run, past.agent, past.token, {"verb": verb}))
    elif out.case.task.state != OPEN:
        why = f"the task is {out.case.task.state}"
    out.error = LeaseLost(command.task, command.token, why)
    return out


def _keep(out: Outcome, command: Keep) -> Outcome:
    """Note that a receipt exists: said by whoever had that token, whether or not the lease has ended since."""
    held, past, task = out.case.lease, out.case.past, out.case.task
    known = [one.agent for one in (held, past) if one is not None and one.token == command.token]
    if command.agent not in known:
        out.error = LeaseLost(command.task, command.token, _why_lost(held, command.token, command.agent))
        return out
    told = {"receipt": command.receipt, "status": command.status, "path": command.path}
    for name, text in told.items():
        check_text(text, name, NOTE_MAX)
    out.events.append(Event("receipt_written", task.id, task.run, command.agent, command.token, told))
    return out


def _why_lost(lease: Lease | None, token: int, agent: str) -> str:
    if lease is None:
        return "nobody holds the task"
    if lease.token != token:
        return f"the current token is {lease.token}"
    return f"it belongs to another agent, not to {agent}"


def _fail(out: Outcome, lease: Lease, command: Fail, now: Millis, draw: float) -> None:
    task = out.case.task
    failure = command.failure
    limit = task.expiry if (run := run_of(out)) is None else run.limit
    remaining = None if limit is None else limit - now
    earlier = task.record.failures
    if task.spec.flow:  # its program decides what is tried again; what left it is for whoever runs it
        end_attempt(out, f"failed:{failure.error}", now, command=command.id, detail=failure.message)
        leave(out, failure.message or failure.error.value, now)
        return
    timed_out = task.record.timeouts
    policy = task.spec.policy.retry
    verdict = judge(policy, failure, earlier=earlier, remaining=remaining, draw=draw, timed_out=timed_out)
    counted = {**earlier, failure.error.value: earlier.get(failure.error, 0) + 1}
    outcome = f"failed:{failure.error}"
    if isinstance(verdict, Weather):
        end_attempt(out, "parked", now, command=command.id, detail=failure.message)
        _wait_out(out, failure, Millis(now + verdict.delay), now)
        out.events.append(event(task, "task_returned", lease, reason="service_parked"))
        return
    end_attempt(out, outcome, now, command=command.id, detail=failure.message, failures=counted)
    if task.spec.request is not None:
        put_off(out, now)
        out.events.append(event(task, "task_returned", lease, reason=f"failed: {failure.message}"[:NOTE_MAX]))
        return
    match verdict:
        case Again(delay):
            out.case = come_to_rest(out.case, now, until=now + delay)
            told = {"error": failure.error.value, "message": failure.message, "delay_ms": delay}
            out.events.append(Event("task_retried", task.id, task.run, lease.agent, lease.token, told))
        case Escalate(reason) if task.spec.origin is None:
            ask(out, Asked("failure", _escalation(task.name, reason, failure), ESCALATION_OPTIONS), now)
        case GiveUp(why) | Escalate(why):
            reason = _cause(failure, why)
            end_task(out, State.FAILED, reason, now, command=command.id)
            out.events.append(event(task, "task_failed", lease, reason=reason, message=failure.message))
        case _:
            assert_never(verdict)


def _wait_out(out: Outcome, failure: Failure, until: Millis, now: Millis) -> None:
    """A limit is weather: park the service whose it is, or, if the failure names none, let this task alone wait."""
    task = out.case.task
    if not failure.services:
        out.case = come_to_rest(out.case, now, until=until)
        return
    for service in failure.services:
        if service not in task.spec.services:
            raise Refused("unknown_service", f"{task.name} does not use the service {service!r}", where="services")
        out.events.append(event(task, "service_parked", service=service, until=until))
    out.park_until = until
    out.case = come_to_rest(out.case, now)


def _cause(failure: Failure, reason: str) -> str:
    """What went wrong and why that was the end, on one line."""
    said = " ".join(failure.message.split())
    return f"{said if len(said) <= _CAUSE else said[: _CAUSE - 1] + '…'}; {reason}" if said else reason


def _escalation(name: str, reason: str, failure: Failure) -> str:
    said = f" It said: {failure.message}" if failure.message else ""
    return f"Task {name} cannot go on by itself: {reason}.{said} How should we proceed?"


def _ask(out: Outcome, lease: Lease, command: Ask, now: Millis) -> None:
    check_text(command.text, "text", QUESTION_MAX)
    if not command.text.strip():
        raise Refused("bad_question", "a question needs a text", where="text")
    options: tuple[Option, ...] = command.options or (REPLY, *ESCALATION_OPTIONS[2:])
    keys = [option.key for option in options]
    for option in options:
        check_name(option.key, "option")
        check_name(option.label, f"label of {option.key}")
        if option.act in SERVICE_ACTS:
            text = f"{option.key} acts on a service ({option.act}), and this question is about a task"
            raise Refused("bad_question", text, where="options")
        if option.act is Act.ACCEPT:
            text = f"{option.key} would let the task count as done; an agent cannot offer that"
            raise Refused("bad_question", text, where="options")
    if len(set(keys)) != len(keys):
        raise Refused("bad_question", "two options have the same key", where="options")
    if not command.hold and out.case.task.spec.flow:
        text = "a flow cannot wait for an answer without its process; ask with hold"
        raise Refused("bad_question", text, where="hold")
    if not command.hold:
        end_attempt(out, "asked", now, command=command.id, detail=command.text)
    asked = Asked(BY_AGENT, command.text, options, lease.agent, command.id)
    out.answer = ask(out, asked, now, wait=not command.hold).id
