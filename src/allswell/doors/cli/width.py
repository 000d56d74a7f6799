"""How wide text is on a terminal, and how it is made to fit: cut where it is one of many, broken where it is prose.

A terminal counts columns, not characters: an ideograph takes two, a mark on a letter none, and a colour none at all.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from typing import TextIO

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_SHOWN = re.compile(r"(?:\x1b\[[0-9;]*m)*[^\x1b](?:\x1b\[0m)?")
_WORD = re.compile(r"\s*\S+")
LEAST = 20
"""However narrow the terminal is, lines are not made shorter than this."""


def columns(stream: TextIO | None = None) -> int | None:
    """How wide the terminal is; None where nobody looks, and nothing needs cutting."""
    stream = stream or sys.stdout
    if not stream.isatty():
        return None
    given = os.environ.get("COLUMNS", "")
    try:
        return int(given) if given.isdigit() and int(given) else os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def width_of(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.category(character) in ("Mn", "Me") for character in text)


def cut(text: str, width: int) -> str:
    """Text that takes at most so many columns; what is left out is marked."""
    if width_of(text) <= width:
        return text
    while text and width_of(text) > width - 1:
        text = text[:-1] if width_of(text) - width < 8 else text[: -(width_of(text) - width) // 2]
    return text + "…"


def wrapped(text: str, room: int) -> list[str]:
    """One line of text on as many as it needs: broken between words, and within one that is wider than a line."""
    room = max(room, LEAST)
    if len(text) <= room and text.isascii():
        return [text]
    lines: list[str] = []
    line, used = "", 0
    for word in _WORD.findall(text):
        size = _seen(word)
        if used + size <= room:
            line, used = line + word, used + size
            continue
        bare = word.lstrip() if line else word
        size = _seen(bare)
        if size <= room:
            lines.append(line)
            line, used = bare, size
            continue
        pieces = _broken(word, room - used, room)  # it must be broken anyway: so it begins where there is room
        lines += [(line + pieces[0]).rstrip(), *pieces[1:-1]]
        line, used = pieces[-1], _seen(pieces[-1])
    return [*lines, line] if line or not lines else lines


def _seen(text: str) -> int:
    return width_of(_COLOUR.sub("", text) if "\x1b" in text else text)


def _broken(word: str, first: int, room: int) -> list[str]:
    """A word in pieces, the first of which fits into what its line has left."""
    pieces = [""]
    used, most = 0, first
    for shown in _SHOWN.findall(word):
        size = _seen(shown)
        if used + size > most:
            pieces.append("")
            used, most = 0, room
        pieces[-1] += shown
        used += size
    return pieces if len(pieces) > 1 else ["", *pieces]
