"""A process of the storm: agents that submit, hold, check in and end, and write down every word.

Run as `python -m tests.crash.crew URL NAME HISTORY CLOCK SEED`; it works until it reads `stop` from standard input.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

import allswell
from allswell.app import make_watch, store_for
from allswell.errors import AllswellError
from allswell.store.port import Store
from allswell.store.sqlite import SqliteStore
from allswell.timing.clock import Clock
from tests.crash.stormclock import StormClock
from tests.support.history import Held, Scribe, Witness

AGENTS = 4
LEASE = "2s"
LIMIT = "4s"
"""Short, so that stopped and silent holders lose their tasks within the storm."""


def store_of(url: str, clock: Clock) -> Store:
    """The store of a process whose clock can be made to jump; a server has a clock of its own."""
    return SqliteStore(url, clock=clock) if url.startswith("sqlite:") else store_for(url)


class Agent:
    """One holder, sometimes forgetful, sometimes unlucky, never a liar."""

    def __init__(self, name: str, witness: Witness, chance: random.Random) -> None:
        self.name = name
        self._witness = witness
        self._chance = chance
        self._made = 0
        self._last: str | None = None

    async def work(self, over: asyncio.Event) -> None:
        """Submit and hold until it is over; a store that cannot be reached is tried again."""
        while not over.is_set():
            try:
                if self._chance.random() < 0.8:
                    await self._submit()
                held = await self._witness.claim(self.name, lease=LEASE, wait="500ms")
                if held is not None:
                    await self._attempt(held)
            except (allswell.LeaseLost, allswell.Refused, allswell.Unavailable):
                await asyncio.sleep(0.01)

    async def _submit(self) -> None:
        self._made += 1
        needs = [self._last] if self._last is not None and self._chance.random() < 0.2 else []
        key = f"{self.name}/{self._made}"
        payload = {"by": self.name, "n": self._made, "noise": self._chance.random()}
        self._last = await self._witness.submit(key, payload=payload, needs=needs, timeout=LIMIT, retries=2)

    async def _attempt(self, held: Held) -> None:
        drawn = self._chance.random()
        for _ in range(self._chance.choice((0, 0, 1, 1, 3))):
            await asyncio.sleep(self._chance.uniform(0, 0.02))
            await held.checkin("still at it")
        if drawn < 0.80:
            await held.complete({"by": self.name, "token": held.lease.token, "noise": self._chance.random()})
        elif drawn < 0.88:
            await held.fail("the wind took it", error_class="transient", retry_after=200)
        elif drawn < 0.96:
            await held.release("not today")
        # Else it forgets: the task comes back at its limit.


async def main(url: str, name: str, history: Path, clock: StormClock, chance: random.Random) -> None:
    """Work until told to stop."""
    scribe = Scribe(history, name)
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    while True:
        try:
            async with make_watch(store_of(url, clock), clock=clock) as watch:
                witness = Witness(watch, scribe)
                agents = [Agent(f"{name}.{number}", witness, chance) for number in range(AGENTS)]
                work = [asyncio.create_task(agent.work(over)) for agent in agents]
                told = await loop.run_in_executor(None, sys.stdin.readline)
                assert told in ("stop\n", "")
                over.set()
                await asyncio.gather(*work)
                return
        except AllswellError as error:
            if not isinstance(error, allswell.Unavailable):
                raise
            await asyncio.sleep(0.1)  # the store was away when it was opened


if __name__ == "__main__":
    place, who, file, clock_file, seed = sys.argv[1:]
    asyncio.run(main(place, who, Path(file), StormClock(Path(clock_file)), random.Random(seed)))
