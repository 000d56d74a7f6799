"""A build on virtual time: the memory store, a room, its coordinator, and scripted agents who say lines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from allswell.build.coordinator import Coordinator
from allswell.build.state import BuildPlace
from allswell.domain.build.component import BuildSpec, Component
from allswell.domain.build.hearing import Rights
from allswell.domain.build.limits import USUAL_PROGRESS, BuildLimits
from allswell.domain.build.state import BuildStatus
from allswell.engine.watch import Watch
from allswell.testing.chat import Room
from allswell.timing.clock import Clock
from tests.engine.stage import Stage, play

MINUTE = 60
USUAL = " (PROGRESS every 10m)"
COORDINATOR = "@coordinator"
DIAMOND: Mapping[str, Sequence[str]] = {"db": [], "api": ["db"], "web": ["db"], "all": ["api", "web"]}


def spec_of(needs: Mapping[str, Sequence[str]]) -> BuildSpec:
    return BuildSpec("shop", tuple(Component(name, tuple(need)) for name, need in needs.items()), "https://x/spec")


class BuildScene:
    """What a scene can touch."""

    def __init__(self, stage: Stage, room: Room, spec: BuildSpec, rights: Rights, limits: BuildLimits) -> None:
        self.stage = stage
        self.room = room
        self.spec = spec
        self.rights = rights
        self.limits = limits
        self.coordinating: asyncio.Task[BuildStatus] | None = None
        self.lives = 0
        self.lease = 0
        self.name = COORDINATOR
        self.coordinator: Coordinator | None = None

    @property
    def watch(self) -> Watch:
        return self.stage.watch

    def begin(self) -> None:
        """Have the build coordinated by a process of its own, until it is over or killed."""
        self.lives += 1
        self.coordinating = asyncio.ensure_future(self._coordinate(self.stage.another(seed=self.lives)))

    async def _coordinate(self, watch: Watch) -> BuildStatus:
        channel = self.room.join(self.name)
        try:
            async with watch:
                place = await BuildPlace.find(watch, self.spec.name, lease=self.lease)
                self.coordinator = Coordinator(
                    watch, channel, place, spec=lambda: self.spec, rights=self.rights, limits=self.limits
                )
                return await self.coordinator.run()
        finally:
            self.room.leave(channel)

    async def kill(self) -> None:
        """End the coordinator without a word."""
        assert self.coordinating is not None
        self.coordinating.cancel()
        await asyncio.wait({self.coordinating})

    async def say(self, who: str, *lines: str, **how: int | str) -> None:
        await self.room.say(who, "\n".join(lines), **how)  # type: ignore[arg-type]

    async def told(self, line: str, times: int = 1, seconds: float = 3_600) -> None:
        """Wait until the coordinator has said this line so often; the usual interval need not be named."""
        usual = line.startswith(("ACK ", "TASKS ")) and self.limits.progress_every == USUAL_PROGRESS
        whole = f"{line}{USUAL}" if usual and not line.endswith(")") else line
        await self.room.wait_for(COORDINATOR, whole, times=times, seconds=seconds)

    def count(self, line: str) -> int:
        return self.lines.count(line)

    @property
    def lines(self) -> list[str]:
        return [line.removesuffix(USUAL) for line in self.room.lines(COORDINATOR)]

    async def claim(self, who: str, component: str) -> None:
        before = self.count(f"ACK {component} {who}")
        await self.say(who, f"CLAIM {component}")
        await self.told(f"ACK {component} {who}", before + 1)

    async def build(self, who: str, component: str, auditor: str = "@auditor") -> None:
        """Claim it, build it, have it pass."""
        await self.claim(who, component)
        await self.say(who, f"READY {component} https://x/pr/{component}")
        await self.say(auditor, f"AUDIT {component} PASS")
        await self.told(f"MERGED {component}")

    async def fail(self, who: str, component: str, times: int = 1) -> None:
        """Hand it in and have it fail."""
        for number in range(times):
            await self.say(who, f"READY {component} https://x/pr/{number}")
            await self.say("@auditor", f"AUDIT {component} FAIL no tests")
            await asyncio.sleep(2)

    async def over(self) -> BuildStatus:
        assert self.coordinating is not None
        return await asyncio.wait_for(self.coordinating, 36_000)

    async def pass_time(self, minutes: float) -> None:
        await asyncio.sleep(minutes * MINUTE)


def play_build(
    scene: Callable[[BuildScene], Awaitable[None]],
    needs: Mapping[str, Sequence[str]] = DIAMOND,
    rights: Rights | None = None,
    limits: BuildLimits | None = None,
    *,
    seed: int = 1,
    lease: int = 300_000,
    echo: float = 0.0,
    room_of: Callable[[Clock], Room] | None = None,
) -> None:
    """Play a scene with a coordinator that is at work already, and end it afterwards."""

    async def main(stage: Stage) -> None:
        room = Room(stage.clock, echo=echo) if room_of is None else room_of(stage.clock)
        build = BuildScene(stage, room, spec_of(needs), rights or Rights(humans=["@human"]), limits or BuildLimits())
        build.lease = lease  # renewing it is most of the work of a long scene
        build.begin()
        while not build.lines:
            await asyncio.sleep(0.1)
        await scene(build)
        if build.coordinating is not None and not build.coordinating.done():
            await build.kill()
        if build.coordinating is not None and not build.coordinating.cancelled():
            build.coordinating.result()

    play(main, seed=seed, max_steps=20_000_000)
