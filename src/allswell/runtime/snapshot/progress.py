"""How far a snapshot has come, and what it has read: for whoever waits for it, and for the attempt's next one.

An attempt that is ended is kept twice, before anything is killed and after. The second time nothing has changed as a
rule, so what the first has read is not read again: a file with the same inode, size and times has the same bytes,
unless it was written in the very moment in which it was read, where times cannot tell.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

_RACY = 50_000_000  # nanoseconds; coarser than any local file system's clock
Mark = tuple[int, int, int, int, int]


@dataclass(slots=True)
class Progress:
    """Shared by the snapshots of one attempt; read by another thread while one is taken."""

    done: int = 0
    """Bytes that are in the snapshot by now."""
    total: int = 0
    """Bytes that have to be read for it."""
    known: dict[bytes, tuple[Mark, str, str]] = field(default_factory=dict)
    """By path: what told that it had not changed, git's mode and the object it was stored as."""
    failed: str = ""
    """Why git could not store the work; then it is not asked again."""

    def begin(self, total: int) -> None:
        """So many bytes are about to be read."""
        self.done, self.total = 0, total

    def note(self, path: bytes, status: os.stat_result, now_ns: int, mode: str, oid: str) -> None:
        """A file was read, as it was when it was looked at; `now_ns` is the wall clock then."""
        if status.st_ctime_ns < now_ns - _RACY:
            self.known[path] = (_mark(status), mode, oid)

    def find(self, path: bytes, status: os.stat_result) -> tuple[str, str] | None:
        """Mode and object of a file that was read before and has not changed since."""
        mark, mode, oid = self.known.get(path, (None, "", ""))
        return (mode, oid) if mark == _mark(status) else None


def _mark(status: os.stat_result) -> Mark:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode
