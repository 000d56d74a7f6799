"""The loop that runs a flow in this process: it claims the run's own tasks as they become ready, and does them.

It decides nothing about what follows what: the store says which tasks are ready, when a retry is due, whether a human
is asked, and when the run's time is up. Other processes may take steps of the same run; a step that somebody else
holds is waited for. A step is not begun again here before the last attempt at it has put its things in order.

A step that is done leaves its place to the next at once, while its receipt goes to the disk and the store is told: so
a slow disk holds up nobody, as long as not too many are left to be written down.

A store that is away is waited for as long as a step is at work or has something to tell; without one, the run is left
as it stands, and can be resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from allswell.domain.ids import RunId, TaskId
from allswell.domain.receipts.step import FlowSummary, RunVerdict, StepReceipt, StepStatus
from allswell.domain.rules.event import INVOKE_WORKFLOW, OPERATION, OUTCOME, RUN, WORKFLOW_NAME
from allswell.domain.task.model import ENDS, Policy, State, TaskFilter, TaskRow
from allswell.engine.lease import Lease
from allswell.engine.wakeup import Waiter
from allswell.engine.watch import Watch
from allswell.errors import Bug, Refused, Unavailable
from allswell.flows.loader import Scalar
from allswell.flows.run.attempt import StepAttempt
from allswell.flows.run.context import RunContext
from allswell.flows.run.folder import RunBase, RunRecord, find_base
from allswell.flows.run.plan import FlowPlan, MemberJob, plan
from allswell.flows.run.state import is_step
from allswell.flows.spec import Flow
from allswell.runtime.workspace.files import Files, stamp
from allswell.timing.clock import Clock, SystemClock
from allswell.timing.tracing import traced

JOBS = 16
"""How many steps run at once in one process, unless it is told otherwise."""
LEASE = 30_000
"""Milliseconds; renewed at a third of it. A process that dies loses its steps after so long."""
_LOOK = 1.0
"""Seconds between two looks at the store when nothing has been heard."""
_PAGE = 1_000
_AHEAD = 500
"""So many ready steps are looked up at once; one that somebody else has taken meanwhile is simply not had."""
_UNWRITTEN = 2
"""For each step that may run, so many others may be done and still have to be written down."""
_TOGETHER = 0.002
"""Seconds in which steps that end together are waited for, so that what follows is claimed in one go."""


class Runner:
    """Runs one run of the store; `progress` can be looked at while it does."""

    def __init__(self, site: RunContext, run: RunId, *, jobs: int = JOBS, before: Mapping[str, str] = {}) -> None:
        """`before` says where steps stand that an earlier run of the store has dealt with."""
        self.before = before
        self.site = site
        self.run_id = run
        self.jobs = jobs
        self.active: dict[TaskId, StepAttempt] = {}
        self.ended: dict[str, StepReceipt] = {}
        """The receipt of the last attempt at each step, by name."""
        self._places: dict[TaskId, None] = {}
        """Of the active ones those that are not done yet."""
        self._working: dict[asyncio.Task[None], None] = {}
        self._ended = asyncio.Event()
        self._interrupted: str | None = None
        self._trouble: BaseException | None = None
        self._ready: list[TaskId] = []
        self._said: set[TaskId] = set()
        """Parts of steps that were split of which it was said who runs them."""
        self._ran = 0
        self._signed = 0.0
        self._looked = 0.0

    @property
    def interrupted(self) -> bool:
        """Whether somebody has stopped it."""
        return self._interrupted is not None

    def interrupt(self, reason: str) -> None:
        """Stop: first with all that belongs to it, the second time at once; receipts are left either way (F13)."""
        again = self._interrupted is not None
        self._interrupted = self._interrupted or reason
        for attempt in self.active.values():
            attempt.stop(reason, at_once=again)
        self._ended.set()

    async def run(self) -> FlowSummary:
        """Run until everything has ended, a human is needed, the time is up, or somebody stops it."""
        name = self.site.base.record.flow
        about = {OPERATION: INVOKE_WORKFLOW, WORKFLOW_NAME: name, RUN: self.run_id}
        with traced(INVOKE_WORKFLOW, about, title=name) as seen:
            summary = await self._run()
            seen.note({OUTCOME: str(summary.verdict)})
            return summary

    async def _run(self) -> FlowSummary:
        try:
            while self._interrupted is None and self._trouble is None:
                news = self.site.watch.on_ready()
                self._ended.clear()
                self._give_sign()
                try:
                    await self._claim()
                    await self._mind_the_run()
                    if not self.active and await self._is_over():
                        break
                except Unavailable:
                    if not self.active:  # else a step is at work, or has ended and waits until the store can be told
                        raise
                await self._wait(news)
        finally:
            while self._working:
                await asyncio.wait(self._working)
            await self.site.written()
        if self._trouble is not None:
            raise self._trouble
        return await self.summary()

    def _give_sign(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._signed + _LOOK / 2:
            self._signed = now
            self.site.base.give_sign()

    async def _mind_the_run(self) -> None:
        """Where the run's clock has stopped or gone on, those at work are told at once: their limits have moved."""
        loop = asyncio.get_running_loop()
        if not self.active or loop.time() < self._looked + _LOOK:
            return
        self._looked = loop.time()
        with contextlib.suppress(Unavailable):
            if await self.site.look_at_run():
                await self.site.watch.renew_many([attempt.lease for attempt in self.active.values()])

    async def _wait(self, news: Waiter) -> None:
        """Until a step has ended here, something has become ready, or it is time to look again."""
        waiting = [asyncio.ensure_future(event.wait()) for event in (news, self._ended)]
        try:
            await asyncio.wait(waiting, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()
        if self.active:
            await asyncio.sleep(_TOGETHER)

    async def _claim(self) -> None:
        free = min(self.jobs - len(self._places), self.jobs * (1 + _UNWRITTEN) - len(self.active))
        if free <= 0:
            return
        watch = self.site.watch
        if not self._ready:
            which = TaskFilter(run=self.run_id, states=(State.READY,), limit=_AHEAD)
            rows = await watch.tasks(which)
            self._ready = [row.task.id for row in rows if row.task.id not in self.active and is_step(row)]
            self._say_who_runs([row for row in rows if not is_step(row)])
        ready, self._ready = self._ready[:free], self._ready[free:]
        if not ready:
            return
        for got in await watch.claim_each(ready, agent=self.site.agent, lease=LEASE):
            if isinstance(got, Lease):
                self._begin(got)
            elif got is not None and not isinstance(got, Refused):  # refused: it has ended meanwhile
                self._trouble = self._trouble or got

    def _say_who_runs(self, parts: Sequence[TaskRow]) -> None:
        """Say once of each part of a step that a human has split that it waits for an agent: no runner takes it."""
        for row in parts:
            if row.task.id not in self._said:
                self._said.add(row.task.id)
                role = f" --role {row.task.role}" if row.task.role else ""
                how = f"an agent runs it: `allswell up`, or `allswell claim{role} --agent NAME`"
                self.site.tell("subtask_waits", row.task.name, 0, task_id=row.task.id, text=how)

    def _begin(self, lease: Lease) -> None:
        base = self.site.base
        given = lease.payload_as(MemberJob)
        job = msgspec.structs.replace(given, home=str(base.home), folder=base.record.folder)  # those of this machine
        attempt = StepAttempt(self.site, lease, job, lambda: self._leave_place(lease.task))
        self.active[lease.task] = attempt
        self._places[lease.task] = None
        if self._interrupted is not None:
            attempt.stop(self._interrupted)
        working = asyncio.ensure_future(self._do(attempt))
        self._working[working] = None
        working.add_done_callback(lambda done: self._working.pop(done, None))

    async def _do(self, attempt: StepAttempt) -> None:
        try:
            await attempt.run()
            self._ran += attempt.receipt is not None and attempt.receipt.status is StepStatus.DONE
            if attempt.receipt is not None:
                self.ended[attempt.job.id] = attempt.receipt
        except BaseException as error:  # noqa: BLE001 - raised by `run`, once the others have ended
            self._trouble = self._trouble or error
            for other in self.active.values():
                other.stop("the flow cannot go on")
        finally:
            self.active.pop(attempt.lease.task, None)
            self._leave_place(attempt.lease.task)

    def _leave_place(self, task: TaskId) -> None:
        self._places.pop(task, None)
        self._ended.set()

    # --- how it stands ------------------------------------------------------------------------------------------------

    async def rows(self, *, open_only: bool = False) -> list[TaskRow]:
        """The tasks of the run."""
        found: list[TaskRow] = []
        while True:
            after = found[-1].task.id if found else ""
            which = TaskFilter(open=True if open_only else None, run=self.run_id, after=after, limit=_PAGE)
            page = await self.site.watch.tasks(which)
            found += page
            if len(page) < _PAGE:
                return found

    async def _is_over(self) -> bool:
        """Whether nothing will move any more without a human: what is left waits for one, or for what does.

        A step that waits for one that has ended will be told so in a moment: the store works consequences off.
        """
        rows = await self.rows(open_only=True)
        still = {row.task.id for row in rows}
        return not any(
            row.lease is not None
            or row.ready
            or row.due is not None
            or any(wait.kind == "need" and wait.target not in still for wait in row.waits)
            for row in rows
        )

    def time_left(self) -> int | None:
        """How much of the flow's time is left, in milliseconds."""
        return self.site.time_left()

    async def states(self) -> dict[str, str]:
        """Where every step stands, by name."""
        return {**self.before, **{row.task.name: _stands(row) for row in await self.rows()}}

    async def summary(self) -> FlowSummary:
        """What the run has come to."""
        rows = await self.rows()
        names = {row.task.id: row.task.name for row in rows}
        states = {**self.before, **{row.task.name: _stands(row) for row in rows}}
        reasons = {row.task.name: _reason(row, names) for row in rows if row.task.state != State.DONE}
        questions = tuple(wait.target for row in rows for wait in row.waits if wait.kind == "question")
        counted = Counter(row.task.state for row in rows)
        timed_out = any(row.task.record.reason == "run_timeout" for row in rows)
        if timed_out:
            verdict = RunVerdict.TIMED_OUT
        elif self._interrupted is not None and any(row.task.state not in ENDS for row in rows):
            verdict = RunVerdict.INTERRUPTED
        elif questions:
            verdict = RunVerdict.NEEDS_HUMAN
        elif counted[State.FAILED] or counted[State.CANCELLED]:
            verdict = RunVerdict.FAILED
        elif any(row.task.state not in ENDS for row in rows):
            raise Bug(f"the run {self.run_id} stopped with steps that wait for nothing")
        else:
            verdict = RunVerdict.DONE
        base = self.site.base
        shown = base.shown(base.path)
        return FlowSummary(base.record.run, base.record.flow, verdict, states, reasons, questions, self._ran, shown)


def _stands(row: TaskRow) -> str:
    return "asked" if row.asks else row.state


def _reason(row: TaskRow, names: dict[TaskId, str]) -> str:
    record = row.task.record
    if row.task.state in ENDS:
        first, _, rest = record.reason.partition(" ")
        said = f"{names[TaskId(first)]} {rest}" if first in names else record.reason
        failed = record.handover if row.task.state == State.FAILED else None
        told = failed is None or not failed.message or said.startswith(failed.message)
        return said if failed is None or told else f"{failed.message} ({said})"
    waiting = sorted(names.get(TaskId(wait.target), wait.target) for wait in row.waits)
    if waiting:
        return "waits for " + ", ".join(waiting)
    return "" if record.handover is None else record.handover.message


# Starting a flow: its folder is made, its run opened, its tasks submitted; then it can be run, here or elsewhere.
#
# The folder comes first and the tasks last, all or none of them. A crash in between leaves a folder whose run has no
# tasks; `resume` submits them then, under the same ids.


class FlowStart(msgspec.Struct, frozen=True):
    """What a flow is started with."""

    flow: Flow
    source: bytes
    """The file's content, which is kept beside the run."""
    file: str
    """Its absolute path; empty where there is none."""
    home: Path
    folder: Path
    inputs: Mapping[str, Scalar]
    announced: tuple[str, ...] = ()


def this_runner(kind: str = "flow") -> str:
    """Who holds the leases of the steps that this process runs; one that joined another's run is of kind `join`."""
    return f"{kind}-{socket.gethostname()}-{os.getpid()}"[:200]


def new_base(beginning: FlowStart, run: RunId, clock: Clock, files: Files | None = None) -> RunBase:
    """The folder of a new run."""
    record = RunRecord(
        run,
        beginning.flow.name,
        beginning.file,
        str(beginning.folder),
        dict(beginning.inputs),
        (run,),
        stamp(clock.wall()),
        beginning.announced,
    )
    base = RunBase(beginning.home, record, files)
    base.make(beginning.source)
    return base


async def open_run(watch: Watch, base: RunBase, flow: Flow, run: RunId) -> None:
    """Open a run of the store for this folder, after the one before if there is one; once, however often it is said."""
    runs = base.record.runs
    after = runs[runs.index(run) - 1] if run in runs[1:] else None
    await watch.open_run(base.record.flow, timeout=flow.timeouts.flow, run=run, after=after)


async def submit(watch: Watch, planned: FlowPlan) -> None:
    """Hand the tasks to the store, all or none; those that are there already stay as they are."""
    await watch.submit_prepared(planned.tasks)


async def make_site(watch: Watch, base: RunBase, run: RunId, clock: Clock | None = None) -> RunContext:
    """Where this process runs the steps of a run."""
    clock = clock or SystemClock()
    row = await watch.run(run)
    if row is None:
        raise Refused("unknown_run", f"there is no run {run} in this store; is it another store's?", where="run")
    began = clock.monotonic() - (await watch.now() - row.created_at)
    return RunContext(base, watch, this_runner(), clock, began, row)


async def begin(
    watch: Watch, beginning: FlowStart, run: RunId, policy: Policy, clock: Clock, files: Files | None = None
) -> RunBase:
    """Make the folder, open the run and submit the flow's tasks."""
    base = new_base(beginning, run, clock, files)
    await open_run(watch, base, beginning.flow, run)
    await submit(watch, plan(beginning.flow, base, run, policy))
    return base


# Taking steps of a run that another process has started, on this machine and in this folder.
#
# What a step's task carries is enough to do it; only where things lie is this machine's own. Files that steps hand to
# each other have to be where the next one looks: a shared folder, or one that the steps themselves bring up to date.

_ELSEWHERE = b"# The flow was started elsewhere; resume it there.\n"


async def join(watch: Watch, run: RunId, home: Path, folder: Path, wall: int) -> RunBase:
    """The folder of a run on this machine: one that is there already, or a new one; `Refused` if it is no flow's."""
    job = await _a_job(watch, run)
    try:
        return find_base(home, job.run)
    except Refused:
        pass
    record = RunRecord(job.run, job.flow, "", str(folder), dict(job.inputs), (run,), stamp(wall))
    base = RunBase(home, record)
    base.make(_ELSEWHERE)
    return base


async def _a_job(watch: Watch, run: RunId) -> MemberJob:
    for row in await watch.tasks(TaskFilter(run=run, limit=100)):
        try:
            return msgspec.convert(await watch.payload(row.task.id), MemberJob)
        except msgspec.ValidationError:
            continue
    raise Refused("not_a_flow", f"the run {run} has no steps of a flow", where="--run")
