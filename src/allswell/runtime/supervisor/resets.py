"""When a usage limit ends, worked out from what was said: an instant, a wait, or a time on somebody's wall."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from allswell.domain.usage_limit import UsageLimit, Wall

LONGEST = 8 * 86_400_000
"""Milliseconds: no account is parked for longer on the word of its agent. A weekly limit fits."""


def wait_for(limit: UsageLimit, wall_ms: int, otherwise: int) -> int:
    """How long an account is parked, in milliseconds; `otherwise` where nothing was said that could be understood."""
    if limit.at is not None:
        wait = limit.at - wall_ms
    elif limit.after is not None:
        wait = int(limit.after)
    elif limit.wall is not None:
        found = _next(limit.wall, wall_ms)
        wait = otherwise if found is None else found - wall_ms
    else:
        wait = otherwise
    return otherwise if wait <= 0 else min(wait, LONGEST)


def _next(wall: Wall, now_ms: int) -> int | None:
    """The next moment at which a clock there shows this."""
    try:
        zone = ZoneInfo(wall.zone) if wall.zone else datetime.now().astimezone().tzinfo
    except (ZoneInfoNotFoundError, ValueError):
        return None
    now = datetime.fromtimestamp(now_ms / 1_000, UTC).astimezone(zone)
    try:
        then = now.replace(hour=wall.hour, minute=wall.minute, second=0, microsecond=0)
        if wall.month and wall.day:
            then = then.replace(year=wall.year or now.year, month=wall.month, day=wall.day)
            if then < now and not wall.year:
                then = then.replace(year=now.year + 1)
        elif then <= now:
            then += timedelta(days=1)
    except ValueError:
        return None
    return int(then.timestamp() * 1_000)
