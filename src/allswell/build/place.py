"""The place of a build in the store: its run, the task that stands for it, and what is kept beside its tasks.

A build is found again by its name: whoever coordinates it once more goes on with it, until it is complete. Its
coordinator holds its task by a lease that is renewed every few seconds, so of two there is one. The work of one that
was killed is taken up some seconds later; at once, if its process was on this machine and is certainly gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from allswell.build.memory import BuildMemory
from allswell.domain.build.component import BuildSpec
from allswell.domain.build.limits import PLAIN_POLICY
from allswell.domain.build.roles import BUILD_ROLE
from allswell.domain.build.standing import Standing
from allswell.domain.names import Millis, RunId
from allswell.engine.handle import Lease
from allswell.engine.watch import Watch
from allswell.errors import LeaseLost, Refused
from allswell.runtime.durable.process import is_dead
from allswell.store.views import Views

LEASE = 8_000
"""Milliseconds after which a coordinator that was killed has lost its build."""
_LONGER = 1.5
"""So many times that whoever comes next waits for it."""
_NAME_MOST = 100


class BuildPlace:
    """Where a build lives. `memory` is as it was last kept."""

    def __init__(self, run: RunId, started_at: Millis, lease: int = LEASE, process: str = "") -> None:
        self.run = run
        self.started_at = started_at
        self._lease = lease
        self._process = process
        self.memory = BuildMemory()
        self.is_new = False
        """Whether nobody has coordinated this build before."""
        self._kept: str | None = None
        self._keeping = asyncio.Lock()

    @classmethod
    async def find(cls, watch: Watch, name: str, *, lease: int = LEASE, process: str = "") -> BuildPlace:
        """The build of this name that is not over yet; a new one if there is none.

        `process` names the process that coordinates it, so that others can see when it has died.
        """
        number = 1
        while True:
            id_ = await watch.open_run(name, key=f"build.{name}.{number}")
            run = await watch.run(id_)
            if run is not None and run.ended_at is None:
                return cls(id_, run.created_at, lease, process)
            number += 1

    @property
    def _key(self) -> str:
        return _key_of(self.run)

    async def take(self, watch: Watch, *, agent: str) -> Lease:
        """Hold the build; `Refused` while somebody else does."""
        run = await watch.run(self.run)
        name = f"coordinate {self.run if run is None else run.name}"[:_NAME_MOST]
        task = await watch.submit(name, run=self.run, role=BUILD_ROLE, policy=PLAIN_POLICY, key=f"{self.run}.build")
        holder = self._process or agent
        row = await watch.task(task)
        if row is not None and row.lease is not None and is_dead(row.lease.agent):
            with contextlib.suppress(LeaseLost):  # somebody else was quicker
                await watch.held(task, row.lease.token, row.lease.agent).release("its coordinator has died")
        lease = await watch.claim(agent=holder, task=task, lease=self._lease, wait=round(self._lease * _LONGER))
        if lease is None:
            row = await watch.task(task)
            holder = "somebody" if row is None or row.lease is None else row.lease.agent
            text = f"{holder} coordinates this build ({self.run}) already; stop that coordinator first"
            raise Refused("build_taken", text, where="build")
        self._kept = await watch.recall(self._key)
        self.is_new = self._kept is None
        if self._kept is not None:
            self.memory = msgspec.json.decode(self._kept, type=BuildMemory)
        else:
            await self.keep(watch, lambda memory: memory)
        return lease

    async def keep(self, watch: Watch, change: Callable[[BuildMemory], BuildMemory]) -> None:
        """Keep what must not be forgotten; `Refused` if another coordinator has, meanwhile."""
        async with self._keeping:
            memory = change(self.memory)
            text = msgspec.json.encode(memory).decode()
            if text != self._kept and not await watch.swap(self._key, self._kept, text):
                raise Refused("build_taken", f"another coordinator has taken the build {self.run} over", where="build")
            self._kept = text
            self.memory = memory

    async def keep_spec(self, watch: Watch, spec: BuildSpec) -> None:
        """Keep the graph for whoever looks at the build: names and needs."""
        bare = [msgspec.structs.replace(component, text="") for component in spec.components]
        text = msgspec.json.encode(msgspec.structs.replace(spec, components=tuple(bare))).decode()
        before = await watch.recall(f"{self._key}.spec")
        if text != before:
            await watch.swap(f"{self._key}.spec", before, text)

    async def finish(self, watch: Watch, build: Lease, standing: Standing, *, all_said: bool = True) -> None:
        """Leave the build: it is over, or was stopped, or somebody will coordinate it again, if only to say so."""
        if standing.is_over and all_said:
            merged = sum(one.state == "merged" for one in standing.components.values())
            await build.complete({"merged": merged, "skipped": len(standing.components) - merged})
            await watch.end_run(self.run, "complete")
            return
        try:
            await build.release("its coordinator was stopped")
        except LeaseLost:
            row = await watch.task(build.task)
            if row is not None and row.task.ended_at is not None:
                await watch.end_run(self.run, "stopped by a human")


async def kept_spec(views: Views, run: RunId) -> BuildSpec | None:
    """The graph of the build that a run is of; None if it is of none."""
    key = f"{_key_of(run)}.spec"
    text = (await views.view_kept(key)).get(key)
    return None if text is None else msgspec.json.decode(text, type=BuildSpec)


def _key_of(run: RunId) -> str:
    return f"build.{run}"
