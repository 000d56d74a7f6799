"""What stands in a working tree: what git's index still describes to the byte, what must be read, what is gone.

Reading every file would be exact and slow; trusting the index would be fast and wrong, because an index describes what
a file becomes when it is added, after line endings and filters. So a tracked file is taken from the index only if
all of this holds, and is read otherwise:

- its stat data is what the index remembers (`diff-files`, on a copy that keeps the index's own time stamp: git reads
  files again that are as young as the index, and a younger copy would hide changes made in the same moment);
- its entry does not say "assume unchanged", which tells git not to look;
- no attribute names a filter or an encoding for it, because those may keep a file's length;
- it has the length of its blob. Line endings and `$Id$` only ever shorten a file when it is added, so a file that any
  of them would change has another length, whatever the settings were on the day it was added.

Repositories inside are surveyed the same way, each with its own index and its own rules of what is ignored; a folder
that claims to be one and is not is walked, and everything in it counts.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from allswell.domain.receipts.snapshot import OmissionReason, OmittedFile, can_be_kept, is_ours, spell
from allswell.runtime.workspace.files import User, check_right, descend, parent_of
from allswell.runtime.workspace.git import Git, GitFailed

# Reading a file that somebody may still be writing, and that may not be a file at all.
#
# Nothing here waits: a FIFO is opened without blocking and then refused, a link is read and not followed, nor is one on
# the way to the file: an index may name `a/b` where `a` is a link to a folder that its author cannot read, and we can.
# A file is looked at before and after; one that changed in between is read once more, and is *torn* if it changed
# again.

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
class FileContent:
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


def open_file(path: bytes, folder: int, reader: User | None = None) -> FileContent | OmittedFile:
    """The file at `path` below an open folder, or why it cannot be read; its chunks must be taken at once.

    Where root reads it for another `reader`, it is only what that user could read itself.
    """
    enter = None if reader is None else partial(check_right, user=reader, right=1)
    try:
        with parent_of(path, folder, enter=enter) as (inside, name):
            status = os.stat(name, dir_fd=inside, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                target = os.readlink(name, dir_fd=inside)
                return FileContent(LINK, len(target), iter((target,)), lambda: "same")
            if not stat.S_ISREG(status.st_mode):
                return OmittedFile(spell(path), OmissionReason.SPECIAL, "neither a file nor a link")
            opened = _open(name, inside)
    except OSError as error:
        return refused(path, error)
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            _close(opened)
            return OmittedFile(spell(path), OmissionReason.SPECIAL, "neither a file nor a link")
        if reader is not None:
            check_right(status, reader, 4)
        if status.st_size <= WHOLE:
            return _whole(opened)
    except OSError as error:
        _close(opened)
        return refused(path, error)
    stream = _Stream(opened, status)
    return FileContent(kind(status.st_mode), status.st_size, stream.chunks(), stream.outcome)


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
    visitor would take its journal for left over (tests/runtime/workspace/test_trouble.py).
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


def in_use(path: bytes) -> OmittedFile:
    """What is said of a file that this process has open."""
    return OmittedFile(spell(path), OmissionReason.SPECIAL, "Allswell itself has it open")


def refused(path: bytes, error: OSError) -> OmittedFile:
    """What an error of the system means for a file."""
    gone = error.errno in (errno.ENOENT, errno.ENOTDIR)
    return OmittedFile(
        spell(path), OmissionReason.VANISHED if gone else OmissionReason.UNREADABLE, error.strerror or str(error)
    )


def _mark(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _whole(opened: int) -> FileContent:
    read = _once(opened)
    if read.outcome() == "torn":
        read = _once(opened)
    _close(opened)
    return read


def _once(opened: int) -> FileContent:
    before = os.fstat(opened)
    os.lseek(opened, 0, os.SEEK_SET)
    data = bytearray()
    # Up to where it ended when we came: a file that grows as fast as it is read has no other end.
    while len(data) < before.st_size and (part := os.read(opened, before.st_size - len(data))):
        data += part
    after = os.fstat(opened)
    outcome: Outcome = "same" if _mark(before) == _mark(after) else "torn"
    return FileContent(kind(after.st_mode), len(data), iter((bytes(data),)), lambda: outcome)


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


GITLINK = b"160000"
DEEPEST = 20
"""Repositories inside repositories; an agent that copies its folder into itself must not keep us for ever."""
_INDEXES_MOST = 64 << 20
"""Bytes of the indexes of all repositories inside: they are held in memory, and one of a gigabyte without content costs
an agent nothing. What is beyond is taken as a plain folder."""
_NAMES_MOST = 128 << 20
"""Bytes of all names that a walk goes through, with the folders before them: they are held in memory."""
_ENTRIES_MOST = 1_000_000
"""Entries of one folder that are looked at."""
_UNSET = (b"unset", b"unspecified")
_SHUT = re.compile(r"warning: could not open directory '(.*?)/?': (.*)")


@dataclass(slots=True)
class IndexEntry:
    """An entry of an index at stage 0."""

    mode: bytes
    oid: bytes


@dataclass(slots=True)
class Nested:
    """A repository inside another, or a folder that only looks like one."""

    path: bytes
    head: str | None = None
    raw_index: bytes | None = None


@dataclass(slots=True)
class Survey:
    """One working tree, repositories inside included; paths are relative to its top."""

    head: str | None = None
    raw_index: bytes | None = None
    clean: dict[bytes, IndexEntry] = field(default_factory=dict)
    """Files of repositories inside that their own index describes; their objects are not this repository's."""
    to_read: dict[bytes, os.stat_result] = field(default_factory=dict)
    tracked: set[bytes] = field(default_factory=set)
    """Those of `to_read` that an index knows."""
    gone: list[bytes] = field(default_factory=list)
    absent: list[bytes] = field(default_factory=list)
    """Tracked and not on disk on purpose: a sparse checkout leaves them out."""
    modes: dict[bytes, int] = field(default_factory=dict)
    """Every file's permissions, of which git would keep one bit."""
    nested: list[Nested] = field(default_factory=list)
    stages: list[tuple[bytes, bytes, bytes, bytes]] = field(default_factory=list)
    """(mode, oid, stage, path) of a conflict's entries."""
    looked: bool = False
    """Whether the survey came to its end."""
    unseen: list[bytes] = field(default_factory=list)
    """Folders that there was no time to look into."""
    left_out: list[OmittedFile] = field(default_factory=list)
    """What is there and may not be looked at: files, and folders with a slash at their end."""
    notes: list[str] = field(default_factory=list)


def survey(git: Git, top: int, found: Survey, late: Callable[[], bool]) -> None:
    """Look over the working tree of `git`, open as `top`; once `late`, into no further repository inside."""
    _one(git, top, found)
    found.clean = {}  # the copied index has them
    waiting, room = [(path, 1) for path in _take_nested(found)], _INDEXES_MOST
    while waiting:
        path, depth = waiting.pop()
        if late() or depth > DEEPEST:
            found.unseen.append(path)
            continue
        corner = git.scratch.parent / f"nested{len(found.nested)}"
        corner.mkdir(mode=0o700)
        inner = _inside(git, top, path, corner, room, late)
        room -= len(inner.raw_index or b"")
        waiting += [(path + b"/" + deeper, depth + 1) for deeper in _take_nested(inner)]
        _take_over(found, path, inner)
    found.nested.sort(key=lambda nested: nested.path)
    found.looked = True


def _take_nested(found: Survey) -> list[bytes]:
    paths = [nested.path for nested in found.nested]
    found.nested = []
    return paths


def _take_over(found: Survey, path: bytes, inner: Survey) -> None:
    """Count what stands in the repository at `path` as the outer one's."""
    under = path + b"/"
    found.nested.append(Nested(path, inner.head, inner.raw_index))
    found.clean |= {under + name: entry for name, entry in inner.clean.items()}
    found.to_read |= {under + name: status for name, status in inner.to_read.items()}
    found.modes |= {under + name: mode for name, mode in inner.modes.items()}
    found.tracked |= {under + name for name in inner.tracked}
    found.left_out += [msgspec.structs.replace(one, path=spell(under) + one.path) for one in inner.left_out]
    found.notes += [f"{spell(path)}: {note}" for note in inner.notes]


def _inside(outer: Git, top: int, path: bytes, scratch: Path, room: int, late: Callable[[], bool]) -> Survey:
    try:
        folder = descend(top, path.split(b"/"))
    except OSError as error:
        return Survey(left_out=[refused(b"", error)])
    try:
        found = Survey()
        git = Git(os.path.join(outer.top, path), timeout=outer.timeout, scratch=scratch)
        _one(git, folder, found, room)
        git.index.unlink(missing_ok=True)
    except GitFailed as failed:
        found = Survey(notes=[f"taken as a plain folder: {failed.message}"])
        for name in walk(folder, found.left_out, late):
            _add(found, folder, name)
    finally:
        os.close(folder)
    return found


def walk(top: int, left_out: list[OmittedFile], late: Callable[[], bool]) -> Iterator[bytes]:
    """Every file below an open folder that a snapshot may hold, links not followed, in a fixed order.

    Once it is `late`, or the names together are too long, no further folder is looked into, which is noted.
    """
    waiting, room = [b""], _NAMES_MOST

    def over() -> bool:
        return room <= 0 or late()

    while waiting:
        place = waiting.pop()
        try:
            names, folders = ([], []) if over() else _look_into(place, top, over)
        except OSError as error:
            left_out.append(refused(place + b"/", error))
            continue
        room -= sum(len(place) + 1 + len(name) for name in (*names, *folders))
        for name in names:
            path = place + b"/" + name if place else name
            if can_be_kept(path):
                yield path
        if over():
            more = f"and {len(waiting)} more folders" if waiting else ""
            left_out.append(OmittedFile(f"{spell(place)}/", OmissionReason.OUT_OF_TIME, more))
            return
        waiting += [place + b"/" + name if place else name for name in reversed(folders)]


def _look_into(place: bytes, top: int, over: Callable[[], bool]) -> tuple[list[bytes], list[bytes]]:
    """The names of files and links in a folder, and of the folders that are looked into."""
    opened = descend(top, place.split(b"/") if place else [])
    try:
        with os.scandir(opened) as entries:
            found = sorted(
                (os.fsencode(entry.name), entry.is_dir(follow_symlinks=False))
                for entry in itertools.takewhile(lambda _: not over(), itertools.islice(entries, _ENTRIES_MOST))
            )
    finally:
        os.close(opened)
    names = [name for name, is_folder in found if not is_folder]
    return names, [name for name, is_folder in found if is_folder and name not in (b".git", b".allswell")]


def _add(found: Survey, top: int, path: bytes) -> bool:
    """Have a file read, if it is there; one that may not be looked at is there, and left out.

    What could be opened only through a link is not there.
    """
    try:
        with parent_of(path, top) as (inside, name):
            status = os.stat(name, dir_fd=inside, follow_symlinks=False)
    except OSError as error:
        return _is_shut(found, path, error)
    if stat.S_ISDIR(status.st_mode):
        return False
    found.to_read[path] = status
    _note_mode(found, path, status)
    return True


def _is_shut(found: Survey, path: bytes, error: OSError) -> bool:
    """Whether a file is only out of our reach, which is noted, and not gone."""
    why = refused(path, error)
    if why.why is OmissionReason.VANISHED:
        return False
    found.left_out.append(why)
    return True


def _note_mode(found: Survey, path: bytes, status: os.stat_result) -> None:
    if stat.S_ISREG(status.st_mode):  # links have no permissions of their own
        found.modes[path] = stat.S_IMODE(status.st_mode)


def _one(git: Git, top: int, found: Survey, room: int | None = None) -> None:
    """One repository, without those inside it, which it names; its index may have so many bytes."""
    found.head = _head(git)
    found.raw_index = _copy_index(git, found, room)
    entries = _read_index(git, top, found)
    for path in _changed(git, entries):
        del entries[path]
        if is_ours(path):
            continue
        if _add(found, top, path):
            found.tracked.add(path)
        else:
            found.gone.append(path)
    _trust(git, top, entries, found)
    listed, complaints = git.ask("ls-files", "-z", "--others", "--exclude-standard")
    for line in complaints:
        if shut := _SHUT.fullmatch(line):
            found.left_out.append(OmittedFile(f"{shut[1]}/", OmissionReason.UNREADABLE, shut[2]))
        elif line.startswith("warning: could not open"):
            found.notes.append(line)
    for path in listed.split(b"\0"):
        if path.endswith(b"/"):
            if can_be_kept(path[:-1]):
                found.nested.append(Nested(path[:-1]))
        elif path and can_be_kept(path):
            _add(found, top, path)


def _head(git: Git) -> str | None:
    return git.run("rev-parse", "-q", "--verify", "HEAD^{commit}", good=(0, 1, 128)).decode().strip() or None


def _copy_index(git: Git, found: Survey, room: int | None) -> bytes | None:
    """Work on a copy from here on; one that git cannot read is kept as it is, and HEAD is looked at in its place."""
    if not (git.copy_index() if room is None else git.copy_index(room)):
        return None
    raw = git.read_scratch(git.index.name)
    try:
        git.run("ls-files", "-z", "-u")
    except GitFailed:
        found.notes.append("git cannot read the index, so every file was read")
        with contextlib.suppress(OSError):
            git.index.unlink()
        if found.head is not None:
            git.run("read-tree", found.head)
    return raw


def _read_index(git: Git, top: int, found: Survey) -> dict[bytes, IndexEntry]:
    """The entries that may be trusted if nothing has changed; the others are settled here."""
    entries: dict[bytes, IndexEntry] = {}
    unmerged: set[bytes] = set()
    for record in git.run("ls-files", "-z", "-s", "-v").split(b"\0")[:-1]:
        about, _, path = record.partition(b"\t")
        tag, mode, oid, stage = about.split(b" ")
        if stage != b"0":
            found.stages.append((mode, oid, stage, path))
            unmerged.add(path)
        elif mode == GITLINK:
            _gitlink(found, top, path)
        elif tag == b"H":
            entries[path] = IndexEntry(mode, oid)
        elif is_ours(path):
            pass
        elif _add(found, top, path):
            found.tracked.add(path)
        elif tag in (b"S", b"s"):
            found.absent.append(path)
        else:
            found.gone.append(path)
    for path in sorted(unmerged):
        if _add(found, top, path):
            found.tracked.add(path)
        else:
            found.gone.append(path)
    return entries


def _gitlink(found: Survey, top: int, path: bytes) -> None:
    """A submodule: a repository, a folder with files and no repository, or nothing but its name."""
    try:
        status = os.stat(path, dir_fd=top, follow_symlinks=False)
    except OSError as error:
        if not _is_shut(found, path, error):
            found.gone.append(path)
        return
    if not stat.S_ISDIR(status.st_mode):
        _add(found, top, path)
    elif not _is_empty(found, path, top):
        found.nested.append(Nested(path))


def _is_empty(found: Survey, path: bytes, top: int) -> bool:
    """Whether a submodule's folder waits for `git submodule update`."""
    try:
        folder = descend(top, path.split(b"/"))
    except OSError as error:
        return _is_shut(found, path + b"/", error)
    try:
        return not os.listdir(folder)
    finally:
        os.close(folder)


def _changed(git: Git, entries: dict[bytes, IndexEntry]) -> list[bytes]:
    """Tracked files whose stat data is not what the index remembers."""
    out = git.run("diff-files", "-z", "--raw", "--no-renames", "--ignore-submodules=all").split(b"\0")
    return sorted({path for path in out[1::2] if path in entries})


def _trust(git: Git, top: int, entries: dict[bytes, IndexEntry], found: Survey) -> None:
    """Read what git sees as unchanged and yet is not its blob, byte for byte; the rest is `clean`."""
    answer = git.run("check-attr", "-z", "--stdin", "-a", stdin=b"".join(path + b"\0" for path in entries)).split(b"\0")
    filtered = {
        path
        for path, name, value in zip(answer[::3], answer[1::3], answer[2::3], strict=False)
        if name in (b"filter", b"working-tree-encoding") and value not in _UNSET
    }
    sizes = _sizes(git, {entry.oid for entry in entries.values()})
    for path, entry in entries.items():
        if is_ours(path):
            continue
        try:
            status = os.stat(path, dir_fd=top, follow_symlinks=False)
        except OSError as error:
            if not _is_shut(found, path, error):
                found.gone.append(path)
            continue
        _note_mode(found, path, status)
        if path in filtered or sizes.get(entry.oid) != status.st_size:
            found.to_read[path] = status
            found.tracked.add(path)
        else:
            found.clean[path] = entry


def _sizes(git: Git, oids: set[bytes]) -> dict[bytes, int]:
    """The sizes of those objects that the repository has."""
    wanted = b"".join(oid + b"\n" for oid in sorted(oids))
    lines = git.run("cat-file", "--buffer", "--batch-check=%(objectname) %(objectsize)", stdin=wanted).split(b"\n")
    answers = (line.split(b" ") for line in lines if line)
    return {oid: int(size) for oid, size in answers if size != b"missing"}
