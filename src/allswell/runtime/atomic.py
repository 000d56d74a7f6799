"""Replacing small files: each whole or not at all, and still there after a crash of the machine."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Give a file new content and make its name durable; `OSError` leaves the old one."""
    put_in_place(path, content)
    flush_folder(path.parent)


def put_in_place(path: Path, content: bytes) -> None:
    """Write a file beside its name, flush it, and give it the name, which is durable once the folder is flushed."""
    # By bare calls: each gives the interpreter lock away, and beside a busy loop it may take long to get it back.
    draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            left = memoryview(content)
            while left:  # a disk that is nearly full takes a part, and says why only when it is given the rest
                left = left[os.write(handle, left) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def flush_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
