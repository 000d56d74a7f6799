"""A store that goes by this machine's clock: how it tells the time, and what it offers because that clock can be set.

A machine's wall clock can be set; a server's is the server's business. What a store of the first kind lets a unit of
work do about it stands here (docs/adr/0033).

The clock of such a store is the wall clock, but never behind a moment already told or stored. What was told in this
process is kept in memory. What was stored is read off the newest event: writers are serial and stamp events with this
clock, so it is the latest. When a store is opened, the last renewal of a lease counts too, so that beats, which leave
no event, are not forgotten by a restart. Nothing is written for the clock's sake.

A wall that is a little behind makes the clock stand still until it has caught up. One that is further behind was set
back, or the store was written by a machine that ran ahead: then no unit of work is told the time (`SetBack`) until
everything that runs has been settled on the wall as it is. Views are told, and told that it stands.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from allswell.domain.ids import AgentId, Millis
from allswell.domain.lease.clock_change import TOLERATED, ClockAdjustment
from allswell.domain.lease.model import LeaseRow
from allswell.domain.task.model import Task
from allswell.errors import AllswellError
from allswell.timing.clock import Clock, ClockSnapshot, look_at

SETTLING = "clock_settling"
"""Under which word a watch keeps how far settling has got."""
DISTANCE = "clock_set"
"""Under which word it keeps how far the wall of a machine is ahead of its boottime (ADR 9)."""
_AT_REST = ClockAdjustment()
_decode = msgspec.json.Decoder(ClockAdjustment).decode


class SetBack(AllswellError):
    """The time cannot be told: the wall is behind what was told or stored, and that is not settled yet."""


class ClockReading(msgspec.Struct, frozen=True):
    """The clocks as a unit of work finds them."""

    wall: Millis
    latest: Millis
    """The latest moment that was told or stored, and in this process what has passed since."""
    settling: str | None
    """The word about settling, as it is kept."""
    distance: str | None
    """The word about how far the clocks are apart, as it is kept."""


class ClockMoveWrites(msgspec.Struct):
    """What settling writes beside the rows that every unit of work may write."""

    settling: tuple[str | None, str]
    """The word as it was read, and as it shall be; `Conflict` where it is not that any more."""
    distance: str | None = None
    tasks: list[Task] = msgspec.field(default_factory=list)
    """Only the limit in their spec changes."""
    leases: list[LeaseRow] = msgspec.field(default_factory=list)
    """All their moments change."""


class DueTimer(msgspec.Struct, frozen=True):
    """Whose timer it is; `agent` holds the lease, if there is one."""

    owner: str
    agent: AgentId | None


@runtime_checkable
class OwnClock(Protocol):
    """What a unit of work offers on a store that goes by this machine's clock."""

    async def clocks(self) -> ClockReading:
        """The clocks, whatever they say."""
        ...

    async def find_timers(self, after: str, limit: int) -> Sequence[DueTimer]:
        """All timers by owner, for a walk over them."""
        ...


def settling_of(word: str | None) -> ClockAdjustment:
    """How far settling has got."""
    return _AT_REST if word is None else _decode(word)


class StoreClock:
    """Moments that do not go back unless everything is settled; asked by the writer's and the views' threads."""

    def __init__(self, clock: Clock, *, of_server: bool = False) -> None:
        self._clock = clock
        self._of_server = of_server
        """Whether it stands for a server's clock: one that was set back is followed, since nobody could settle it."""
        self._last = 0
        self._told_at = 0
        """When the last one was told, on the monotonic clock."""
        self._count = 0
        """How often the store had been settled by then."""
        self._guard = threading.Lock()

    def now(self, stored: int, settling: ClockAdjustment | None = None) -> Millis:
        """The present moment, not before the stored one; without a word about settling nobody has looked for one."""
        with self._guard:
            clocks = look_at(self._clock)
            latest = self._latest(stored, settling, clocks)
            behind = latest - clocks.wall
            if behind > TOLERATED or (settling is not None and settling.by is not None):
                raise SetBack(f"this machine's clock is {behind} ms behind the last moment in the store")
            return self._tell(max(latest, clocks.wall), clocks)

    def see(self, stored: int, settling: ClockAdjustment) -> tuple[Millis, int]:
        """The present moment for a view, and by how much time stands still; 0 while it goes on."""
        with self._guard:
            clocks = look_at(self._clock)
            latest = self._latest(stored, settling, clocks)
            behind, moment = latest - clocks.wall, max(latest, clocks.wall)
            if behind > TOLERATED or settling.by is not None:
                return Millis(moment), max(behind, -(settling.by or 0))
            return self._tell(moment, clocks), 0

    def begin(self, stored: int, settling: ClockAdjustment) -> None:
        """Take note of what a store that is being opened holds."""
        with self._guard:
            clocks = look_at(self._clock)
            self._tell(self._latest(stored, settling, clocks), clocks)

    def read(self, stored: int, settling: str | None, distance: str | None) -> ClockReading:
        """The clocks, whatever they say."""
        with self._guard:
            clocks = look_at(self._clock)
            latest = self._latest(stored, settling_of(settling), clocks)
            if latest == self._last:
                latest += clocks.monotonic - self._told_at
            return ClockReading(Millis(clocks.wall), Millis(latest), settling, distance)

    def _latest(self, stored: int, settling: ClockAdjustment | None, clocks: ClockSnapshot) -> int:
        if settling is not None and settling.count != self._count:
            # Settled by whomever: what was told before belongs to another reckoning.
            self._count, self._last = settling.count, 0
        if self._of_server and self._last - clocks.wall > TOLERATED:
            self._last = 0
        return max(self._last, stored)

    def _tell(self, moment: int, clocks: ClockSnapshot) -> Millis:
        self._last, self._told_at = moment, clocks.monotonic
        return Millis(moment)
