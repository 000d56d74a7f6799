"""The machine's clocks are what they say, in whole milliseconds."""

from __future__ import annotations

import time

from allswell.timing.clock import Clock, PausableClock, SystemClock


class Moved(SystemClock):
    """A clock that goes when it is told to."""

    now = 1_000_000

    def monotonic(self) -> int:
        return self.now


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


def test_a_clock_that_stands_does_not_count_and_never_goes_back() -> None:
    behind = Moved()
    clock = PausableClock(behind)
    began = clock.monotonic()
    behind.now += 1_000
    assert clock.monotonic() - began == 1_000
    clock.stand(behind.monotonic() - 400)
    assert clock.monotonic() - began == 1_000, "what was read is not taken back"
    behind.now += 5_000
    assert (clock.monotonic() - began, clock.stands_for) == (1_000, 5_400)
    clock.go_on()
    behind.now += 500
    assert (clock.monotonic() - began, clock.stands_for) == (1_100, 0)
