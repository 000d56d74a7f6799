"""Moments of what is shown: numbers to compare and to count with, texts of RFC 3339 (UTC, milliseconds) in JSON.

The stored ones are plain numbers (`Millis`) and stay so. A shown one is made by `moment`, and whoever writes or reads
JSON that may hold one does it by `to_json` and `from_json`.
"""

from __future__ import annotations

import re
from calendar import timegm
from functools import lru_cache
from time import gmtime, strftime
from typing import Annotated, Any, TypeVar, overload

import msgspec

T = TypeVar("T")
PATTERN = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"
_SHOWN = re.compile(PATTERN)


class ShownMillis(int):
    """Milliseconds since 1970; as a text, and in JSON, the moment that they are."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{_second(self // 1000)}.{self % 1000:03}Z"


Moment = Annotated[
    ShownMillis, msgspec.Meta(extra_json_schema={"format": "date-time", "type": "string", "pattern": PATTERN})
]


@overload
def moment(at: int) -> Moment: ...
@overload
def moment(at: int | None) -> Moment | None: ...
def moment(at: int | None) -> Moment | None:
    """A moment as it is shown; None stays None."""
    return None if at is None else ShownMillis(at)


@lru_cache(maxsize=4_096)
def _second(seconds: int) -> str:
    return strftime("%Y-%m-%dT%H:%M:%S", gmtime(seconds))


def millis(text: str) -> int:
    """The moment that a text of ours names, in milliseconds since 1970."""
    day = int(text[:4]), int(text[5:7]), int(text[8:10])
    return timegm((*day, int(text[11:13]), int(text[14:16]), int(text[17:19]))) * 1_000 + int(text[20:23])


def as_text(value: object) -> str:
    """What JSON has in the place of a moment."""
    if isinstance(value, ShownMillis):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} has no JSON")


def read(kind: type[Any], value: str | int) -> ShownMillis:
    """A moment of what JSON has in its place, or of a stored one."""
    if kind is not ShownMillis:
        raise NotImplementedError(f"{kind.__name__} has no JSON")
    if isinstance(value, int):
        return ShownMillis(value)
    if not _SHOWN.fullmatch(value):
        raise ValueError(f"{value[:40]!r} is no moment")
    return ShownMillis(millis(value))


def to_json(shown: object) -> bytes:
    """What is shown, as JSON."""
    return msgspec.json.encode(shown, enc_hook=as_text)


def from_json(text: bytes | str, kind: type[T]) -> T:
    """What was shown, as JSON has it."""
    return msgspec.json.decode(text, type=kind, dec_hook=read)
