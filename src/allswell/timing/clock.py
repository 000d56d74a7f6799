"""The clocks, and why nothing else may ask the system for the time.

`wall` says when something happened and is what rows and people are shown; it may jump either way (NTP, an
operator, a suspend). `monotonic` says how long something took and is what waiting uses; it never goes back,
stands still while the machine sleeps, and means nothing on another machine or after a reboot. `boottime` is
the same, but goes on while the machine sleeps. A difference between two readings of one clock is a duration; a
difference between two clocks is not, except to notice what became of them: a wall that has moved against `boottime`
was set, and a `boottime` that has moved against `monotonic` counts how long the machine slept.

All are whole milliseconds. Who needs the time takes a `Clock`, so that tests can hand in one that obeys
them (`allswell.testing.clock.VirtualClock`).
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
        """As `monotonic`, and those in which the machine slept (CLOCK_BOOTTIME)."""
        ...


class Readings(NamedTuple):
    """What all three clocks say at one look."""

    wall: int
    boottime: int
    monotonic: int


def look_at(clock: Clock) -> Readings:
    """Read all three, one right after the other."""
    return Readings(clock.wall(), clock.boottime(), clock.monotonic())


class SystemClock:
    """The clocks of this machine."""

    def wall(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // _NS_PER_MS

    def monotonic(self) -> int:
        """Milliseconds since some moment before, never going back (CLOCK_MONOTONIC)."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // _NS_PER_MS

    def boottime(self) -> int:
        """As `monotonic`, and those in which the machine slept (CLOCK_BOOTTIME)."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _NS_PER_MS


def this_machine() -> str | None:
    """Whose monotonic clock this is: the machine since it was started, and the namespace that may shift it.

    Readings of two processes can be compared where this is the same. None where the system does not tell.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as told:  # noqa: PTH123 - read at every start
            return f"{told.read().strip()}/{os.readlink('/proc/self/ns/time')}"  # noqa: PTH115
    except OSError:
        return None
