"""The two clocks, and why nothing else may ask the system for the time.

`wall` says when something happened and is what rows and people are shown; it may jump either way (NTP, an
operator, a suspend). `monotonic` says how long something took and is what waiting uses; it never goes back,
stands still while the machine sleeps, and means nothing on another machine or after a reboot. A difference
between two readings of one clock is a duration; a difference between the two clocks is not, except to notice
that the wall jumped.

Both are whole milliseconds. Who needs the time takes a `Clock`, so that tests can hand in one that obeys
them (`allswell.testing.clock.VirtualClock`).
"""

from __future__ import annotations

import time
from typing import Protocol

_NS_PER_MS = 1_000_000


class Clock(Protocol):
    """Where the time comes from."""

    def wall(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...

    def monotonic(self) -> int:
        """Milliseconds since some moment before, never going back (CLOCK_MONOTONIC)."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def wall(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // _NS_PER_MS

    def monotonic(self) -> int:
        """Milliseconds since some moment before, never going back (CLOCK_MONOTONIC)."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // _NS_PER_MS
