"""The machine's clocks are what they say, in whole milliseconds."""

from __future__ import annotations

import time

from allswell.timing.clock import Clock, SystemClock


def test_wall_is_unix_time_in_milliseconds() -> None:
    clock: Clock = SystemClock()
    before = time.time_ns() // 1_000_000
    assert before <= clock.wall() <= time.time_ns() // 1_000_000


def test_monotonic_is_clock_monotonic_and_never_goes_back() -> None:
    clock: Clock = SystemClock()
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000
    readings = [clock.monotonic() for _ in range(1_000)]
    assert before <= readings[0]
    assert readings == sorted(readings)
