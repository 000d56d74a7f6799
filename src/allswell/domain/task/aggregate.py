"""The case of a task: every row a decision about it may read, and the few moves all decisions are made of.

A decision takes a case and returns an `TaskChange` with the case as it shall be. Nothing is changed in place: the
engine
compares rows by identity and writes those that differ. The moves here are the only places where a task comes to rest,
loses its holder or ends, so each rule about that stands once.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from allswell.domain.ids import NO_COMMAND, AgentId, CommandId, Millis, QuestionId, TaskId, question_id
from allswell.domain.lease.model import Agent, LeaseRow, due_at
from allswell.domain.question import FLOW_LEFT_OPTIONS, Option, Question, full_stop
from allswell.domain.rules.command import NewTask
from allswell.domain.rules.event import Event
from allswell.domain.run.run import Fanout, Run, start_clock, stop_clock
from allswell.domain.task.model import (
    Attempt,
    Handover,
    ReadyTask,
    RequestOrigin,
    RequestRecord,
    RequestSpec,
    State,
    Task,
    WaitState,
    derive_state,
)
from allswell.errors import AllswellError, Bug

"""By names of their own: to look an enum's member up takes longer than all else that `state` does."""
_DONE = State.DONE.value


class TaskAggregate(msgspec.Struct, frozen=True, gc=False):
    """One task with all its rows, as locked and read in this transaction."""

    task: Task
    lease: LeaseRow | None = None
    ready: ReadyTask | None = None
    due: Millis | None = None
    """Its timer: the earliest moment at which it could change by itself."""
    waits: tuple[WaitState, ...] = ()
    agent: Agent | None = None
    """What is held against the agent that the command or the lease names."""
    awaited: bool = False
    """Whether other tasks wait for this one."""
    past: Attempt | None = None
    """The ended attempt that a holder's command names, if it names one."""


class RunUnread(Exception):
    """A decision turned out to need the run of its task, which was not read; decide again with it."""


class NewRequest(msgspec.Struct, frozen=True, gc=False):
    """A task to make for another agent, and whose request it is."""

    new: NewTask
    origin: RequestOrigin
    limit: Millis | None = None
    """Of a delegation: when it is over."""
    spec: RequestSpec | None = None
    """Of a request of the mesh: how it is delivered, and how far that has got."""
    stand: RequestRecord | None = None


class TaskChange(msgspec.Struct, gc=False):
    """What a decision makes of a case. `error` is for the caller; the rest is written all the same."""

    case: TaskAggregate
    answer: object = None
    error: AllswellError | None = None
    events: list[Event] = msgspec.field(default_factory=list)
    attempts: tuple[Attempt, ...] = ()
    late: Attempt | None = None
    questions: tuple[Question, ...] = ()
    park_until: Millis | None = None
    """Until when the services that the failure names are parked."""
    spread: Fanout | None = None
    result: str | None = None
    made: NewTask | None = None
    """What was submitted, where this is the making of a task."""
    request: NewRequest | None = None
    """A task to make for another agent."""
    unbarred: tuple[AgentId, ...] = ()
    """Agents that may hold the task again."""
    barred: tuple[AgentId, ...] = ()
    """Agents that may not hold it from now on."""
    run: Run | None = None
    """The task's run: as it was given, then as it shall be. None if the task has none, or if it was not read."""


def state(case: TaskAggregate) -> State:
    """Where the task stands, read off the rows that exist; a task that stands nowhere is a bug."""
    found = derive_state(case.task, case.lease, case.waits, case.due, ready=case.ready is not None)
    if found is None:
        raise Bug(f"task {case.task.id} is open but has no state: no lease, no wait, not ready, no timer")
    return found


def event(task: Task, kind: str, /, lease: LeaseRow | None = None, **data: object) -> Event:
    """An event about this task, and about its holder where there is one."""
    if lease is None:
        return Event(kind, task.id, task.run, None, None, data)
    return Event(kind, task.id, task.run, lease.agent, lease.token, data)


def requeue(case: TaskAggregate, now: int, *, until: int = 0) -> TaskAggregate:
    """Where an open task without a holder belongs: with what it waits for, on a timer, or among the ready ones."""
    task = case.task
    expiry = task.wakes_at
    if case.waits:
        return replace(case, ready=None, due=expiry)
    start = max(until, task.spec.not_before or 0)
    if start > now:
        return replace(case, ready=None, due=Millis(start if expiry is None else min(start, expiry)))
    return replace(case, ready=ReadyTask(task.id, task.lane, task.rank), due=expiry)


def due_of(task: Task, lease: LeaseRow) -> Millis:
    """The timer of a held task: its lease's, or, if that is sooner, that of the request it is."""
    due, wakes = due_at(lease), task.record.request
    return due if wakes is None else min(due, wakes.wakes_at)


def end_attempt(
    out: TaskChange,
    outcome: str,
    now: Millis,
    *,
    command: CommandId = NO_COMMAND,
    detail: str = "",
    **record: object,
) -> None:
    """Take the lease away, whatever the holder believes, and keep what the next one should know.

    `record` are the counters of the task's record that change with it.
    """
    case = out.case
    lease = case.lease
    if lease is None:
        raise Bug(f"task {case.task.id} has no attempt to end")
    ended = Attempt(lease.task, lease.token, lease.agent, lease.granted_at, now, outcome, command, detail)
    out.attempts = (*out.attempts, ended)
    handover = Handover(outcome, lease.agent, detail, lease.note, lease.progress)
    of_attempt = {"back_until": None, "stopped": None, "refused": "", "repeats": ""}
    changed = replace(case.task.record, token=lease.token, handover=handover, **of_attempt, **record)
    out.case = replace(case, task=replace(case.task, record=changed), lease=None, due=None)


def end_task(
    out: TaskChange,
    end: State,
    reason: str,
    now: Millis,
    *,
    command: CommandId = NO_COMMAND,
    replaced_by: tuple[TaskId, ...] = (),
    warning: str = "",
) -> None:
    """End the task for good; a fanout reaches the tasks that wait for it, and any question about it.

    `warning` is shown with the attempt that ended it, beside the reason.
    """
    case = out.case
    task, lease = case.task, case.lease
    record = task.record
    word = str(end)  # quicker than `.value`, and this is asked at every completion
    if lease is not None:
        ended = Attempt(lease.task, lease.token, lease.agent, lease.granted_at, now, word, command, warning or reason)
        out.attempts = (*out.attempts, ended)
        told = {"token": lease.token, "reason": reason, "ended_by": command, "replaced_by": replaced_by}
        record = replace(record, **told, stopped=None, refused="", repeats="")
    else:
        record = replace(record, reason=reason, ended_by=command, replaced_by=replaced_by)
    task = replace(task, state=word, ended_at=now, record=record)
    out.case = TaskAggregate(task, None, None, None, (), case.agent, case.awaited, case.past)
    origin = task.spec.origin
    if origin is not None:
        by = "" if lease is None else lease.agent
        kind, told = _end_of_request(task, word, reason, by, awaited=case.awaited)
        out.events.append(Event(kind, origin.task, task.run, origin.agent, origin.token, told))
    if case.awaited or record.questions:
        out.spread = Fanout(task.id, word, reason, replaced_by)


def _end_of_request(task: Task, end: str, reason: str, holder: str, *, awaited: bool) -> tuple[str, dict[str, object]]:
    """What the end of a request is to the task that asked: it is closed, or, by a late answer, the block resolved.

    Who waits for it is the blocked task, which is queued again: the one that waits is still open.
    """
    asked, stand = task.spec.request, task.record.request
    if asked is None or stand is None or stand.blocked_at is None or end != _DONE:
        return "request_closed", {"request": task.id, "outcome": end, "reason": reason}
    blocked = (task.ended_at or stand.blocked_at) - stand.blocked_at
    about = {"request": task.id, "kind": asked.kind, "to": asked.to, "by": stand.by or holder}
    return "request_resolved", {**about, "blocked_ms": blocked, "requeued": awaited}


class QuestionDraft(msgspec.Struct, frozen=True, gc=False):
    """What to ask a human, and who wants to know."""

    kind: str
    text: str
    options: tuple[Option, ...]
    by: str = "allswell"
    command: CommandId = NO_COMMAND


def ask(out: TaskChange, asked: QuestionDraft, now: Millis, *, wait: bool = True) -> Question:
    """Put a question before a human; unless `wait` is off, the task waits for the answer."""
    case = out.case
    task = case.task
    number = task.record.questions + 1
    id_ = question_id(task.id, number)
    question = Question(id_, task.id, task.run, asked.kind, asked.text, asked.options, now, asked.by, waited=wait)
    record = replace(task.record, questions=number, asked_by=asked.command)
    out.case = replace(case, task=replace(task, record=record))
    if wait:
        out.case = requeue(replace(out.case, waits=(*case.waits, WaitState(task.id, "question", id_))), now)
    out.questions = (*out.questions, question)
    labels = [option.label for option in asked.options]
    out.events.append(event(task, "question_asked", question=id_, kind=asked.kind, text=asked.text, options=labels))
    if wait:
        _stop_clock(out, id_, now)
    return question


def run_of(out: TaskChange) -> Run | None:
    """The task's run; `RunUnread` if it has one that was not read."""
    if out.run is None and out.case.task.run is not None:
        raise RunUnread(out.case.task.id)
    return out.run


def _stop_clock(out: TaskChange, question: QuestionId, now: Millis) -> None:
    before = run_of(out)
    if before is None:
        return
    out.run = stop_clock(before, now)
    if out.run.moves != before.moves:
        out.events.append(Event("run_stands", None, before.id, None, None, {"question": question}))


def resume_clock(run: Run, question: Question, now: Millis) -> tuple[Run, list[Event]]:
    """The run as the end of a question leaves it, and the events about it."""
    after = start_clock(run, now) if question.waited else run
    if after.moves == run.moves or run.ended_at is not None:
        return after, []
    told = {"stood_ms": after.stood - run.stood, "deadline": after.limit}
    return after, [Event("run_goes_on", None, run.id, None, None, told)]


# Python flows: a program that holds its run while it works, and whose finished steps are finished tasks of that run.
#
# A flow is a run, and in it one task that carries the flow's name. The process that runs the program holds that task by
# a lease like any other, with a token that grows: that is what makes a second process wait and a stale one harmless.
# The task is taken up by its id (run/lifecycle.py), never claimed by role: no other agent could do the work. So it
# never rests there either: whenever its holder is gone (died, failed, was interrupted, reached its limit), a human is
# asked. The question says what happened and offers to call the flow off; running the program again withdraws it.
#
# A step is not handed out: its process does it, and says so when it is done (run/lifecycle.py).

FLOW_ROLE = "flow"
FLOW_LEFT = "flow_left"
"""The kind of the question about a flow that no process runs."""


def leave(out: TaskChange, why: str, now: Millis) -> None:
    """No process runs the flow any more: ask a human, who may run its program again or cancel it."""
    task = out.case.task
    stopped = f"The flow {task.name} ({task.run}) has stopped: {full_stop(why)}"
    text = f"{stopped} Run its program again to go on, or cancel it."
    ask(out, QuestionDraft(FLOW_LEFT, text, FLOW_LEFT_OPTIONS), now)
