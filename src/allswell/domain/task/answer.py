"""What comes from outside a lease makes of a task: a human's answer, or a cancel."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from allswell.domain.agents.cost import shown
from allswell.domain.agents.denied import REASON_MOST, DecidedCall, allowed_note, refused_note
from allswell.domain.agents.evidence import AGENT_REPEATS
from allswell.domain.duration import show
from allswell.domain.ids import (
    CommandId,
    Millis,
    QuestionId,
    TaskId,
    Token,
    message_of_question,
    service_of_question,
    task_of_question,
)
from allswell.domain.lease.claim import RUN_ROLE
from allswell.domain.lease.verification import ACCEPTED, BACK_TO_ITS_AGENT
from allswell.domain.question import BY_AGENT, MORE_TO_USE, WITHDRAWN, AnswerAction, Option, Question, choose, note_of
from allswell.domain.rules.command import Answer, Cancel, Command
from allswell.domain.rules.event import Event
from allswell.domain.rules.rule import Decision, ReadSet, RowSnapshot, Rule
from allswell.domain.run.run import Run
from allswell.domain.task.aggregate import (
    TaskAggregate,
    TaskChange,
    end_attempt,
    end_task,
    event,
    requeue,
    resume_clock,
    run_of,
    state,
)
from allswell.domain.task.model import ENDS, OPEN, Dismissal, State, Task, TaskHistory, WaitState
from allswell.domain.task.submit import check_name, check_text
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
    case: TaskAggregate, question: Question, command: Answer, now: Millis, run: Run | None = None
) -> tuple[TaskChange, Question]:
    """Carry out a human's choice. The subtasks of a split are accepted beside it (rules/outside.py)."""
    out = TaskChange(case, answer=question.id, run=run)
    option = choice_of(question, command)
    if option is None:
        return out, question
    task = case.task
    if task.state != OPEN:
        raise Refused(
            "task_ended", f"task {task.name} is {task.state}; there is nothing left to decide", where="question"
        )
    record = _record_after(task, question, option, command, Millis(now + BACK_TO_ITS_AGENT))
    waits = tuple(wait for wait in case.waits if wait.target != question.id)
    out.case = replace(case, task=replace(task, record=record), waits=waits)
    out.events.append(event(task, "question_answered", question=question.id, choice=option.key, by=command.by))
    if option.act is AnswerAction.SPLIT:
        ids = tuple(new.id for new in command.subtasks)
        end_task(out, State.SPLIT, f"split into {len(ids)}", now, command=command.id, replaced_by=ids)
        out.events.append(event(task, "task_split", subtasks=list(ids)))
    elif option.act is AnswerAction.ACCEPT:
        end_task(out, State.DONE, ACCEPTED, now, command=command.id)
        out.events.append(event(task, "task_accepted", by=command.by))
    elif option.act is AnswerAction.SKIP:
        reason = command.text or "skipped by a human"
        end_task(out, State.SKIPPED, reason, now, command=command.id)
        out.events.append(event(task, "task_skipped", reason=reason))
    elif option.act is AnswerAction.END_AND_RETRY and case.lease is not None:
        end_attempt(out, AGENT_REPEATS, now, command=command.id, detail=case.task.record.repeats)
        out.case = requeue(out.case, now)
        out.events.append(event(task, "task_returned", case.lease, reason=AGENT_REPEATS))
    elif len(waits) < len(case.waits):  # else it was asked in passing: the task stays where it is, its pause too
        if question.kind == BY_AGENT and record.handover is not None:
            record = replace(record, handover=replace(record.handover, answer=option.key))
            out.case = replace(out.case, task=replace(task, record=record))
        out.case = requeue(out.case, now)
        if out.case.ready is not None:
            out.events.append(event(task, "task_ready", reason="answered"))
    before = run_of(out)
    if before is not None:
        out.run, told = resume_clock(before, question, now)
        out.events += told
    return out, closed_with(question, option, command, now)


def _record_after(task: Task, question: Question, option: Option, command: Answer, back_until: Millis) -> TaskHistory:
    """The task's record with its counters reset and the choice's own change; what a choice lacks is refused.

    `back_until` is for a choice after which the same agent shall go on.
    """
    act = option.act
    record = replace(task.record, timeouts=0, idles=0, stalls=0, lapses=0, failures={}, failed_checks=())
    if act is AnswerAction.SPLIT:
        if not 1 <= len(command.subtasks) <= SUBTASKS_MAX:
            raise Refused("no_subtasks", f"splitting needs 1 to {SUBTASKS_MAX} smaller tasks", where="subtasks")
    elif act in (AnswerAction.CLARIFY, AnswerAction.REPLY):
        if not command.text.strip():
            raise Refused("no_text", f"the option {command.option!r} needs a text", where="text")
    elif act is AnswerAction.INCREASE_TIMEOUT:
        unknown = ("not_longer", "the task has no limit that could be raised")
        less = ("not_longer", f"the new timeout must be longer than the present {show(task.timeout or 0)}")
        if task.timeout is None:
            raise Refused(*unknown, where="timeout")
        longer = _more(task.timeout, command.timeout, "timeout", unknown, less)
        record = replace(record, timeout_override=Millis(longer))
    elif act in MORE_TO_USE:
        record = _with_more_to_use(record, act, task, command)
    elif act is AnswerAction.INCREASE_IDLE:
        record = replace(record, idle_override=_longer_idle(task, command))
    note = "" if act in (AnswerAction.SKIP, AnswerAction.ACCEPT) else note_of(question, option, command.text)
    token, call = Token(task.record.token + 1), option.call
    if act is AnswerAction.ALLOW and call is not None:
        record = _with_call(task, record, DecidedCall(token, call.tool, call.input, call.id), back_until)
        note = f"{allowed_note(token, call)} {note}".strip()
    elif act is AnswerAction.REFUSE and call is not None:
        reason = f"A human has refused this call. {note}".strip()[:REASON_MOST]
        record = _with_call(task, record, DecidedCall(token, call.tool, call.input, call.id, reason), back_until)
        note = f"{refused_note(call)} {note}".strip()
    return replace(record, notes=(*record.notes, note)) if note else record


def _with_call(task: Task, record: TaskHistory, call: DecidedCall, back_until: Millis) -> TaskHistory:
    return replace(record, decided_call=call, back_until=None if task.role == RUN_ROLE else back_until)


def _with_more_to_use(record: TaskHistory, act: AnswerAction, task: Task, command: Answer) -> TaskHistory:
    if act is not AnswerAction.INCREASE_TOKENS:
        record = replace(record, cost_override=_more_money(task, command))
    if act is not AnswerAction.INCREASE_COST:
        record = replace(record, tokens_override=_more_tokens(task, command))
    return record


def _more(present: int, wanted: int | None, where: str, unknown: tuple[str, str], less: tuple[str, str]) -> int:
    """What a limit is raised to: what the answer says, or else twice what it is; both errors with code and text."""
    if wanted is None and not present:
        raise Refused(*unknown, where=where)
    more = present * 2 if wanted is None else wanted
    if more <= present:
        raise Refused(*less, where=where)
    return more


def _more_money(task: Task, command: Answer) -> int:
    present = task.record.cost_override or task.spec.policy.max_cost or 0
    less = ("not_more", f"the new limit must be more than the present {shown(present)}")
    return _more(present, command.max_cost, "max_cost_usd", ("no_cost", "say how much it may cost"), less)


def _more_tokens(task: Task, command: Answer) -> int:
    present = task.record.tokens_override or task.spec.policy.max_tokens or 0
    less = ("not_more", f"the new limit must be more than the present {present:,} tokens")
    return _more(present, command.max_tokens, "max_tokens", ("no_tokens", "say how many tokens it may use"), less)


def _longer_idle(task: Task, command: Answer) -> Millis:
    reached = task.record.idle_reached or task.spec.policy.idle
    present = max(reached or 0, task.record.idle_override or 0)
    unknown = ("no_timeout", "say how long it may go without progress")
    less = ("not_longer", f"the new length must be longer than the present {show(present)}")
    return Millis(_more(present, command.timeout, "timeout", unknown, less))


def withdraw(question: Question, now: Millis) -> Question:
    """Close a question whose task has ended without it."""
    return replace(question, closed_at=now, choice=WITHDRAWN)


def cancel(case: TaskAggregate, command: Cancel, now: Millis) -> TaskChange:
    """Cancel a task, held or not."""
    out = TaskChange(case, answer=case.task.id)
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


# Seen: a human has looked at something, and wants to hear no more of it.
#
# It decides nothing. A question stays open, holds what it held, and can still be answered; an ended task stays as it
# ended. What was dismissed is only left out of what needs a human; who dismissed it is kept. A question that a task
# waits for is counted all the same, because the work stands still until it is answered.
#
# What happens afterwards is news again: a task that has had another attempt since is not dismissed any more.


class DismissQuestion(Command, frozen=True, gc=False):
    """Mark a question as seen: it is no longer listed."""

    id: CommandId
    question: QuestionId
    by: str


class DismissTask(Command, frozen=True, gc=False):
    """Mark the end of a task, or that it was stopped, as seen: it is no longer listed."""

    id: CommandId
    task: TaskId
    by: str


def is_dismissed(task: Task) -> bool:
    """Whether a task was dismissed, and nothing has happened to it since."""
    seen = task.record.dismissed
    return seen is not None and seen.token == task.record.token


def dismiss_question(situation: RowSnapshot, command: DismissQuestion) -> Decision:
    """Note that a question was seen; it stays open."""
    check_name(command.by, "by")
    question = situation.questions.get(command.question)
    if question is None:
        raise Refused("unknown_question", f"there is no question {command.question}", where="question")
    if question.closed_at is not None:
        raise Refused("closed", f"question {question.id} is closed: {question.choice}", where="question")
    if question.dismissed_at is not None:
        return Decision(question.id)
    seen = replace(question, dismissed_at=situation.now, dismissed_by=command.by)
    told = Event("question_dismissed", question.task, question.run, data={"question": question.id, "by": command.by})
    return Decision(question.id, events=(told,), closed=(seen,))


def dismiss_task(situation: RowSnapshot, command: DismissTask) -> Decision:
    """Note that the end of a task, or that it was stopped, was seen."""
    check_name(command.by, "by")
    case = situation.case(command.task)
    task = case.task
    if is_dismissed(task):
        return Decision(task.id)
    _check_still(case)
    record = replace(task.record, dismissed=Dismissal(command.by, situation.now, task.record.token))
    out = TaskChange(replace(case, task=replace(task, record=record)), answer=task.id)
    out.events.append(event(task, "task_dismissed", by=command.by))
    return Decision(task.id, outcomes=(out,))


def _check_still(case: TaskAggregate) -> None:
    """Refuse what goes on by itself: there is nothing to have seen."""
    stands = state(case)
    stopped = stands is State.READY and case.task.record.handover is not None
    if stands not in ENDS and not stopped:
        text = f"{case.task.name} is {stands}: there is nothing to dismiss"
        hint = f"`allswell cancel {case.task.id}` cancels it, `allswell why {case.task.id}` shows more"
        raise Refused("not_ended", text, where="task", hint=hint)


# --- what dismissed questions hold ------------------------------------------------------------------------------------


class DismissedHolds(msgspec.Struct, frozen=True):
    """How many dismissed questions hold how many open tasks."""

    questions: int
    tasks: int


NONE_HELD = DismissedHolds(0, 0)


def holding(questions: Iterable[Question], waiting: Iterable[tuple[Task, tuple[WaitState, ...]]]) -> DismissedHolds:
    """How many dismissed questions hold how many open tasks, at one remove or several.

    `waiting` are the open tasks with what they wait for; a question about a service holds those that need it.
    """
    dismissed = [one for one in questions if one.closed_at is None and one.dismissed_at is not None]
    rows = list(waiting)
    holds: set[QuestionId] = set()
    held: set[str] = set()
    for question in dismissed:
        below: set[str] = {question.id}
        found: set[str] = set()
        while new := {task.id for task, waits in rows if task.id not in found and _meets(task, waits, below, question)}:
            found |= new
            below = set(new)
        if found:
            holds.add(question.id)
            held |= found
    return DismissedHolds(len(holds), len(held))


def _meets(task: Task, waits: tuple[WaitState, ...], below: set[str], question: Question) -> bool:
    if any(wait.target in below for wait in waits):
        return True
    return question.id in below and question.service is not None and question.service in task.spec.services


# --- the rows ---------------------------------------------------------------------------------------------------------


def _names(command: DismissQuestion) -> ReadSet:
    asked = (command.question,)
    if message_of_question(command.question) is not None:
        return ReadSet(questions=asked)
    service = service_of_question(command.question)
    if service is not None:
        return ReadSet(questions=asked, services=(service,))
    return ReadSet(questions=asked, tasks=(task_of_question(command.question),))


RULES = (
    Rule(DismissQuestion, dismiss_question, _names),
    Rule(DismissTask, dismiss_task, lambda command: ReadSet(held=(command.task,))),
)
