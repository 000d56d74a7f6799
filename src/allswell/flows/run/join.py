"""Taking steps of a run that another process has started, on this machine and in this folder.

What a step's task carries is enough to do it; only where things lie is this machine's own. Files that steps hand to
each other have to be where the next one looks: a shared folder, or one that the steps themselves bring up to date.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from allswell.domain.listing import TaskFilter
from allswell.domain.names import RunId
from allswell.engine.watch import Watch
from allswell.errors import Refused
from allswell.flows.run.base import RunBase, RunRecord, find_base, stamp
from allswell.flows.run.job import Job

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


async def _a_job(watch: Watch, run: RunId) -> Job:
    for row in await watch.tasks(TaskFilter(run=run, limit=100)):
        try:
            return msgspec.convert(await watch.payload(row.task.id), Job)
        except msgspec.ValidationError:
            continue
    raise Refused("not_a_flow", f"the run {run} has no steps of a flow", where="--run")
