"""What an attempt prints, as it passes: handed on unchanged, and looked at on the way.

A pump reads from the reaper's pipe, hands every piece on as it is, and looks for two things: lines of a protocol, and
whether anything is said that was not said before. The second is only asked once between two looks at the processes, and
of a few kilobytes, so that a gigabyte passes at nearly the speed of a pipe and costs no memory.

A pump has a thread of its own, or a place in a room with others (`room`). Who watches slowly slows the command down;
who stops watching ends it, as a pipe does.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from allswell.domain.evidence import Novelty
from allswell.domain.expense import is_report
from allswell.domain.protocol import LONGEST, Said, read

_PIECE = 262_144
_SAMPLE = 4_096
_SAMPLES = 16
"""Pieces that are searched for news between two looks."""
_EVERY = 0.1
"""Seconds between two tellings of protocol lines: a stream of tokens is one sign, not a thousand."""

Echo = Callable[[bytes], None]
"""Takes what passes, in the thread that reads; an `OSError` means that nobody watches any more."""


class Pump:
    """One stream of an attempt, from the reaper's pipe to whoever watches."""

    def __init__(
        self,
        source: int,
        echo: Echo | None,
        said: Callable[[Said], None],
        reported: Callable[[bytes], None] | None = None,
    ) -> None:
        self.printed = 0
        self.new = 0
        """How often something new was found, at most once for each look."""
        self.over = False
        """Whether everything has passed, or nobody watches any more."""
        self.source = source
        self._echo = echo
        self._said = said
        self._reported = reported
        """Takes every line that may say what something cost."""
        self._novelty = Novelty()
        self._samples = _SAMPLES
        self._rest = b""
        self._skipping = False
        self._last_line = b""
        self._told_at = {True: 0.0, False: 0.0}

    def start(self) -> threading.Thread:
        """Read in a thread of its own, which whoever watches may block."""
        thread = threading.Thread(target=self._run, name="allswell output", daemon=True)
        thread.start()
        return thread

    def turn(self) -> int:
        """Take what is there, which may block, and hand it on; how many bytes that was, 0 if there is no more."""
        try:
            piece = os.read(self.source, _PIECE)
            if piece:
                self._pass_on(piece)
        except OSError:  # nobody watches any more; that the pipe is closed then tells the command so
            return 0
        return len(piece)

    def close(self) -> None:
        """Read no more; called once."""
        os.close(self.source)
        self.over = True

    def asked(self) -> None:
        """A look was taken: search for news again from here on."""
        self._samples = _SAMPLES

    def _run(self) -> None:
        try:
            while self.turn():
                pass
        finally:
            self.close()

    def _pass_on(self, piece: bytes) -> None:
        self.printed += len(piece)
        if self._echo is not None:
            self._echo(piece)
        self._look_for_news(piece)
        self._look_for_lines(piece)

    def _look_for_news(self, piece: bytes) -> None:
        if self._samples > 0:
            self._samples -= 1
            if self._novelty.is_new(piece[:_SAMPLE]):
                self.new += 1
                self._samples = 0

    def _look_for_lines(self, piece: bytes) -> None:
        if not self._rest and (self._skipping or not piece.startswith(b"{")) and b"\n{" not in piece:
            # Nearly everything that is not a protocol ends here. A line may begin with the next piece.
            self._skipping = not piece.endswith(b"\n")
            return
        *lines, rest = (self._rest + piece).split(b"\n")
        if self._skipping:
            if not lines:
                return
            lines = lines[1:]
            self._skipping = False
        for line in lines:
            self._hear(line)
        self._rest = rest if rest.startswith(b"{") and len(rest) <= LONGEST else b""
        self._skipping = bool(rest) and not self._rest

    def _hear(self, line: bytes) -> None:
        if line == self._last_line:  # said again and again: a loop, not a step
            return
        if self._reported is not None and is_report(line):
            self._reported(line)
        said = read(line)
        if said is None:
            return
        self._last_line = line
        now = time.monotonic()
        if now - self._told_at[said.progress] >= _EVERY:
            self._told_at[said.progress] = now
            self._said(said)
