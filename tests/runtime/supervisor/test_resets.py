"""When a usage limit ends, from whatever was said of it."""

import time
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from allswell.domain.agents.refusal import UsageLimit, WallTime
from allswell.domain.agents.usage import LONGEST_PAUSE
from allswell.domain.ids import Millis
from allswell.runtime.supervisor.usage import SOON, wait_for

NOON = round(datetime(2026, 3, 10, 12, 0, tzinfo=UTC).timestamp() * 1_000)
MINUTE = 60_000
HOUR = 60 * MINUTE


@pytest.mark.parametrize(
    "limit, wait",
    [
        (UsageLimit("x", at=Millis(NOON + HOUR)), HOUR),
        (UsageLimit("x", at=Millis(NOON - HOUR)), 900_000),
        (UsageLimit("x", after=Millis(5_000)), 5_000),
        (UsageLimit("x"), 900_000),
        (UsageLimit("x", wall=WallTime(15, 30, "UTC")), 3 * HOUR + HOUR // 2 + MINUTE),
        (UsageLimit("x", wall=WallTime(11, 0, "UTC")), 23 * HOUR + MINUTE),
        (UsageLimit("x", wall=WallTime(15, 0, "Europe/Berlin")), 2 * HOUR + MINUTE),
        (UsageLimit("x", wall=WallTime(12, 0, "UTC", 3, 12)), 48 * HOUR + MINUTE),
        (UsageLimit("x", wall=WallTime(12, 0, "UTC", 3, 12, 2026)), 48 * HOUR + MINUTE),
        (UsageLimit("x", wall=WallTime(12, 0, "UTC", 3, 9)), 900_000),
        (UsageLimit("x", wall=WallTime(12, 0, "UTC", 3, 9, 2026)), 900_000),
        (UsageLimit("x", wall=WallTime(12, 0, "UTC", 2, 30)), 900_000),
        (UsageLimit("x", wall=WallTime(12, 0, "Nowhere/Land")), 900_000),
        (UsageLimit("x", at=Millis(NOON + 400 * 24 * HOUR)), LONGEST_PAUSE),
    ],
)
def test_how_long_it_is_waited_for(limit: UsageLimit, wait: int) -> None:
    assert wait_for(limit, NOON, 900_000) == wait


def at(*moment: int, zone: str = "UTC", fold: int = 0) -> int:
    year, month, day, hour, minute, second = (*moment, 0, 0)[:6]
    return round(datetime(year, month, day, hour, minute, second, 0, ZoneInfo(zone), fold=fold).timestamp() * 1_000)


@pytest.mark.parametrize(
    "now, wall, wait",
    [
        # Codex cuts to the minute: it is used again when the minute that it named is over, whatever the second.
        (at(2026, 3, 10, 18, 0, 0), WallTime(18, 19, "UTC"), 20 * MINUTE),
        (at(2026, 3, 10, 18, 19, 0), WallTime(18, 19, "UTC"), MINUTE),
        (at(2026, 3, 10, 18, 19, 42), WallTime(18, 19, "UTC"), 18_000),
        # One that has just passed is now, and not tomorrow.
        (at(2026, 3, 10, 18, 20, 0), WallTime(18, 19, "UTC"), SOON),
        (at(2026, 3, 10, 18, 25, 0), WallTime(18, 19, "UTC"), SOON),
        (at(2026, 3, 11, 0, 2, 0), WallTime(23, 59, "UTC"), SOON),
        (at(2026, 3, 10, 18, 45, 0), WallTime(18, 19, "UTC"), 23 * HOUR + 35 * MINUTE),
        (at(2026, 3, 10, 18, 25, 0), WallTime(18, 19, "UTC", 3, 10), SOON),
        (at(2026, 12, 31, 23, 0, 0), WallTime(1, 0, "UTC", 1, 1), 2 * HOUR + MINUTE),
        (at(2027, 1, 1, 0, 2, 0), WallTime(23, 59, "UTC", 12, 31), SOON),
        # The night in which the clock is set forward is an hour shorter, and the other an hour longer.
        (at(2026, 3, 28, 23, 0, zone="Europe/Berlin"), WallTime(4, 0, "Europe/Berlin"), 4 * HOUR + MINUTE),
        (at(2026, 10, 24, 23, 0, zone="Europe/Berlin"), WallTime(4, 0, "Europe/Berlin"), 6 * HOUR + MINUTE),
        (at(2026, 10, 25, 2, 45, zone="Europe/Berlin"), WallTime(2, 30, "Europe/Berlin"), 46 * MINUTE),
    ],
)
def test_a_time_on_a_wall_clock_is_a_whole_minute_and_the_nearest_one(now: int, wall: WallTime, wait: int) -> None:
    assert wait_for(UsageLimit("x", wall=wall), now, 900_000) == wait


def test_without_a_zone_it_is_the_time_where_the_client_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    night = at(2026, 3, 28, 23, 0, zone="Europe/Berlin")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert wait_for(UsageLimit("x", wall=WallTime(4, 0)), night, 900_000) == 4 * HOUR + MINUTE, "across summer time"
        assert wait_for(UsageLimit("x", wall=WallTime(23, 30)), night, 900_000, "UTC") == 90 * MINUTE + MINUTE
    finally:
        monkeypatch.undo()
        time.tzset()


def test_an_instant_that_has_just_passed_is_now() -> None:
    for late in (0, 1_000, 5 * MINUTE):
        assert wait_for(UsageLimit("x", at=Millis(NOON - late)), NOON, 900_000) == SOON
