"""When a usage limit ends, from whatever was said of it."""

from datetime import UTC, datetime

import pytest

from allswell.domain.names import Millis
from allswell.domain.usage_limit import UsageLimit, Wall
from allswell.runtime.supervisor.resets import LONGEST, wait_for

NOON = round(datetime(2026, 3, 10, 12, 0, tzinfo=UTC).timestamp() * 1_000)
HOUR = 3_600_000


@pytest.mark.parametrize(
    "limit, wait",
    [
        (UsageLimit("x", at=Millis(NOON + HOUR)), HOUR),
        (UsageLimit("x", at=Millis(NOON - HOUR)), 900_000),
        (UsageLimit("x", after=Millis(5_000)), 5_000),
        (UsageLimit("x"), 900_000),
        (UsageLimit("x", wall=Wall(15, 30, "UTC")), 3 * HOUR + HOUR // 2),
        (UsageLimit("x", wall=Wall(11, 0, "UTC")), 23 * HOUR),
        (UsageLimit("x", wall=Wall(15, 0, "Europe/Berlin")), 2 * HOUR),
        (UsageLimit("x", wall=Wall(12, 0, "UTC", 3, 12)), 48 * HOUR),
        (UsageLimit("x", wall=Wall(12, 0, "UTC", 3, 12, 2026)), 48 * HOUR),
        (UsageLimit("x", wall=Wall(12, 0, "UTC", 3, 9)), LONGEST),
        (UsageLimit("x", wall=Wall(12, 0, "UTC", 2, 30)), 900_000),
        (UsageLimit("x", wall=Wall(12, 0, "Nowhere/Land")), 900_000),
        (UsageLimit("x", at=Millis(NOON + 400 * 24 * HOUR)), LONGEST),
    ],
)
def test_how_long_it_is_waited_for(limit: UsageLimit, wait: int) -> None:
    assert wait_for(limit, NOON, 900_000) == wait
