"""Snapshots without git: a manifest of every file, and copies of those that changed since a baseline.

Where it lies and what it says is `manifest`. A snapshot is written into a folder with another name, flushed and
renamed: it is there as a whole or not at all.

What has the size, inode and times of the baseline is taken as unchanged and not read, except when it was written in the
last moment before the baseline was made, where times cannot tell. Where there is no baseline, a caller may say since
when changes matter: the kernel's own time of the last change (ctime), which no program can set back, tells them. A
repository whose git has failed is copied as a whole: nobody can say then which of its files are nowhere else.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from allswell.domain.snapshot import Candidate, LeftOut, Limits, Snapshot, Why, ration, spell, unspell
from allswell.errors import Unavailable
from allswell.runtime.atomic import replace_file
from allswell.runtime.own_files import NEW, descend, open_folder, parent_of, write_all
from allswell.runtime.snapshot.manifest import (
    Manifest,
    ManifestEntry,
    latest,
    load,
    load_baseline,
    place_of,
    to_snapshot,
)
from allswell.runtime.snapshot.progress import Progress
from allswell.runtime.snapshot.reading import LINK, in_use, open_file, open_here, refused
from allswell.runtime.snapshot.survey import walk
from allswell.store import state_folder

_RACY = 50  # milliseconds; coarser than any local file system's clock
_NS_PER_MS = 1_000_000


class SnapshotOrder(msgspec.Struct, frozen=True):
    """What is asked for: which attempt is kept, where, and within which limits."""

    task: str
    attempt: int
    reason: str
    now: int
    limits: Limits
    late: Callable[[], bool]
    home: Path
    """The folder of ours that snapshots without git go into."""
    since: int | None = None
    """Where there is no baseline: files that were last touched before this moment are listed and not copied."""
    everything: bool = False
    """Copy those too, after the others."""
    progress: Progress = msgspec.field(default_factory=Progress)

    @property
    def place(self) -> Path:
        """Where the snapshots of the attempt are."""
        return place_of(self.home, self.task, self.attempt)


def keep_baseline(folder: Path, order: SnapshotOrder) -> Manifest:
    """Note how a folder looks before an attempt works in it, so that only what it changes has to be copied."""
    top = _open(folder)
    try:
        seen = _Scan(top, None, None, order).run(None)
    finally:
        os.close(top)
    made = seen.manifest(folder, order, (), None)
    try:
        state_folder.make(order.home)
        os.close(open_folder(order.place, make=True))
        replace_file(order.place / "baseline.json", msgspec.json.encode(made))
    except OSError as error:
        raise Unavailable(f"no baseline could be kept in {order.place}: {error}", hint="is the disk full?") from error
    return made


def take_folder(
    folder: Path,
    order: SnapshotOrder,
    *,
    only: Iterable[bytes] | None = None,
    left_out: Iterable[LeftOut] = (),
    notes: tuple[str, ...] = (),
) -> Snapshot:
    """A snapshot of a folder as a folder; with `only`, of these files, and `left_out` is what else was there."""
    place = order.place
    baseline, doubt = load_baseline(place)
    earlier = latest(place)
    before = None if earlier is None else _readable(place / str(earlier))
    listed = None if only is None else list(only)
    if earlier is not None and before is not None and _still_so(folder, before, listed, (*left_out, *notes)):
        return to_snapshot(place, earlier, before, folder)
    try:
        state_folder.make(order.home)
        ours = open_folder(place, make=True)
        try:
            draft = f"draft-{os.urandom(6).hex()}"
            os.mkdir(draft, 0o700, dir_fd=ours)
            files = descend(ours, [draft.encode(), b"files"], make=True)
            try:
                top = _open(folder)
                try:
                    seen = _Scan(top, baseline, files, order).run(listed)
                finally:
                    os.close(top)
            finally:
                os.close(files)
            seen.left_out += left_out
            made = seen.manifest(folder, order, (*notes, *doubt), baseline)
            if earlier is not None and before is not None and before.digest() == made.digest():
                shutil.rmtree(draft, dir_fd=ours)
                return to_snapshot(place, earlier, before, folder)
            replace_file(place / draft / "manifest.json", msgspec.json.encode(made))
            for _, _, _, inner in os.fwalk(draft, dir_fd=ours):
                os.fsync(inner)
            number = _number(draft, ours, (earlier or 0) + 1)
        finally:
            os.close(ours)
    except OSError as error:
        raise Unavailable(f"no snapshot could be kept in {place}: {error}", hint="is the disk full?") from error
    return to_snapshot(place, number, made, folder)


def _still_so(folder: Path, before: Manifest, only: list[bytes] | None, said: tuple[LeftOut | str, ...]) -> bool:
    """Whether every file is as the last snapshot of this attempt has it, by its inode and times, and nothing is new."""
    if before.torn or any(one not in (*before.left_out, *before.notes) for one in said):
        return False
    missing = {unspell(one.path) for one in before.left_out}
    since = (before.taken_at - _RACY) * _NS_PER_MS
    known = {unspell(one.path): one for one in before.files}
    top = _open(folder)
    try:
        shut: list[LeftOut] = []
        for path in walk(top, shut) if only is None else only:
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
class _Seen:
    """What was found in a folder."""

    entries: list[ManifestEntry] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def manifest(
        self, folder: Path, order: SnapshotOrder, notes: tuple[str, ...], baseline: Manifest | None
    ) -> Manifest:
        return Manifest(
            order.now,
            order.reason,
            tuple(sorted(self.entries, key=lambda entry: entry.path)),
            tuple(sorted(self.left_out)),
            tuple(sorted(self.torn)),
            (*notes, *self.notes),
            None if baseline is None else baseline.digest(),
            spell(os.fsencode(folder)),
        )


class _Scan:
    """One look over a folder; with `files`, what has changed is copied below that."""

    def __init__(self, top: int, baseline: Manifest | None, files: int | None, order: SnapshotOrder) -> None:
        self._top = top
        self._files = files
        self._order = order
        self._known = {one.path: one for one in baseline.files} if baseline is not None else {}
        self._since = (baseline.taken_at - _RACY) * _NS_PER_MS if baseline is not None else 0
        self._began = 0 if baseline is not None or order.since is None else (order.since - _RACY) * _NS_PER_MS
        self._to_read: dict[bytes, os.stat_result] = {}
        self._seen = _Seen()

    def run(self, only: Iterable[bytes] | None) -> _Seen:
        seen = self._seen
        self._look(walk(self._top, seen.left_out) if only is None else only)
        # The baseline copies nothing, so only time bounds it.
        bounds = self._order.limits
        if self._files is None:
            bounds = msgspec.structs.replace(bounds, max_bytes=2**62, max_files=2**31)
        # What the attempt has touched comes before what it found.
        candidates = (
            Candidate(path, one.st_size, tracked=one.st_ctime_ns >= self._began) for path, one in self._to_read.items()
        )
        chosen, over = ration(candidates, bounds)
        self._order.progress.begin(sum(one.size for one in chosen))
        seen.left_out += over
        seen.entries += [_unread(path, self._to_read[path]) for path in map(_path_of, over)]
        for one in chosen:
            status = self._to_read[one.path]
            if self._order.late():
                seen.left_out.append(LeftOut(spell(one.path), Why.OUT_OF_TIME))
                seen.entries.append(_unread(one.path, status))
                continue
            read = _read(one.path, self._top, status, self._known.get(spell(one.path)), self._files)
            self._order.progress.done += one.size
            if isinstance(read, LeftOut):
                seen.left_out.append(read)
                continue
            entry, whole = read
            seen.entries.append(entry)
            if not whole:
                seen.torn.append(entry.path)
        return seen

    def _look(self, paths: Iterable[bytes]) -> None:
        """Tell what must be read from what is known already, and what cannot be."""
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
            before = self._known.get(spell(path))
            if (status.st_dev, status.st_ino) in ours:
                seen.left_out.append(in_use(path))
            elif before is not None and before.sha256 and _untouched(before, status, self._since):
                seen.entries.append(msgspec.structs.replace(before, kept=False))
            elif stat.S_ISREG(status.st_mode) and status.st_ctime_ns < self._began and not self._order.everything:
                seen.entries.append(_unread(path, status))
                untouched += 1
            else:
                self._to_read[path] = status
        if untouched:
            were = "file was" if untouched == 1 else "files were"
            seen.notes.append(f"{untouched} {were} not touched since the attempt began, and not copied")


def _path_of(left: LeftOut) -> bytes:
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


def _read(
    path: bytes, top: int, status: os.stat_result, before: ManifestEntry | None, files: int | None
) -> tuple[ManifestEntry, bool] | LeftOut:
    """Hash a file, and copy it while doing so unless it turns out to be what it was."""
    read = open_file(path, top)
    if isinstance(read, LeftOut):
        return read
    digest = hashlib.sha256()
    target = b""
    kept = False
    if read.mode == LINK:
        target = b"".join(read.chunks)
        digest.update(target)
        kept = files is not None
    elif files is None:
        for chunk in read.chunks:
            digest.update(chunk)
    else:
        with parent_of(path, files, make=True) as (inside, name):
            _copy(name, inside, read.chunks, digest.update)
            kept = read.outcome() != "lost" and (before is None or before.sha256 != digest.hexdigest())
            if not kept:
                os.unlink(name, dir_fd=inside)
    outcome = read.outcome()
    if outcome == "lost":
        return LeftOut(spell(path), Why.CHANGED, "it shrank while it was read")
    mode = stat.S_IMODE(status.st_mode)
    times = (status.st_mtime_ns, digest.hexdigest(), status.st_ctime_ns, status.st_ino)
    return ManifestEntry(spell(path), read.mode, read.size, mode, *times, spell(target), kept), outcome == "same"


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
