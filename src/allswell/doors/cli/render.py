"""How things look: short times, tables that fit the terminal, colour where it is wanted, and nothing that bites.

Whatever an agent said is data: control characters, terminal escapes and invisible marks are shown as what they are.
Tables are made by hand and in one pass, because ten thousand rows must come at once.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from allswell.domain.duration import felt
from allswell.doors.cli.width import columns, cut, width_of, wrapped

_WILD = re.compile(r"[^\x20-\x7e]")
_ESCAPED = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
STYLES = {
    "held": "36",
    "ready": "32",
    "waiting": "33",
    "delayed": "2",
    "done": "2;32",
    "failed": "1;31",
    "cancelled": "2",
    "skipped": "2",
    "split": "2",
    "nowhere": "1;31",
    "working": "32",
    "spawning": "36",
    "quiet": "33",
    "stalled": "1;31",
    "dead": "2",
    "idle": "2",
    "unknown": "2",
    "not running": "2",
    "waiting for a human": "33",
    "waiting for an agent": "33",
    "waiting for a limit": "33",
    "dim": "2",
    "bold": "1",
    "warn": "33",
    "typed": "36",
}
GAP = "  "


def _tamed(found: re.Match[str]) -> str:
    character = found.group()
    if unicodedata.category(character) not in _ESCAPED:
        return character
    code = ord(character)
    return {"\n": "⏎", "\t": " "}.get(character, f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def plain(text: str) -> str:
    """Text on one line, with everything that a terminal would act upon written out."""
    return _WILD.sub(_tamed, text)


def block(text: str, indent: str = "") -> str:
    """Text on lines of its own, just as harmless; at a terminal, wrapped to its width."""
    lines = [plain(line) for line in text.splitlines()]
    room = columns()
    if room is not None:
        lines = [part for line in lines for part in wrapped(line, room - len(indent))]
    return "\n".join(indent + line for line in lines)


def harmless(text: str) -> str:
    """Text with its own line breaks and nothing else that a terminal would act upon."""
    return "\n".join(map(plain, text.splitlines()))


def sentence(text: str) -> str:
    """Words of ours, harmless and perhaps painted already; at a terminal, broken to its width."""
    room = columns()
    return text if room is None else "\n".join(wrapped(text, room))


def coloured() -> bool:
    """Whether colour is wanted: on a terminal, unless NO_COLOR says otherwise."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str) -> str:
    """Text in a style, where colour is wanted."""
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if style in STYLES and text and coloured() else text


def short(length: int) -> str:
    """A length of time in whole seconds and at most two units: `40s`, `1m 58s`, `2h`."""
    return felt(length // 1_000 * 1_000) if length >= 1_000 else "0s"


def when(moment: int, now: int) -> str:
    """A moment as seen from now: `2m ago`, `in 3m`, `now`."""
    away = moment - now
    if abs(away) < 1_000:
        return "now"
    return f"in {short(away)}" if away > 0 else f"{short(-away)} ago"


class Column(NamedTuple):
    """A column of a table; one with `least` may be cut down to so many characters."""

    title: str
    least: int | None = None
    right: bool = False
    spare: bool = False
    """Left out altogether where the terminal is too narrow for all."""


def table(columns_: Sequence[Column], rows: Sequence[Sequence[str]], *, styled: int | None = None) -> str:
    """Rows under titles, as wide as the terminal allows; columns without any content are left out.

    The cells of the column `styled` are painted in the style of their own name.
    """
    kept = [place for place in range(len(columns_)) if any(row[place] for row in rows)]
    heads = [columns_[place] for place in kept]
    cells = [[plain(row[place]) for place in kept] for row in rows]
    natural = [max(map(width_of, column)) for column in zip(*cells, strict=True)]
    widths = [max(width, len(head.title)) for width, head in zip(natural, heads, strict=True)]
    if _over(widths) > 0:
        staying = [place for place, head in enumerate(heads) if not head.spare]
        kept, heads, widths = [kept[n] for n in staying], [heads[n] for n in staying], [widths[n] for n in staying]
        cells = [[row[place] for place in staying] for row in cells]
    widths = _fitted(heads, widths)
    painting = kept.index(styled) if styled in kept and coloured() else None
    lines = [paint(_line([head.title for head in heads], heads, widths), "dim")]
    for row in cells:
        fitted = [cut(cell, width) for cell, width in zip(row, widths, strict=True)]
        if painting is None:
            lines.append(_line(fitted, heads, widths))
        else:
            padded = [_pad(cell, width, head) for cell, width, head in zip(fitted, widths, heads, strict=True)]
            padded[painting] = paint(padded[painting], row[painting])
            lines.append(GAP.join(padded).rstrip())
    return "\n".join(lines)


def _over(widths: Sequence[int]) -> int:
    """By how many columns a line of these widths is too long for the terminal."""
    room = columns()
    return 0 if room is None else sum(widths) + len(GAP) * (len(widths) - 1) - room


def _fitted(heads: Sequence[Column], natural: Sequence[int]) -> list[int]:
    """Widths that fit the terminal: the widest column that may be cut gives way first."""
    widths = list(natural)
    for _ in range(_over(widths)):
        able = [place for place, head in enumerate(heads) if head.least is not None and widths[place] > head.least]
        if not able:
            break
        widths[max(able, key=widths.__getitem__)] -= 1
    return widths


def _pad(cell: str, width: int, head: Column) -> str:
    blank = " " * (width - width_of(cell))
    return blank + cell if head.right else cell + blank


def _line(cells: Sequence[str], heads: Sequence[Column], widths: Sequence[int]) -> str:
    padded = [_pad(cell, width, head) for cell, width, head in zip(cells, widths, heads, strict=True)]
    return GAP.join(padded).rstrip()


def pairs(listed: Sequence[tuple[str, str]]) -> str:
    """Names and values below each other, values broken to the terminal's width; those without content are left out."""
    shown = [(name, value) for name, value in listed if value]
    width = max((len(name) for name, _ in shown), default=0)
    indent = "\n" + " " * (width + len(GAP))
    room = columns()
    lines = []
    for name, value in shown:
        parts = value.split("\n")
        if room is not None:
            parts = [part for line in parts for part in wrapped(line, room - width - len(GAP))]
        lines.append(f"{paint(name.ljust(width), 'dim')}{GAP}{indent.join(parts)}")
    return "\n".join(lines)
