"""Allswell: fenced tasks with leases, timers and events, claimed and completed in batches.

Some loops share one watch, so that there is always something to decide while the server works. On PostgreSQL two
batches are under way at once, each in a thread; the interpreter changes threads more often, as docs/how-to.md says.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from finished import execute
from protocol import Contestant, serve

import allswell
from allswell.engine.lease import Lease
from allswell.engine.watch import Watch

T = TypeVar("T")

CHUNK = 5_000


class Allswell(Contestant):
    """One watch."""

    def __init__(self, place: str, settings: dict) -> None:
        super().__init__(place, settings)
        if place.startswith("postgres"):
            sys.setswitchinterval(0.0005)
        self._runner = asyncio.Runner()
        self._watch: Watch | None = None
        self._held: list[Lease] = []
        self._filled = 0

    def _run(self, work: Callable[[Watch], Awaitable[T]]) -> T:
        if self._watch is None:
            # Open until the process ends: leases and timers are looked after all the while.
            self._watch = self._runner.run(allswell.open(self.place).__aenter__())
        return self._runner.run(work(self._watch))

    def setup(self) -> None:
        """Opening makes the tables."""

        async def open_only(watch: Watch) -> None:
            await watch.counts()

        self._run(open_only)

    def enqueue(self, count: int) -> None:
        """submit_many, 5,000 at a time."""

        async def submit(watch: Watch) -> None:
            for first in range(0, count, CHUNK):
                await watch.submit_many([{"name": "noop"}] * min(CHUNK, count - first))

        self._run(submit)

    def drain(self) -> float:
        """claim_many and complete_many until nothing is left."""
        batch, loops = self.settings["batch"], self.settings["loops"]

        async def work(watch: Watch) -> None:
            while leases := await watch.claim_many(batch, agent="racer"):
                refused = await watch.complete_many([(lease, None) for lease in leases])
                assert not any(refused), refused

        async def all_loops(watch: Watch) -> float:
            await asyncio.gather(*(work(watch) for _ in range(loops)))
            return time.time()

        return self._run(all_loops)

    def stamp(self) -> None:
        """One submit."""

        async def submit(watch: Watch) -> None:
            await watch.submit("noop", payload=time.time())

        self._run(submit)

    def watch(self) -> None:
        """A claim that waits."""

        async def wait(watch: Watch) -> None:
            while True:
                lease = await watch.claim(agent="racer", wait="1m")
                if lease is not None:
                    self.picked(lease.payload)
                    await lease.complete()

        self._run(wait)

    def hold(self, count: int) -> None:
        """Leases."""

        async def claim(watch: Watch) -> None:
            self._held = []
            while len(self._held) < count:
                await watch.submit_many([{"name": "noop"}] * 500)
                self._held += await watch.claim_many(500, agent="racer")

        self._run(claim)

    def beat(self) -> int:
        """checkin_many, 100 at a time."""

        async def check_in(watch: Watch) -> int:
            for first in range(0, len(self._held), 100):
                await watch.checkin_many(self._held[first : first + 100])
            return len(self._held)

        return self._run(check_in)

    def fill(self, count: int) -> None:
        """Finished tasks with their attempts and events."""
        execute(self.place, "allswell", count, after=self._filled)
        self._filled += count


if __name__ == "__main__":
    serve(Allswell)
