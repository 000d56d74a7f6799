"""A supervisor with a fleet of stand-ins on a real store, in real processes; scenes wait for what happens."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from allswell import Policy, Watch, make_watch
from allswell.app import store_for
from allswell.domain.agents.fleet import AgentSpec, Fleet
from allswell.domain.rules.event import Event
from allswell.domain.task.model import Task
from allswell.engine.timings import Timings
from allswell.runtime.receipts import StateDir
from allswell.runtime.supervisor import Supervisor, SupervisorPlan
from tests import patience

T = TypeVar("T")
STANDIN = (sys.executable, "-I", "-S", str(Path(__file__).with_name("standin.py")), "{payload}")
Scene = Callable[["Night"], Awaitable[None]]


def standin(name: str = "agent", **fields: Any) -> AgentSpec:  # noqa: ANN401 - fields of the agent
    """An agent that does what its task's payload says."""
    given = {"command": STANDIN, "grace": 500, **fields}
    return AgentSpec(name=name, **given)


class Night:
    """What a scene can touch."""

    def __init__(self, folder: Path, watch: Watch) -> None:
        self.folder = folder
        self.watch = watch
        self.home = StateDir(folder / ".allswell")
        self.lines: list[str] = []
        self.supervisor: Supervisor | None = None

    def plan(self, *agents: AgentSpec, **fields: Any) -> SupervisorPlan:  # noqa: ANN401 - fields of the plan
        """A plan for these agents, all of them in this folder unless they say otherwise."""
        placed = {one.name: _in(one, self.folder) for one in agents}
        fleet = Fleet(placed, **{key: fields.pop(key) for key in ("usage", "compaction") if key in fields})
        return SupervisorPlan(fleet, self.home, **{"tell": self.lines.append, "lease": 3_000, "stop": 10_000, **fields})

    async def until(self, what: Callable[[], Awaitable[T]], seconds: float = patience.SECONDS) -> T:
        """Wait until this gives something."""
        end = asyncio.get_running_loop().time() + seconds
        while not (found := await what()):
            assert asyncio.get_running_loop().time() < end, "\n".join(["it did not happen", *self.lines])
            await asyncio.sleep(0.02)
        return found

    async def task(self, id_: str) -> Task:
        """A task as it stands."""
        row = await self.watch.task(id_)
        assert row is not None
        return row.task

    async def ended(self, id_: str, seconds: float = patience.SECONDS) -> Task:
        """A task once it has ended."""

        async def look() -> Task | None:
            task = await self.task(id_)
            return task if task.ended_at is not None else None

        found = await self.until(look, seconds)
        assert found is not None
        return found

    async def told(self, *kinds: str) -> list[Event]:
        """The journal's events of these kinds."""
        return [entry.event async for entry in self.watch.events() if entry.event.kind in kinds]

    async def event(self, kind: str, seconds: float = patience.SECONDS) -> Event:
        """The first event of a kind, once it is there."""
        found = await self.until(lambda: self.told(kind), seconds)
        return found[0]


def _in(spec: AgentSpec, folder: Path) -> AgentSpec:
    import msgspec

    return msgspec.structs.replace(spec, cwd=str(folder)) if spec.cwd == "." else spec


def night(
    folder: Path,
    scene: Scene,
    *agents: AgentSpec,
    policies: Mapping[str, Policy] | None = None,
    url: str = "",
    **plan: Any,  # noqa: ANN401 - fields of the plan
) -> Night:
    """Play a scene beside a supervisor of these agents, then stop it normally."""

    async def main() -> Night:
        store = store_for(url or f"sqlite:///{folder}/.allswell/allswell.db")
        async with make_watch(store, policies=policies, pace=Timings(claim_poll=0.1)) as watch:
            made = Night(folder, watch)
            made.home.make()
            made.supervisor = Supervisor(watch, made.plan(*agents, **plan))
            running = asyncio.ensure_future(made.supervisor.run())
            playing = asyncio.ensure_future(scene(made))
            done, _ = await asyncio.wait((running, playing), return_when=asyncio.FIRST_COMPLETED)
            if playing in done:
                playing.result()
                made.supervisor.stop()
            else:
                running.result()  # it failed, or had nothing to do any more
                await playing
            async with asyncio.timeout(patience.SECONDS):
                await running
            return made

    (folder / ".allswell").mkdir(exist_ok=True)
    return asyncio.run(main())
