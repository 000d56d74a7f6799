"""What one end means for others: dependents are updated, questions withdrawn, a run's tasks ended, their limits moved.

Such a consequence is a fanout (run/run.py): written with its cause, and carried out later by a sweeper, a chunk at a
time, so that no batch ever has to lock rows it did not name. The process that carries one out holds its row. What the
chunk is about is looked for without locks, then locked, and decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from allswell.domain.ids import Millis, QuestionId, RunId, TaskId, is_request
from allswell.domain.lease.expiry import move_limit
from allswell.domain.rules.command import Command
from allswell.domain.rules.event import Event
from allswell.domain.rules.rule import Decision, ReadSet, RowSearch, RowSnapshot, Rule
from allswell.domain.run.run import MOVED, Fanout, Run, run_of_move
from allswell.domain.task.aggregate import TaskAggregate, TaskChange, end_task, event, requeue, resume_clock, state
from allswell.domain.task.answer import withdraw
from allswell.domain.task.model import OPEN, NeedEnded, State, Task, WaitState
from allswell.domain.task.submit import cut_reason, ended_need

NEEDS_TOLD = 16
"""At most this many unmet needs are listed for a task that runs all the same."""
_NONE_KNOWN: Mapping[TaskId, Task] = {}

Found = Mapping[RowSearch, Sequence[str]]


class TellDependents(Command, frozen=True, gc=False):
    """Tell up to so many tasks that what they need has ended, and withdraw the questions about it."""

    spread: Fanout
    limit: int


class EndTasksOfRun(Command, frozen=True, gc=False):
    """End up to so many tasks that are still open in a run that was ended."""

    spread: Fanout
    limit: int


class MoveLimits(Command, frozen=True, gc=False):
    """Tell up to so many holders of a run's tasks that its clock has stopped or gone on."""

    spread: Fanout
    limit: int


def working_off(spread: Fanout, limit: int) -> Command:
    """What works off the next chunk of a spread; its answer is true."""
    if spread.outcome == MOVED:
        return MoveLimits(spread, limit)
    if spread.id.startswith("r_"):
        return EndTasksOfRun(spread, limit)
    return TellDependents(spread, limit)


def end_with_run(case: TaskAggregate, spread: Fanout, now: Millis) -> TaskChange:
    """A task whose run was ended ends with it."""
    out = TaskChange(case)
    task = case.task
    if task.state != OPEN:
        return out
    lease = case.lease
    if spread.outcome == State.FAILED:
        end_task(out, State.FAILED, spread.reason, now)
        out.events.append(event(task, "task_failed", lease, reason=spread.reason, message="its run has ended"))
    else:
        end_task(out, State.CANCELLED, spread.reason, now)
        out.events.append(event(task, "task_cancelled", lease, reason=spread.reason))
    return out


def with_parts_of(spread: Fanout, parts: Mapping[TaskId, Task]) -> Fanout:
    """A split's news, with each part that was itself split replaced by its own parts."""
    flat: dict[TaskId, None] = {}
    for id_ in spread.replaced_by:
        part = parts[id_]
        flat.update(dict.fromkeys(part.record.replaced_by if part.state == State.SPLIT else (id_,)))
    return replace(spread, replaced_by=tuple(flat))


def need_ended(
    case: TaskAggregate,
    spread: Fanout,
    replacements: Mapping[TaskId, str],
    now: Millis,
    known: Mapping[TaskId, Task] = _NONE_KNOWN,
) -> TaskChange:
    """News for a dependent: what it needed has ended.

    `replacements` are a split need's subtasks with their states, `known` the rows of tasks that have ended.
    """
    out = TaskChange(case)
    task = case.task
    waits = tuple(wait for wait in case.waits if wait.target != spread.id)
    if task.state != OPEN or len(waits) == len(case.waits):
        return out
    asked = WaitState(task.id, "request", TaskId(spread.id)) in case.waits
    bad = not asked and spread.outcome not in (State.DONE, State.SPLIT)
    ended = _ended(TaskId(spread.id), spread.outcome, known, spread.reason)
    reason = f"{spread.id} was {spread.outcome}" + (f": {ended.reason}" if ended.reason else "")
    for subtask in spread.replaced_by:
        stands = replacements.get(subtask, OPEN)
        if stands == OPEN:
            waits = (*waits, WaitState(task.id, "need", subtask))
        elif stands != State.DONE:
            bad, reason = True, f"{subtask} was {stands}"
            ended = _ended(subtask, stands, known)
    out.case = replace(case, waits=waits)
    if bad and task.spec.if_need_fails == "skip":
        end_task(out, State.SKIPPED, reason, now)
        out.events.append(event(task, "task_skipped", reason=reason))
        return out
    if bad:
        told = replace(task.record, needs_ended=(*task.record.needs_ended, ended)[-NEEDS_TOLD:])
        out.case = replace(out.case, task=replace(task, record=told))
    before = state(case)
    out.case = requeue(out.case, now)
    if before is State.WAITING and out.case.ready is not None:
        said = reason if bad else "what it needed is there"
        if asked:
            said = f"the {'request' if is_request(spread.id) else 'task'} {spread.id} is {spread.outcome}"
        out.events.append(event(task, "task_ready", reason=said))
    return out


def _ended(id_: TaskId, outcome: str, known: Mapping[TaskId, Task], reason: str = "") -> NeedEnded:
    task = known.get(id_)
    if task is not None:
        return ended_need(task)
    return NeedEnded(id_, outcome, cut_reason(reason))


# --- telling dependents -----------------------------------------------------------------------------------------------


def tell_dependents(situation: RowSnapshot, command: TellDependents) -> Decision:
    """One chunk of those who wait for a task that has ended."""
    spread, now = command.spread, situation.now
    parts = {id_: situation.cases[id_].task for id_ in spread.replaced_by if id_ in situation.cases}
    if State.SPLIT in {part.state for part in parts.values()}:
        # A part was split itself before its dependents were updated: its own parts stand in for it, and are locked next
        # time.
        return Decision(True, worked_off=(spread.id,), spreads=(with_parts_of(spread, parts),))
    decision = _withdraw_questions(situation, situation.found[_questions(command)])
    stands = {id_: part.state for id_, part in parts.items()}
    waiting = situation.found[_waiting(command)]
    known = {id_: case.task for id_, case in situation.cases.items() if id_ in parts or id_ == spread.id}
    told = [need_ended(situation.cases[TaskId(id_)], spread, stands, now, known) for id_ in sorted(waiting)]
    decision.outcomes = told
    if len(waiting) < command.limit:
        decision.worked_off = (spread.id,)
    return decision


def _withdraw_questions(situation: RowSnapshot, ids: Sequence[str]) -> Decision:
    """The end of questions whose task has ended without them; their run's clock goes on with the last one."""
    closed, events = [], []
    runs: dict[RunId, Run] = {}
    for id_ in ids:
        question = situation.questions.get(QuestionId(id_))
        if question is None or question.closed_at is not None:
            continue
        closed.append(withdraw(question, situation.now))
        events.append(Event("question_withdrawn", question.task, question.run, data={"question": question.id}))
        run = None if question.run is None else runs.get(question.run) or situation.runs.get(question.run)
        if run is not None:
            runs[run.id], told = resume_clock(run, question, situation.now)
            events += told
    return Decision(True, closed=closed, events=events, runs=[*runs.values()])


def _questions(command: TellDependents) -> RowSearch:
    return RowSearch("questions", command.spread.id)


def _waiting(command: TellDependents) -> RowSearch:
    return RowSearch("waiting", command.spread.id, limit=command.limit)


def _concerned(command: TellDependents, found: Found) -> ReadSet:
    """Those who wait, with the parts that stand in for what they need; and the run whose clock the questions stop."""
    waiting, questions = found[_waiting(command)], found[_questions(command)]
    return ReadSet(
        held=[*map(TaskId, waiting)],
        tasks=_to_be_known(command.spread) if waiting else (),
        questions=[*map(QuestionId, questions)],
        runs_of=(TaskId(command.spread.id),) if questions else (),
    )


def _to_be_known(spread: Fanout) -> tuple[TaskId, ...]:
    """What is read beside those who wait: the parts of a split, and a task that has ended badly, for its words."""
    if spread.outcome in (State.DONE, State.SPLIT):
        return spread.replaced_by
    return (TaskId(spread.id), *spread.replaced_by)


# --- the end of a run -------------------------------------------------------------------------------------------------


def end_tasks(situation: RowSnapshot, command: EndTasksOfRun) -> Decision:
    """One chunk of a run's open tasks. Done only when a look finds none: a split may have added tasks meanwhile."""
    spread, found = command.spread, situation.found[_open(command)]
    here = [situation.cases[TaskId(id_)] for id_ in sorted(found) if TaskId(id_) in situation.cases]
    ended = [end_with_run(case, spread, situation.now) for case in here]
    return Decision(True, outcomes=ended, worked_off=() if found else (spread.id,))


def _open(command: EndTasksOfRun) -> RowSearch:
    return RowSearch("open", command.spread.id, limit=command.limit)


# --- a run's clock ----------------------------------------------------------------------------------------------------


def move_limits(situation: RowSnapshot, command: MoveLimits) -> Decision:
    """One chunk of a run's leases: they get the limit of now."""
    spread, found = command.spread, situation.found[_held(command)]
    run = situation.runs[run_of_move(spread)]
    here = [situation.cases[TaskId(id_)] for id_ in sorted(found) if TaskId(id_) in situation.cases]
    further = (replace(spread, reached=max(found)),) if len(found) == command.limit else ()
    moved = [move_limit(case, run) for case in here]
    return Decision(True, outcomes=moved, worked_off=(spread.id,), spreads=further)


def _held(command: MoveLimits) -> RowSearch:
    return RowSearch("held", run_of_move(command.spread), command.spread.reached, command.limit)


RULES = (
    Rule(
        TellDependents,
        tell_dependents,
        lambda command: ReadSet(searches=(_questions(command), _waiting(command))),
        _concerned,
    ),
    Rule(
        EndTasksOfRun,
        end_tasks,
        lambda command: ReadSet(searches=(_open(command),)),
        lambda command, found: ReadSet(held=[*map(TaskId, found[_open(command)])]),
    ),
    Rule(
        MoveLimits,
        move_limits,
        lambda command: ReadSet(runs_shared=(run_of_move(command.spread),), searches=(_held(command),)),
        lambda command, found: ReadSet(held=[*map(TaskId, found[_held(command)])]),
    ),
)
