"""Putting recovered files into a folder that belongs to somebody, without ever writing over or through anything.

A file arrives under a temporary name in its own folder and takes its name by `link`, which fails if something has that
name by now; only a file that was compared and found to be replaceable is renamed over. Links on the way are not
followed: what a snapshot calls `a/b` must not land wherever a link `a` points to. What stands in the way is walked
around: `a.recovered/b`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from allswell.domain.snapshot import LeftOut, State, beside
from allswell.runtime.own_files import NEW, parent_of
from allswell.runtime.snapshot.reading import LINK, open_file

Fingerprint = Callable[[int, Iterable[bytes]], str]
"""A digest from a file's size and its chunks."""


class Landing:
    """The folder that files are recovered into."""

    def __init__(self, folder: Path, fingerprint: Fingerprint) -> None:
        self._fingerprint = fingerprint
        self._top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        """Let go of the folder."""
        os.close(self._top)

    def free_path(self, path: bytes) -> bytes:
        """The path itself, or the one to use because a file or a link stands where it needs a folder."""
        parts = path.split(b"/")
        for place in range(1, len(parts)):
            parts[place - 1] = self._passable(b"/".join(parts[:place]))
        return b"/".join(parts)

    def _passable(self, path: bytes) -> bytes:
        number = 0
        name = last = os.path.basename(path)
        before = path[: len(path) - len(last)]
        while (mode := self._mode(before + name)) is not None and not stat.S_ISDIR(mode):
            number += 1
            name = beside(last, number)
        return name

    def _mode(self, path: bytes) -> int | None:
        try:
            return os.stat(path, dir_fd=self._top, follow_symlinks=False).st_mode
        except OSError:
            return None

    def present(self, path: bytes) -> State | None:
        """What is there now; a folder or anything else that is no file has no equal."""
        mode = self._mode(path)
        if mode is None:
            return None
        read = open_file(path, self._top)
        if isinstance(read, LeftOut):
            return ("", "")
        return read.mode, self._fingerprint(read.size, read.chunks)

    def write(self, path: bytes, kind: str, mode: int, chunks: Iterable[bytes], *, replace: bool) -> None:
        """Put a file there; `FileExistsError` if there is one and it may not be replaced."""
        with parent_of(path, self._top, make=True, made=_give) as (folder, name):
            draft = b".allswell-recover-%d" % os.getpid()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=folder)
            try:
                if kind == LINK:
                    os.symlink(b"".join(chunks), draft, dir_fd=folder)
                    _give(draft, folder)
                else:
                    _fill(draft, folder, mode, chunks)
                if replace:
                    os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
                else:
                    _name(draft, name, folder)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(draft, dir_fd=folder)


def _fill(name: bytes, folder: int, mode: int, chunks: Iterable[bytes]) -> None:
    opened = os.open(name, os.O_WRONLY | NEW, 0o600, dir_fd=folder)
    with os.fdopen(opened, "wb") as into:
        for chunk in chunks:
            into.write(chunk)
        into.flush()
        _give(name, folder)
        os.fchmod(opened, mode)  # after its owner: changing that takes special bits away


def _name(draft: bytes, name: bytes, folder: int) -> None:
    """Give a finished file its name, unless something has it."""
    try:
        os.link(draft, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        with contextlib.suppress(FileNotFoundError):
            os.stat(name, dir_fd=folder, follow_symlinks=False)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from None
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)


def _give(name: bytes, folder: int) -> None:
    """What root recovers belongs to whom the folder belongs to, who has to go on working with it."""
    if os.geteuid() == 0:
        owner = os.fstat(folder)
        os.chown(name, owner.st_uid, owner.st_gid, dir_fd=folder, follow_symlinks=False)
