"""Verification: before "done" counts, a command must pass; an audit by a command, of any task (audit.py).

A task whose policy has `verify` is not done because its holder says so. What it brought is kept, as the result of a
task that is still open, and the attempt goes on: its supervisor runs the command in the attempt's folder, and reports
the verdict (`Verified`). An agent never says that itself.

    passed    the task is done, with what its holder brought
    failed    the attempt is over. The task goes back to the same agent, with the end of what the command printed
              (`MEND`), until it has failed `verify_attempts` times; then a human decides (`ASK`)

Every verdict carries the token of the attempt that it is about. Once that lease is over it counts for nothing, as any
other word of its holder's. An attempt that said it was done, and whose lease then ended by itself, is not done over
again: what it claims is either verified by an operator, or decided by a human.
"""

from __future__ import annotations

import shlex

import msgspec
from msgspec.structs import replace

from allswell.domain.ids import NO_COMMAND, AgentId, CommandId, Millis
from allswell.domain.lease.audit import AfterAudit, AuditVerdict, after_verdict, failed_audits
from allswell.domain.lease.model import LeaseRow
from allswell.domain.question import VERIFICATION_OPTIONS, full_stop
from allswell.domain.rules.command import Complete, Verified
from allswell.domain.rules.event import Event
from allswell.domain.task.aggregate import QuestionDraft, TaskChange, ask, end_attempt, end_task, event, requeue
from allswell.domain.task.model import Attempt, FailedCheck, State, Task, UnverifiedDone
from allswell.domain.task.submit import check_name, check_text
from allswell.errors import Refused

NEEDS_VERIFICATION = "needs_verification"
"""The code of the refusal that a holder gets who says that a task is done which has to be verified."""
NOT_VERIFIED = "not_verified"
"""How an attempt ended whose work did not pass; also the kind of the question about its task."""
ACCEPTED = "accepted"
"""Why a task is done that a human accepted as it is."""
SAID_MAX = 4_000
"""Characters of what a verification printed that are kept with the task; the receipt has more of it."""
WHY_MAX = 500
BACK_TO_ITS_AGENT = 30_000
"""Milliseconds in which only the agent that is to fix it can claim it; then any agent can."""


class AfterCheck(msgspec.Struct, frozen=True, gc=False):
    """What followed from a verdict."""

    follows: AfterAudit
    failed: int
    """How many verifications of this task have failed, since a human last decided."""
    most: int


def verify_of(task: Task) -> tuple[str, ...]:
    """The command that verifies a task; empty: its holder's word is enough.

    What another agent asked for is judged by the one who asked, and a Python flow by its program.
    """
    spec = task.spec
    return () if spec.flow or spec.origin is not None or spec.request is not None else spec.policy.verify


def shown(command: tuple[str, ...]) -> str:
    """A command as it would be typed."""
    return shlex.join(command)


def failed_so_far(task: Task) -> int:
    """How many verifications of a task have failed, since a human last decided."""
    return failed_audits([AuditVerdict(task.id, passed=False) for _ in task.record.failed_checks], task.id)


def claims_to_be_done(task: Task) -> bool:
    """Whether the attempt that ended last had said that the task is done, and that was not verified since."""
    said = task.record.said_done
    return said is not None and said.token == task.record.token


# --- the holder's word ------------------------------------------------------------------------------------------------


def say_done(out: TaskChange, lease: LeaseRow, command: Complete, now: Millis) -> None:
    """Keep what a holder brings who says that it is done; the attempt goes on until that was verified."""
    task = out.case.task
    before = task.record.said_done
    said = UnverifiedDone(lease.token, now, command.id)
    out.case = replace(out.case, task=replace(task, record=replace(task.record, said_done=said)))
    out.result = command.result
    if before is None or before.token != lease.token:
        out.events.append(event(task, "task_said_done", lease, verify=shown(verify_of(task))))
    out.error = Refused(
        NEEDS_VERIFICATION,
        f"{task.name} counts as done once `{shown(verify_of(task))}` has passed; what you brought is kept",
        where="task",
        hint=f"its supervisor runs that; without one, an operator does: allswell verify {task.id}",
    )


# --- the verdict ------------------------------------------------------------------------------------------------------


def check_verdict(command: Verified) -> None:
    """Refuse a verdict that cannot be meant."""
    check_text(command.why, "why", WHY_MAX)
    check_text(command.said, "said", SAID_MAX)
    check_text(command.warning, "warning", SAID_MAX)
    if command.by:
        check_name(command.by, "by")
    if command.result is not None:
        check_text(command.result, "result")
    if command.elapsed < 0:
        raise Refused("bad_verdict", f"a verification cannot take {command.elapsed} ms", where="elapsed")


def judge_work(out: TaskChange, lease: LeaseRow, command: Verified, now: Millis) -> None:
    """What follows from the verdict on the work of an attempt whose lease still holds."""
    check_verdict(command)
    task = out.case.task
    if not verify_of(task):
        raise Refused("not_asked_for", f"{task.name} is not to be verified", where="task")
    if command.by and not _says_done(task, lease):
        raise Refused(
            "nothing_to_verify", f"{lease.agent} holds {task.name}, and does not say that it is done", where="task"
        )
    if command.passed:
        _pass(out, lease.agent, command, now, lease)
        return
    checks = (*task.record.failed_checks, _failed(command, now))
    out.case = replace(out.case, task=replace(task, record=replace(task.record, failed_checks=checks)))
    if command.result is not None:
        out.result = command.result
    follows = out.answer = what_followed(out.case.task)
    tell(out, command, follows.failed, lease)
    mend = follows.follows is AfterAudit.MEND
    if mend and command.hold:
        _note(out, said_done=None)
        return
    message = told_to_agent(task, command, follows.failed)
    _note(out, said_done=claimed(task, lease, now))
    end_attempt(out, NOT_VERIFIED, now, command=command.id, detail=message)
    if mend:
        _note(out, back_until=Millis(now + BACK_TO_ITS_AGENT))
        out.case = requeue(out.case, now)
        out.events.append(event(task, "task_sent_back", lease, failed=follows.failed, most=follows.most))
    else:
        ask_human(out, command.why, command.said, now)


def _note(out: TaskChange, **record: object) -> None:
    task = out.case.task
    out.case = replace(out.case, task=replace(task, record=replace(task.record, **record)))


def before(task: Task, past: Attempt | None, command: Verified) -> AfterCheck | None:
    """What followed from this very verdict, where it was said before; None: it is new."""
    said = any(check.command == command.id != NO_COMMAND for check in task.record.failed_checks)
    if past is not None and past.agent == command.agent:
        said = said or past.command == command.id != NO_COMMAND
        if command.passed and past.outcome == State.DONE:
            return AfterCheck(AfterAudit.ACCEPT, failed_so_far(task), task.spec.policy.verify_attempts)
    return what_followed(task) if said else None


def judge_claim(out: TaskChange, agent: AgentId, command: Verified, now: Millis) -> None:
    """What follows from an operator's verdict on work whose attempt is over, and which waits for a human."""
    check_verdict(command)
    task = out.case.task
    if command.passed:
        _pass(out, agent, command, now, None)
        return
    tell(out, command, failed_so_far(task), None)
    out.answer = replace(what_followed(task), follows=AfterAudit.ASK)


def _pass(out: TaskChange, agent: AgentId, command: Verified, now: Millis, lease: LeaseRow | None) -> None:
    task = out.case.task
    failed, most = failed_so_far(task), task.spec.policy.verify_attempts
    tell(out, command, failed, lease)
    began = task.record.said_done.said_at if lease is None and task.record.said_done is not None else now
    elapsed = now - (began if lease is None else lease.granted_at)
    told_with = _said_with(task.record.said_done, command)
    end_task(out, State.DONE, "completed", now, command=told_with, warning=command.warning)
    out.result = command.result
    token = task.record.token if lease is None else lease.token
    out.events.append(Event("task_completed", task.id, task.run, agent, token, {"elapsed_ms": elapsed}))
    out.answer = AfterCheck(after_verdict(passed=True, failed=failed, most=most), failed, most)


def _says_done(task: Task, lease: LeaseRow) -> bool:
    said = task.record.said_done
    return said is not None and said.token == lease.token


def claimed(task: Task, lease: LeaseRow, now: Millis) -> UnverifiedDone:
    """That the holder of a lease says it is done: as it said itself, or, by ending well, now."""
    said = task.record.said_done
    return said if said is not None and _says_done(task, lease) else UnverifiedDone(lease.token, now)


def _failed(command: Verified, now: Millis) -> FailedCheck:
    return FailedCheck(command.token, now, command.why, command.said, command.elapsed, command.by, command.id)


def what_followed(task: Task) -> AfterCheck:
    """What follows from a failure, by the one rule of audits (audit.py): the task has one builder, and no other."""
    failed, most = failed_so_far(task), task.spec.policy.verify_attempts
    return AfterCheck(after_verdict(passed=False, failed=failed, most=most), failed, most)


def _said_with(said: UnverifiedDone | None, command: Verified) -> CommandId:
    """The command with which the holder said that it was done: saying it again is answered as the first time."""
    known = said is not None and said.token == command.token and said.command
    return said.command if said is not None and known else command.id


def tell(out: TaskChange, command: Verified, failed: int, lease: LeaseRow | None) -> None:
    """Tell of a verdict in the journal."""
    task = out.case.task
    data: dict[str, object] = {
        "passed": command.passed,
        "verify": shown(verify_of(task)),
        "why": command.why,
        "said": command.said,
        "elapsed_ms": command.elapsed,
        "failed": failed,
        "most": task.spec.policy.verify_attempts,
        "by": command.by,
    }
    out.events.append(event(task, "task_verified", lease, **data))


# --- in words ---------------------------------------------------------------------------------------------------------


def told_to_agent(task: Task, command: Verified, failed: int) -> str:
    """The text for the agent that has to fix it."""
    most = task.spec.policy.verify_attempts
    back = "sent back, " if failed < most else ""
    printed = f"It printed last:\n{command.said.strip()}" if command.said.strip() else "It printed nothing."
    return f"It said done; `{shown(verify_of(task))}` failed ({command.why}), {back}{failed} of {most}.\n{printed}"


def ask_human(out: TaskChange, why: str, said: str, now: Millis, *, ran: bool = True) -> None:
    """Ask a human about work that failed too often, or, if its command was not `ran`, was never verified."""
    task = out.case.task
    label = task.id if task.name == task.id else f"{task.id} ({task.name})"
    check, failed = shown(verify_of(task)), failed_so_far(task)
    printed = f" It printed last:\n{said.strip()}" if said.strip() else ""
    if ran:
        times = "once" if failed == 1 else f"{failed} times"
        text = f"Task {label} was reported as done, and `{check}` failed {times}, the last time with: {full_stop(why)}"
    else:
        text = f"Task {label} is said to be done, but `{check}` has not been run to its end: {full_stop(why)}"
    text += f" What it brought is kept; `allswell verify {task.id}` runs the command once more."
    text += f" How should we proceed?{printed}"
    ask(out, QuestionDraft(NOT_VERIFIED, text, VERIFICATION_OPTIONS), now)
