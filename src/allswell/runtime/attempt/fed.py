"""What the attempts of one task read as their standard input: each of them all of it, from its beginning.

A single attempt is given the descriptor itself. Where there may be another, a file is wound back for it. What comes
through a pipe can be read only once, so it is written down as it passes to the first attempt, and the next one is given
what was written down and then what follows. That has a bound: what is longer reaches the first attempt whole, and then
there is no other (`spent`).
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import threading
from typing import IO

SPOOLED = 64 << 20
"""Bytes of a piped standard input that are kept for further attempts."""
_PIECE = 65_536


class Fed:
    """The standard input of a task's attempts, one after another; whoever made it closes it."""

    def __init__(self, source: int, *, again: bool, most: int = SPOOLED) -> None:
        self.spent = False
        """Whether no other attempt can be given what the first one got."""
        self._source = source
        self._most = most
        self._begins_at: int | None = None
        """Where a file stood when we got it."""
        self._kept: IO[bytes] | None = None
        self._size = 0
        self._feeder: _Feeder | None = None
        if again:
            self._prepare()

    def _prepare(self) -> None:
        if stat.S_ISREG(os.fstat(self._source).st_mode):
            self._begins_at = os.lseek(self._source, 0, os.SEEK_CUR)
        else:
            import tempfile

            self._kept = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this is

    def begin(self) -> int:
        """What the next attempt reads from."""
        if self._begins_at is not None:
            os.lseek(self._source, self._begins_at, os.SEEK_SET)
        if self._kept is None:
            return self._source
        self._feeder = _Feeder(self)
        return self._feeder.end_to_read

    def end(self) -> None:
        """The attempt is over."""
        if self._feeder is not None:
            self._feeder.close()
            self._feeder = None

    def close(self) -> None:
        """No further attempt."""
        self.end()
        if self._kept is not None:
            self._kept.close()

    def kept(self, offset: int) -> bytes:
        """A piece of what was written down, from there on; called by the feeder."""
        assert self._kept is not None  # noqa: S101 - there is no feeder elsewhere
        return b"" if self.spent else os.pread(self._kept.fileno(), _PIECE, offset)

    def read_on(self) -> bytes:
        """What follows, written down; called by the feeder when there is something to read, or its end."""
        assert self._kept is not None  # noqa: S101 - there is no feeder elsewhere
        piece = os.read(self._source, _PIECE)
        if self._size + len(piece) > self._most:
            self.spent = True
            self._kept.truncate(0)
        if not self.spent:
            os.pwrite(self._kept.fileno(), piece, self._size)
            self._size += len(piece)
        return piece

    @property
    def source(self) -> int:
        """Where what follows is read from."""
        return self._source


class _Feeder:
    """A thread that writes into the pipe of one attempt."""

    def __init__(self, fed: Fed) -> None:
        self.end_to_read, self._into = os.pipe2(os.O_CLOEXEC)
        self._stopping, self._stop = os.pipe2(os.O_CLOEXEC)
        self._fed = fed
        self._thread = threading.Thread(target=self._run, name="allswell input", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; what was not taken yet is not lost."""
        os.close(self.end_to_read)  # whoever does not read it any more does not hold it up either
        os.close(self._stop)
        self._thread.join()
        os.close(self._stopping)

    def _run(self) -> None:
        try:
            with contextlib.suppress(OSError):  # it reads no more, which is its own affair
                self._feed()
        finally:
            os.close(self._into)

    def _feed(self) -> None:
        offset = 0
        while piece := self._fed.kept(offset):
            offset += len(piece)
            self._write(piece)
        while self._comes(self._fed.source, select.POLLIN) and (piece := self._fed.read_on()):
            self._write(piece)

    def _write(self, piece: bytes) -> None:
        view = memoryview(piece)
        while view:
            if not self._comes(self._into, select.POLLOUT):
                raise BrokenPipeError
            view = view[os.write(self._into, view[: select.PIPE_BUF]) :]

    def _comes(self, handle: int, event: int) -> bool:
        """Wait until a descriptor is ready; False if we were told to stop before."""
        poll = select.poll()
        poll.register(handle, event)
        poll.register(self._stopping, 0)
        return self._stopping not in dict(poll.poll())
