"""What an agent's printed bytes show: words that are new, and its last words as a person reads them.

Two questions are asked of each piece of output: whether it says anything that was not said before (`Novelty`, which
tells work from painting), and whether a line is new (`NewLines`), which is weak evidence of progress where the agent
speaks no protocol.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_COLOURS = re.compile(rb"\x1b\[[0-9;:]*m")
_KEYS = re.compile(r"(?:\^[@-_?])+")
"""Keys that a terminal has shown as they were typed, such as ^C."""
_BREAKS = re.compile(rb"[\r\n\x08\x0b\x0c]+")
_GLYPHS = re.compile(rb"\xe2[\x80-\xbf][\x80-\xbf]|[^A-Za-z\x80-\xff]+")
"""Numbers, marks, and the pictures of which spinners and bars are made (U+2000 to U+2FFF)."""
_REMEMBERED = 4_096


class Novelty:
    """Tells whether output says anything that was not said before: letters count, numbers and pictures do not."""

    def __init__(self) -> None:
        self._seen: dict[bytes, None] = {}

    def is_new(self, piece: bytes) -> bool:
        """Whether this piece of output has words that are new; it is remembered."""
        found = False
        for part in _BREAKS.split(_ESCAPES.sub(b"\n", piece)):
            words = _GLYPHS.sub(b" ", part).strip()[:200]
            if words and words not in self._seen:
                found = True
                self._seen[words] = None
                if len(self._seen) > _REMEMBERED:
                    del self._seen[next(iter(self._seen))]
        return found


_LAST = 500
"""Characters of its last output that somebody is shown who is asked about an attempt."""


def last_words(printed: bytes, most: int = _LAST) -> str:
    """The end of what was printed, as lines that a person can read; what was painted again and again stands once."""
    lines: list[str] = []
    for part in _BREAKS.split(_ESCAPES.sub(b"\n", _COLOURS.sub(b"", printed))):
        line = "".join(one for one in part.decode("utf-8", "replace").strip() if one.isprintable())
        if line and line not in lines and not _KEYS.fullmatch(line):
            lines.append(line)
    return "\n".join(lines)[-most:]


# Whether a line of output says something new: weak evidence of progress, where there is no protocol.
#
# A line is compared with those before it by its words. Pictures, bars and marks are left out, and so are clocks. Where
# the words were there before, the line is new only if one of its numbers has advanced: `epoch 3 loss=0.21` is new after
# `epoch 2 loss=0.23`; `elapsed 13s` is not after `elapsed 12s`, nor is `waiting...` after `waiting...`.
#
# What is a clock:
#   by its form     a time of day, a date, a number with a unit of time (`12s`, `3 min`) or after "elapsed" and the like
#   by its course   a number that has moved by as many seconds as have passed; one that counts lines, 1, 2, 3, has not,
#                   even if there is a line every second
# Digits within a name (`file7.c`, `test_17`) are part of the name.
#
# What is painted over by carriage returns is no line until it is completed, and what goes up to paint over earlier
# lines is none at all. Lines are found and bounded where bytes are read (runtime/attempt/output.py); moments are
# milliseconds of a monotonic clock.

LONGEST = 512
"""Bytes of a line that are looked at; of a longer one, such as a paragraph that is streamed, so many at a time."""
_NUMBERS_MOST = 16
_EPOCH = 1e9
"""From here on a number may be a time since 1970, in seconds or less."""
_UNITS = (1, 1e3, 1e6, 1e9)

_NEW_LINE_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_BACK = re.compile(r"\r|\x1b\[[0-9;]*[GK]")
"""What goes back to the beginning of a line, or takes it away: what stood before it is not there any more."""
_UP = re.compile(r"\x1b(?:\[[0-9;]*[AFHJSTfsu]|[78M])|\x08")
"""What goes elsewhere: the lines are painted over earlier ones."""
_UNIT = r"(?:[nuµm]s|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)"
_CLOCKS = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?"  # a date, with a time or without
    r"|\d{1,4}/(?:\d{1,2}|[A-Z][a-z]{2})/\d{2,4}(?::\d\d:\d\d:\d\d)?(?: [+-]\d{4})?"  # and as web servers write it
    r"|(?<![\w.])\d{1,3}(?::\d\d){1,2}(?:[.,]\d+)?(?![\w:])"  # 12:30:45, 00:12
    rf"|(?<![\w.])(?:\d+(?:[.,]\d+)?[ -]?{_UNIT}\b(?![/=]) ?)+"  # 12s, 1h 30m, 3 minutes
    r"|\b(?:elapsed|uptime|eta|runtime|waited|waiting)\b[^\w\n]{0,4}\d+(?:[.,]\d+)?",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<!\w)\d+(?:[.,]\d+)*%?")
"""A number that is not part of a name."""
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+")
_MARKS = re.compile(r"[\W_]+")
_AGAIN = re.compile(r"\b(\w+)(?: \1\b)+")


def standing_text(line: bytes) -> str:
    """What stands there once a line, given without its end, has been completed; nothing where it paints elsewhere."""
    text = line.rstrip(b"\r").decode("utf-8", "replace")
    if _UP.search(text):
        return ""
    shown = _NEW_LINE_ESCAPES.sub("", _BACK.split(text)[-1])
    return shown if shown.isprintable() else "".join(one if one.isprintable() else " " for one in shown)


class _Number(NamedTuple):
    """A number as it stands in a line."""

    value: float
    whole: bool
    share: bool
    """Whether it is a percentage."""


class _Slot:
    """One number of a kind of line: how far it has been, and whether it has gone with the clock."""

    __slots__ = ("at", "first", "high", "last", "low")

    def __init__(self, value: float, at: int) -> None:
        self.first = self.last = self.high = self.low = value
        self.at = at

    def advances(self, number: _Number, at: int) -> bool:
        """Whether it has gone further than ever, and not with the clock; it is remembered.

        A whole number may also count down. One that is not whole may be a measurement, and those vary.
        """
        value = number.value
        beyond = value > self.high or (number.whole and value < self.low)
        clock = self._is_clock(number, at)
        self.high, self.low, self.last = max(self.high, value), min(self.low, value), value
        return beyond and not clock

    def _is_clock(self, number: _Number, at: int) -> bool:
        passed, moved = (at - self.at) / 1_000, abs(number.value - self.first)
        since_1970 = self.first >= _EPOCH
        if number.share or (number.whole and not since_1970 and abs(number.value - self.last) <= 1):
            return False  # a share of the work, or it counts lines
        near = 1 if number.whole else 0.2
        return any(
            abs(moved - passed * unit) <= max(near * unit, 0.05 * moved) for unit in (_UNITS if since_1970 else (1,))
        )


class NewLines:
    """Tells which lines of an output are new; one for each stream."""

    def __init__(self) -> None:
        self._kinds: dict[str, list[_Slot]] = {}

    def is_new(self, line: bytes, at: int) -> bool:
        """Whether this line, without its end, says something new; it is remembered."""
        text = _CLOCKS.sub(" ", standing_text(line)[:LONGEST])
        numbers = _NUMBER.findall(text)[:_NUMBERS_MOST]
        words = _AGAIN.sub(r"\1", _MARKS.sub(" ", _NUMBER.sub(" 0 ", text)).strip().casefold())
        if not any(letter.isalpha() for letter in words) and not numbers:
            return False
        values = [_value(number) for number in numbers]
        slots = self._kinds.get(words)
        if slots is None:
            self._kinds[words] = [_Slot(number.value, at) for number in values]
            if len(self._kinds) > _REMEMBERED:
                del self._kinds[next(iter(self._kinds))]
            return True
        advanced = [slot.advances(number, at) for slot, number in zip(slots, values, strict=False)]
        return any(advanced)


def _value(text: str) -> _Number:
    """A number as it is written: 1,000,000 is whole, and 0,5 is not; of 1.2.3 the first two parts count."""
    digits = text.removesuffix("%")
    plain = digits.replace(",", "") if _THOUSANDS.fullmatch(digits) else digits.replace(",", ".")
    parts = plain.split(".")
    return _Number(float(".".join(parts[:2])), len(parts) == 1, text.endswith("%"))
