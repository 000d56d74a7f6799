"""Files below a folder of ours: receipts, transcripts, briefs, attempt files, snapshots without git.

Agents work beside these files and can plant things among them: a link where we are about to write, a FIFO where we are
about to read. So a folder is opened once, component by component and without following a link, and what lies in it is
reached from that descriptor. What is written is a new file in the place of whatever had its name; what is read must be
a file, and of a bounded size. So can a `git pull`, whose author is not even this user: what others can read is none of
ours, which are all made for their user alone, and git gives its files the modes of any other (unless the umask is 077).

The folder `.allswell` itself may be its user's own link (to another disk, for example): it is followed, and nothing
below it is; from then on the process holds the folder that it has found (store/files.py). Where no part of a
path is called so, its parent is trusted as it stands.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import TypeVar

import msgspec

from allswell.errors import Unavailable
from allswell.store import files

OURS = files.NAME
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_THERE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PRIVATE_FOLDER, _PRIVATE = 0o700, 0o600

Made = Callable[[bytes, int], None]
"""Told of each folder that had to be made: its name, and the open folder it lies in."""
Enter = Callable[[os.stat_result], None]
"""Asked about each folder on the way, the first included; `OSError` where it may not be entered."""
User = tuple[int, int]
"""A user and its group."""


def open_folder(path: str | os.PathLike[str], *, make: bool = False) -> int:
    """A descriptor of a folder of ours, no link below its top followed; `OSError` if that cannot be."""
    top, below = _divided(Path(path))
    if make and not top.is_dir():
        if top.name == OURS:
            files.make(top)  # what we make is trusted
        else:
            top.mkdir(parents=True, exist_ok=True)
    opened = files.enter(top)
    try:
        return descend(opened, [os.fsencode(name) for name in below], make=make)
    finally:
        os.close(opened)


def check_in_place(path: Path) -> None:
    """`OSError` if what lies at a path is not in the folder of ours any more that this process holds."""
    files.check_in_place(_divided(path)[0])


@contextlib.contextmanager
def own_folder(path: str | os.PathLike[str], *, make: bool = False) -> Iterator[int]:
    """A folder of ours, open for as long as it is needed."""
    opened = open_folder(path, make=make)
    try:
        yield opened
    finally:
        os.close(opened)


def descend(
    top: int, names: list[bytes], *, make: bool = False, made: Made | None = None, enter: Enter | None = None
) -> int:
    """A descriptor of a folder below an open one; no component is followed, and `..` is none."""
    for name in names:
        if name in (b"", b".", b"..") or b"/" in name:
            raise OSError(errno.EINVAL, "it is not a name of a folder", os.fsdecode(name))
    opened = os.dup(top)
    try:
        if enter is not None:
            enter(os.fstat(opened))
        for name in names:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, _PRIVATE_FOLDER if made is None else 0o777, dir_fd=opened)
                    if made is not None:
                        made(name, opened)
            deeper = os.open(name, FOLDER, dir_fd=opened)
            os.close(opened)
            opened = deeper
            if enter is not None:
                enter(os.fstat(opened))
    except BaseException:
        os.close(opened)
        raise
    return opened


def check_right(status: os.stat_result, user: User, right: int) -> None:
    """`PermissionError` where the mode of a file or folder does not give a user this right (4 read, 1 enter)."""
    shift = 6 if status.st_uid == user[0] else 3 if status.st_gid == user[1] else 0
    if not status.st_mode >> shift & right:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@contextlib.contextmanager
def parent_of(
    path: bytes, top: int, *, make: bool = False, made: Made | None = None, enter: Enter | None = None
) -> Iterator[tuple[int, bytes]]:
    """The open folder that a relative path lies in, and its last name."""
    *names, last = path.split(b"/")
    opened = descend(top, names, make=make, made=made, enter=enter)
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
    """A file that is there, or is made; `OSError` if it is a link, no file, known by a second name, or not ours."""
    opened = os.open(name, flags | _THERE | (os.O_CREAT if make else 0), _PRIVATE, dir_fd=inside)
    status = os.fstat(opened)
    if not stat.S_ISREG(status.st_mode) or (flags & (os.O_WRONLY | os.O_RDWR) and status.st_nlink > 1):
        os.close(opened)
        raise OSError(errno.EPERM, "something else is where a file of Allswell should be", os.fsdecode(name))
    if status.st_mode & files.OTHERS:
        os.close(opened)
        raise OSError(errno.EPERM, "others can read it, so it may have come with a `git pull`", os.fsdecode(name))
    return opened


def open_plain(path: str | os.PathLike[str]) -> int:
    """Any file, its links followed, to be read; `OSError` if it is a pipe, a device or a folder, without waiting."""
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.EINVAL, "it is no file", os.fspath(path))
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


def remove_tree(path: str | bytes | os.PathLike[str], inside: int | None = None) -> None:
    """Remove a folder with all that is in it, however deep that goes: `shutil.rmtree` calls itself for each level.

    Nothing is removed behind a mount, which stays; nor anywhere else, should a folder be moved meanwhile.
    """
    here = os.open(path, FOLDER, dir_fd=inside)
    try:
        way: list[tuple[str, os.stat_result, list[str]]] = []
        """From the top down: the folder that was entered, what it lies in, and what else is to be removed there."""
        left = _without_files(here)
        while way or left:
            if left:
                name = left.pop()
                try:
                    os.rmdir(name, dir_fd=here)  # which a mount refuses, however it looks inside
                    continue
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
                way.append((name, os.fstat(here), left))
                below = os.open(name, FOLDER, dir_fd=here)
                os.close(here)
                here = below
                left = _without_files(here)
            else:
                name, before, left = way.pop()
                above = os.open("..", FOLDER, dir_fd=here)
                os.close(here)
                here = above
                if not os.path.samestat(os.fstat(here), before):
                    raise OSError(errno.EBUSY, "it was moved while it was removed", name)
                os.rmdir(name, dir_fd=here)
    finally:
        os.close(here)
    os.rmdir(path, dir_fd=inside)


def _without_files(folder: int) -> list[str]:
    """Remove the files of an open folder; the folders in it."""
    with os.scandir(folder) as entries:
        listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in listed:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in listed if is_folder]


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


# Replacing small files: each whole or not at all, and still there after a crash of the machine.
#
# A file is written beside its name, flushed, given the name, and its folder flushed. Of many files at once each would
# be flushed by itself, and each flush is a commit of the file system's own journal: so a group of them is flushed by
# one call for the whole file system (`syncfs`), which takes two commits for all. It also flushes what others have
# written there, so few files are still flushed one by one.

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


# How the files of a run are written, so that a crash at any moment leaves nothing unreadable.
#
# A file is replaced as a whole: written beside its name, flushed, given the name, and the folder flushed. A line is
# appended and flushed; a line that was torn by a crash is cut off before the next one is written, and ignored until
# then.

T = TypeVar("T")
_LONGEST_LINE = 1 << 20
_BIGGEST = 1 << 30
_LOCK_PATIENCE, _LOCK_PACE = 10.0, 0.002
"""Seconds: how long another who appends is waited for, and how often it is looked."""


@lru_cache(maxsize=8)
def stamp(wall: int) -> str:
    """A moment of the wall clock, in milliseconds, as ISO 8601 has it."""
    return datetime.fromtimestamp(wall / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


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
