"""What a holder may say: check in, complete, fail, release, ask. Every word carries its token.

A holder whose token is not the current one, or whose lease has run out even if no sweeper has noticed yet, changes
nothing. What it said is kept with its ended attempt (late.py), and the caller gets `LeaseLost`. A command that was
already carried out is recognised by its id and answered as before.

A check-in reads its lease alone. Where that says no, it is said again as `CheckInAgain`, with all rows in sight: it may
be late, and is kept then, or the clock of its run may have stood.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import msgspec
from msgspec.structs import replace

from allswell.domain.agents import quota
from allswell.domain.agents.checkpoint import progress_in
from allswell.domain.agents.denied import Denied, DeniedCall, call_text, check_denied, remark, waiting_call
from allswell.domain.agents.quota import Quota
from allswell.domain.duration import show
from allswell.domain.ids import NO_COMMAND, CommandId, Millis, QuestionId, TaskId, asker_of, is_request, question_id
from allswell.domain.lease.expiry import end_idle, recover, tick
from allswell.domain.lease.late import is_news, kept, why_over
from allswell.domain.lease.model import LeaseRow, check_progress, ends_at, is_asked
from allswell.domain.lease.verification import (
    NOT_VERIFIED,
    before,
    claims_to_be_done,
    judge_claim,
    judge_work,
    say_done,
    verify_of,
)
from allswell.domain.mesh.delivery import delivery_made, left_alone, put_off, refused_for_good
from allswell.domain.mesh.health import NEUTRAL, charged, passed_over
from allswell.domain.mesh.request import asked_of, delegate, refuse_circle, send
from allswell.domain.mesh.respond import answer_entered
from allswell.domain.mesh.routing import agent_of, family, role_of
from allswell.domain.question import (
    ACCEPT,
    BY_AGENT,
    DENIED,
    ESCALATION_OPTIONS,
    PERMISSION,
    REPLY,
    SERVICE_ACTS,
    AnswerAction,
    Option,
    allow_options,
    denied_options,
    denied_text,
    permission_options,
    permission_text,
)
from allswell.domain.rules.command import (
    Ask,
    CheckIn,
    CheckInAgain,
    Complete,
    Delegate,
    EndIdle,
    Fail,
    HolderCommand,
    LeaseCommand,
    RecordReceipt,
    Recover,
    Release,
    SendRequest,
    Verified,
)
from allswell.domain.rules.event import Event
from allswell.domain.rules.rule import ASKING, Decision, ReadSet, RowReads, RowSnapshot, Rule, past_of
from allswell.domain.run.run import Run
from allswell.domain.service.retry import (
    TASK_RULES,
    ErrorClass,
    Escalate,
    Failure,
    GiveUp,
    RateLimitPause,
    RetryAfter,
    judge,
)
from allswell.domain.service.service import park
from allswell.domain.task.aggregate import (
    QuestionDraft,
    TaskAggregate,
    TaskChange,
    ask,
    due_of,
    end_attempt,
    end_task,
    event,
    leave,
    requeue,
    run_of,
)
from allswell.domain.task.model import OPEN, SpentTime, State, WaitState
from allswell.domain.task.submit import WEBHOOKS, accept_request, check_name, check_text, lanes_of
from allswell.errors import LeaseLost, Refused, TimeUp

GIVEN_BACK_MAX = 86_400_000
"""Milliseconds for which a task that an agent has given back cannot be claimed, at most: neither limits nor people
would notice that it waits for a year."""
NOTE_MAX = 16_384
QUESTION_MAX = 16_384
_CAUSE = 160
"""Characters of an error's message that are repeated where it ends a task; the attempt has all of it."""
_SAID = 1_000
"""Characters of an error's message that a question repeats."""
_THE_SERVICES = (ErrorClass.RATE_LIMIT, ErrorClass.OVERLOAD, ErrorClass.NETWORK, ErrorClass.SERVER)
"""What says by itself that refused calls were not what the agent failed at."""
_DONE = State.DONE


class Orders(msgspec.Struct, frozen=True, gc=False):
    """What the holder should know and do now; every answer to it carries them."""

    remaining_ms: int | None
    """What is left of the attempt's time; None: it has no limit."""
    asked: bool
    """A check-in is owed."""
    deadline: Millis = Millis(0)
    """The attempt's limit as it is now."""
    by_run: bool = False
    """Whether that is the limit of its run, which moves while the run's clock stands."""
    at: Millis = Millis(0)
    """When this was, on the store's clock; 0 from an older server, which does not say it."""


class CheckedIn(msgspec.Struct, frozen=True, gc=False):
    """A check-in's outcome: the lease as it shall be, and the agent's record cleared if `answered`."""

    lease: LeaseRow
    orders: Orders
    event: Event | None
    answered: bool


def check_in(lease: LeaseRow | None, said: CheckIn, now: Millis) -> CheckedIn:
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


def _orders(lease: LeaseRow, now: Millis, *, asked: bool) -> Orders:
    left = None if lease.limit is None else lease.deadline - now
    return Orders(left, asked, lease.deadline, lease.own is not None, now)


def hold(case: TaskAggregate, command: HolderCommand, now: Millis, draw: float, run: Run | None = None) -> TaskChange:
    """Decide a holder's word on its task; `run` is the task's, where it was read."""
    out = TaskChange(case, answer=case.task.id, run=run)
    if not isinstance(command, Complete):  # most commands are, and this test is quick
        record = case.task.record
        if isinstance(command, Ask) and record.asked_by == command.id:
            out.answer = question_id(case.task.id, record.questions)
            return out
        if isinstance(command, RecordReceipt):
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
    out: TaskChange,
    lease: LeaseRow,
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
        case Delegate() | SendRequest():
            _request(out, lease, command, now)
        case CheckInAgain():
            if not _check_in_again(out, lease, command, now):
                return
        case _:
            assert_never(command)
    if out.case.agent is not None and out.case.agent.id == command.agent:
        out.case = replace(out.case, agent=None)


def _request(out: TaskChange, lease: LeaseRow, command: Delegate | SendRequest, now: Millis) -> None:
    new = command.request
    _count(out, lease, command.quota, quota.request, len(new.payload) + len(new.name))
    if isinstance(command, Delegate):
        delegate(out, lease, command, now)
    else:
        send(out, lease, command, now)


def _count(out: TaskChange, lease: LeaseRow, most: Quota | None, count: quota.Count, size: int) -> None:
    """Count what an attempt puts into the store, where it is held to a quota here; `Refused` where it is too much."""
    if most is None:
        return
    record = out.case.task.record
    spent = count(most, record.used_by(lease.token), size)
    record = replace(record, used=SpentTime(lease.token, spent))
    out.case = replace(out.case, task=replace(out.case.task, record=record))


def _complete(out: TaskChange, lease: LeaseRow, command: Complete, now: Millis) -> None:
    """The task is done; or, where that has to be verified first, is said to be."""
    check_text(command.result, "result")
    task = out.case.task
    if task.spec.policy.verify and verify_of(task):
        say_done(out, lease, command, now)
        return
    told = {"elapsed_ms": now - lease.granted_at}
    check_text(command.warning, "warning", NOTE_MAX)
    end_task(out, _DONE, "completed", now, command=command.id, warning=command.warning)
    out.result = command.result
    out.events.append(Event("task_completed", task.id, task.run, lease.agent, lease.token, told))


def _check_in_again(out: TaskChange, lease: LeaseRow, command: CheckInAgain, now: Millis) -> bool:
    """The lease lives after all; whether the holder has answered for itself."""
    said = CheckIn(lease.task, lease.token, lease.agent, command.proof, command.note, command.progress)
    done = check_in(lease, said, now)
    out.case = replace(out.case, lease=done.lease, due=due_of(out.case.task, done.lease))
    out.answer = done.orders
    if done.event is not None:
        out.events.append(done.event)
    return done.answered


def _give_back(out: TaskChange, command: Release, now: Millis) -> None:
    end_attempt(out, "released", now, command=command.id, detail=command.reason)
    if out.case.task.spec.flow:
        leave(out, command.reason, now)
    elif out.case.task.role == WEBHOOKS:
        put_off(out, now)  # whether it was posted is not known: it is with the next delivery
    else:
        out.case = requeue(out.case, now, until=now + max(command.delay, 0))


def _take_back(out: TaskChange, lease: LeaseRow, command: Recover | EndIdle, now: Millis) -> None:
    """What a supervisor says when it has ended an agent; nothing that is held against the agent is answered by that."""
    if isinstance(command, EndIdle):
        check_text(command.said, "said", NOTE_MAX)
        check_text(command.repeats, "repeats", NOTE_MAX)
        end_idle(out, lease, now, command)
    elif lease.stalled_at is None:
        raise Refused("not_stalled", f"{lease.agent} is not marked as stalled", where="task")
    else:
        recover(out, lease, now, command=command.id)


def _too_late(out: TaskChange, command: HolderCommand, now: Millis) -> TaskChange:
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


def _keep(out: TaskChange, command: RecordReceipt) -> TaskChange:
    """Note that a receipt exists: from the holder of that token, whether or not the lease has ended since."""
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


def _why_lost(lease: LeaseRow | None, token: int, agent: str) -> str:
    if lease is None:
        return "no agent holds the task"
    if lease.token != token:
        return f"the current token is {lease.token}"
    return f"it belongs to another agent, not to {agent}"


def _fail(out: TaskChange, lease: LeaseRow, command: Fail, now: Millis, draw: float) -> None:
    task = out.case.task
    failure = command.failure
    limit = task.expiry if (run := run_of(out)) is None else run.limit
    remaining = None if limit is None else limit - now
    earlier = task.record.failures
    if task.spec.flow:  # its program decides what is tried again; what left it is for the process that runs it
        end_attempt(out, f"failed:{failure.error}", now, command=command.id, detail=failure.message)
        leave(out, failure.message or failure.error.value, now)
        return
    if task.role == WEBHOOKS and task.spec.request is not None:
        _fail_to_post(out, lease, failure, command.id, now)
        return
    if failure.denied is not None:
        check_denied(failure.denied)
        if failure.error not in _THE_SERVICES and task.spec.origin is None and task.spec.request is None:
            if (call := waiting_call(failure.denied)) is not None:
                _ask_for_permission(out, lease, call, failure.denied.work, command.id, now)
                return
            _ask_about_denied(out, failure, failure.denied, command.id, now)
            return
    timed_out = task.record.timeouts
    policy = task.spec.policy.retry
    verdict = judge(
        policy, failure, earlier=earlier, remaining=remaining, draw=draw, rules=TASK_RULES, timed_out=timed_out
    )
    counted = {**earlier, failure.error.value: earlier.get(failure.error, 0) + 1}
    outcome = f"failed:{failure.error}"
    if isinstance(verdict, RateLimitPause):
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
        case RetryAfter(delay):
            out.case = requeue(out.case, now, until=now + delay)
            told = {"error": failure.error.value, "message": failure.message, "delay_ms": delay}
            out.events.append(Event("task_retried", task.id, task.run, lease.agent, lease.token, told))
        case Escalate(reason) if task.spec.origin is None:
            ask(out, QuestionDraft("failure", _escalation(task.name, reason, failure), ESCALATION_OPTIONS), now)
        case GiveUp(why) | Escalate(why):
            reason = _cause(failure, why)
            end_task(out, State.FAILED, reason, now, command=command.id)
            out.events.append(event(task, "task_failed", lease, reason=reason, message=failure.message))
        case _:
            assert_never(verdict)


def _fail_to_post(out: TaskChange, lease: LeaseRow, failure: Failure, command: CommandId, now: Millis) -> None:
    """A webhook was posted in vain: it has failed for good, or is posted with the next delivery."""
    if failure.error is ErrorClass.PERMANENT:
        refused_for_good(out, failure, now, command)
        return
    end_attempt(out, f"failed:{failure.error}", now, command=command, detail=failure.message)
    if failure.retry_after is not None:
        out.case = left_alone(out.case, Millis(now + failure.retry_after))
    put_off(out, now)
    out.events.append(event(out.case.task, "task_returned", lease, reason=f"failed: {failure.message}"[:NOTE_MAX]))


def _ask_about_denied(out: TaskChange, failure: Failure, denied: Denied, command: CommandId, now: Millis) -> None:
    """Another attempt of an agent that was refused calls would meet the same refusals, so a human decides."""
    task = out.case.task
    counted = {**task.record.failures, failure.error.value: task.record.failures.get(failure.error, 0) + 1}
    end_attempt(out, f"failed:{failure.error}", now, command=command, detail=failure.message, failures=counted)
    text = denied_text(task.id, task.name, denied, failure.message[:_SAID])
    ask(out, QuestionDraft(DENIED, text, denied_options(denied)), now)


def _ask_for_permission(
    out: TaskChange, lease: LeaseRow, call: DeniedCall, work: str, command: CommandId, now: Millis
) -> None:
    """A call waits for a human: the attempt is over, which costs none, and the task waits without a process."""
    task = out.case.task
    text = permission_text(task.id, task.name, lease.agent, call, work)
    end_attempt(out, "asked", now, command=command, detail=f"May I call {call_text(call)}?")
    ask(out, QuestionDraft(PERMISSION, text, permission_options(call)), now)


def _wait_out(out: TaskChange, failure: Failure, until: Millis, now: Millis) -> None:
    """A limit is no failure: park the service whose it is, or, if the failure names none, let this task alone wait."""
    task = out.case.task
    if not failure.services:
        out.case = requeue(out.case, now, until=until)
        return
    for service in failure.services:
        if service not in task.spec.services:
            raise Refused("unknown_service", f"{task.name} does not use the service {service!r}", where="services")
        out.events.append(event(task, "service_parked", service=service, until=until))
    out.park_until = until
    out.case = requeue(out.case, now)


def _cause(failure: Failure, reason: str) -> str:
    """What went wrong and why that was the end, on one line."""
    said = " ".join(failure.message.split())
    said = said[:-1] if said.endswith(".") and not said.endswith("..") else said
    return f"{said if len(said) <= _CAUSE else said[: _CAUSE - 1] + '…'}; {reason}" if said else reason


def _escalation(name: str, reason: str, failure: Failure) -> str:
    message = failure.message.strip()
    end = "" if message.endswith((".", "!", "?", "…")) else "."
    said = f" It said: {message}{end}" if message else ""
    return f"Task {name} cannot go on by itself: {reason}.{said} How should we proceed?"


def _ask(out: TaskChange, lease: LeaseRow, command: Ask, now: Millis) -> None:
    check_text(command.text, "text", QUESTION_MAX)
    if not command.text.strip():
        raise Refused("bad_question", "a question needs a text", where="text")
    if command.hold:
        _count(out, lease, command.quota, quota.question, len(command.text))
    options: tuple[Option, ...] = command.options or (REPLY, *ESCALATION_OPTIONS[2:])
    asks = command.text
    _check_options(options)
    if not command.hold and out.case.task.spec.flow:
        text = "a flow cannot wait for an answer without its process; ask with hold"
        raise Refused("bad_question", text, where="hold")
    if not command.hold and command.result is not None:
        check_text(command.result, "result")
        if not verify_of(out.case.task):  # else only what was verified is done
            out.result = command.result
            options = (*options[:1], *(() if ACCEPT.key in _keys(options) else (ACCEPT,)), *options[1:])
    if not command.hold:
        end_attempt(out, "asked", now, command=command.id, detail=command.text)
    if not command.hold and command.denied is not None:
        check_denied(command.denied)
        options += allow_options(command.denied, _keys(options))
        asks = f"{asks}\n({remark(command.denied)})"
    asked = QuestionDraft(BY_AGENT, asks, options, lease.agent, command.id)
    out.answer = ask(out, asked, now, wait=not command.hold).id


def _keys(options: Sequence[Option]) -> list[str]:
    return [option.key for option in options]


def _check_options(options: Sequence[Option]) -> None:
    """Refuse what an agent cannot offer to a human."""
    for option in options:
        check_name(option.key, "option")
        check_name(option.label, f"label of {option.key}")
        if option.act in SERVICE_ACTS:
            text = f"{option.key} acts on a service ({option.act}), and this question is about a task"
            raise Refused("bad_question", text, where="options")
        if option.act is AnswerAction.ACCEPT:
            text = f"{option.key} would let the task count as done; an agent cannot offer that"
            raise Refused("bad_question", text, where="options")
        if option.act in (AnswerAction.ALLOW, AnswerAction.REFUSE):
            text = f"{option.key} would decide about a call; an agent cannot offer that"
            raise Refused("bad_question", text, where="options")
    if len(set(_keys(options))) != len(options):
        raise Refused("bad_question", "two options have the same key", where="options")


# The rules for what a holder says: which rows its words are about, and what follows for others than its task.
#
# What a word makes of the task itself stands above. A word always names its task, with the lease, and its agent,
# whose record it may clear. Words that are likely to ask a human something are about the task's run too, whose clock
# then stands; where another one turns out to be, it is decided again with the run in sight.
#
# A check-in is the hottest write there is, so it is about the lease alone, and about the record of an agent that has
# missed check-ins. Where that says no, it may be said again as a word like any other (`said_again`).


def say(situation: RowSnapshot, command: HolderCommand) -> Decision:
    """Decide a holder's word."""
    task = command.task
    case = situation.case(task)
    agent = situation.agents.get(command.agent)
    lease = case.lease
    past = None if lease is not None and lease.token == command.token else situation.attempts.get((task, command.token))
    if agent is not case.agent or past is not case.past:
        case = replace(case, agent=agent, past=past)
    out = hold(case, command, situation.now, situation.chance, situation.run_of(case.task))
    health = charged((out,), situation.health, situation.now) if is_request(task) else ()
    return Decision(out.answer, out.error, (out,), ((command.agent, out.case.agent),), health)


def complete(situation: RowSnapshot, command: Complete) -> Decision:
    """The task is done; what a request was answered with is entered into the task that asked."""
    decision = say(situation, command)
    if is_request(command.task):
        (out,) = decision.outcomes
        out.events += delivery_made(out)
        decision.outcomes = [out, *answer_entered(situation, out)]
    return decision


def release(situation: RowSnapshot, command: Release) -> Decision:
    """The task is given back; where it is to wait for another one, until that has ended.

    The other one waits for no task itself, so no circle can be closed.
    """
    awaited = None if command.awaits is None else situation.cases.get(command.awaits)
    if command.awaits is not None and (awaited is None or awaited.task.id == command.task):
        raise Refused("unknown_task", f"there is no task {command.awaits} to wait for", where="awaits")
    if awaited is not None and any(wait.kind != "question" for wait in awaited.waits):
        raise Refused("waits_itself", f"{awaited.task.name} waits for another task itself", where="awaits")
    decision = say(situation, command)
    (out,) = decision.outcomes
    is_given_back = any(ended.command == command.id for ended in out.attempts) and out.case.task.state == OPEN
    if awaited is not None and awaited.task.state == OPEN and is_given_back and not out.case.task.spec.flow:
        wait = WaitState(command.task, "request", awaited.task.id)
        out.case = requeue(replace(out.case, waits=(*out.case.waits, wait)), situation.now)
    return decision


def fail(situation: RowSnapshot, command: Fail) -> Decision:
    """A failure; where it is a service's limit, that is parked."""
    decision = say(situation, command)
    until = decision.outcomes[0].park_until
    if until is not None:
        decision.services = [park(situation.service(name), until) for name in dict.fromkeys(command.failure.services)]
    return decision


def decide_delegate(situation: RowSnapshot, command: Delegate | SendRequest) -> Decision:
    """A request for another agent, with the task that is made for it; one that was made before is known by its id."""
    known = situation.cases.get(command.request.id)
    if known is not None:
        return Decision(_delegated_before(known, command))
    decision = say(situation, command)
    (asked,) = decision.outcomes
    if asked.request is not None:
        decision.outcomes = (asked, accept_request(situation, asked.request))
    return decision


def send_request(situation: RowSnapshot, command: SendRequest) -> Decision:
    """A request of the mesh, with the task that is made for it; one that closes a circle of agents is refused."""
    command = replace(command, spec=replace(command.spec, asked=command.candidates))
    if command.spec.blocks and command.request.id not in situation.cases:
        can_answer = asked_of(command.request.role, command.spec.to, command.candidates)
        refuse_circle(command.agent, can_answer, situation.asking, situation.cases)
    return decide_delegate(situation, _routed(situation, command))


def _routed(situation: RowSnapshot, command: SendRequest) -> SendRequest:
    """A request to a role, with those barred from it that others are preferred to (mesh/health.py), and who asks.

    The asking agent may have the role itself: moving on to the next task, it would get its own request.
    """
    if role_of(command.spec.to) is None:
        return command
    can_serve = {agent: situation.health.get(family(agent), NEUTRAL) for agent in command.candidates}
    passed = passed_over(can_serve, situation.now)
    barred = (*command.request.barred, command.agent, *passed)
    spec = replace(command.spec, passed_over=passed)
    return replace(command, request=replace(command.request, barred=barred), spec=spec)


def _delegated_before(known: TaskAggregate, command: Delegate | SendRequest) -> TaskId:
    origin = known.task.spec.origin
    if origin is None or origin.command != command.id:
        raise Refused("id_taken", f"task {command.request.id} exists already and is another one", where="id")
    return known.task.id


def say_again(situation: RowSnapshot, command: CheckInAgain) -> Decision:
    """A check-in with all rows in sight; a task that does not exist has no lease."""
    if command.task not in situation.cases:
        raise LeaseLost(command.task, command.token, "no agent holds the task")
    return say(situation, command)


def renew(situation: RowSnapshot, command: CheckIn) -> Decision:
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


def _names(command: LeaseCommand) -> ReadSet:
    task = (command.task,)
    health = (family(command.agent),) if is_request(command.task) else ()
    return ReadSet(held=task, agents=(command.agent,), health=health, perhaps_runs_of=task)


def _names_of_completion(command: Complete) -> ReadSet:
    names = _names(command)
    return {**names, "held": (command.task, asker_of(command.task))} if is_request(command.task) else names


def _names_of_release(command: Release) -> ReadSet:
    names = _names(command)
    return names if command.awaits is None else {**names, "held": (command.task, command.awaits)}


def _names_with_run(command: LeaseCommand) -> ReadSet:
    task = (command.task,)
    return ReadSet(held=task, agents=(command.agent,), runs_of=task)


def _names_of_ask(command: Ask) -> ReadSet:
    return _names(command) if command.hold else _names_with_run(command)


def _names_of_failure(command: Fail) -> ReadSet:
    return {**_names_with_run(command), "services": command.failure.services}


def _names_of_request(command: Delegate | SendRequest) -> ReadSet:
    task = (command.task,)
    return ReadSet(
        held=task,
        agents=(command.agent,),
        perhaps_runs_of=task,
        tasks=(command.request.id,),
        lanes=lanes_of((command.request,)),
    )


def _names_of_mesh_request(command: SendRequest) -> ReadSet:
    """As of a delegation; and all who wait for an answer: those who ask at once, ask in turn."""
    names = _names_of_request(command)
    if command.request.role == WEBHOOKS:
        return names
    if agent_of(command.request.role) is None:
        names["health"] = [*dict.fromkeys(map(family, command.candidates))]
    return {**names, "searches": (ASKING,)} if command.spec.blocks else names


def _names_of_renewal(command: CheckIn) -> ReadSet:
    return ReadSet(leases=(command.task,), agents=(command.agent,) if command.proof else ())


HOLDER_RULES = (
    Rule(Complete, complete, _names_of_completion, reads=past_of),
    Rule(Release, release, _names_of_release, reads=past_of),
    Rule(RecordReceipt, say, _names, reads=past_of),
    Rule(Recover, say, _names_with_run, reads=past_of),
    Rule(EndIdle, say, _names_with_run, reads=past_of),
    Rule(Ask, say, _names_of_ask, reads=past_of),
    Rule(Fail, fail, _names_of_failure, reads=past_of, chance=True),
    Rule(Delegate, decide_delegate, _names_of_request, reads=past_of),
    Rule(SendRequest, send_request, _names_of_mesh_request, reads=past_of),
    Rule(CheckInAgain, say_again, _names_with_run, reads=past_of),
    Rule(CheckIn, renew, _names_of_renewal),
)


# The rule for a verdict: a word about a lease, as any other; or an operator's, about work that waits for a human.


def verified(situation: RowSnapshot, command: Verified) -> Decision:
    """Decide a verdict."""
    case = situation.case(command.task)
    task = case.task
    said_before = before(task, situation.attempts.get((task.id, command.token)), command)
    if said_before is not None:
        return Decision(said_before)
    if not (
        _waits(situation, case) and verify_of(task) and claims_to_be_done(task) and task.record.token == command.token
    ):
        return say(situation, command)
    out = TaskChange(case, run=situation.run_of(task))
    judge_claim(out, command.agent, command, situation.now)
    return Decision(out.answer, outcomes=(out,))


def _waits(situation: RowSnapshot, case: TaskAggregate) -> bool:
    """Whether a task waits for a human to say what shall become of work that was not verified."""
    asked = [situation.questions.get(question) for question in _asked(case)]
    return case.lease is None and any(one is not None and one.kind == NOT_VERIFIED for one in asked)


def _asked(case: TaskAggregate) -> list[QuestionId]:
    return [QuestionId(wait.target) for wait in case.waits if wait.kind == "question"]


def _reads(command: Verified, situation: RowSnapshot) -> RowReads | None:
    """The attempt that it is about, and the questions that the task waits for."""
    case, past = situation.cases.get(command.task), past_of(command, situation)
    if case is None or past is None:
        return past
    return RowReads(past.attempts, _asked(case))


VERDICT_RULES = (Rule(Verified, verified, _names_with_run, reads=_reads),)


def check_given_back(delay: int) -> None:
    """Refuse a pause that an agent may not ask for when it gives its task back; a supervisor may."""
    if delay > GIVEN_BACK_MAX:
        text = f"an agent gives a task back for {show(GIVEN_BACK_MAX)} at most, not for {show(delay)}"
        raise Refused("bad_duration", text, where="delay")


RULES = (*HOLDER_RULES, *VERDICT_RULES)
