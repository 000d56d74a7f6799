"""A room with bad weather: what is said comes late, out of order and twice, and members are cut off for a while."""

from __future__ import annotations

import asyncio
import random

from allswell.domain.build.hearing import HeardMessage
from allswell.testing.chat import Room, RoomChannel
from allswell.timing.clock import Clock


class StormyRoom(Room):
    """Everybody hears everything in the end, if it is still replayed when they come back."""

    def __init__(self, clock: Clock, seed: int) -> None:
        super().__init__(clock, replayed=200, echo=0.2)
        self._chance = random.Random(seed)
        self.cuts = 0

    def deliver(self, member: RoomChannel, heard: HeardMessage) -> None:
        """Now, soon, or after others; at times twice."""
        loop = asyncio.get_running_loop()
        late = self._chance.choice([0.0, 0.0, 0.1, 0.5, 2.0, 20.0])
        for _ in range(2 if self._chance.random() < 0.05 else 1):
            loop.call_later(self._chance.uniform(0, late), super().deliver, member, heard)

    async def rage(self, names: list[str]) -> None:
        """Cut somebody off from time to time, until cancelled; the first of the names more often than others."""
        while True:
            await asyncio.sleep(self._chance.uniform(20, 400))
            name = names[0] if self._chance.random() < 0.3 else self._chance.choice(names)
            self.cuts += 1
            self.cut(name)
            await asyncio.sleep(self._chance.choice([1, 20, 300, 2_000]))
            self.mend(name)
