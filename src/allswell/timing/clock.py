"""The clocks, and why nothing else may ask the system for the time.

`wall` says when something happened and is what rows and people are shown; it may jump either way (NTP, an
operator, a suspend). `monotonic` says how long something took and is what waiting uses; it never goes back,
stands still while the machine sleeps, and means nothing on another machine or after a reboot. `boottime` is
the same, but goes on while the machine sleeps. A difference between two readings of one clock is a duration; a
difference between two clocks is not, but a change of it tells something: a wall clock that has moved against `boottime`
was set, and a `boottime` that has moved against `monotonic` shows how long the machine slept.

All are whole milliseconds. Code that needs the time takes a `Clock`: so tests can pass one that they control
(`allswell.testing.loop.VirtualClock`), and a clock that was set is noticed in one place.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple, Protocol

_NS_PER_MS = 1_000_000


class Clock(Protocol):
    """Where the time comes from."""

    def wall(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...

    def monotonic(self) -> int:
        """Milliseconds since some moment before, never going back (CLOCK_MONOTONIC)."""
        ...

    def boottime(self) -> int:
        """Milliseconds as `monotonic` counts them, and also those in which the machine slept (CLOCK_BOOTTIME)."""
        ...


class ClockSnapshot(NamedTuple):
    """What all three clocks say at one look."""

    wall: int
    boottime: int
    monotonic: int


def look_at(clock: Clock) -> ClockSnapshot:
    """Read all three, one right after the other."""
    return ClockSnapshot(clock.wall(), clock.boottime(), clock.monotonic())


class SystemClock:
    """The clocks of this machine."""

    def wall(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // _NS_PER_MS

    def monotonic(self) -> int:
        """Milliseconds since some moment before, never going back (CLOCK_MONOTONIC)."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // _NS_PER_MS

    def boottime(self) -> int:
        """Milliseconds as `monotonic` counts them, and also those in which the machine slept (CLOCK_BOOTTIME)."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _NS_PER_MS


class MachineClocks:
    """How far this machine's clocks are apart, and whether that has changed: its wall was set, or it has slept."""

    def __init__(self, clock: Clock, *, tolerated: float, of_server: bool) -> None:
        self._clock = clock
        self._tolerated = tolerated * 1_000
        self._of_server = of_server
        """Whether the store goes by a server's clock, which nothing here can set."""
        self.ahead, self.slept = self.distances()
        """The distances that were last taken into account; whoever has settled a jump puts the new ones here."""

    def distances(self) -> tuple[int, int]:
        """How far the wall clock is ahead of `boottime`, and how long the machine has slept since it was started."""
        now = look_at(self._clock)
        return now.wall - now.boottime, now.boottime - now.monotonic

    def far(self, one: int, other: int) -> bool:
        """Whether two such distances differ by more than clocks drift."""
        return abs(one - other) > self._tolerated

    @property
    def jumped(self) -> bool:
        """Whether the wall clock was set or the machine slept since; the store must be settled before limits count."""
        if self._of_server:
            return False
        ahead, slept = self.distances()
        return self.far(ahead, self.ahead) or self.far(slept, self.slept)


class PausableClock:
    """A clock that can be stopped: limits that are measured by it use up no time while a command is stopped."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: int | None = None
        self._stood = 0
        self._last = 0

    def stand(self, since: int | None = None) -> None:
        """Stand from now on, or from a moment before, on the monotonic clock that is behind this one."""
        if self._since is None:
            self._since = self._clock.monotonic() if since is None else since

    def go_on(self) -> None:
        """Go on where it stood."""
        self._stood += self.stands_for
        self._since = None

    @property
    def stands_for(self) -> int:
        """For how long it has stood now; 0 if it does not."""
        return 0 if self._since is None else max(self._clock.monotonic() - self._since, 0)

    def real(self) -> int:
        """The monotonic clock that is behind this one."""
        return self._clock.monotonic()

    def wall(self) -> int:
        """Milliseconds since the Unix epoch; it never stands."""
        return self._clock.wall()

    def monotonic(self) -> int:
        """Milliseconds in which it did not stand."""
        now = self._clock.monotonic() if self._since is None else self._since
        self._last = max(self._last, now - self._stood)  # it may have been made to stand from a moment before
        return self._last

    def boottime(self) -> int:
        """Milliseconds as `monotonic` counts them, and also those in which the machine slept or this clock stood."""
        return self._clock.boottime()


def this_machine() -> str | None:
    """An id of this machine's monotonic clock: of this boot, and of the time namespace, which may shift the clock.

    Readings of two processes can be compared where both have the same id. None where the system does not tell.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as told:  # noqa: PTH123 - read at every start
            return f"{told.read().strip()}/{os.readlink('/proc/self/ns/time')}"  # noqa: PTH115
    except OSError:
        return None
