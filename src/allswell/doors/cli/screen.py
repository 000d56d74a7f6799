"""What somebody sees of a command that runs: its own output, unchanged, and at a terminal a line on how it stands.

Output comes from one thread for each stream, the line from the event loop; a lock keeps them apart, so that a line of
ours never stands inside one of the command's. Where standard error is no terminal, there is no such line; only that the
work is being kept is said there, once, where that takes long.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from typing import TYPE_CHECKING

from allswell.doors.cli.render import plain, short
from allswell.doors.cli.width import columns, cut

if TYPE_CHECKING:
    from allswell.runtime.attempt import Attempt
    from allswell.runtime.snapshot import Progress

_CLEAR = b"\r\x1b[K"
_WORTH_A_LINE = 3
"""Seconds of keeping after which that is said where there is no terminal."""


class Screen:
    """Standard output and standard error, shared by a command and by us."""

    def __init__(self, *, silent: bool, painting: bool = True) -> None:
        self._silent = silent
        self._lock = threading.Lock()
        self._line = b""
        """The status line as it stands at the bottom; empty if there is none."""
        self._at_start = True
        """Whether what was last written to a terminal ended its line."""
        self._seconds = 0
        """How often in a row its work was being kept when we looked."""
        self.live = not silent and painting and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        sys.stdout.flush()
        sys.stderr.flush()

    def echo(self, stream: int, piece: bytes) -> None:
        """Pass on what the command printed; in the stream's own thread."""
        if self._silent:
            return
        if not self.live:
            _write(stream, piece)
            return
        with self._lock:
            if os.isatty(stream):
                self._wipe()
                self._at_start = piece.endswith(b"\n")
            _write(stream, piece)

    def show(self, attempt: Attempt, now: int) -> None:
        """Paint the line: elapsed, left, the last proof of progress; or how far its work has been kept."""
        keeping = None if attempt.keeping is None else attempt.keeping.busy
        self._seconds = 0 if keeping is None else self._seconds + 1
        if keeping is not None and self._seconds == _WORTH_A_LINE and not self.live:
            _write_if_taken(f"allswell: {_kept(keeping)}; the command stands still meanwhile\n".encode())
        if not self.live:
            return
        standing = attempt.standing
        last = standing.progress
        proof = "no proof of progress yet" if last is None else f"{short(now - last.at)} ago: {plain(last.what)}"
        text = f"⏱ {short(now - standing.began)}  ·  {short(attempt.remaining)} left  ·  {proof}"
        if keeping is not None:
            text = f"⏱ {_kept(keeping)}"
        with self._lock:
            if self._at_start:  # never behind an unfinished line of the command's
                self._line = cut(text, (columns(sys.stderr) or 80) - 1).encode()
                _write(2, _CLEAR + b"\x1b[2m" + self._line + b"\x1b[0m")

    def clear(self) -> None:
        """Take the line away for good."""
        with self._lock:
            self._wipe()
            if self.live and not self._at_start:
                _write(2, b"\n")
                self._at_start = True

    def _wipe(self) -> None:
        if self._line:
            self._line = b""
            _write(2, _CLEAR)


def _kept(keeping: Progress) -> str:
    """How far the work of an attempt has been kept."""
    return f"keeping its work: {keeping.done / 1e6:,.0f} of {keeping.total / 1e6:,.0f} MB"


def _write_if_taken(line: bytes) -> None:
    """A short line on standard error, unless nobody takes it: then the end of the tree must not wait for that."""
    if select.select([], [2], [], 0)[1]:
        _write(2, line)


def _write(stream: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(stream, view) :]
