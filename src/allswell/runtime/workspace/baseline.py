"""What was in a folder when an attempt began, so that it can be told later what the attempt changed there.

    then = take_baseline(home.baselines, folder, task, attempt)     # when it begins: bounded, changes nothing there
    then = read_baseline(home.baselines, task, attempt)             # after a restart; None if there is none
    told = changes_since(then)                                      # A, M, D: what is not as it was
    was = before(home.baselines, then, path)                        # how one file was, and where its bytes are

Noted is what git would not give back: paths that differ from HEAD and paths that it does not track (without git: every
file), each with its stat data, and the bytes of the small ones. What is not noted was as HEAD has it. Beyond the bounds
nothing is guessed: `whole` is false, and a comparison says that it goes by HEAD, or without git by the kernel's times.

`diff.py` shows two of them as git would, the beginning of an attempt and its end.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from allswell.domain.ids import file_name, is_file_name
from allswell.domain.receipts.receipt import Change
from allswell.domain.receipts.snapshot import (
    ObjectName,
    OmissionReason,
    OmittedFile,
    SnapshotLimits,
    can_be_kept,
    ref_name,
    spell,
    unspell,
)
from allswell.errors import Unavailable
from allswell.runtime.workspace.files import create, own_folder, read_file, write_all
from allswell.runtime.workspace.git import (
    Git,
    GitFailed,
    common_dir_of,
    find_top,
    git_dir_of,
    git_of,
    head_of,
    is_usable,
    scratch_folder,
)
from allswell.runtime.workspace.survey import WHOLE, kind, open_file, open_here, walk
from allswell.timing.clock import Clock, SystemClock

# What stands in a folder beside what HEAD has: in a repository by one call of git, elsewhere by walking it.
#
# Git is called as everywhere (`allswell.runtime.workspace.git`), on a copy of the index: no filter or hook runs, and
# the index of the repository stays as it is, byte for byte. Repositories inside are named, not entered.

_STATUS = ("status", "--porcelain=v2", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=all")
_NO_TIME = "there was no time to look at everything"
_FIELDS = {b"1": 8, b"u": 10}
"""How many fields stand before the path, by what a line begins with."""
_GITLINK = b"160000"


@dataclass(slots=True)
class BaselineScan:
    """Paths that are not as HEAD has them, or that git does not track; without git every path."""

    head: str | None = None
    """The commit that the working tree stands on."""
    paths: dict[bytes, os.stat_result | None] = field(default_factory=dict)
    """None: it is not there."""
    inside: list[bytes] = field(default_factory=list)
    """Repositories in it."""
    cut: str = ""
    """Why not everything was looked at."""


def look_by_git(git: Git, top: int, most: int) -> BaselineScan:
    """What git says, of the working tree that is open as `top`; at most so many paths."""
    git.copy_index()
    found = BaselineScan(head=_head(git))
    for line in git.run(*_STATUS).split(b"\0"):
        how = line[:1]
        if how == b"?":
            path = line[2:]
            if path.endswith(b"/"):
                found.inside.append(path[:-1])
                continue
        elif how in _FIELDS:
            path = line.split(b" ", _FIELDS[how])[-1]
        else:
            continue
        if can_be_kept(path) and not _take(found, top, path, most):
            break
    found.inside += _submodules(git, top)
    return found


def _head(git: Git) -> str | None:
    plain = head_of(Path(os.fsdecode(git.top)))
    return plain or git.run("rev-parse", "-q", "--verify", "HEAD^{commit}", good=(0, 1, 128)).decode().strip() or None


def look_by_walking(top: int, most: int, late: Callable[[], bool]) -> BaselineScan:
    """Every file of a folder without git, open as `top`."""
    found = BaselineScan()
    left_out: list[OmittedFile] = []
    for path in walk(top, left_out, late):
        if late():
            found.cut = _NO_TIME
            break
        if not _take(found, top, path, most):
            break
    if left_out and not found.cut:
        late_at = left_out[-1].why is OmissionReason.OUT_OF_TIME
        found.cut = _NO_TIME if late_at else f"{left_out[0].path} could not be looked into"
    return found


def _take(found: BaselineScan, top: int, path: bytes, most: int) -> bool:
    if len(found.paths) >= most:
        found.cut = f"there are more than {most} files to note"
        return False
    found.paths[path] = stat_at(path, top)
    return True


def stat_at(path: bytes, top: int) -> os.stat_result | None:
    """How a file below an open folder stands; None if it is not there."""
    try:
        return os.stat(path, dir_fd=top, follow_symlinks=False)
    except OSError:
        return None


def _submodules(git: Git, top: int) -> list[bytes]:
    """Submodules that are checked out; git would enter them with their own configuration, so they are only named."""
    if stat_at(b".gitmodules", top) is None:
        return []
    lines = git.run("ls-files", "-z", "-s").split(b"\0")
    paths = [line.partition(b"\t")[2] for line in lines if line.startswith(_GITLINK)]
    return [path for path in paths if can_be_kept(path) and stat_at(path + b"/.git", top) is not None]


# A baseline as it is written down, beside the store: one small file for each attempt, and the bytes apart.
#
#     baselines/<task>.<attempt>.json       what was noted when it began
#     baselines/<task>.<attempt>.end.json   the same of its end, to tell the two apart
#     baselines/contents/<sha256>           the bytes of what was noted; the same bytes once, for however many attempts
#
# Nothing is flushed to the disk: a baseline must outlive a killed supervisor, not a power cut, and is asked for at the
# beginning of every attempt. What is torn is as good as missing: a record is read whole or not at all, and bytes that
# are not what their name says are not used.

_BIGGEST = 64 << 20
_ROOM, _FILES = 1 << 30, 100_000
"""How much room all contents may take, in bytes and files. What is let go of is told as not kept."""
_LOOKED_AFTER = "00"
"""With what the digest of new content begins when all of them are looked after: of one in 256."""


class BaselineEntry(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One path as it was when the attempt began."""

    path: str
    """Spelled, relative to the baseline's folder."""
    kind: str = ""
    """As git says it: 100644, 100755, or 120000 for a link; empty: HEAD has it, and it was not there."""
    size: int = 0
    mode: int = 0
    mtime: int = 0
    """Nanoseconds, as `ctime`: a file of the same size, times and inode is the same file."""
    ctime: int = 0
    inode: int = 0
    sha256: str = ""
    """Of its bytes, or of a link's target; empty if it was not read."""
    kept: bool = False
    """Whether its bytes are among the contents."""


class Baseline(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What stood in a folder when an attempt began, as far as HEAD does not say it."""

    task: str
    attempt: int
    folder: str
    """The top of the working tree, or the folder itself without git; spelled."""
    kind: Literal["git", "folder"]
    taken_at: int
    repository: str | None = None
    """The git folder that holds its objects, spelled; it outlives a worktree that is removed."""
    head: ObjectName | None = None
    """The commit that it stood on; None: there was none."""
    noted: tuple[BaselineEntry, ...] = ()
    cut: str = ""
    """Why not everything was looked at; empty: all of it was."""
    inside: tuple[Baseline, ...] = ()
    """Repositories in it, each with its own HEAD."""

    @property
    def whole(self) -> bool:
        """Whether every path that is not noted was as HEAD has it, or without git was not there."""
        return not self.cut and all(one.whole for one in self.inside)


def _name(task: str, attempt: int, *, end: bool) -> str:
    ref_name(task, attempt)  # what cannot be a ref is no good as a file either
    return f"{file_name(task)}.{attempt}{'.end' if end else ''}.json"


def attempts_noted(place: Path, task: str) -> list[int]:
    """The attempts at a task of which something was noted when they began."""
    if not is_file_name(task):
        return []
    names = (path.name.removeprefix(f"{task}.").removesuffix(".json") for path in place.glob(f"{task}.*.json"))
    return sorted(int(name) for name in names if name.isdecimal())


def read_baseline(place: Path, task: str, attempt: int, *, end: bool = False) -> Baseline | None:
    """What was noted when an attempt began, or at its end; None if nothing that can be read was."""
    try:
        return msgspec.json.decode(read_file(place / _name(task, attempt, end=end), _BIGGEST), type=Baseline)
    except (OSError, msgspec.DecodeError):
        return None


def write_baseline(place: Path, made: Baseline, *, end: bool) -> None:
    """Write a baseline down, in the place of an earlier one of the same attempt; `OSError` if that cannot be."""
    _put(place / _name(made.task, made.attempt, end=end), msgspec.json.encode(made))


def forget_baseline(place: Path, task: str, attempt: int) -> None:
    """Let go of what was noted for an attempt that nobody will ask about; its bytes may be others' too, and stay."""
    with contextlib.suppress(OSError), own_folder(place) as inside:
        os.unlink(_name(task, attempt, end=False), dir_fd=inside)


def keep_content(place: Path, data: bytes) -> str:
    """Keep bytes under their digest, which is returned; `OSError` if that cannot be."""
    digest = hashlib.sha256(data).hexdigest()
    path = place / "contents" / digest
    try:
        known = path.lstat()
    except OSError:
        known = None
    if known is not None and stat.S_ISREG(known.st_mode) and known.st_size == len(data):
        with contextlib.suppress(OSError):
            os.utime(path, follow_symlinks=False)  # it is still asked for
        return digest
    _put(path, data)
    if digest.startswith(_LOOKED_AFTER):
        _forget(path.parent)
    return digest


def _forget(contents: Path) -> None:
    """Let go of the contents that were not asked for the longest, once all of them take too much room."""
    with own_folder(contents) as inside, os.scandir(inside) as there:
        files = []
        for one in there:
            with contextlib.suppress(OSError):  # somebody else lets go of it as well
                status = one.stat(follow_symlinks=False)
                files.append((status.st_mtime_ns, status.st_size, one.name))
        files.sort()
        room, count = sum(size for _, size, _ in files) - _ROOM, len(files) - _FILES
        for _, size, name in files:
            if room <= 0 and count <= 0:
                return
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=inside)
            room, count = room - size, count - 1


def content(place: Path, digest: str) -> bytes | None:
    """Bytes that were kept; None if they are not there, or are not what their name says."""
    try:
        data = read_file(place / "contents" / digest, _BIGGEST)
    except OSError:
        return None
    return data if hashlib.sha256(data).hexdigest() == digest else None


def _put(path: Path, data: bytes) -> None:
    """A file of ours: there as a whole under its name, or not at all."""
    draft = f".{os.urandom(8).hex()}.tmp"
    with own_folder(path.parent, make=True) as inside:
        try:
            opened = create(draft, inside)
            try:
                write_all(opened, data)
            finally:
                os.close(opened)
            os.replace(draft, path.name, src_dir_fd=inside, dst_dir_fd=inside)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft, dir_fd=inside)
            raise


# Noting what is in a folder when an attempt begins: quickly, within bounds, and changing nothing there.

BOUNDS = SnapshotLimits(max_file=WHOLE, max_bytes=32 << 20, max_files=5_000, timeout=500, git_timeout=3_000)
"""Bytes are kept of files up to `max_file`, small ones first, until `max_bytes` or the time is reached; the others are
told by size and times. `max_files` bounds how many are noted at all."""
_REPOSITORIES = 20
"""Repositories inside that are looked into, at any depth."""


def take_baseline(
    place: Path,
    folder: str | os.PathLike[str],
    task: str,
    attempt: int,
    *,
    bounds: SnapshotLimits = BOUNDS,
    clock: Clock | None = None,
    end: bool = False,
) -> Baseline:
    """Note what is in a folder, in a repository in its whole working tree, and write that down below `place`.

    With `end` it is noted as the end of the attempt, beside its beginning, and of the very folder that was noted then:
    an agent may have removed its `.git`, and what lies around it is not its work.

    It blocks, for a call of git or a walk and the reading of what is not committed, all of it bounded. What could not
    be looked at is said in `cut`; `OSError` means that nothing could be written down.
    """
    clock = clock or SystemClock()
    began = clock.wall()
    deadline = clock.monotonic() + bounds.validated().timeout
    work = Path(folder).resolve()
    taking = _BaselineBuilder(place, task, attempt, began, bounds, lambda: clock.monotonic() >= deadline)
    then = read_baseline(place, task, attempt) if end else None
    made = taking.note(Path(os.fsdecode(unspell(then.folder))) if then is not None else find_top(work) or work)
    write_baseline(place, made, end=end)
    return made


class _BaselineBuilder:
    """One baseline being taken: what is left of its bounds."""

    def __init__(
        self, place: Path, task: str, attempt: int, began: int, bounds: SnapshotLimits, late: Callable[[], bool]
    ) -> None:
        self._place = place
        self._of = (task, attempt)
        self._began = began
        self._bounds = bounds
        self._late = late
        self._ours = open_here()
        self._bytes = bounds.max_bytes
        self._files = bounds.max_files
        self._repositories = _REPOSITORIES

    def note(self, top: Path) -> Baseline:
        """One working tree or folder, and the repositories inside."""
        task, attempt = self._of
        by_git = os.path.lexists(top / ".git") and is_usable(top)
        head: str | None = None
        noted: tuple[BaselineEntry, ...] = ()
        try:
            opened = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            found = BaselineScan(cut=f"{top} cannot be opened: {error.strerror}")
        else:
            try:
                found = self._look(top, opened) if by_git else look_by_walking(opened, self._files, self._late)
                head = found.head
                noted = self._note_all(found, opened)
            finally:
                os.close(opened)
        inside = []
        for path in found.inside:
            self._repositories -= 1
            if self._repositories < 0 or self._late() or not can_be_kept(path):
                found.cut = found.cut or f"there was no time to look into {spell(path)}"
                break
            inside.append(self.note(Path(os.fsdecode(os.path.join(os.fsencode(top), path)))))
        return Baseline(
            task=task,
            attempt=attempt,
            folder=spell(os.fsencode(top)),
            kind="git" if by_git else "folder",
            taken_at=self._began,
            repository=spell(common_dir_of(git_dir_of(os.fsencode(top)))) if by_git else None,
            head=head,
            noted=noted,
            cut=found.cut,
            inside=tuple(inside),
        )

    def _look(self, top: Path, opened: int) -> BaselineScan:
        try:
            with git_of(top, self._bounds.git_timeout) as git:
                return look_by_git(git, opened, self._files)
        except (GitFailed, OSError) as error:
            return BaselineScan(head=head_of(top), cut=error.message if isinstance(error, GitFailed) else str(error))

    def _note_all(self, found: BaselineScan, top: int) -> tuple[BaselineEntry, ...]:
        self._files -= len(found.paths)
        noted = []
        for path, status in sorted(found.paths.items(), key=lambda one: 0 if one[1] is None else one[1].st_size):
            if status is None:
                noted.append(BaselineEntry(spell(path)))
            elif not stat.S_ISDIR(status.st_mode):
                noted.append(self._note(path, status, top))
        return tuple(sorted(noted, key=lambda one: one.path))

    def _note(self, path: bytes, status: os.stat_result, top: int) -> BaselineEntry:
        known = noted_as(path, status)
        plain = stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)
        bounds = self._bounds
        if (
            not plain
            or status.st_size > min(bounds.max_file, self._bytes)
            or self._late()
            or (status.st_dev, status.st_ino) in self._ours
        ):
            return known
        read = open_file(path, top)
        if isinstance(read, OmittedFile):
            return known
        data = b"".join(read.chunks)
        if read.outcome() != "same":
            return known
        self._bytes -= len(data)
        digest = keep_content(self._place, data)
        return noted_as(path, status, digest)


def noted_as(path: bytes, status: os.stat_result, digest: str = "") -> BaselineEntry:
    """What is noted of a file, with the digest of its bytes if they were kept."""
    return BaselineEntry(
        spell(path),
        kind(status.st_mode),
        status.st_size,
        stat.S_IMODE(status.st_mode),
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
        digest,
        bool(digest),
    )


# Telling what has changed in a folder since a baseline was taken there.
#
# A path was, when the attempt began, what its note says; a path without a note was as HEAD had it then, and where HEAD
# had nothing it was not there. Looked at are all paths that could differ from that: those that differ from HEAD now or
# are not tracked, those that were noted, and those that differ between HEAD then and HEAD now. What stands there now is
# read from the disk, so it does not matter whether the attempt has committed, staged or ignored it.

_LOOK = SnapshotLimits(max_files=200_000, timeout=30_000, git_timeout=30_000)
_RACY = 50
"""Milliseconds by which the kernel's time of a change may lie before ours."""
_NS_PER_MS = 1_000_000
_NAMED = 200
_SHA1 = 40
"""Digits of an object's name in a repository of the older format."""


class Digest(Protocol):
    """Of `hashlib`."""

    def update(self, data: bytes, /) -> None:
        """Take more bytes in."""

    def hexdigest(self) -> str:
        """What they come to."""
        ...


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What is not as it was when an attempt began: A added, M changed, D deleted; by path."""

    changed: tuple[Change, ...] = ()
    """Paths are relative to the baseline's folder, those of repositories inside too."""
    since: Literal["began", "head", "time"] = "began"
    """What it was compared with: what was noted; HEAD, or the kernel's times, where the notes have gaps."""
    gap: str = ""
    """Why the notes have gaps."""


@dataclass(frozen=True, slots=True)
class PathBefore:
    """How one path was when the attempt began."""

    where: Literal["absent", "kept", "head", "unknown"]
    """It was not there; its bytes are `content`; `head` has it; or nobody knows its bytes any more."""
    content: bytes | None = None
    kind: str = ""
    """As git says it: 100644, 100755, or 120000 for a link, whose target is `content`."""
    mode: int = 0
    head: str | None = None
    """The commit that has it, for `head`."""


def changes_since(then: Baseline, *, limits: SnapshotLimits = _LOOK, clock: Clock | None = None) -> Comparison:
    """What has been added, changed and deleted since; `Unavailable` if the folder cannot be looked at. It blocks."""
    clock = clock or SystemClock()
    top = unspell(then.folder)
    try:
        opened = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Unavailable(f"{then.folder} cannot be looked at: {error.strerror}") from error
    try:
        if then.kind == "git":
            changed = _by_git(then, opened, limits)
        else:
            end = clock.monotonic() + limits.timeout
            now = look_by_walking(opened, limits.max_files, lambda: clock.monotonic() >= end)
            changed = _by_times(then, opened, now)
    finally:
        os.close(opened)
    gap = then.cut
    for one in then.inside:
        under = one.folder[len(then.folder.rstrip("/")) + 1 :]
        try:
            inner = changes_since(one, limits=limits, clock=clock)
        except Unavailable as error:
            gap = gap or error.message
            continue
        changed += [Change(change.how, f"{under}/{change.path}") for change in inner.changed]
        gap = gap or inner.gap
    since: Literal["began", "head", "time"] = "began" if not gap else "head" if then.kind == "git" else "time"
    return Comparison(changed=tuple(sorted(changed, key=lambda one: one.path)), since=since, gap=gap)


def count_changed(then: Baseline, now: Baseline) -> int | None:
    """How many files differ between the beginning and the end of an attempt; None where their notes have gaps.

    Where no commit was made, the two notes say it. It blocks where one was: then the folder is compared.
    """
    if not (then.whole and now.whole) or then.kind != now.kind or then.folder != now.folder:
        return None
    if then.head != now.head or then.inside or now.inside:
        comparison = changes_since(then)
        return len(comparison.changed) if comparison.since == "began" else None
    before_, after = ({note.path: note for note in side.noted} for side in (then, now))
    return sum(not _is_same(before_.get(path), after.get(path)) for path in before_.keys() | after.keys())


def _is_same(one: BaselineEntry | None, other: BaselineEntry | None) -> bool:
    """Whether two notes are of the same bytes; as far as these were not read, of the same file."""
    if one is None or other is None:
        return False
    if one.sha256 and other.sha256:
        return (one.kind, one.sha256) == (other.kind, other.sha256)
    return one == msgspec.structs.replace(other, sha256=one.sha256, kept=one.kept)


def before(place: Path, then: Baseline, path: str) -> PathBefore:
    """How a path, spelled, was when the attempt began, and its bytes if they were kept."""
    for one in then.inside:
        under = one.folder[len(then.folder.rstrip("/")) + 1 :] + "/"
        if path.startswith(under):
            return before(place, one, path[len(under) :])
    note = next((one for one in then.noted if one.path == path), None)
    if note is None:
        if then.kind == "git" and then.head is not None:
            entry = _entries(then, [unspell(path)]).get(unspell(path))
            if entry is not None:
                return PathBefore("head", kind=entry[0], head=then.head)
        return PathBefore("unknown" if then.cut else "absent")
    if not note.kind:
        return PathBefore("absent")
    data = content(place, note.sha256) if note.kept else None
    return PathBefore("unknown" if data is None else "kept", data, note.kind, note.mode)


def _by_git(then: Baseline, top: int, limits: SnapshotLimits) -> list[Change]:
    folder = unspell(then.folder)
    with scratch_folder() as scratch:
        git = Git(folder, timeout=limits.git_timeout, scratch=scratch)
        now = look_by_git(git, top, limits.max_files)
        paths = {*now.paths, *(unspell(note.path) for note in then.noted)}
        if now.head is not None and then.head is not None and now.head != then.head:
            moved = git.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", then.head, now.head).split(b"\0")
            paths |= {path for path in moved if can_be_kept(path)}
    return _told(then, top, paths, _entries(then, paths))


def _entries(then: Baseline, paths: Collection[bytes]) -> dict[bytes, tuple[str, str]]:
    """Git's mode and object of those paths that HEAD had when the attempt began."""
    if then.head is None or not paths:
        return {}
    with scratch_folder() as scratch:
        git = Git(unspell(then.folder), timeout=_LOOK.git_timeout, scratch=scratch)
        named = sorted(paths) if len(paths) <= _NAMED else []  # else all of them: a command line has its limits
        lines = git.run("ls-tree", "-r", "-z", "--full-tree", then.head, "--", *named).split(b"\0")
    found = {}
    for line in lines:
        about, _, path = line.partition(b"\t")
        if path in paths:
            mode, _, oid = about.decode().split(" ")
            found[path] = (mode, oid)
    return found


def _told(then: Baseline, top: int, paths: set[bytes], had: dict[bytes, tuple[str, str]]) -> list[Change]:
    notes = {unspell(note.path): note for note in then.noted}
    changed = []
    ours = open_here()
    for path in paths:
        status = stat_at(path, top)
        there = status is not None and not stat.S_ISDIR(status.st_mode)
        note, entry = notes.get(path), had.get(path)
        was = bool(note.kind) if note is not None else entry is not None
        how = ""
        if status is None or not there:
            how = "D" if was else ""
        elif not was:
            how = "A"
        elif (status.st_dev, status.st_ino) in ours:
            how = ""  # a store of ours: to open it would drop its locks
        elif note is not None:
            how = "" if _is_as_noted(note, path, status, top) else "M"
        elif entry is not None:
            how = "" if _is_blob(entry, path, status, top) else "M"
        if how:
            changed.append(Change(how, spell(path)))
    return changed


def _by_times(then: Baseline, top: int, now: BaselineScan) -> list[Change]:
    """Without git: by the notes; where these have gaps, by the kernel's own time of a file's last change."""
    paths = {*now.paths, *(unspell(note.path) for note in then.noted)}
    told = _told(then, top, paths, {})
    if not then.cut:
        return told
    since = (then.taken_at - _RACY) * _NS_PER_MS
    new = {change.path for change in told if change.how == "A"}
    late = {spell(path) for path, one in now.paths.items() if one is not None and one.st_ctime_ns >= since}
    kept = [change for change in told if change.path not in new]
    return kept + [Change("M", path) for path in sorted(new & late)]


def _is_as_noted(note: BaselineEntry, path: bytes, status: os.stat_result, top: int) -> bool:
    if (now := noted_as(path, status, note.sha256)) == note:
        return True
    if not note.sha256 or (now.kind, now.size) != (note.kind, note.size):
        return False
    return _hash(hashlib.sha256(), path, top, header=False) == note.sha256


def _is_blob(entry: tuple[str, str], path: bytes, status: os.stat_result, top: int) -> bool:
    mode, oid = entry
    if mode != kind(status.st_mode):
        return False
    name = "sha1" if len(oid) == _SHA1 else "sha256"
    return _hash(hashlib.new(name, usedforsecurity=False), path, top, header=True) == oid


def _hash(digest: Digest, path: bytes, top: int, *, header: bool) -> str | None:
    """The digest of a file's bytes, behind git's header or alone; None if it cannot be read."""
    read = open_file(path, top)
    if isinstance(read, OmittedFile):
        return None
    if header:
        digest.update(b"blob %d\0" % read.size)
    for chunk in read.chunks:
        digest.update(chunk)
    return digest.hexdigest() if read.outcome() == "same" else None
