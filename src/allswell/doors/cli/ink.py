"""Prose on a terminal: sentences broken to its width, in colour where that is wanted."""

from __future__ import annotations

import textwrap

from allswell.doors.cli.render import columns, paint

WIDEST = 100
"""Longer lines than this are hard to read, however wide the terminal is."""


def width() -> int:
    """How long a line may be."""
    return min(columns() or WIDEST, WIDEST)


def prose(text: str, *, indent: str = "", further: str | None = None) -> str:
    """A sentence on as many lines as it needs."""
    rest = indent if further is None else further
    room = max(width(), len(rest) + 20)
    return textwrap.fill(
        text, room, initial_indent=indent, subsequent_indent=rest, break_on_hyphens=False, break_long_words=True
    )


def headed(title: str, lines: list[str]) -> str:
    """Lines under a title; nothing where there are none."""
    return "\n".join([paint(title, "bold"), *lines]) if lines else ""
