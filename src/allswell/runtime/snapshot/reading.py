"""Reading a file that somebody may still be writing, and that may not be a file at all.

Nothing here waits: a FIFO is opened without blocking and then refused, a link is read and not followed. A file is
looked at before and after; one that changed in between is read once more, and is *torn* if it changed again.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from allswell.domain.snapshot import LeftOut, Why, spell

WHOLE = 4 * 1024 * 1024
"""Files up to here are held in memory, so that what is stored is what was read, however long that turned out to be."""
CHUNK = 1024 * 1024
REGULAR, EXECUTABLE, LINK = "100644", "100755", "120000"
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_UNKNOWN = 1 << 30
_OPENED_MEANWHILE = 64
_guard = threading.Lock()
_being_read: set[int] = set()
"""Descriptors by which snapshots read in this moment: what one thread keeps, another may keep as well."""

Outcome = Literal["same", "torn", "lost"]


@dataclass(slots=True)
class Read:
    """A file as it was found: git's mode, and its bytes at once or chunk by chunk."""

    mode: str
    size: int
    chunks: Iterator[bytes]
    outcome: Callable[[], Outcome]
    """Asked after the last chunk. `torn`: it changed while it was read; `lost`: so much that it cannot be kept."""


def kind(mode: int) -> str:
    """Git's mode for a file's."""
    if stat.S_ISLNK(mode):
        return LINK
    return EXECUTABLE if mode & stat.S_IXUSR else REGULAR


def open_file(path: bytes, folder: int) -> Read | LeftOut:
    """The file at `path` below an open folder, or why it cannot be read; its chunks must be taken at once."""
    try:
        status = os.stat(path, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(path, dir_fd=folder)
            return Read(LINK, len(target), iter((target,)), lambda: "same")
        if not stat.S_ISREG(status.st_mode):
            return LeftOut(spell(path), Why.SPECIAL, "neither a file nor a link")
        opened = _open(path, folder)
    except OSError as error:
        return refused(path, error)
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            _close(opened)
            return LeftOut(spell(path), Why.SPECIAL, "neither a file nor a link")
        if status.st_size <= WHOLE:
            return _whole(opened)
    except OSError as error:
        _close(opened)
        return refused(path, error)
    stream = _Stream(opened, status)
    return Read(kind(status.st_mode), status.st_size, stream.chunks(), stream.outcome)


def _open(path: bytes, folder: int) -> int:
    with _guard:
        opened = os.open(path, _FLAGS, dir_fd=folder)
        _being_read.add(opened)
        return opened


def _close(opened: int) -> None:
    with _guard:
        _being_read.discard(opened)
        os.close(opened)


def open_here() -> frozenset[tuple[int, int]]:
    """Every file that this very process has open, as device and inode: a snapshot opens none of them.

    But for those that another snapshot reads (`test_two_at_once_lose_neither`).

    To open and close one of them would drop the locks that SQLite holds on a store, wherever that lies, and the next
    visitor would take its journal for left over (tests/runtime/snapshot/test_trouble.py).
    """
    found = set()
    there = os.stat("/proc/self/fd").st_size or _UNKNOWN  # how many are open; older kernels do not tell
    seen, last = 0, 0
    with _guard:
        for number in range(_highest()):
            if seen >= there and number > last + _OPENED_MEANWHILE:
                break
            try:
                status = os.fstat(number)
            except OSError:
                continue  # nobody has it
            seen, last = seen + 1, number
            if number not in _being_read:
                found.add((status.st_dev, status.st_ino))
    return frozenset(found)


def _highest() -> int:
    """No descriptor of this process has this number or a higher one. To list them costs more than to ask for each."""
    with open("/proc/self/status", "rb") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(b"FDSize:"))


def in_use(path: bytes) -> LeftOut:
    """What is said of a file that this process has open."""
    return LeftOut(spell(path), Why.SPECIAL, "Allswell itself has it open")


def refused(path: bytes, error: OSError) -> LeftOut:
    """What an error of the system means for a file."""
    gone = error.errno in (errno.ENOENT, errno.ENOTDIR)
    return LeftOut(spell(path), Why.VANISHED if gone else Why.UNREADABLE, error.strerror or str(error))


def _mark(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _whole(opened: int) -> Read:
    read = _once(opened)
    if read.outcome() == "torn":
        read = _once(opened)
    _close(opened)
    return read


def _once(opened: int) -> Read:
    before = os.fstat(opened)
    os.lseek(opened, 0, os.SEEK_SET)
    data = bytearray()
    # Up to where it ended when we came: a file that grows as fast as it is read has no other end.
    while len(data) < before.st_size and (part := os.read(opened, before.st_size - len(data))):
        data += part
    after = os.fstat(opened)
    outcome: Outcome = "same" if _mark(before) == _mark(after) else "torn"
    return Read(kind(after.st_mode), len(data), iter((bytes(data),)), lambda: outcome)


class _Stream:
    """A big file. Its size was promised before it was read, so what is missing is made up by zeros, and it is lost."""

    def __init__(self, opened: int, before: os.stat_result) -> None:
        self._opened = opened
        self._before = before
        self._outcome: Outcome = "lost"

    def chunks(self) -> Iterator[bytes]:
        left = self._before.st_size
        whole = True
        try:
            while left > 0:
                part = self._read(min(CHUNK, left)) if whole else b""
                whole = whole and bool(part)
                part = part or bytes(min(CHUNK, left))
                left -= len(part)
                yield part
            if whole:
                self._outcome = "same" if _mark(os.fstat(self._opened)) == _mark(self._before) else "torn"
        finally:
            _close(self._opened)

    def _read(self, size: int) -> bytes:
        try:
            return os.read(self._opened, size)
        except OSError:
            return b""

    def outcome(self) -> Outcome:
        return self._outcome
