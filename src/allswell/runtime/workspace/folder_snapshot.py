"""Snapshots without git: a manifest of every file, and copies of those that the attempt may have changed.

Where it lies and what it says is `manifest`. A snapshot is written into a folder with another name, flushed and
renamed: it is there as a whole or not at all.

A caller may say since when changes matter: the kernel's own time of the last change (ctime), which no program can set
back, tells them. A repository whose git has failed is copied as a whole: nobody can say then which of its files are
nowhere else.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from allswell.domain.ids import TaskId, file_name
from allswell.domain.receipts.snapshot import (
    Candidate,
    ObjectName,
    OmissionReason,
    OmittedFile,
    Snapshot,
    SnapshotLimits,
    ration,
    ref_name,
    spell,
    unspell,
)
from allswell.errors import Refused, Unavailable
from allswell.runtime.workspace.files import (
    NEW,
    OURS,
    descend,
    open_folder,
    own_folder,
    parent_of,
    read_file,
    remove_tree,
    replace_file,
    write_all,
)
from allswell.runtime.workspace.git import Git
from allswell.runtime.workspace.survey import LINK, in_use, open_file, open_here, refused, walk
from allswell.settings.nearby import nearest_store
from allswell.store.files import make as make_state_folder

# What a snapshot without git says about itself, and where it lies.
#
#     .allswell/snapshots/<task>/<attempt>/
#       1/manifest.json    path, size, sha256, mode and mtime of every file
#       1/files/…          those that changed, as they were
#       2/…                a later snapshot of the same attempt, if anything had changed by then
#
# That is the `.allswell` of the store whose attempt it is, never one of its own beside the work: whoever types
# `allswell` there would then be shown that one instead of the store. A caller without a store gets the nearest
# `.allswell` upward. Everything here is reached below a folder descriptor (`own_files`): agents can write beside it.

SNAPSHOTS = "snapshots"
_BIGGEST = 1 << 29
"""Bytes of a manifest; a million files need a quarter of that."""


class ManifestEntry(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One file of a manifest."""

    path: str
    kind: str
    """As git says it: 100644, 100755, or 120000 for a link."""
    size: int
    mode: int
    mtime: int
    """Nanoseconds; `ctime` and `inode` only tell whether it is worth reading again."""
    sha256: str = ""
    """Of its bytes, or of a link's target; empty if it was not read."""
    ctime: int = 0
    inode: int = 0
    target: str = ""
    kept: bool = False
    """Whether its bytes are in the snapshot."""


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Every file of a folder at one moment."""

    taken_at: int
    reason: str
    files: tuple[ManifestEntry, ...] = ()
    left_out: tuple[OmittedFile, ...] = ()
    torn: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    base: str | None = None
    folder: str = ""
    """The top of what was saved, spelled; earlier versions did not say it."""

    def digest(self) -> str:
        """The same for the same content, whenever and for whatever reason it was taken."""
        plain = tuple(msgspec.structs.replace(one, mtime=0, ctime=0, inode=0, kept=False) for one in self.files)
        same = Manifest(0, "", plain, self.left_out, self.torn, self.notes, self.base)
        return hashlib.sha256(msgspec.json.encode(same)).hexdigest()


def home_of(folder: Path) -> Path:
    """Where snapshots of a folder are kept if nobody says where: in the nearest store's folder upward, else there."""
    with suppress(Refused):  # somebody else's is not ours to write into
        return nearest_store(folder) or folder / OURS
    return folder / OURS


def place_of(home: Path, task: str, attempt: int) -> Path:
    """Where the snapshots of an attempt are."""
    ref_name(task, attempt)  # what cannot be a ref is no good as a folder either
    return home / SNAPSHOTS / file_name(task) / str(attempt)


def latest(place: Path) -> int | None:
    """The number of the newest snapshot of an attempt."""
    return max((int(name) for name in names_in(place) if name.isdecimal()), default=None)


def names_in(place: Path) -> list[str]:
    """What lies in a folder of ours; nothing where there is none."""
    try:
        with own_folder(place) as opened:
            return sorted(os.listdir(opened))
    except OSError:
        return []


def load(place: Path) -> Manifest:
    """The manifest of a kept snapshot."""
    return _load(place / "manifest.json")


def manifest_to_snapshot(place: Path, number: int, made: Manifest, top: Path) -> Snapshot:
    """The value that callers see, of a snapshot of an attempt; `top` is what was saved where it does not say so."""
    return Snapshot(
        task=TaskId(place.parent.name),
        attempt=int(place.name),
        kind="folder",
        folder=made.folder or spell(os.fsencode(top)),
        name=spell(os.fsencode(place / str(number))),
        id=made.digest(),
        reason=made.reason,
        taken_at=made.taken_at,
        base=made.base,
        previous=_digest_of(place / str(number - 1)) if number > 1 else None,
        left_out=made.left_out,
        torn=made.torn,
        notes=made.notes,
    )


def _digest_of(place: Path) -> str | None:
    try:
        return load(place).digest()
    except Unavailable:
        return None


def _load(path: Path) -> Manifest:
    try:
        return msgspec.json.decode(read_file(path, _BIGGEST), type=Manifest)
    except (OSError, msgspec.DecodeError) as error:
        raise Unavailable(f"{path} cannot be read: {error}") from error


# What a snapshot in git says about itself: in its message for programs, and beside its tree what no tree can hold.

HEADER = "Allswell-Snapshot: "


class NestedRepository(msgspec.Struct, frozen=True, omit_defaults=True):
    """A repository inside: where, and what its HEAD was."""

    path: str
    head: str | None = None


class FolderMetadata(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the tree cannot say, in the same bytes for the same content."""

    left_out: tuple[OmittedFile, ...] = ()
    torn: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    """In the tree and not on disk: a sparse checkout's."""
    nested: tuple[NestedRepository, ...] = ()
    notes: tuple[str, ...] = ()
    plain: int = 0o644
    """The permissions of most files, of most executables, and of those that differ."""
    executable: int = 0o755
    modes: dict[str, int] = {}


class Header(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the commit's message says about it, for programs."""

    task: str
    attempt: int
    reason: str
    taken_at: int
    folder: str
    particulars: ObjectName
    base: ObjectName | None = None
    previous: ObjectName | None = None


def read_header(git: Git, commit: str) -> Header | None:
    """What a commit's message says about it, if it is one of ours."""
    text = git.run("cat-file", "commit", commit)
    _, found, rest = text.rpartition(b"\n" + HEADER.encode())
    if not found:
        return None
    try:
        return msgspec.json.decode(rest, type=Header)
    except msgspec.DecodeError:
        return None


def read_particulars(git: Git, header: Header) -> FolderMetadata:
    """What a snapshot's tree cannot say."""
    text = git.run("cat-file", "blob", f"{header.particulars}:snapshot.json")
    return msgspec.json.decode(text, type=FolderMetadata)


def commit_to_snapshot(git: Git, ref: str, commit: str, header: Header, about: FolderMetadata) -> Snapshot:
    """The value that callers see."""
    return Snapshot(
        task=TaskId(header.task),
        attempt=header.attempt,
        kind="git",
        folder=header.folder,
        name=ref,
        id=commit,
        reason=header.reason,
        taken_at=header.taken_at,
        repository=spell(git.common_dir),
        base=header.base,
        previous=header.previous,
        left_out=about.left_out,
        torn=about.torn,
        nested=tuple(inside.path for inside in about.nested),
        notes=about.notes,
    )


# How far a snapshot has come, and what it has read: for whoever waits for it, and for the attempt's next one.
#
# An attempt that is ended is kept twice, before anything is killed and after. The second time nothing has changed as a
# rule, so what the first has read is not read again: a file with the same inode, size and times has the same bytes,
# unless it was written in the very moment in which it was read, where times cannot tell.

_RACY_NS = 50_000_000  # nanoseconds; coarser than any local file system's clock
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
        if status.st_ctime_ns < now_ns - _RACY_NS:
            self.known[path] = (_mark(status), mode, oid)

    def find(self, path: bytes, status: os.stat_result) -> tuple[str, str] | None:
        """Mode and object of a file that was read before and has not changed since."""
        mark, mode, oid = self.known.get(path, (None, "", ""))
        return (mode, oid) if mark == _mark(status) else None


def _mark(status: os.stat_result) -> Mark:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode


_RACY = 50  # milliseconds; coarser than any local file system's clock
_NS_PER_MS = 1_000_000


class SnapshotOrder(msgspec.Struct, frozen=True):
    """What is asked for: which attempt is kept, where, and within which limits."""

    task: str
    attempt: int
    reason: str
    now: int
    limits: SnapshotLimits
    late: Callable[[], bool]
    home: Path
    """The folder of ours that snapshots without git go into."""
    since: int | None = None
    """Files that were last touched before this moment are listed and not copied."""
    everything: bool = False
    """Copy those too, after the others."""
    progress: Progress = msgspec.field(default_factory=Progress)

    @property
    def place(self) -> Path:
        """Where the snapshots of the attempt are."""
        return place_of(self.home, self.task, self.attempt)


def take_folder(
    folder: Path,
    order: SnapshotOrder,
    *,
    only: Iterable[bytes] | None = None,
    left_out: Iterable[OmittedFile] = (),
    notes: tuple[str, ...] = (),
) -> Snapshot:
    """A snapshot of a folder as a folder; with `only`, of these files, and `left_out` is what else was there."""
    place = order.place
    earlier = latest(place)
    before = None if earlier is None else _readable(place / str(earlier))
    listed = None if only is None else list(only)
    if earlier is not None and before is not None:
        same = _still_so(folder, before, listed, (*left_out, *notes), order.late)
        if same or order.late():  # once it is late, a new snapshot would hold nothing
            return manifest_to_snapshot(place, earlier, before, folder)
    try:
        make_state_folder(order.home)
        ours = open_folder(place, make=True)
        try:
            draft = f"draft-{os.urandom(6).hex()}"
            os.mkdir(draft, 0o700, dir_fd=ours)
            files = descend(ours, [draft.encode(), b"files"], make=True)
            try:
                top = _open(folder)
                try:
                    seen = _Scan(top, files, order).run(listed)
                finally:
                    os.close(top)
            finally:
                os.close(files)
            seen.left_out += left_out
            made = seen.manifest(folder, order, notes)
            if earlier is not None and before is not None and before.digest() == made.digest():
                remove_tree(draft, ours)
                return manifest_to_snapshot(place, earlier, before, folder)
            replace_file(place / draft / "manifest.json", msgspec.json.encode(made))
            _flush_folders(draft, ours)
            number = _number(draft, ours, (earlier or 0) + 1)
        finally:
            os.close(ours)
    except OSError as error:
        raise Unavailable(f"no snapshot could be kept in {place}: {error}", hint="is the disk full?") from error
    return manifest_to_snapshot(place, number, made, folder)


def _still_so(
    folder: Path,
    before: Manifest,
    only: list[bytes] | None,
    said: tuple[OmittedFile | str, ...],
    late: Callable[[], bool],
) -> bool:
    """Whether every file is as the last snapshot of this attempt has it, by its inode and times, and nothing is new."""
    if before.torn or any(one not in (*before.left_out, *before.notes) for one in said):
        return False
    missing = {unspell(one.path) for one in before.left_out}
    since = (before.taken_at - _RACY) * _NS_PER_MS
    known = {unspell(one.path): one for one in before.files}
    top = _open(folder)
    try:
        shut: list[OmittedFile] = []
        for path in walk(top, shut, late) if only is None else only:
            if late():
                return False
            one = known.pop(path, None)
            if one is None and path in missing:
                continue
            try:
                status = os.stat(path, dir_fd=top, follow_symlinks=False)
            except OSError:
                return False
            if one is None or not _untouched(one, status, since):
                return False
    finally:
        os.close(top)
    return not known and all(one in before.left_out for one in shut)


def _flush_folders(name: str, inside: int) -> None:
    """Flush a folder of ours and all below it; `os.fwalk` calls itself for each level."""
    waiting = [[name.encode()]]
    while waiting:
        place = waiting.pop()
        opened = descend(inside, place)
        try:
            with os.scandir(opened) as entries:
                waiting += [
                    [*place, os.fsencode(entry.name)] for entry in entries if entry.is_dir(follow_symlinks=False)
                ]
            os.fsync(opened)
        finally:
            os.close(opened)


def _readable(place: Path) -> Manifest | None:
    try:
        return load(place)
    except Unavailable:
        return None  # it is damaged, and none of ours to compare with


def _number(draft: str, place: int, number: int) -> int:
    """Give a finished snapshot the next free number; another one of the same attempt may just have taken it."""
    while True:
        try:
            os.rename(draft, str(number), src_dir_fd=place, dst_dir_fd=place)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            number += 1
            continue
        os.fsync(place)
        return number


@dataclass(slots=True)
class _SeenFile:
    """What was found in a folder."""

    entries: list[ManifestEntry] = field(default_factory=list)
    left_out: list[OmittedFile] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def manifest(self, folder: Path, order: SnapshotOrder, notes: tuple[str, ...]) -> Manifest:
        return Manifest(
            order.now,
            order.reason,
            tuple(sorted(self.entries, key=lambda entry: entry.path)),
            tuple(sorted(self.left_out)),
            tuple(sorted(self.torn)),
            (*notes, *self.notes),
            folder=spell(os.fsencode(folder)),
        )


class _Scan:
    """One look over a folder; what has changed is copied below `files`."""

    def __init__(self, top: int, files: int, order: SnapshotOrder) -> None:
        self._top = top
        self._files = files
        self._order = order
        self._began = 0 if order.since is None else (order.since - _RACY) * _NS_PER_MS
        self._to_read: dict[bytes, os.stat_result] = {}
        self._seen = _SeenFile()

    def run(self, only: Iterable[bytes] | None) -> _SeenFile:
        seen = self._seen
        self._look(walk(self._top, seen.left_out, self._order.late) if only is None else only)
        # What the attempt has touched comes before what it found.
        candidates = (
            Candidate(path, one.st_size, tracked=one.st_ctime_ns >= self._began) for path, one in self._to_read.items()
        )
        chosen, over = ration(candidates, self._order.limits)
        self._order.progress.begin(sum(one.size for one in chosen))
        seen.left_out += over
        seen.entries += [_unread(path, self._to_read[path]) for path in map(_path_of, over)]
        for one in chosen:
            status = self._to_read[one.path]
            if self._order.late():
                seen.left_out.append(OmittedFile(spell(one.path), OmissionReason.OUT_OF_TIME))
                seen.entries.append(_unread(one.path, status))
                continue
            read = _read(one.path, self._top, status, self._files)
            self._order.progress.done += one.size
            if isinstance(read, OmittedFile):
                seen.left_out.append(read)
                continue
            entry, whole = read
            seen.entries.append(entry)
            if not whole:
                seen.torn.append(entry.path)
        return seen

    def _look(self, paths: Iterable[bytes]) -> None:
        """Tell what must be read from what need not be, and from what cannot be."""
        seen = self._seen
        untouched = 0
        ours = open_here()
        for path in paths:
            if self._order.late():
                seen.notes.append("there was no time to look at everything")
                break
            try:
                status = os.stat(path, dir_fd=self._top, follow_symlinks=False)
            except OSError as error:
                seen.left_out.append(refused(path, error))
                continue
            if (status.st_dev, status.st_ino) in ours:
                seen.left_out.append(in_use(path))
            elif stat.S_ISREG(status.st_mode) and status.st_ctime_ns < self._began and not self._order.everything:
                seen.entries.append(_unread(path, status))
                untouched += 1
            else:
                self._to_read[path] = status
        if untouched:
            were = "file was" if untouched == 1 else "files were"
            seen.notes.append(f"{untouched} {were} not touched since the attempt began, and not copied")


def _path_of(left: OmittedFile) -> bytes:
    return unspell(left.path)


def _untouched(before: ManifestEntry, status: os.stat_result, since: int) -> bool:
    return status.st_ctime_ns < since and (before.size, before.mtime, before.ctime, before.inode, before.mode) == (
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
        stat.S_IMODE(status.st_mode),
    )


def _unread(path: bytes, status: os.stat_result) -> ManifestEntry:
    kind = "100755" if status.st_mode & stat.S_IXUSR else "100644"
    about = (status.st_size, stat.S_IMODE(status.st_mode), status.st_mtime_ns)
    return ManifestEntry(spell(path), kind, *about, ctime=status.st_ctime_ns, inode=status.st_ino)


def _read(path: bytes, top: int, status: os.stat_result, files: int) -> tuple[ManifestEntry, bool] | OmittedFile:
    """Hash a file, and copy it while doing so."""
    read = open_file(path, top)
    if isinstance(read, OmittedFile):
        return read
    digest = hashlib.sha256()
    target = b""
    if read.mode == LINK:
        target = b"".join(read.chunks)
        digest.update(target)
    else:
        with parent_of(path, files, make=True) as (inside, name):
            _copy(name, inside, read.chunks, digest.update)
            if read.outcome() == "lost":
                os.unlink(name, dir_fd=inside)
    outcome = read.outcome()
    if outcome == "lost":
        return OmittedFile(spell(path), OmissionReason.CHANGED, "it shrank while it was read")
    mode = stat.S_IMODE(status.st_mode)
    times = (status.st_mtime_ns, digest.hexdigest(), status.st_ctime_ns, status.st_ino)
    return ManifestEntry(spell(path), read.mode, read.size, mode, *times, spell(target), kept=True), outcome == "same"


def _copy(name: bytes, inside: int, chunks: Iterable[bytes], passing: Callable[[bytes], object]) -> None:
    opened = os.open(name, os.O_WRONLY | NEW, 0o600, dir_fd=inside)
    try:
        for chunk in chunks:
            passing(chunk)
            write_all(opened, chunk)
        os.fsync(opened)
    finally:
        os.close(opened)


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
