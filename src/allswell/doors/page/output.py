"""What attempts have printed, as a page shows it: the end of it, bounded and made readable.

A file may be large and may grow; only so many bytes before a place in it are ever read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from allswell.domain.log_line import LogEntry, entries
from allswell.domain.task import Task
from allswell.doors.printed import STREAMS, Printed, Stream
from allswell.runtime.attempt.log import GROWING_MOST, LogReader

PIECE = 96 << 10
"""Bytes of each stream that one look shows."""
_ENTRY_LINES = 30
_ENTRY_MOST = 4_000


class PrintedEntry(Struct, frozen=True):
    """One thing that was printed."""

    stream: Stream
    kind: str
    tool: str
    text: str
    more: int
    """Lines of it that are left out."""


class OutputTail(Struct, frozen=True):
    """The end of what an attempt has printed, or what stands before a place in it."""

    attempt: int
    running: bool
    entries: list[PrintedEntry]
    begin: int
    """Where what is shown begins in the standard output, in bytes; 0: there is nothing before it."""
    end: int
    attempts: list[int]
    """Those of which something is kept."""


def read_tail(home: Path, task: Task, attempt: int | None = None, upto: int | None = None) -> OutputTail | None:
    """The end of what an attempt has printed, the last one's if none is named; None if nothing is kept here."""
    printed = Printed(home, task)
    files = printed.attempts()
    number = attempt if attempt is not None else max(files, default=0)
    if number not in files:
        return None
    running = printed.is_running(number)
    found: list[PrintedEntry] = []
    begin = end = 0
    for stream in STREAMS:
        path = files[number].get(stream)
        if path is None or (upto is not None and stream == "stderr"):
            continue
        with contextlib.suppress(OSError):
            lines, start, stop = _before(path, upto, over=not running)
            found += _told(lines, stream)
            if stream == "stdout":
                begin, end = start, stop
    return OutputTail(number, running, found, begin, end, sorted(files))


def _before(path: Path, upto: int | None, *, over: bool) -> tuple[list[bytes], int, int]:
    """The lines before a place, or before the end; and where they begin and end."""
    size = path.stat().st_size
    stop = min(size if upto is None else upto, size if over else GROWING_MOST)
    start = max(stop - PIECE, 0)
    reader = LogReader(path, start)
    try:
        lines: list[bytes] = []
        place = start
        for line in reader.lines(over=over, most=stop - start):
            place += len(line) + 1
            if place > stop + 1:
                break
            lines.append(line)
    finally:
        reader.close()
    if start and lines:
        start += len(lines[0]) + 1  # the place was in the middle of it
        del lines[0]
    return lines, start, stop


def _told(lines: Iterable[bytes], stream: Stream) -> list[PrintedEntry]:
    return [_entry(entry, stream) for line in lines for entry in entries(line)]


def _entry(entry: LogEntry, stream: Stream) -> PrintedEntry:
    lines = entry.text[:_ENTRY_MOST].splitlines() or [""]
    more = max(len(lines) - _ENTRY_LINES, 0) or int(len(entry.text) > _ENTRY_MOST)
    return PrintedEntry(stream, str(entry.kind), entry.tool, "\n".join(lines[:_ENTRY_LINES]), more)


def last_lines(home: Path, task: Task, most: int) -> list[str]:
    """The last lines that the latest attempt at a task has printed here."""
    found = read_tail(home, task)
    if found is None:
        return []
    said = [line for one in found.entries if one.stream == "stdout" for line in one.text.splitlines() if line.strip()]
    return said[-most:]
