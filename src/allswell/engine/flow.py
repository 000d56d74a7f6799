"""A hold on a Python flow, for the process that runs its program; steps are recorded under it.

`Watch.take_up` gives one. The rules are in `domain/task/aggregate.py`; this translates, as `Watch` does, and decides
nothing.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from allswell.domain.ids import CommandId, RunId, TaskId
from allswell.domain.lease.claim import STEP_ROLE
from allswell.domain.rules.command import NewTask, RecordStep
from allswell.domain.task.aggregate import FLOW_ROLE
from allswell.domain.task.model import DEFAULT, Policy
from allswell.engine.backend import Backend
from allswell.engine.ids import task_for_key
from allswell.engine.lease import Lease
from allswell.errors import Refused

PAGE = 1_000
RUN_ID_MAX = 64
_RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)


def run_named(run_id: str) -> RunId:
    """The run that a program calls so: as it is said, behind the prefix that every run's id has."""
    given: object = run_id
    if not isinstance(given, str) or not _RUN_ID.fullmatch(given) or len(given) > RUN_ID_MAX:
        text = f"run_id must be 1 to {RUN_ID_MAX} letters, digits, '_', '-' and '.', not {run_id!r}"
        raise Refused("bad_run_id", text, where="run_id")
    return RunId(run_id if run_id.startswith("r_") else f"r_{run_id}")


def task_of_flow(run: RunId) -> TaskId:
    """The task of a run that is the flow itself."""
    return task_for_key(f"flow of {run}")


def new_flow(run: RunId, name: str, limit: int) -> NewTask:
    """The task that is the flow itself; `limit` bounds an attempt at it, in ms."""
    return NewTask(task_of_flow(run), name, run, FLOW_ROLE, policy=_policy(limit), flow=True)


class FlowHold:
    """The right to run one flow. `lease` is None if the flow is done: then nothing is left to run."""

    def __init__(self, engine: Backend, run: RunId, lease: Lease | None) -> None:
        self._engine = engine
        self.run = run
        self.lease = lease

    @property
    def new(self) -> bool:
        """Whether it never ran before, so that no step can have been recorded."""
        return self.lease is not None and self.lease.token == 1

    async def results(self) -> AsyncIterator[tuple[TaskId, str]]:
        """What was recorded so far: each step's id, and its result as JSON text."""
        after = ""
        while True:
            page = await self._engine.store.view_results(self.run, STEP_ROLE, after, PAGE)
            for found in page:
                yield found
            if len(page) < PAGE:
                return
            after = page[-1][0]

    def check(self, name: str) -> Lease:
        """The lease, or why no step can be recorded under it."""
        lease = self.lease
        if lease is None:
            text = f"the flow is done, and {name} is not among its steps; run it under another run_id"
            raise Refused("flow_over", text, where="run_id")
        if lease.lost is not None:
            raise lease.lost
        return lease

    def said(self, step: TaskId, name: str, payload: str, result: str, elapsed: int) -> RecordStep:
        """What is said of a step that is done."""
        lease = self.check(name)
        # Said by whichever thread has done it, and the same however often it is said under this hold.
        command = CommandId(f"{step[2:]}.{lease.token}")
        return RecordStep(command, lease.task, lease.token, lease.agent, self.run, step, name, payload, result, elapsed)

    def record(self, said: RecordStep) -> Coroutine[Any, Any, None]:
        """Record a step; it is durable when this was awaited, in the watch's loop."""
        return self._engine.record(said)

    def record_here(self, said: RecordStep) -> bool:
        """Record a step from a thread, if there is a short way; otherwise it must be said in the watch's loop."""
        return self._engine.record_here(said)


def _policy(limit: int) -> Policy:
    """A flow is not asked for check-ins: its steps have limits of their own, which its process keeps."""
    return Policy(timeout=limit, checkpoint_interval=max(limit, DEFAULT.checkpoint_interval), stall_threshold=1 << 30)
