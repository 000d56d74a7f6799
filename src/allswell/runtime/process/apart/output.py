"""What a command prints: from its pipe to a file with a cap, and on to somebody who watches.

Of more than the cap, the beginning and the last piece are kept, with a line between them that says how much is missing.
Only that last piece is held in memory, so a gigabyte costs no more than a page of text. Who watches slowly slows the
command down, as a pipe does; who stops watching ends it, as a pipe does.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
import termios

PIECE = 262_144
"""Most bytes read at a time, and most that are kept of the end."""
_LIVE_PIECE = select.PIPE_BUF
"""What a pipe takes without blocking when it says that it takes something."""


class Stream:
    """One of the two streams of a command."""

    def __init__(self, source: int, file: int, live: int | None, cap: int) -> None:
        self._source = source
        self._file = file
        self._live: int | None = None
        self._live_blocks = True
        if live is not None:
            self._live, self._live_blocks = _unblocking(live)
        self._pending = memoryview(b"")
        """What was read and the watcher has not taken."""
        self._left: int | None = None
        """How much there still is to read, once nobody is left who could write more."""
        self._tail_size = min(PIECE, cap // 2)
        self._head_size = cap - self._tail_size
        self._written = 0
        self._tail = bytearray()
        self.total = 0
        self.error: int | None = None
        """The first error in writing the file; after that, nothing more is kept."""
        os.set_blocking(source, False)

    # --- reading ------------------------------------------------------------------------------------------------------

    def interest(self) -> tuple[int, int] | None:
        """What to wait for next: a descriptor and an event of poll; None when it is done."""
        if self._pending and self._live is not None:
            return self._live, select.POLLOUT
        if self._source == -1 or self._left == 0:
            return None
        return self._source, select.POLLIN

    def act(self) -> None:
        """Do what was waited for."""
        if self._pending:
            self._pass_on()
        else:
            self._take()

    def waiting(self) -> int:
        """How many bytes lie in the pipe."""
        if self._source == -1:
            return 0
        answer = fcntl.ioctl(self._source, termios.FIONREAD, b"\0\0\0\0")
        return int.from_bytes(answer, "little")

    def close_to_new(self) -> None:
        """Nobody of the tree is left: what lies in the pipe is all there is, whoever else may hold it open."""
        self._left = self.waiting()

    def _take(self) -> None:
        try:
            piece = os.read(self._source, PIECE if self._left is None else min(PIECE, self._left))
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self._close_source()
            return
        if self._left is not None:
            self._left -= len(piece)
        self.total += len(piece)
        self._keep(piece)
        if self._live is not None:
            self._pending = memoryview(piece)
            self._pass_on()

    def _pass_on(self) -> None:
        live = self._live
        while self._pending and live is not None:
            try:
                sent = os.write(live, self._pending[:_LIVE_PIECE] if self._live_blocks else self._pending)
            except BlockingIOError:
                return
            except OSError:
                # Nobody watches any more. A pipe would tell the command so, and so do we: it may end, or go on.
                self._live, self._pending = None, memoryview(b"")
                self._close_source()
                return
            self._pending = self._pending[sent:]
            if self._live_blocks:
                return

    def _close_source(self) -> None:
        if self._source != -1:
            os.close(self._source)
            self._source = -1

    # --- keeping ------------------------------------------------------------------------------------------------------

    def _keep(self, piece: bytes) -> None:
        room = self._head_size - self._written
        if room > 0:
            self._write(piece[:room], self._written)
            self._written += min(room, len(piece))
            piece = piece[room:]
        if piece:
            self._tail += piece
            if len(self._tail) > 2 * self._tail_size:  # cut now and then, not every time
                del self._tail[: len(self._tail) - self._tail_size]

    @property
    def left_out(self) -> int:
        """How many bytes are not in the file."""
        return max(self.total - self._head_size - self._tail_size, 0)

    def flush(self) -> None:
        """Put the end into the file, behind what is there; the next time it is written over."""
        tail = bytes(self._tail[-self._tail_size :]) if self._tail_size else b""
        if not tail and not self.left_out:
            return
        said = f"\n[allswell: {self.left_out} bytes left out here]\n".encode() if self.left_out else b""
        self._write(said + tail, self._head_size)
        if self.error is None:
            os.ftruncate(self._file, self._head_size + len(said) + len(tail))

    def _write(self, piece: bytes, offset: int) -> None:
        while piece and self.error is None:
            try:
                written = os.pwrite(self._file, piece, offset)
            except OSError as error:  # the disk is full, most likely: the command is not to blame, and goes on
                self.error = error.errno or errno.EIO
                return
            piece = piece[written:]
            offset += written


def _unblocking(live: int) -> tuple[int, bool]:
    """A descriptor for the same thing that does not block, and False; or the one given, and True.

    To make the given one non-blocking would make it so for everybody who shares it, the host's own stdout too.
    """
    mode = os.fstat(live).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
        return live, stat.S_ISSOCK(mode)
    try:
        return os.open(f"/proc/self/fd/{live}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY), False
    except OSError:
        return live, True
