"""The files of a kept snapshot, wherever it is kept: what they are, what they were based on, and their bytes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from allswell.domain.snapshot import LeftOut, Snapshot, State, Why, can_be_kept, unspell
from allswell.errors import Refused
from allswell.runtime.git import Git, GitFailed
from allswell.runtime.own_files import open_folder, open_there, parent_of
from allswell.runtime.snapshot.manifest import load, load_baseline
from allswell.runtime.snapshot.reading import CHUNK, EXECUTABLE, LINK
from allswell.runtime.snapshot.record import read_header, read_particulars


@dataclass(slots=True)
class File:
    """A saved file."""

    path: bytes
    state: State
    mode: int
    """Its permissions."""


@dataclass(slots=True)
class Listing:
    """All that a snapshot holds, and what it knows of and does not hold."""

    files: list[File] = field(default_factory=list)
    base: dict[bytes, State] = field(default_factory=dict)
    missing: list[LeftOut] = field(default_factory=list)
    deleted: list[bytes] = field(default_factory=list)
    """In the base, and not there any more when the snapshot was taken."""


class Damaged(Exception):
    """A file that a snapshot lists and cannot give back as it was kept; the others are not its business."""


class Saved(Protocol):
    """Where a snapshot's files come from."""

    def listing(self) -> Listing:
        """What it holds."""
        ...

    def fingerprint(self, size: int, chunks: Iterable[bytes]) -> str:
        """The digest that states are compared by."""
        ...

    def equals_base(self, folder: Path, path: bytes, base: State) -> bool:
        """Whether a file that differs from the base is still what checking the base out gives."""
        ...

    def contents(self, files: list[File]) -> Iterator[tuple[File, Iterator[bytes]]]:
        """The bytes of each file, in turn; each must be read to its end, or to its `Damaged`, before the next."""
        ...


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

    def listing(self) -> Listing:
        """What it holds."""
        about = self._about
        passed = {unspell(one.path) for one in about.left_out} | {unspell(path) for path in about.absent}
        found = Listing(missing=list(about.left_out))
        there = set()
        for path, (kind, oid) in self._tree(self._snapshot.id).items():
            there.add(path)
            if path in passed or kind == "160000" or not can_be_kept(path):
                continue
            usual = about.executable if kind == EXECUTABLE else about.plain
            found.files.append(File(path, (kind, oid), usual))
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

    def contents(self, files: list[File]) -> Iterator[tuple[File, Iterator[bytes]]]:
        """The bytes of each file, in turn."""
        wanted = self._git.scratch / "wanted"
        wanted.write_text("".join(one.state[1] + "\n" for one in files), encoding="ascii")
        if not files:
            return
        with wanted.open("rb") as names, self._git.listen("cat-file", "--batch", stdin=names) as out:
            for one in files:
                header = out.readline().split(b" ")
                if len(header) != 3:
                    yield one, _exactly(None, 1)
                    continue
                yield one, _exactly(out, int(header[2]))
                out.read(1)


def _exactly(out: IO[bytes] | None, size: int) -> Iterator[bytes]:
    if out is None:
        raise Damaged("its object is missing from the repository")
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
        self._baseline, _ = load_baseline(place.parent)
        self._targets = {unspell(one.path): unspell(one.target) for one in self._manifest.files if one.kind == LINK}

    def listing(self) -> Listing:
        """What it holds."""
        found = Listing(missing=list(self._manifest.left_out))
        listed = {one.path for one in found.missing}
        for one in self._manifest.files:
            path = unspell(one.path)
            if one.kept and can_be_kept(path):
                found.files.append(File(path, (one.kind, one.sha256), one.mode))
            elif one.path not in listed:
                found.missing.append(LeftOut(one.path, Why.NOT_COPIED))
        if self._baseline is not None:
            found.base = {unspell(one.path): (one.kind, one.sha256) for one in self._baseline.files}
            there = {unspell(one.path) for one in self._manifest.files} | {unspell(path) for path in listed}
            found.deleted = sorted(set(found.base) - there)
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

    def contents(self, files: list[File]) -> Iterator[tuple[File, Iterator[bytes]]]:
        """The bytes of each file, in turn."""
        for one in files:
            if one.path in self._targets:
                yield one, iter((self._targets[one.path],))
                continue
            yield one, self._chunks(one)

    def _chunks(self, one: File) -> Iterator[bytes]:
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
            raise Damaged(error.strerror or str(error)) from error
        if digest.hexdigest() != one.state[1]:
            raise Damaged("its bytes are not those that were kept")
