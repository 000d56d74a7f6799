"""Starting a flow: its folder is made, its run opened, its tasks submitted; then it can be run, here or elsewhere.

The folder comes first and the tasks last, all or none of them. A crash in between leaves a folder whose run has no
tasks; `resume` submits them then, under the same ids.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

from allswell.domain.names import RunId
from allswell.domain.policy import Policy
from allswell.engine.watch import Watch
from allswell.errors import Refused
from allswell.flows.loading import Scalar
from allswell.flows.run.base import RunBase, RunRecord, stamp
from allswell.flows.run.files import Files
from allswell.flows.run.plan import Planned, plan
from allswell.flows.run.site import Site
from allswell.flows.spec import Flow
from allswell.timing.clock import Clock, SystemClock


class Beginning(msgspec.Struct, frozen=True):
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


def new_base(beginning: Beginning, run: RunId, clock: Clock, files: Files | None = None) -> RunBase:
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


async def submit(watch: Watch, planned: Planned) -> None:
    """Hand the tasks to the store, all or none; those that are there already stay as they are."""
    await watch.submit_prepared(planned.tasks)


async def make_site(watch: Watch, base: RunBase, run: RunId, clock: Clock | None = None) -> Site:
    """Where this process runs the steps of a run."""
    clock = clock or SystemClock()
    row = await watch.run(run)
    if row is None:
        raise Refused("unknown_run", f"there is no run {run} in this store; is it another store's?", where="run")
    began = clock.monotonic() - (await watch.now() - row.created_at)
    return Site(base, watch, this_runner(), clock, began, row)


async def begin(
    watch: Watch, beginning: Beginning, run: RunId, policy: Policy, clock: Clock, files: Files | None = None
) -> RunBase:
    """Make the folder, open the run and submit the flow's tasks."""
    base = new_base(beginning, run, clock, files)
    await open_run(watch, base, beginning.flow, run)
    await submit(watch, plan(beginning.flow, base, run, policy))
    return base
