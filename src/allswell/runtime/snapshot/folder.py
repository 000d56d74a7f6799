"""Snapshots without git: a manifest of every file, and copies of those that changed since a baseline.

    .allswell/snapshots/<task>/<attempt>/
      baseline.json      the manifest when the attempt began, if someone asked for it
      1/manifest.json    path, size, sha256, mode and mtime of every file
      1/files/…          those that changed, as they were
      2/…                a later snapshot of the same attempt, if anything had changed by then

A snapshot is written into a folder with another name, flushed and renamed: it is there as a whole or not at all.
What has the size, inode and times of the baseline is taken as unchanged and not read, except when it was written in the
last moment before the baseline was made, where times cannot tell. Where there is no baseline, a caller may say since
when changes matter: the kernel's own time of the last change (ctime), which no program can set back, tells them.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from allswell.domain.names import TaskId
from allswell.domain.snapshot import Candidate, LeftOut, Limits, Snapshot, Why, ration, ref_name, spell, unspell
from allswell.errors import Unavailable
from allswell.runtime.atomic import flush_folder, replace_file
from allswell.runtime.snapshot.reading import LINK, in_use, open_file, open_here, refused
from allswell.runtime.snapshot.survey import walk
from allswell.store import state_folder

PLACE = Path(".allswell") / "snapshots"
_RACY = 50  # milliseconds; coarser than any local file system's clock
_NS_PER_MS = 1_000_000


class Entry(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
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
    files: tuple[Entry, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    torn: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    base: str | None = None

    def digest(self) -> str:
        """The same for the same content, whenever and for whatever reason it was taken."""
        plain = tuple(msgspec.structs.replace(one, mtime=0, ctime=0, inode=0, kept=False) for one in self.files)
        same = Manifest(0, "", plain, self.left_out, self.torn, self.notes, self.base)
        return hashlib.sha256(msgspec.json.encode(same)).hexdigest()


def place_of(folder: Path, task: str, attempt: int) -> Path:
    """Where the snapshots of an attempt are."""
    ref_name(task, attempt)  # what cannot be a ref is no good as a folder either
    return folder / PLACE / task / str(attempt)


class Order(msgspec.Struct, frozen=True):
    """What is asked for: which attempt is kept, and within which limits."""

    task: str
    attempt: int
    reason: str
    now: int
    limits: Limits
    late: Callable[[], bool]
    since: int | None = None
    """Where there is no baseline: files that were last touched before this moment are listed and not copied."""


def keep_baseline(folder: Path, order: Order) -> Manifest:
    """Note how a folder looks before an attempt works in it, so that only what it changes has to be copied."""
    top = _open(folder)
    try:
        entries, left_out, torn, notes = _scan(top, None, None, order, None)
    finally:
        os.close(top)
    made = Manifest(order.now, order.reason, entries, left_out, torn, notes)
    place = place_of(folder, order.task, order.attempt)
    try:
        _make_own(folder, place)
        replace_file(place / "baseline.json", msgspec.json.encode(made))
    except OSError as error:
        raise Unavailable(f"no baseline could be kept in {place}: {error}", hint="is the disk full?") from error
    return made


def take_folder(
    folder: Path, order: Order, *, only: Iterable[bytes] | None = None, notes: tuple[str, ...] = ()
) -> Snapshot:
    """A snapshot of a folder as a folder; with `only`, of these files."""
    place = place_of(folder, order.task, order.attempt)
    baseline, doubt = load_baseline(place)
    try:
        _make_own(folder, place)
        draft = Path(tempfile.mkdtemp(prefix="draft-", dir=place))
        (draft / "files").mkdir()
        top = _open(folder)
        try:
            entries, left_out, torn, seen = _scan(top, baseline, draft / "files", order, only)
        finally:
            os.close(top)
        base = baseline.digest() if baseline is not None else None
        made = Manifest(order.now, order.reason, entries, left_out, torn, (*notes, *doubt, *seen), base)
        earlier = latest(place)
        if earlier is not None and (before := load(place / str(earlier))).digest() == made.digest():
            shutil.rmtree(draft)
            return to_snapshot(folder, order.task, order.attempt, earlier, before)
        replace_file(draft / "manifest.json", msgspec.json.encode(made))
        for inner, _, _ in os.walk(draft):
            flush_folder(Path(inner))
        number = _number(draft, place, (earlier or 0) + 1)
    except OSError as error:
        raise Unavailable(f"no snapshot could be kept in {place}: {error}", hint="is the disk full?") from error
    return to_snapshot(folder, order.task, order.attempt, number, made)


def _number(draft: Path, place: Path, number: int) -> int:
    """Give a finished snapshot the next free number; another one of the same attempt may just have taken it."""
    while True:
        try:
            draft.rename(place / str(number))
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            number += 1
            continue
        flush_folder(place)
        return number


def latest(place: Path) -> int | None:
    """The number of the newest snapshot of an attempt."""
    try:
        numbers = [int(one.name) for one in place.iterdir() if one.name.isdecimal()]
    except FileNotFoundError:
        return None
    return max(numbers, default=None)


def load_baseline(place: Path) -> tuple[Manifest | None, tuple[str, ...]]:
    """The baseline of an attempt; one that cannot be read is as good as none, and no reason to keep nothing."""
    try:
        return (_load(place / "baseline.json"), ()) if (place / "baseline.json").exists() else (None, ())
    except Unavailable as error:
        return None, (f"everything was copied: {error.message}",)


def load(place: Path) -> Manifest:
    """The manifest of a kept snapshot."""
    return _load(place / "manifest.json")


def to_snapshot(folder: Path, task: str, attempt: int, number: int, made: Manifest) -> Snapshot:
    """The value that callers see."""
    place = place_of(folder, task, attempt)
    return Snapshot(
        task=TaskId(task),
        attempt=attempt,
        kind="folder",
        folder=spell(os.fsencode(folder)),
        name=spell(os.fsencode(place / str(number))),
        id=made.digest(),
        reason=made.reason,
        taken_at=made.taken_at,
        base=made.base,
        previous=load(place / str(number - 1)).digest() if number > 1 else None,
        left_out=made.left_out,
        torn=made.torn,
        notes=made.notes,
    )


def _scan(
    top: int,
    baseline: Manifest | None,
    files: Path | None,
    order: Order,
    only: Iterable[bytes] | None,
) -> tuple[tuple[Entry, ...], tuple[LeftOut, ...], tuple[str, ...], tuple[str, ...]]:
    """Every file's entry; those that changed since the baseline are copied below `files`."""
    known = {one.path: one for one in baseline.files} if baseline is not None else {}
    since = (baseline.taken_at - _RACY) * _NS_PER_MS if baseline is not None else 0
    untouched_before = 0 if baseline is not None or order.since is None else (order.since - _RACY) * _NS_PER_MS
    entries: list[Entry] = []
    torn: list[str] = []
    notes: list[str] = []
    to_read: dict[bytes, os.stat_result] = {}
    left_out: list[LeftOut] = []
    ours = open_here()
    for path in walk(top, notes) if only is None else only:
        if order.late():
            notes.append("there was no time to look at everything")
            break
        try:
            status = os.stat(path, dir_fd=top, follow_symlinks=False)
        except OSError as error:
            left_out.append(refused(path, error))
            continue
        if (status.st_dev, status.st_ino) in ours:
            left_out.append(in_use(path))
            continue
        before = known.get(spell(path))
        if before is not None and before.sha256 and _untouched(before, status) and status.st_ctime_ns < since:
            entries.append(msgspec.structs.replace(before, kept=False))
        elif stat.S_ISREG(status.st_mode) and status.st_ctime_ns < untouched_before:
            entries.append(_unread(path, status))
        else:
            to_read[path] = status
    # The baseline copies nothing, so only time bounds it.
    bounds = order.limits
    if files is None:
        bounds = msgspec.structs.replace(bounds, max_bytes=2**62, max_files=2**31)
    chosen, over = ration((Candidate(path, one.st_size, tracked=False) for path, one in to_read.items()), bounds)
    left_out += over
    entries += [_unread(path, to_read[path]) for path in map(_path_of, over)]
    for one in chosen:
        status = to_read[one.path]
        if order.late():
            left_out.append(LeftOut(spell(one.path), Why.OUT_OF_TIME))
            entries.append(_unread(one.path, status))
            continue
        read = _read(one.path, top, status, known.get(spell(one.path)), files)
        if isinstance(read, LeftOut):
            left_out.append(read)
            continue
        entry, whole = read
        entries.append(entry)
        if not whole:
            torn.append(entry.path)
    entries.sort(key=lambda entry: entry.path)
    return tuple(entries), tuple(sorted(left_out)), tuple(sorted(torn)), tuple(notes)


def _path_of(left: LeftOut) -> bytes:
    return unspell(left.path)


def _untouched(before: Entry, status: os.stat_result) -> bool:
    return (before.size, before.mtime, before.ctime, before.inode, before.mode) == (
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
        stat.S_IMODE(status.st_mode),
    )


def _unread(path: bytes, status: os.stat_result) -> Entry:
    kind = "100755" if status.st_mode & stat.S_IXUSR else "100644"
    return Entry(spell(path), kind, status.st_size, stat.S_IMODE(status.st_mode), status.st_mtime_ns)


def _read(
    path: bytes, top: int, status: os.stat_result, before: Entry | None, files: Path | None
) -> tuple[Entry, bool] | LeftOut:
    """Hash a file, and copy it while doing so unless it turns out to be what it was."""
    read = open_file(path, top)
    if isinstance(read, LeftOut):
        return read
    digest = hashlib.sha256()
    target = b""
    copy = None
    if read.mode == LINK:
        target = b"".join(read.chunks)
        digest.update(target)
    elif files is None:
        for chunk in read.chunks:
            digest.update(chunk)
    else:
        copy = os.path.join(os.fsencode(files), path)
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        with open(copy, "xb") as into:
            for chunk in read.chunks:
                digest.update(chunk)
                into.write(chunk)
            into.flush()
            os.fsync(into.fileno())
    outcome = read.outcome()
    if outcome == "lost":
        if copy is not None:
            os.unlink(copy)
        return LeftOut(spell(path), Why.CHANGED, "it shrank while it was read")
    sha256 = digest.hexdigest()
    if copy is not None and before is not None and before.sha256 == sha256:
        os.unlink(copy)
        copy = None
    mode = stat.S_IMODE(status.st_mode)
    times = (status.st_mtime_ns, sha256, status.st_ctime_ns, status.st_ino)
    kept = copy is not None or (read.mode == LINK and files is not None)
    return Entry(spell(path), read.mode, read.size, mode, *times, spell(target), kept), outcome == "same"


def _load(path: Path) -> Manifest:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError) as error:
        raise Unavailable(f"{path} cannot be read: {error}") from error


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _make_own(folder: Path, place: Path) -> None:
    """Make the folder of ours, for its user alone."""
    state_folder.make(folder / ".allswell")
    place.mkdir(parents=True, exist_ok=True)
