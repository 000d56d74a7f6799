"""How a run stands before it goes on: what is done and still as it was left, what was cut off, and what it left."""

from __future__ import annotations

from pathlib import Path

import msgspec

from allswell.domain.capture import ContextForResume, Offer, offered
from allswell.domain.listing import TaskFilter, TaskRow
from allswell.domain.names import NO_COMMAND, Millis, RunId, TaskId
from allswell.domain.run import Run
from allswell.domain.snapshot import unspell
from allswell.domain.step_changes import Own, StepChanges, own_files
from allswell.domain.step_receipt import Artifact, StepReceipt, StepStatus
from allswell.domain.task import OPEN, State
from allswell.engine.watch import Watch
from allswell.errors import Refused
from allswell.flows.run.artifacts import changed
from allswell.flows.run.base import RunBase
from allswell.flows.run.changes import is_as_left, owners, times_of
from allswell.flows.run.job import StepResult
from allswell.flows.run.plan import Carried
from allswell.flows.run.timeouts import is_git, uncommitted
from allswell.runtime.snapshot import Limits, take

_PAGE = 1_000
_CUT_OFF = (StepStatus.TIMEOUT, StepStatus.INTERRUPTED, StepStatus.LOST)


class CutOff(msgspec.Struct, frozen=True):
    """A step that was cut off with work in its hands."""

    step: str
    task: TaskId
    attempt: int
    context: ContextForResume
    """What it changed that is still there as it was left, and not committed."""
    offer: Offer
    changes: StepChanges | None = None
    """What is known of what it changed; None where nobody noted how things were when it began."""
    own: Own = ()
    """What is still there, each with the steps that may have done it too."""

    @property
    def shared(self) -> dict[str, tuple[str, ...]]:
        """Changes that may be another step's too, and whose."""
        return {left.path: also for left, also in self.own if also}


class RunStanding(msgspec.Struct, frozen=True):
    """How a run stands."""

    row: Run | None
    """The store's run that it last came to; None where it was never opened."""
    rows: dict[str, TaskRow]
    """The last task of each member that has one."""
    done: dict[str, TaskId]
    skipped: frozenset[str]
    """What a human has skipped."""
    carried: dict[str, Carried]
    own: bool
    """Whether the store's run has tasks: they come all together, after it was opened."""
    stuck: bool
    """Whether a step has ended for good in it without being done: the store's run cannot do it again."""

    @property
    def open(self) -> bool:
        """Whether the store's run can still be gone on with as it is."""
        return self.row is not None and self.row.ended_at is None


async def look(watch: Watch, base: RunBase) -> RunStanding:
    """Read off the store how a run stands, over all the runs that it came to."""
    known = {run.id: run for run in await watch.runs()}
    rows: dict[str, TaskRow] = {}
    for id_ in base.record.runs:
        rows |= {row.task.name: row for row in await tasks_of(watch, RunId(id_))}
    done = {name: row.task.id for name, row in rows.items() if row.task.state == State.DONE}
    by_hand = {
        name for name, row in rows.items() if row.task.state == State.SKIPPED and row.task.record.ended_by != NO_COMMAND
    }
    carried = {
        name: Carried(Millis(row.task.record.timeout_override))
        for name, row in rows.items()
        if row.task.record.timeout_override is not None
    }
    last = RunId(base.record.runs[-1])
    own = {name: row for name, row in rows.items() if row.task.run == last}
    stuck = any(not is_open(row) and name not in done and name not in by_hand for name, row in own.items())
    return RunStanding(known.get(last), rows, done, frozenset(by_hand), carried, bool(own), stuck)


async def tasks_of(watch: Watch, run: RunId) -> list[TaskRow]:
    """Every task of a run."""
    found: list[TaskRow] = []
    while True:
        page = await watch.tasks(TaskFilter(run=run, after=found[-1].task.id if found else "", limit=_PAGE))
        found += page
        if len(page) < _PAGE:
            return found


async def check_outputs(watch: Watch, base: RunBase, standing: RunStanding) -> None:
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


def cut_offs(base: RunBase, standing: RunStanding, *, as_it_is: bool) -> list[CutOff]:
    """Every step that was cut off and whose changes are still there, uncommitted, in the order in which that was (F11).

    `as_it_is`: the store's run goes on as it is, so that a question about a step still stands, and its human decides.
    """
    receipts = base.all_receipts()
    latest: dict[str, tuple[StepReceipt, TaskRow]] = {}
    for receipt in receipts:
        row = standing.rows.get(receipt.step_id)
        context = receipt.context_for_resume
        if row is None or row.task.state == State.DONE or receipt.step_id in standing.skipped:
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
            paths = tuple(path for path in _changed(receipt) if there is None or path in there)
        context = ContextForResume(*_context(receipt, paths))
        if (offer := offered(context)) is not None:
            found.append(CutOff(step, row.task.id, receipt.attempt, context, offer, changes, own))
    return found


def _changed(receipt: StepReceipt) -> tuple[str, ...]:
    context = receipt.context_for_resume
    return () if context is None else context.uncommitted_changes


def _context(receipt: StepReceipt, paths: tuple[str, ...]) -> tuple[str | None, tuple[str, ...], str | None]:
    context = receipt.context_for_resume
    if context is None:
        return None, paths, None
    return context.last_successful_checkpoint, paths, context.transcript_path


def still_there(base: RunBase, receipt: StepReceipt, task: TaskId) -> frozenset[str] | None:
    """What differs from the last commit now; looking keeps it on a recovery ref, too. None where there is no git."""
    if not is_git(base.record.folder):
        return None
    limits = Limits(timeout=10_000, git_timeout=10_000)
    place, why = base.record.folder, "the run goes on"
    kept = take(place, task, receipt.attempt, reason=why, limits=limits, home=base.home)
    return frozenset(uncommitted(kept))


def is_open(row: TaskRow) -> bool:
    """Whether a task has not ended."""
    return row.task.state == OPEN
