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

_GROUP = 8
"""Files from which on they are flushed together."""
_TELLS_OF_ERRORS = (5, 8)
"""The Linux from which on `syncfs` says that something could not be written."""


def replace_file(path: Path, content: bytes) -> None:
    """Give a file new content and make its name durable; `OSError` leaves the old one."""
    put_in_place(path, content)
    flush_folder(path.parent)


def put_in_place(path: Path, content: bytes) -> None:
    """Write a file beside its name, flush it, and give it the name, which is durable once the folder is flushed."""
    draft = _draft_of(path)
    try:
        _write(draft, content, flush=True)
        draft.replace(path)
    except BaseException:
        _forget([draft])
        raise


def put_all_in_place(files: Sequence[tuple[Path, bytes]]) -> None:
    """As `put_in_place`, for files of one folder; many are flushed together. `OSError`: some may have their names."""
    flush = _flush_of_file_system() if len(files) >= _GROUP else None
    if flush is None:
        for path, content in files:
            put_in_place(path, content)
        return
    drafts = {_draft_of(path): path for path, _ in files}
    try:
        for draft, (_, content) in zip(drafts, files, strict=True):
            _write(draft, content, flush=False)
        flush(files[0][0].parent)
        for draft, path in drafts.items():
            draft.replace(path)
    except BaseException:
        _forget(drafts)
        raise


def flush_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _draft_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")


def _write(draft: Path, content: bytes, *, flush: bool) -> None:
    # By bare calls: each gives the interpreter lock away, and beside a busy loop it may take long to get it back.
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        left = memoryview(content)
        while left:  # a disk that is nearly full takes a part, and says why only when it is given the rest
            left = left[os.write(handle, left) :]
        if flush:
            os.fsync(handle)
    finally:
        os.close(handle)


def _forget(drafts: Sequence[Path] | dict[Path, Path]) -> None:
    for draft in drafts:
        with contextlib.suppress(OSError):
            draft.unlink()


@cache
def _flush_of_file_system() -> Callable[[Path], None] | None:
    """What flushes all that was written to the file system of a folder; None where that cannot be relied on."""
    release = os.uname()
    version = tuple(map(int, re.findall(r"\d+", release.release)[:2]))
    if release.sysname != "Linux" or version < _TELLS_OF_ERRORS:
        return None
    import ctypes  # only who writes many files needs it

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "syncfs"):
        return None

    def flush(folder: Path) -> None:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if library.syncfs(opened):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(folder))
        finally:
            os.close(opened)

    return flush
