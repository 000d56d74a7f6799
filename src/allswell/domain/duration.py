"""Durations as people write them: integers are milliseconds, strings carry a unit ("15m", "1.5h", "400ms").

So it is in Python, in variables and in files. Only what a human types, on a command line or into a field, is seconds
without a unit, as it is for `timeout` and `sleep` (`with_unit`).
"""

from __future__ import annotations

import re
from typing import Protocol, runtime_checkable

from allswell.domain.ids import Millis
from allswell.errors import Refused

UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)", re.ASCII)
LONGEST = 366 * UNITS["d"]
_BARE = re.compile(r"[0-9]{1,18}(\.[0-9]+)?|\.[0-9]+", re.ASCII)
_ASK_FOR_UNIT = 10_000
"""A bare number above this many seconds was perhaps meant as milliseconds, so it is asked for its unit."""


@runtime_checkable
class Timespan(Protocol):
    """A `datetime.timedelta`, which the core does not import."""

    def total_seconds(self) -> float:
        """How long it is."""


Duration = int | str | Timespan
"""What stands for a length of time, wherever Python names one: milliseconds, a text with a unit, a `timedelta`."""


def parse(value: Duration, *, where: str = "duration") -> Millis:
    """Milliseconds from `900000`, `"900000"`, `"15m"`, `"1h 30m"` or a timedelta; anything else is refused by name."""
    if isinstance(value, str):
        length = _from_text(value, where)
    elif isinstance(value, int) and not isinstance(value, bool):
        length = value
    elif isinstance(value, Timespan):
        length = round(value.total_seconds() * 1_000)
    else:
        said = f"{where} must be milliseconds, a string such as '15m', or a timedelta"
        raise Refused("bad_duration", said, where=where)
    if not 0 <= length <= LONGEST:
        raise Refused("bad_duration", f"{where} must be between 0 and 366 days", where=where)
    return Millis(length)


def _from_text(value: str, where: str) -> int:
    text = value.strip().lower()
    if text.isascii() and text.isdigit():
        return int(text) if len(text) < 16 else LONGEST + 1
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip():
        unread = f"{where} {value!r} is not a duration; write a number with ms, s, m, h or d, such as 15m"
        raise Refused("bad_duration", unread, where=where)
    if len({UNITS[unit] for _, unit in parts}) < len(parts):
        twice = f"{where} {value!r} names a unit twice; write each once, such as 1h 30m"
        raise Refused("bad_duration", twice, where=where)
    return round(min(sum(float(number) * UNITS[unit] for number, unit in parts), LONGEST + 1))


def with_unit(text: str, *, moment: bool = False) -> str:
    """A length of time that somebody typed, with its unit: a bare number is seconds; `moment` may be a date instead."""
    bare = text.strip()
    if not _BARE.fullmatch(bare):
        return text
    seconds = float(bare)
    if moment and seconds > LONGEST:  # milliseconds since 1970
        return text
    if seconds > _ASK_FOR_UNIT:
        raise ValueError(f"seconds or milliseconds? Write {bare}s or {bare}ms, or 15m, 2h")
    return f"0{bare}s" if bare.startswith(".") else f"{bare}s"


def felt(length: int) -> str:
    """How long something took: two units at most, and no more digits than one can feel (`2s`, `2.5s`, `1m 58s`)."""
    if length < 10 * UNITS["s"]:
        return show(length if length < UNITS["s"] else round(length, -2))
    for unit, smaller in (("d", "h"), ("h", "m"), ("m", "s")):
        if length >= UNITS[unit]:
            rest = length % UNITS[unit] // UNITS[smaller]
            return f"{length // UNITS[unit]}{unit}" + (f" {rest}{smaller}" if rest else "")
    return f"{length // UNITS['s']}s"


def show(length: int) -> str:
    """A duration in words a person reads at a glance: `15m`, `1h 30m`, `2.5s`, `400ms`."""
    if length < 0:
        return "-" + show(-length)
    if length < UNITS["s"]:
        return f"{length}ms"
    if length < UNITS["m"]:
        return f"{length / 1_000:g}s"
    words = []
    rest = round(length / 1_000)
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            words.append(f"{count}{unit}")
    return " ".join(words[:2])
