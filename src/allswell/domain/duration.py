"""Durations as people write them: integers are milliseconds, strings carry a unit ("15m", "1.5h", "400ms").

So it is in Python, in variables and in files. Only where the options of a command line are read is a bare number
seconds, as it is for `timeout` and `sleep` (doors/cli/parameter.py).
"""

from __future__ import annotations

import re
from typing import Protocol, runtime_checkable

from allswell.domain.names import Millis
from allswell.errors import Refused

UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)", re.ASCII)
LONGEST = 366 * UNITS["d"]


@runtime_checkable
class Timespan(Protocol):
    """A `datetime.timedelta`, which the core does not import."""

    def total_seconds(self) -> float:
        """How long it is."""


Duration = int | str | Timespan
"""What stands for a length of time, wherever Python names one: milliseconds, a text with a unit, a `timedelta`."""


def parse(value: Duration, *, where: str = "duration") -> Millis:
    """Milliseconds from `900000`, `"900000"`, `"15m"`, `"1h 30m"` or a timedelta; anything else is refused by name."""
    if not isinstance(value, (int, str)) and isinstance(value, Timespan):
        value = round(value.total_seconds() * 1_000)
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        text = f"{where} must be milliseconds, a string such as '15m', or a timedelta"
        raise Refused("bad_duration", text, where=where)
    if isinstance(value, str):
        text = value.strip().lower()
        if text.isascii() and text.isdigit():
            value = int(text) if len(text) < 16 else LONGEST + 1
        else:
            parts = _PART.findall(text)
            if not parts or _PART.sub("", text).strip():
                said = f"{where} {value!r} is not a duration; write a number with ms, s, m, h or d, such as 15m"
                raise Refused("bad_duration", said, where=where)
            units = [UNITS[unit] for _, unit in parts]
            if len(set(units)) < len(units):
                said = f"{where} {value!r} names a unit twice; write each once, such as 1h 30m"
                raise Refused("bad_duration", said, where=where)
            value = round(min(sum(float(number) * UNITS[unit] for number, unit in parts), LONGEST + 1))
    if not 0 <= value <= LONGEST:
        raise Refused("bad_duration", f"{where} must be between 0 and 366 days", where=where)
    return Millis(value)


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
