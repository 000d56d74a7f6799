"""How the files of a run are written, so that a crash at any moment leaves nothing unreadable.

A file is replaced as a whole: written beside its name, flushed, given the name, and the folder flushed. A line is
appended and flushed; a line that was torn by a crash is cut off before the next one is written, and ignored until then.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from allswell.errors import Unavailable
from allswell.runtime.atomic import flush_folder, replace_files
from allswell.runtime.own_files import open_there, own_folder, read_file

T = TypeVar("T")
_LONGEST_LINE = 1 << 20
_BIGGEST = 1 << 30
_LOCK_PATIENCE, _LOCK_PACE = 10.0, 0.002
"""Seconds: how long another who appends is waited for, and how often it is looked."""


class Files:
    """The disk, as a run sees it; tests put one in its place that fails where they want."""

    def replace(self, path: Path, content: bytes) -> None:
        """Give a file new content, wholly or not at all; `Unavailable` if the disk does not take it."""
        self.replace_all(path.parent, [(path.name, content)])

    def replace_all(self, folder: Path, files: Sequence[tuple[str, bytes]]) -> None:
        """Give files of one folder new content, each wholly or not at all; what is flushed is flushed for all."""
        try:
            replace_files(folder, files)
        except OSError as error:
            where = folder / files[0][0] if len(files) == 1 else folder
            raise Unavailable(f"{where} cannot be written: {error.strerror}") from error

    def append(self, path: Path, *lines: bytes) -> None:
        """Add lines, each with its end; `Unavailable` if the disk does not take them."""
        try:
            with own_folder(path.parent) as inside:
                handle = open_there(path.name, inside, flags=os.O_RDWR | os.O_APPEND, make=True)
            new = os.fstat(handle).st_size == 0
            try:
                _lock(handle, path)
                _cut_torn_line(handle)
                left = b"".join(line + b"\n" for line in lines)
                while left:  # a disk that is nearly full takes a part, and says why only when it is given the rest
                    left = left[os.write(handle, left) :]
                os.fsync(handle)
            finally:
                os.close(handle)
            if new:
                flush_folder(path.parent)
        except OSError as error:
            raise Unavailable(f"{path} cannot be written: {error.strerror}") from error


def _lock(handle: int, path: Path) -> None:
    """Be the only one who appends; others take moments, unless they were stopped in the middle of it."""
    until = time.monotonic() + _LOCK_PATIENCE
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                text = f"{path} is held by another process, and was for {_LOCK_PATIENCE:g} s; `fuser` shows which"
                raise Unavailable(text) from None
            time.sleep(_LOCK_PACE)
        else:
            return


def _cut_torn_line(handle: int) -> None:
    """Take away what a crash has left of a line, so that the next one begins at its own beginning."""
    size = os.fstat(handle).st_size
    if os.pread(handle, 1, max(size - 1, 0)) not in (b"", b"\n"):
        tail = os.pread(handle, min(size, _LONGEST_LINE), max(size - _LONGEST_LINE, 0))
        os.ftruncate(handle, size - len(tail) + tail.rfind(b"\n") + 1)


def read(path: Path, shape: type[T]) -> T | None:
    """A file's content; None where there is none, or none that can be read."""
    try:
        return msgspec.json.decode(read_file(path, _BIGGEST), type=shape)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None


def read_lines(path: Path, shape: type[T]) -> list[T]:
    """The lines of a file in order; a torn last one is not there."""
    try:
        content = read_file(path, _BIGGEST)
    except OSError:
        return []
    found = []
    for line in content[: content.rfind(b"\n") + 1].splitlines():
        with contextlib.suppress(msgspec.DecodeError):
            found.append(msgspec.json.decode(line, type=shape))
    return found
