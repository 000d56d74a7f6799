"""What comes from outside a lease makes of a task: a human's answer, or a cancel."""

from __future__ import annotations

from msgspec.structs import replace

from allswell.domain.case import Case, Outcome, come_to_rest, end_task, event, resume_clock, run_of
from allswell.domain.command import Answer, Cancel
from allswell.domain.expense import shown
from allswell.domain.names import Millis
from allswell.domain.question import BY_AGENT, WITHDRAWN, Act, Option, Question, choose, note_of
from allswell.domain.run import Run
from allswell.domain.submit import check_name, check_text
from allswell.domain.task import OPEN, Record, State, Task
from allswell.domain.verification import ACCEPTED
from allswell.errors import Refused

SUBTASKS_MAX = 100
TEXT_MAX = 65_536


def choice_of(question: Question, command: Answer) -> Option | None:
    """The option that a human chose; None if this very answer was carried out before."""
    if question.closed_at is not None:
        if question.command == command.id:
            return None
        raise Refused("closed", f"question {question.id} is closed: {question.choice}", where="question")
    option = choose(question, command.option)
    check_text(command.text, "text", TEXT_MAX)
    if command.by:
        check_name(command.by, "by")
    return option


def closed_with(question: Question, option: Option, command: Answer, now: Millis) -> Question:
    """A question as its answer leaves it."""
    return replace(
        question,
        closed_at=now,
        choice=option.key,
        answer=command.text,
        answered_by=command.by,
        command=command.id,
    )


def answer(
    case: Case, question: Question, command: Answer, now: Millis, run: Run | None = None
) -> tuple[Outcome, Question]:
    """Carry out a human's choice. The subtasks of a split are accepted beside it (answering.py)."""
    out = Outcome(case, answer=question.id, run=run)
    option = choice_of(question, command)
    if option is None:
        return out, question
    task = case.task
    if task.state != OPEN:
        raise Refused(
            "task_ended", f"task {task.name} is {task.state}; there is nothing left to decide", where="question"
        )
    record = _record_after(task, question, option, command)
    waits = tuple(wait for wait in case.waits if wait.target != question.id)
    out.case = replace(case, task=replace(task, record=record), waits=waits)
    out.events.append(event(task, "question_answered", question=question.id, choice=option.key, by=command.by))
    if option.act is Act.SPLIT:
        ids = tuple(new.id for new in command.subtasks)
        end_task(out, State.SPLIT, f"split into {len(ids)}", now, command=command.id, replaced_by=ids)
        out.events.append(event(task, "task_split", subtasks=list(ids)))
    elif option.act is Act.ACCEPT:
        end_task(out, State.DONE, ACCEPTED, now, command=command.id)
        out.events.append(event(task, "task_accepted", by=command.by))
    elif option.act is Act.SKIP:
        reason = command.text or "skipped by a human"
        end_task(out, State.SKIPPED, reason, now, command=command.id)
        out.events.append(event(task, "task_skipped", reason=reason))
    elif len(waits) < len(case.waits):  # else it was asked in passing: the task stays where it is, its pause too
        if question.kind == BY_AGENT and record.handover is not None:
            record = replace(record, handover=replace(record.handover, answer=option.key))
            out.case = replace(out.case, task=replace(task, record=record))
        out.case = come_to_rest(out.case, now)
        if out.case.ready is not None:
            out.events.append(event(task, "task_ready", reason="answered"))
    before = run_of(out)
    if before is not None:
        out.run, told = resume_clock(before, question, now)
        out.events += told
    return out, closed_with(question, option, command, now)


def _record_after(task: Task, question: Question, option: Option, command: Answer) -> Record:
    """The task's record with its counters reset and the choice's own change; what a choice lacks is refused."""
    act = option.act
    record = replace(task.record, timeouts=0, idles=0, stalls=0, lapses=0, failures={}, failed_checks=())
    if act is Act.SPLIT:
        if not 1 <= len(command.subtasks) <= SUBTASKS_MAX:
            raise Refused("no_subtasks", f"splitting needs 1 to {SUBTASKS_MAX} smaller tasks", where="subtasks")
    elif act in (Act.CLARIFY, Act.REPLY):
        if not command.text.strip():
            raise Refused("no_text", f"the option {command.option!r} needs a text", where="text")
    elif act is Act.INCREASE_TIMEOUT:
        longer = task.timeout * 2 if command.timeout is None else command.timeout
        if longer <= task.timeout:
            text = f"the new timeout must be longer than the present {task.timeout} ms"
            raise Refused("not_longer", text, where="timeout")
        record = replace(record, timeout_override=longer)
    elif act is Act.INCREASE_COST:
        record = replace(record, cost_override=_more_money(task, command))
    elif act is Act.INCREASE_IDLE:
        record = replace(record, idle_override=_longer_idle(task, command))
    note = "" if act in (Act.SKIP, Act.ACCEPT) else note_of(question, option, command.text)
    return replace(record, notes=(*record.notes, note)) if note else record


def _more_money(task: Task, command: Answer) -> int:
    present = task.record.cost_override or task.spec.policy.max_cost or 0
    if command.max_cost is None and not present:
        raise Refused("no_cost", "say how much it may cost", where="max_cost_usd")
    more = present * 2 if command.max_cost is None else command.max_cost
    if more <= present:
        text = f"the new limit must be more than the present {shown(present)}"
        raise Refused("not_more", text, where="max_cost_usd")
    return more


def _longer_idle(task: Task, command: Answer) -> Millis:
    reached = task.record.idle_reached or task.spec.policy.idle
    present = max(reached or 0, task.record.idle_override or 0)
    if command.timeout is None and not present:
        raise Refused("no_timeout", "say how long it may go without progress", where="timeout")
    longer = present * 2 if command.timeout is None else command.timeout
    if longer <= present:
        text = f"the new length must be longer than the present {present} ms"
        raise Refused("not_longer", text, where="timeout")
    return Millis(longer)


def withdraw(question: Question, now: Millis) -> Question:
    """Close a question whose task has ended without it."""
    return replace(question, closed_at=now, choice=WITHDRAWN)


def cancel(case: Case, command: Cancel, now: Millis) -> Outcome:
    """Call a task off, whoever holds it."""
    out = Outcome(case, answer=case.task.id)
    task = case.task
    if task.state != OPEN:
        if task.record.ended_by == command.id:
            return out
        raise Refused("task_ended", f"task {task.name} is already {task.state}", where="task")
    check_text(command.reason, "reason", TEXT_MAX)
    lease = case.lease
    end_task(out, State.CANCELLED, command.reason, now, command=command.id)
    out.events.append(event(task, "task_cancelled", lease, reason=command.reason))
    return out
