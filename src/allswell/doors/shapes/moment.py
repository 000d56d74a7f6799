"""A moment for the outside: RFC 3339, UTC, with milliseconds. Inside, moments are milliseconds since 1970."""

from __future__ import annotations

from calendar import timegm
from functools import lru_cache
from time import gmtime, strftime, strptime
from typing import Annotated, overload

from msgspec import Meta

PATTERN = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"
Moment = Annotated[str, Meta(pattern=PATTERN, extra_json_schema={"format": "date-time"})]


@overload
def moment(at: int) -> str: ...
@overload
def moment(at: int | None) -> str | None: ...
def moment(at: int | None) -> str | None:
    """The text of a moment; None where there is none."""
    return None if at is None else f"{_second(at // 1000)}.{at % 1000:03}Z"


@lru_cache(maxsize=4_096)
def _second(seconds: int) -> str:
    return strftime("%Y-%m-%dT%H:%M:%S", gmtime(seconds))


def millis(text: str) -> int:
    """The moment that a text of ours names, in milliseconds since 1970."""
    return timegm(strptime(text[:19], "%Y-%m-%dT%H:%M:%S")) * 1_000 + int(text[20:23])
