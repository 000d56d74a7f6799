"""A process of the simulated world: an engine with its own connection, its agents and its follower of the journal.

It can crash (all of it is cancelled where it stands, and its holders vanish without a word), come back, or be paused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from allswell.app import make_watch
from allswell.domain.journal import Entry, Position
from allswell.engine.pace import Pace
from allswell.engine.watch import Watch
from allswell.errors import Unavailable
from allswell.store.memory import MemoryStore
from allswell.store.port import Conflict, Transaction
from allswell.testing.clock import VirtualClock
from allswell.testing.sim.desk import SimDesk
from allswell.testing.sim.report import Chronicle
from allswell.testing.sim.weather import Sky, Weather
from allswell.timing.nursery import Nursery

PACE = Pace(
    store_patience=60.0,
    retry_first=1.0,
    retry_most=20.0,
    claim_poll=600.0,
    sweep_most=150.0,
    sweep_busy=1.0,
    follow_poll=600.0,
)
"""Slow enough that an hour costs little; every pause keeps its proportion."""

T = TypeVar("T")


class Connection(MemoryStore):
    """A process's own connection to the one store; it counts the conflicts it meets."""

    def __init__(self, store: MemoryStore, weather: Weather, chronicle: Chronicle) -> None:
        super().__init__(
            strict=True,
            faults=weather,
            shared_clock=store.shared_clock,
            database=store.database,
            carry=weather.carry,
        )
        self._chronicle = chronicle

    async def transact(self, work: Callable[[Transaction], Awaitable[T]], *, durable: bool = True) -> T:
        """Run `work` in one transaction and commit; roll back if it raises."""
        try:
            return await super().transact(work, durable=durable)
        except Conflict:
            self._chronicle.met("two processes made the same row")
            raise


Inhabitant = Callable[["Process"], Coroutine[Any, Any, None]]


class Process:
    """One process, dead or alive."""

    def __init__(self, number: int, store: MemoryStore, desk: SimDesk, sky: Sky) -> None:
        self.number = number
        self.desk = desk
        self.sky = sky
        self.chance = sky.chance
        self.clock = VirtualClock()
        self.inhabitants: list[Inhabitant] = []
        self.watch: Watch | None = None
        self.healthy_since = 0.0
        """Since when it has been able to work; infinity while it cannot."""
        self.seen: dict[Position, None] = {}
        """What its follower has been told, in order, without repetitions."""
        self._store = store
        self._end = asyncio.Event()
        self._begin = asyncio.Event()
        self.weather = Weather(sky)

    async def live(self) -> None:
        """Live, die and come back until cancelled."""
        while True:
            self._end.clear()
            self._begin.clear()
            self.weather = Weather(self.sky)
            store = Connection(self._store, self.weather, self.desk.chronicle)
            watch = make_watch(store, clock=self.clock, chance=self.chance, pace=PACE)
            try:
                async with watch:
                    self.watch = watch
                    self.healthy_since = asyncio.get_running_loop().time()
                    watch.follow(f"follower-{self.number}", self._read)
                    async with Nursery() as inside:
                        for inhabitant in self.inhabitants:
                            inside.start(inhabitant(self))
                        await self._end.wait()
                        inside.cancel()
            except Exception as error:  # noqa: BLE001 - an engine must survive all weather
                self.desk.ledger.breaks("an engine survives its store", f"process {self.number} died: {error!r}")
                return
            finally:
                self.watch = None
            await self._begin.wait()

    def crash(self) -> None:
        """End it where it stands."""
        self.healthy_since = float("inf")
        self.weather.resume()
        self._end.set()

    def restart(self) -> None:
        """Bring it back, if it is dead."""
        self._begin.set()

    async def sleep(self, seconds: float) -> None:
        """Sleep as a part of this process: a paused one wakes up late."""
        await asyncio.sleep(seconds)
        await self.weather.awake()

    async def _read(self, entries: Sequence[Entry]) -> None:
        if self.chance.random() < 0.01 and self.sky.levels.slow:
            raise Unavailable("the reader was out")
        for entry in entries:
            last = next(reversed(self.seen), Position())
            if entry.position in self.seen:
                self.desk.chronicle.met("an event was delivered twice")
            elif entry.position < last:
                self.desk.ledger.breaks("followers see every event in order", f"{entry.position} after {last}")
            self.seen[entry.position] = None
