"""How a run stands before it goes on: what is done and still as it was left, what was cut off, and what it left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from allswell.domain.ids import NO_COMMAND, RunId, TaskId
from allswell.domain.receipts.snapshot import SnapshotLimits, unspell
from allswell.domain.receipts.step import (
    Artifact,
    ContextForResume,
    Own,
    ResumeOffer,
    StepChanges,
    StepReceipt,
    StepStatus,
    offered,
    own_files,
)
from allswell.domain.run.run import Run
from allswell.domain.task.model import OPEN, State, TaskFilter, TaskRow, carried
from allswell.engine.ids import task_for_key
from allswell.engine.watch import Watch
from allswell.errors import Refused
from allswell.flows.run.folder import RunBase, changed
from allswell.flows.run.plan import CarriedSteps, StepResult
from allswell.flows.run.timeouts import is_as_left, is_git, owners, times_of, uncommitted
from allswell.runtime.workspace.snapshot import take

_PAGE = 1_000
_CUT_OFF = (StepStatus.TIMEOUT, StepStatus.INTERRUPTED, StepStatus.LOST)


class InterruptedStep(msgspec.Struct, frozen=True):
    """A step that was cut off with work in its hands."""

    step: str
    task: TaskId
    attempt: int
    context: ContextForResume
    """What it changed that is still there as it was left, and not committed."""
    offer: ResumeOffer
    changes: StepChanges | None = None
    """What is known of what it changed; None where nobody noted how things were when it began."""
    own: Own = ()
    """What is still there, each with the steps that may have done it too."""

    @property
    def shared(self) -> dict[str, tuple[str, ...]]:
        """Changes that may be another step's too, and whose."""
        return {left.path: also for left, also in self.own if also}


class RunStatus(msgspec.Struct, frozen=True):
    """How a run of a flow stands.

    A flow's run has a run in the store; when that has ended and the flow is resumed, it opens another one. So one run
    of a flow has a list of runs in the store (`base.record.runs`), and a step may have a task in each of them.
    """

    row: Run | None
    """The last of its runs in the store; None where none was opened."""
    rows: dict[str, TaskRow]
    """The last task of each member that has one."""
    done: dict[str, TaskId]
    skipped: frozenset[str]
    """What a human has skipped."""
    carried: dict[str, CarriedSteps]
    own: bool
    """Whether the last run in the store has its tasks: they are submitted together, after the run was opened."""
    stuck: bool
    """Whether a step of the last run has ended for good without being done: that run cannot do it again."""
    parts: SplitTasks
    split: dict[str, tuple[TaskRow, ...]]
    """For each step that a human has split, the last task of each of its parts."""

    @property
    def open(self) -> bool:
        """Whether the flow can go on in its last run in the store, without opening another one."""
        return self.row is not None and self.row.ended_at is None


class SplitTasks(msgspec.Struct, frozen=True):
    """The tasks that humans split steps into; each can be retried, split in turn and taken along into another run."""

    rows: dict[TaskId, TaskRow]
    """Every task of the runs, and what those were retried as."""
    runs: tuple[str, ...]

    def last(self, *ids: TaskId) -> list[TaskRow]:
        """What stands for these tasks now."""
        found: dict[TaskId, TaskRow] = {}
        pending = list(ids)
        while pending:
            row = self.rows.get(pending.pop(0))
            if row is None:
                continue
            record = row.task.record
            after = [id_ for run in self.runs if (id_ := part_in(run, row.task.id)) in self.rows]
            if record.retried_as is not None:
                pending.append(record.retried_as)
            elif after:
                pending += after
            elif row.task.state == State.SPLIT:
                pending += record.replaced_by
            else:
                found[row.task.id] = row
        return list(found.values())

    def is_skipped(self, row: TaskRow) -> bool:
        """Whether a human has skipped it, or something that it needs and without which it is to be skipped."""
        task = row.task
        if task.state == State.DONE or _by_hand(row):
            return task.state != State.DONE
        return task.spec.if_need_fails == "skip" and any(map(self.is_skipped, self.last(*task.spec.needs)))

    def moves(self, row: TaskRow) -> bool:
        """Whether nothing blocks it: it is done, still open, or skipped."""
        return is_open(row) or row.task.state == State.DONE or self.is_skipped(row)


def part_in(run: str, part: TaskId) -> TaskId:
    """The id of the task that continues a part of a split step in another run of the store."""
    return task_for_key(f"{run}/part/{part}")


def is_step(row: TaskRow) -> bool:
    """Whether a task of a flow's run is a step of it, and not what a human split one into."""
    return row.task.id == task_for_key(f"{row.task.run}/{row.task.name}")


async def look(watch: Watch, base: RunBase) -> RunStatus:
    """Read from the store how a flow's run stands, over all its runs in the store."""
    known = {run.id: run for run in await watch.runs()}
    every = [row for id_ in base.record.runs for row in await tasks_of(watch, RunId(id_))]
    rows = {row.task.name: row for row in every if is_step(row)}
    parts = SplitTasks(await _with_retries(watch, every), base.record.runs)
    done = {name: row.task.id for name, row in rows.items() if row.task.state == State.DONE}
    by_hand = {name for name, row in rows.items() if _by_hand(row)}
    left = {name: carried(row.task.record) for name, row in rows.items()}
    taken_along = {name: CarriedSteps(one) for name, one in left.items() if one is not None}
    was_split = [name for name, row in rows.items() if row.task.state == State.SPLIT]
    split = {name: tuple(parts.last(*rows[name].task.record.replaced_by)) for name in was_split}
    done |= {name: rows[name].task.id for name, some in split.items() if all(map(_is_done, some))}
    last = RunId(base.record.runs[-1])
    moving = {name for name, some in split.items() if all(map(parts.moves, some))}
    fine = {*done, *by_hand, *moving}
    ended = [name for name, row in rows.items() if not is_open(row) and (row.task.run == last or name in split)]
    stuck = not fine.issuperset(ended)
    by_hand |= {name for name, some in split.items() if any(map(parts.is_skipped, some))}
    own = any(row.task.run == last for row in every)
    return RunStatus(known.get(last), rows, done, frozenset(by_hand), taken_along, own, stuck, parts, split)


async def _with_retries(watch: Watch, rows: Sequence[TaskRow]) -> dict[TaskId, TaskRow]:
    """Tasks by their ids, with those that they were retried as, which may be in no run of the flow."""
    found = {row.task.id: row for row in rows}
    while missing := {after for row in found.values() if (after := row.task.record.retried_as)} - found.keys():
        more = await watch.tasks(TaskFilter(ids=tuple(sorted(missing)[:_PAGE]), limit=_PAGE))
        if not more:
            break
        found |= {row.task.id: row for row in more}
    return found


def _by_hand(row: TaskRow) -> bool:
    return row.task.state == State.SKIPPED and row.task.record.ended_by != NO_COMMAND


def _is_done(row: TaskRow) -> bool:
    return row.task.state == State.DONE


async def tasks_of(watch: Watch, run: RunId) -> list[TaskRow]:
    """Every task of a run."""
    found: list[TaskRow] = []
    while True:
        page = await watch.tasks(TaskFilter(run=run, after=found[-1].task.id if found else "", limit=_PAGE))
        found += page
        if len(page) < _PAGE:
            return found


async def check_outputs(watch: Watch, base: RunBase, standing: RunStatus) -> None:
    """Refuse to go on where a file is not what a finished step left: it will not be run again to make it anew."""
    last: dict[str, tuple[str, Artifact]] = {}
    for name in sorted(standing.done, key=lambda one: standing.rows[one].task.ended_at or 0):
        try:
            given = msgspec.convert(await watch.result(standing.done[name]), StepResult)
        except msgspec.ValidationError:
            continue
        last |= {artifact.path: (name, artifact) for artifact in given.artifacts}  # a later step may have gone over it
    wrong = [
        f"step {name}: {why}"
        for name, artifact in last.values()
        if (why := changed(Path(base.record.folder), artifact)) is not None
    ]
    if wrong:
        more = f" ({len(wrong) - 1} more)" if len(wrong) > 1 else ""
        text = f"{wrong[0]}{more}; bring it back as it was, or run the flow anew"
        raise Refused("output_changed", text, where="outputs")


def cut_offs(base: RunBase, standing: RunStatus, *, as_it_is: bool) -> list[InterruptedStep]:
    """Every step that was cut off and whose changes are still there, uncommitted (F11); those cut off first come first.

    `as_it_is`: the flow goes on in the same run of the store. Questions that are open there stay open, so a step that a
    human was asked about is left out: the answer decides about it.
    """
    receipts = base.all_receipts()
    latest: dict[str, tuple[StepReceipt, TaskRow]] = {}
    for receipt in receipts:
        row = standing.rows.get(receipt.step_id)
        context = receipt.context_for_resume
        if row is None or row.task.state in (State.DONE, State.SPLIT) or receipt.step_id in standing.skipped:
            continue
        if as_it_is and any(wait.kind == "question" for wait in row.waits):
            continue  # a human has been asked already
        if context is not None and context.uncommitted_changes and receipt.status in _CUT_OFF:
            latest[receipt.step_id] = (receipt, row)
    known = {step: base.changes(step, receipt.attempt) for step, (receipt, _) in latest.items()}
    found = []
    for step, (receipt, row) in latest.items():
        changes = known[step]
        there = still_there(base, receipt, row.task.id)
        own: Own = ()
        if changes is not None:
            others = [one for one in known.values() if one is not None]
            belongs = owners(others, receipts, base.record.folder, changes.top)
            own = tuple(
                (left, also)
                for left, also in own_files(changes, belongs, times_of(receipts))
                if (there is None or left.path in there) and is_as_left(unspell(changes.top), left)
            )
            paths = tuple(left.path for left, _ in own)
        else:
            paths = tuple(path for path in _uncommitted(receipt) if there is None or path in there)
        context = ContextForResume(*_context(receipt, paths))
        if (offer := offered(context)) is not None:
            found.append(InterruptedStep(step, row.task.id, receipt.attempt, context, offer, changes, own))
    return found


def _uncommitted(receipt: StepReceipt) -> tuple[str, ...]:
    context = receipt.context_for_resume
    return () if context is None else context.uncommitted_changes


def _context(receipt: StepReceipt, paths: tuple[str, ...]) -> tuple[str | None, tuple[str, ...], str | None]:
    context = receipt.context_for_resume
    if context is None:
        return None, paths, None
    return context.last_successful_checkpoint, paths, context.transcript_path


def still_there(base: RunBase, receipt: StepReceipt, task: TaskId) -> frozenset[str] | None:
    """Paths that differ from the last commit now; None where there is no git.

    To find them a snapshot is taken, so the work is also kept on a recovery ref.
    """
    if not is_git(base.record.folder):
        return None
    limits = SnapshotLimits(timeout=10_000, git_timeout=10_000)
    place, why = base.record.folder, "the run goes on"
    kept = take(place, task, receipt.attempt, reason=why, limits=limits, home=base.home)
    return frozenset(uncommitted(kept))


def is_open(row: TaskRow) -> bool:
    """Whether a task has not ended."""
    return row.task.state == OPEN
