"""Giving work back: into a folder of the caller's choice, or into the place it came from.

Nothing that is there is lost. Into a folder, a file that exists and differs gets the saved one put beside it, as
`NAME.recovered`. Applied to the place it came from, a saved file also replaces one that still is what the snapshot was
based on (a checkout of HEAD), because then nobody has worked on it since; everything else is put
beside. We do not refuse as a whole: whoever recovers wants the files, and a conflict is settled with both at hand.
Files that the attempt had deleted are named and stay.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import msgspec

from allswell.domain.receipts.snapshot import (
    FileConflict,
    FileVerdict,
    OmissionReason,
    OmittedFile,
    Snapshot,
    State,
    beside,
    can_be_kept,
    spell,
    unspell,
    verdict,
)
from allswell.errors import Refused, Unavailable
from allswell.runtime.workspace.files import NEW, open_folder, open_there, parent_of
from allswell.runtime.workspace.folder_snapshot import load, read_header, read_particulars
from allswell.runtime.workspace.git import Git, GitFailed, is_usable, scratch_folder
from allswell.runtime.workspace.snapshot import LIMITS
from allswell.runtime.workspace.survey import CHUNK, EXECUTABLE, LINK, open_file

# The files of a kept snapshot, wherever it is kept: what they are, what they were based on, and their bytes.


@dataclass(slots=True)
class SavedFile:
    """A saved file."""

    path: bytes
    state: State
    mode: int
    """Its permissions."""


@dataclass(slots=True)
class SnapshotListing:
    """All that a snapshot holds, and what it knows of and does not hold."""

    files: list[SavedFile] = field(default_factory=list)
    base: dict[bytes, State] = field(default_factory=dict)
    missing: list[OmittedFile] = field(default_factory=list)
    deleted: list[bytes] = field(default_factory=list)
    """In the base, and not there any more when the snapshot was taken."""


class DamagedFile(Exception):
    """A file that a snapshot lists and cannot give back as it was kept; the others are not its business."""


class SavedInGit:
    """A snapshot in a repository's objects."""

    def __init__(self, git: Git, snapshot: Snapshot) -> None:
        self._git = git
        self._snapshot = snapshot
        header = read_header(git, snapshot.id)
        if header is None:
            raise Refused("no_snapshot", f"{snapshot.id} is not a snapshot of Allswell's", where="snapshot")
        self._header = header
        self._about = read_particulars(git, header)

    def listing(self) -> SnapshotListing:
        """What it holds."""
        about = self._about
        passed = {unspell(one.path) for one in about.left_out} | {unspell(path) for path in about.absent}
        found = SnapshotListing(missing=list(about.left_out))
        there = set()
        for path, (kind, oid) in self._tree(self._snapshot.id).items():
            there.add(path)
            if path in passed or kind == "160000" or not can_be_kept(path):
                continue
            usual = about.executable if kind == EXECUTABLE else about.plain
            found.files.append(SavedFile(path, (kind, oid), usual))
        exact = {unspell(path): mode for path, mode in about.modes.items()}
        for one in found.files:
            one.mode = exact.get(one.path, one.mode)
        if self._header.base is not None:
            try:
                found.base = self._tree(self._header.base)
            except GitFailed:
                return found  # its objects are gone: what differs from it cannot be told, and nothing is replaced
            inside = {unspell(one.path) for one in about.nested}
            found.deleted = sorted(path for path in found.base if path not in there and path not in inside)
        return found

    def _tree(self, commit: str) -> dict[bytes, State]:
        entries = {}
        for record in self._git.run("ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0")[:-1]:
            about, _, path = record.partition(b"\t")
            kind, _, oid = about.decode().split(" ")
            entries[path] = (kind, oid)
        return entries

    def fingerprint(self, size: int, chunks: Iterable[bytes]) -> str:
        """The id that git would give a blob of these bytes."""
        digest = hashlib.new("sha1" if len(self._snapshot.id) == 40 else "sha256", usedforsecurity=False)
        digest.update(b"blob %d\0" % size)
        for chunk in chunks:
            digest.update(chunk)
        return digest.hexdigest()

    def equals_base(self, folder: Path, path: bytes, base: State) -> bool:
        """Line endings: a checkout may have other bytes than its blob, and still be exactly that."""
        if base[0] == LINK or os.path.islink(os.path.join(os.fsencode(folder), path)):
            return False
        try:
            return self._git.run("hash-object", "--", path).decode().strip() == base[1]
        except GitFailed:
            return False

    def contents(self, files: list[SavedFile]) -> Iterator[tuple[SavedFile, Iterator[bytes]]]:
        """The bytes of each file, in turn; each must be read to its end, or to its `DamagedFile`, before the next."""
        if not files:
            return
        with tempfile.TemporaryFile() as names:
            names.write("".join(one.state[1] + "\n" for one in files).encode("ascii"))
            names.seek(0)
            yield from self._read(files, names)

    def _read(self, files: list[SavedFile], names: IO[bytes]) -> Iterator[tuple[SavedFile, Iterator[bytes]]]:
        with self._git.listen("cat-file", "--batch", stdin=names) as out:
            for one in files:
                header = out.readline().split(b" ")
                if len(header) != 3:
                    yield one, _exactly(None, 1)
                    continue
                yield one, _exactly(out, int(header[2]))
                out.read(1)


def _exactly(out: IO[bytes] | None, size: int) -> Iterator[bytes]:
    if out is None:
        raise DamagedFile("its object is missing from the repository")
    while size > 0:
        chunk = out.read(min(CHUNK, size))
        if not chunk:
            raise GitFailed("git stopped in the middle of a file")
        size -= len(chunk)
        yield chunk


class SavedInFolder:
    """A snapshot without git.

    Its folder lies where agents can write: no link in it is followed, and only bytes that were kept are given back.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._manifest = load(place)
        self._targets = {unspell(one.path): unspell(one.target) for one in self._manifest.files if one.kind == LINK}

    def listing(self) -> SnapshotListing:
        """What it holds."""
        found = SnapshotListing(missing=list(self._manifest.left_out))
        listed = {one.path for one in found.missing}
        for one in self._manifest.files:
            path = unspell(one.path)
            if one.kept and can_be_kept(path):
                found.files.append(SavedFile(path, (one.kind, one.sha256), one.mode))
            elif one.path not in listed:
                found.missing.append(OmittedFile(one.path, OmissionReason.NOT_COPIED))
        return found

    def fingerprint(self, size: int, chunks: Iterable[bytes]) -> str:
        """The digest of the bytes, which says more than their number."""
        del size
        digest = hashlib.sha256()
        for chunk in chunks:
            digest.update(chunk)
        return digest.hexdigest()

    def equals_base(self, folder: Path, path: bytes, base: State) -> bool:
        """Never: there is no checkout here that could change bytes."""
        del folder, path, base
        return False

    def contents(self, files: list[SavedFile]) -> Iterator[tuple[SavedFile, Iterator[bytes]]]:
        """The bytes of each file, in turn; each must be read to its end, or to its `DamagedFile`, before the next."""
        for one in files:
            if one.path in self._targets:
                yield one, iter((self._targets[one.path],))
                continue
            yield one, self._chunks(one)

    def _chunks(self, one: SavedFile) -> Iterator[bytes]:
        digest = hashlib.sha256()
        try:
            top = open_folder(self._place / "files")
            try:
                with parent_of(one.path, top) as (inside, name):
                    opened = open_there(name, inside)
            finally:
                os.close(top)
            with os.fdopen(opened, "rb") as copy:
                while chunk := copy.read(CHUNK):
                    digest.update(chunk)
                    yield chunk
        except OSError as error:
            raise DamagedFile(error.strerror or str(error)) from error
        if digest.hexdigest() != one.state[1]:
            raise DamagedFile("its bytes are not those that were kept")


SavedFiles = SavedInGit | SavedInFolder
"""Where a snapshot's files come from."""


# Putting recovered files into a folder that belongs to somebody, without ever writing over or through anything.
#
# A file arrives under a temporary name in its own folder and takes its name by `link`, which fails if something has
# that name by now; only a file that was compared and found to be replaceable is renamed over. Links on the way are not
# followed: what a snapshot calls `a/b` must not land wherever a link `a` points to. What stands in the way is walked
# around: `a.recovered/b`.

_GIVEN_BACK = 0o1777
"""Bits of a file's mode. Whom a program runs as (set-user-ID, set-group-ID) was true of the file's owner then: a file
that an agent made and root recovers would run as root."""
Fingerprint = Callable[[int, Iterable[bytes]], str]
"""A digest from a file's size and its chunks."""


class RecoveryTarget:
    """The folder that files are recovered into."""

    def __init__(self, folder: Path) -> None:
        self._top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        """Let go of the folder."""
        os.close(self._top)

    def free_path(self, path: bytes) -> bytes:
        """The path itself, or the one to use because a file or a link stands where it needs a folder."""
        parts = path.split(b"/")
        for place in range(1, len(parts)):
            parts[place - 1] = self._passable(b"/".join(parts[:place]))
        return b"/".join(parts)

    def _passable(self, path: bytes) -> bytes:
        number = 0
        name = last = os.path.basename(path)
        before = path[: len(path) - len(last)]
        while (mode := self._mode(before + name)) is not None and not stat.S_ISDIR(mode):
            number += 1
            name = beside(last, number)
        return name

    def _mode(self, path: bytes) -> int | None:
        try:
            return os.stat(path, dir_fd=self._top, follow_symlinks=False).st_mode
        except OSError:
            return None

    def present(self, path: bytes, fingerprint: Fingerprint) -> State | None:
        """What is there now; a folder or anything else that is no file has no equal."""
        mode = self._mode(path)
        if mode is None:
            return None
        read = open_file(path, self._top)
        if isinstance(read, OmittedFile):
            return ("", "")
        return read.mode, fingerprint(read.size, read.chunks)

    def write(self, path: bytes, kind: str, mode: int, chunks: Iterable[bytes], *, replace: bool) -> None:
        """Put a file there; `FileExistsError` if there is one and it may not be replaced."""
        with parent_of(path, self._top, make=True, made=_give) as (folder, name):
            draft = b".allswell-recover-%d" % os.getpid()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=folder)
            try:
                if kind == LINK:
                    os.symlink(b"".join(chunks), draft, dir_fd=folder)
                    _give(draft, folder)
                else:
                    _fill(draft, folder, mode, chunks)
                if replace:
                    os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
                else:
                    _name(draft, name, folder)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(draft, dir_fd=folder)

    def remove(self, path: bytes) -> None:
        """Take a file away, or the link that has its name; no link on the way to it is followed."""
        with contextlib.suppress(FileNotFoundError), parent_of(path, self._top) as (folder, name):
            os.unlink(name, dir_fd=folder)


def _fill(name: bytes, folder: int, mode: int, chunks: Iterable[bytes]) -> None:
    opened = os.open(name, os.O_WRONLY | NEW, 0o600, dir_fd=folder)
    with os.fdopen(opened, "wb") as into:
        for chunk in chunks:
            into.write(chunk)
        into.flush()
        if os.geteuid() == 0:  # by its descriptor: another file may have its name by now
            owner = os.fstat(folder)
            os.fchown(opened, owner.st_uid, owner.st_gid)
        os.fchmod(opened, mode & _GIVEN_BACK)


def _name(draft: bytes, name: bytes, folder: int) -> None:
    """Give a finished file its name, unless something has it."""
    try:
        os.link(draft, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        with contextlib.suppress(FileNotFoundError):
            os.stat(name, dir_fd=folder, follow_symlinks=False)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from None
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)


def _give(name: bytes, folder: int) -> None:
    """What root recovers belongs to whom the folder belongs to, who has to go on working with it."""
    if os.geteuid() == 0:
        owner = os.fstat(folder)
        os.chown(name, owner.st_uid, owner.st_gid, dir_fd=folder, follow_symlinks=False)


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """What recovering did; paths are spelled and relative to `folder`."""

    folder: str
    written: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    conflicts: tuple[FileConflict, ...] = ()
    same: int = 0
    """Files that were there already, byte for byte, or that the attempt had never changed."""
    deleted: tuple[str, ...] = ()
    """What the attempt had deleted; nothing was done about it."""
    missing: tuple[OmittedFile, ...] = ()
    """What the snapshot knows of and does not hold."""


def recover(snapshot: Snapshot, *, into: str | os.PathLike[str] | None = None, apply: bool = False) -> Recovery:
    """Write a snapshot's files, with their bytes, permissions and links, `into` a folder or where they came from."""
    if (into is None) is not apply:
        raise Refused("bad_recover", "recover needs either a folder (into=…) or apply=True, not both", where="into")
    folder = Path(os.fsdecode(unspell(snapshot.folder))) if into is None else Path(into)
    if into is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Refused(
                "no_folder", f"{folder} is not a folder that can be written into: {error}", where="into"
            ) from error
    elif not folder.is_dir():
        raise Refused("no_folder", f"{folder} is gone; recover into another folder (into=…)", where="snapshot")
    with _saved(snapshot, folder if apply else None) as saved:
        landing = RecoveryTarget(folder)
        try:
            return _RecoveryPlan(saved, landing, folder, apply=apply).run()
        except OSError as error:
            raise Unavailable(
                f"recovering into {folder} stopped: {error}", hint="run it again: nothing is done twice"
            ) from error
        finally:
            landing.close()


@contextmanager
def _saved(snapshot: Snapshot, top: Path | None) -> Iterator[SavedFiles]:
    """The snapshot's files; with the working tree at `top` in reach, or from the objects alone."""
    if snapshot.kind == "folder":
        yield SavedInFolder(Path(os.fsdecode(unspell(snapshot.name))))
        return
    objects = unspell(snapshot.repository or "")
    if not os.path.isdir(objects):
        raise Refused("no_snapshot", f"the repository {snapshot.repository} is gone", where="snapshot")
    with scratch_folder() as scratch:
        if top is not None and os.path.lexists(top / ".git") and is_usable(top):
            git = Git(os.fsencode(top), timeout=LIMITS.git_timeout, scratch=scratch)
        else:
            git = Git(objects, timeout=LIMITS.git_timeout, scratch=scratch, git_dir=objects)
        yield SavedInGit(git, snapshot)


class _RecoveryPlan:
    """One recovery: first every file is judged, then what is to be written is written."""

    def __init__(self, saved: SavedFiles, landing: RecoveryTarget, folder: Path, *, apply: bool) -> None:
        self._saved = saved
        self._landing = landing
        self._folder = folder
        self._apply = apply
        self._same = 0
        self._names: set[bytes] = set()
        """Taken by the snapshot's own files, or given to one of them already."""

    def run(self) -> Recovery:
        listing = self._saved.listing()
        base = listing.base if self._apply else {}
        self._names = {one.path for one in listing.files}
        places = ((one, self._place(one, base.get(one.path))) for one in listing.files)
        todo = [(one, *place) for one, place in places if place is not None]
        written = []
        missing = list(listing.missing)
        for number, (one, chunks) in enumerate(self._saved.contents([one for one, _, _ in todo])):
            _, path, replace = todo[number]
            try:
                self._landing.write(path, one.state[0], one.mode, chunks, replace=replace)
                written.append(todo[number])
            except DamagedFile as error:
                missing.append(OmittedFile(spell(one.path), OmissionReason.DAMAGED, str(error)))
        todo = written
        apart = [(one.path, path) for one, path, _ in todo if one.path != path]
        return Recovery(
            folder=spell(os.fsencode(self._folder)),
            written=tuple(spell(path) for one, path, replace in todo if path == one.path and not replace),
            replaced=tuple(spell(path) for _, path, replace in todo if replace),
            conflicts=tuple(FileConflict(spell(wanted), spell(given)) for wanted, given in apart),
            same=self._same,
            deleted=tuple(spell(path) for path in listing.deleted),
            missing=tuple(missing),
        )

    def _place(self, one: SavedFile, base: State | None) -> tuple[bytes, bool] | None:
        """Where a file goes and whether it replaces what is there; None if there is nothing to do."""
        path = self._landing.free_path(one.path)
        present = self._landing.present(path, self._saved.fingerprint)
        said = verdict(present, base, one.state)
        if (
            said is FileVerdict.BESIDE
            and base is not None
            and path == one.path
            and self._saved.equals_base(self._folder, path, base)
        ):
            said = FileVerdict.REPLACE
        number = 1
        while said is FileVerdict.BESIDE:
            head, _, last = self._landing.free_path(one.path).rpartition(b"/")
            path = os.path.join(head, beside(last, number))
            number += 1
            if path not in self._names:
                said = verdict(self._landing.present(path, self._saved.fingerprint), None, one.state)
        self._names.add(path)
        if said in (FileVerdict.SAME, FileVerdict.LEAVE):
            self._same += 1
            return None
        return path, said is FileVerdict.REPLACE
