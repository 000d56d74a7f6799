"""Prose on a terminal: sentences broken to its width, in colour where that is wanted."""

from __future__ import annotations

import os

from allswell.doors.cli.render import paint
from allswell.doors.cli.width import columns, wrapped

WIDEST = 100
"""Longer lines than this are hard to read, however wide the terminal is."""


_USUAL = 80
"""How wide terminals usually are."""


def width() -> int:
    """How long a line may be."""
    return min(columns() or WIDEST, WIDEST)


def page_width() -> int:
    """How long a line of a page may be that is read elsewhere, too: where nobody looks, as long as $COLUMNS says."""
    given = os.environ.get("COLUMNS", "")
    asked = int(given) if given.isdigit() and given.isascii() and len(given) < 6 else 0
    return min(columns() or asked or _USUAL, WIDEST)


def prose(text: str, *, indent: str = "", further: str | None = None) -> str:
    """A sentence on as many lines as it needs."""
    rest = indent if further is None else further
    first, *more = wrapped(text, width() - max(len(indent), len(rest)))
    return "\n".join([indent + first, *(rest + line for line in more)])


def headed(title: str, lines: list[str]) -> str:
    """Lines under a title; nothing where there are none."""
    return "\n".join([paint(title, "bold"), *lines]) if lines else ""
