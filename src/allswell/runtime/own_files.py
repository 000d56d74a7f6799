"""Files below a folder of ours: receipts, transcripts, briefs, attempt files, snapshots without git.

Agents work beside these files and can plant things among them: a link where we are about to write, a FIFO where we are
about to read. So a folder is opened once, component by component and without following a link, and what lies in it is
reached from that descriptor. What is written is a new file in the place of whatever had its name; what is read must be
a file, and of a bounded size.

The folder `.allswell` itself may be its user's own link (to another disk, for example): it is followed, and nothing
below it is. Where no part of a path is called so, its parent is trusted as it stands.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

OURS = ".allswell"
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_THERE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PRIVATE_FOLDER, _PRIVATE = 0o700, 0o600

Made = Callable[[bytes, int], None]
"""Told of each folder that had to be made: its name, and the open folder it lies in."""


def open_folder(path: str | os.PathLike[str], *, make: bool = False) -> int:
    """A descriptor of a folder of ours, no link below its top followed; `OSError` if that cannot be."""
    top, below = _divided(Path(path))
    if make:
        top.mkdir(parents=True, exist_ok=True, mode=_PRIVATE_FOLDER if top.name == OURS else 0o777)
    opened = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return descend(opened, [os.fsencode(name) for name in below], make=make)
    finally:
        os.close(opened)


@contextlib.contextmanager
def own_folder(path: str | os.PathLike[str], *, make: bool = False) -> Iterator[int]:
    """A folder of ours, open for as long as it is needed."""
    opened = open_folder(path, make=make)
    try:
        yield opened
    finally:
        os.close(opened)


def descend(top: int, names: list[bytes], *, make: bool = False, made: Made | None = None) -> int:
    """A descriptor of a folder below an open one; no component is followed, and `..` is none."""
    for name in names:
        if name in (b"", b".", b"..") or b"/" in name:
            raise OSError(errno.EINVAL, "it is no name of a folder", os.fsdecode(name))
    opened = os.dup(top)
    try:
        for name in names:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, _PRIVATE_FOLDER if made is None else 0o777, dir_fd=opened)
                    if made is not None:
                        made(name, opened)
            deeper = os.open(name, FOLDER, dir_fd=opened)
            os.close(opened)
            opened = deeper
    except BaseException:
        os.close(opened)
        raise
    return opened


@contextlib.contextmanager
def parent_of(path: bytes, top: int, *, make: bool = False, made: Made | None = None) -> Iterator[tuple[int, bytes]]:
    """The open folder that a relative path lies in, and its last name."""
    *names, last = path.split(b"/")
    opened = descend(top, names, make=make, made=made)
    try:
        yield opened, last
    finally:
        os.close(opened)


def create(name: str | bytes, inside: int, *, flags: int = os.O_WRONLY) -> int:
    """A new file, in the place of whatever had its name: a planted link is taken away and not written through."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=inside)
    return os.open(name, flags | NEW, _PRIVATE, dir_fd=inside)


def open_there(name: str | bytes, inside: int, *, flags: int = os.O_RDONLY, make: bool = False) -> int:
    """A file that is there, or is made; `OSError` if it is a link, no file at all, or known by a second name."""
    opened = os.open(name, flags | _THERE | (os.O_CREAT if make else 0), _PRIVATE, dir_fd=inside)
    status = os.fstat(opened)
    if not stat.S_ISREG(status.st_mode) or (flags & (os.O_WRONLY | os.O_RDWR) and status.st_nlink > 1):
        os.close(opened)
        raise OSError(errno.EPERM, "something else stands where a file of ours should be", os.fsdecode(name))
    return opened


def write_file(path: Path, content: bytes, *, make: bool = False) -> None:
    """A small file of ours, new, without a flush."""
    with own_folder(path.parent, make=make) as inside:
        opened = create(path.name, inside)
        try:
            write_all(opened, content)
        finally:
            os.close(opened)


def rewrite_file(path: Path, content: bytes) -> None:
    """Give a file of ours other content where it stands, for somebody who has it open; made if it is missing."""
    with own_folder(path.parent) as inside:
        opened = open_there(path.name, inside, flags=os.O_WRONLY, make=True)
        try:
            os.ftruncate(opened, 0)
            write_all(opened, content)
        finally:
            os.close(opened)


def read_file(path: Path, most: int) -> bytes:
    """The bytes of a file of ours; `OSError` if it is a link, no file, or larger than that."""
    with own_folder(path.parent) as inside:
        return read_in(path.name, inside, most)


def read_in(name: str | bytes, inside: int, most: int) -> bytes:
    """The bytes of a file in an open folder, as `read_file`."""
    opened = open_there(name, inside)
    try:
        content = bytearray()
        while len(content) <= most and (piece := os.read(opened, min(most + 1 - len(content), 1 << 20))):
            content += piece
    finally:
        os.close(opened)
    if len(content) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), os.fsdecode(name))
    return bytes(content)


def remove_file(path: Path) -> None:
    """Take a file of ours away, or the link that was planted in its place; `OSError` if that cannot be."""
    with own_folder(path.parent) as inside, contextlib.suppress(FileNotFoundError):
        os.unlink(path.name, dir_fd=inside)


def write_all(opened: int, content: bytes) -> None:
    """Write all of it: a disk that is nearly full takes a part, and says why only when it is given the rest."""
    left = memoryview(content)
    while left:
        left = left[os.write(opened, left) :]


def _divided(path: Path) -> tuple[Path, tuple[str, ...]]:
    """What is trusted of a path, and what lies below."""
    parts = path.absolute().parts
    ours = max((place for place, part in enumerate(parts) if part == OURS), default=max(len(parts) - 2, 0))
    return Path(*parts[: ours + 1]), parts[ours + 1 :]
