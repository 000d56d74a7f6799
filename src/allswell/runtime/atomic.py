"""Replacing small files: each whole or not at all, and still there after a crash of the machine.

A file is written beside its name, flushed, given the name, and its folder flushed. Of many files at once each would be
flushed by itself, and each flush is a commit of the file system's own journal: so a group of them is flushed by one
call for the whole file system (`syncfs`), which takes two commits for all. It also flushes what others have written
there, so few files are still flushed one by one.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from allswell.runtime.own_files import NEW, open_folder, write_all

_GROUP = 8
"""Files from which on they are flushed together."""
_TELLS_OF_ERRORS = (5, 8)
"""The Linux from which on `syncfs` says that something could not be written."""


def replace_file(path: Path, content: bytes) -> None:
    """Give a file new content and make its name durable; `OSError` leaves the old one."""
    replace_files(path.parent, [(path.name, content)])


def replace_files(folder: Path, files: Sequence[tuple[str, bytes]]) -> None:
    """As `replace_file`, for files of one folder; many are flushed together. `OSError`: some may have their names."""
    opened = open_folder(folder)
    try:
        _put_in_place(opened, files)
        os.fsync(opened)
    finally:
        os.close(opened)


def flush_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    opened = open_folder(folder)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _put_in_place(folder: int, files: Sequence[tuple[str, bytes]]) -> None:
    """Write files beside their names, flush them, and give them the names, durable once the folder is flushed."""
    flush = _flush_of_file_system() if len(files) >= _GROUP else None
    ours = os.urandom(4).hex()
    drafts = [f".{name}.{ours}.tmp" for name, _ in files]
    try:
        for draft, (_, content) in zip(drafts, files, strict=True):
            _write(draft, content, folder, flush=flush is None)
        if flush is not None:
            flush(folder)
        for draft, (name, _) in zip(drafts, files, strict=True):
            os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        for draft in drafts:
            with contextlib.suppress(OSError):
                os.unlink(draft, dir_fd=folder)
        raise


def _write(draft: str, content: bytes, folder: int, *, flush: bool) -> None:
    # By bare calls: each gives the interpreter lock away, and beside a busy loop it may take long to get it back.
    handle = os.open(draft, os.O_WRONLY | NEW, 0o600, dir_fd=folder)
    try:
        write_all(handle, content)
        if flush:
            os.fsync(handle)
    finally:
        os.close(handle)


@cache
def _flush_of_file_system() -> Callable[[int], None] | None:
    """What flushes all that was written to the file system of an open folder; None where that cannot be relied on."""
    release = os.uname()
    version = tuple(map(int, re.findall(r"\d+", release.release)[:2]))
    if release.sysname != "Linux" or version < _TELLS_OF_ERRORS:
        return None
    import ctypes  # only who writes many files needs it

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "syncfs"):
        return None

    def flush(folder: int) -> None:
        if library.syncfs(folder):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return flush
