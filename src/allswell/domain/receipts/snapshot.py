r"""The rules of snapshots: what one is called, what is left out of it, how much it may hold, and what a conflict is.

A snapshot is what an attempt had written when it was ended, kept where neither the attempt nor a reset can reach it.
Paths are bytes, as the kernel has them; where they are told to people or written as JSON they are *spelled*: UTF-8,
with a backslash doubled and every byte that is not UTF-8 as `\xNN`, so that any name can be printed and read back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Literal

import msgspec

from allswell.domain.ids import TaskId
from allswell.errors import Refused

REFS = "refs/allswell"
OWN_FOLDER = b".allswell"
"""Ours: the store lives there, and opening its files by ordinary means would drop SQLite's locks."""
RECOVERED = b".recovered"
OBJECT = r"^(?:[0-9a-f]{40}|[0-9a-f]{64})\Z"
ObjectName = Annotated[str, msgspec.Meta(pattern=OBJECT)]
"""A commit, or a digest. One that is read from a file becomes an argument of git's, and must be no option."""

_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,199}", re.ASCII)
_ESCAPED = re.compile(rb"\\(\\|x[0-9a-f]{2})")


def ref_name(task: str, attempt: int) -> str:
    """Where the snapshot of an attempt is kept; a name that `git check-ref-format` would refuse is refused here."""
    if not _SAFE.fullmatch(task) or ".." in task or task.endswith((".", ".lock")):
        raise Refused(
            "bad_snapshot_name",
            f"{task!r} cannot name a snapshot: use at most 200 letters, digits, '_', '-' and single dots inside",
            where="task",
        )
    if type(attempt) is not int or attempt < 1:
        raise Refused("bad_snapshot_name", f"attempt must be a number from 1 on, not {attempt!r}", where="attempt")
    return f"{REFS}/{task}/{attempt}"


def spell(path: bytes) -> str:
    """A path for people and JSON; `unspell` gives the same bytes back."""
    return path.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def unspell(text: str) -> bytes:
    """The path that was spelled so."""

    def plain(found: re.Match[bytes]) -> bytes:
        said = found[1]
        return said if said == b"\\" else bytes([int(said[1:], 16)])

    return _ESCAPED.sub(plain, text.encode("utf-8"))


def is_ours(path: bytes) -> bool:
    """Whether a path lies in a folder of Allswell's own, which no snapshot opens."""
    return OWN_FOLDER in path.split(b"/")


def can_be_kept(path: bytes) -> bool:
    """Whether a snapshot may hold this path: relative, within its folder, and nothing of git's or our own."""
    return not {b"", b".", b"..", b".git", OWN_FOLDER} & set(path.split(b"/"))


class SnapshotLimits(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """How much one snapshot may read and how long it may take; sizes are bytes, times are milliseconds."""

    max_file: int = 100 * 1024 * 1024
    max_bytes: int = 1024 * 1024 * 1024
    max_files: int = 100_000
    timeout: int = 30_000
    """After so long no further file is read; what was read by then is kept."""
    git_timeout: int = 30_000
    """How long one call of git may take before it is killed."""

    def validated(self) -> SnapshotLimits:
        """These limits, or `Refused` naming the one that cannot be."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise Refused(
                    "bad_snapshot_limit", f"{name} must be a positive whole number, not {value!r}", where=name
                )
        return self


class OmissionReason(StrEnum):
    """Why the bytes of a file are not in a snapshot."""

    TOO_BIG = "too_big"
    OVER_BUDGET = "over_budget"
    OUT_OF_TIME = "out_of_time"
    UNREADABLE = "unreadable"
    VANISHED = "vanished"
    CHANGED = "changed"
    SPECIAL = "special"
    NOT_COPIED = "not_copied"
    """It is as it was when the attempt began, and without git only changes are copied."""
    DAMAGED = "damaged"
    """It was kept, and what lies in its place now is not what was kept."""


class OmittedFile(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, order=True):
    """A file that a snapshot knows of and does not hold."""

    path: str
    why: OmissionReason
    detail: str = ""


class FileConflict(msgspec.Struct, frozen=True, gc=False):
    """A file that was changed since: the saved one was put beside it."""

    path: str
    recovered: str


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A file that has to be read to be kept."""

    path: bytes
    size: int
    tracked: bool


def ration(candidates: Iterable[Candidate], limits: SnapshotLimits) -> tuple[list[Candidate], list[OmittedFile]]:
    """Which files are read, in order, and which are not.

    What git already tracks comes first, then small before big: a build's one huge log must not cost a hundred sources.
    """
    kept: list[Candidate] = []
    left: list[OmittedFile] = []
    total = 0
    for one in sorted(candidates, key=lambda c: (not c.tracked, c.size, c.path)):
        if one.size > limits.max_file:
            left.append(
                OmittedFile(
                    spell(one.path), OmissionReason.TOO_BIG, f"{one.size} bytes, a file may have {limits.max_file}"
                )
            )
        elif total + one.size > limits.max_bytes or len(kept) >= limits.max_files:
            allowed = f"a snapshot may have {limits.max_bytes} bytes in {limits.max_files} files"
            left.append(OmittedFile(spell(one.path), OmissionReason.OVER_BUDGET, f"{one.size} bytes, {allowed}"))
        else:
            kept.append(one)
            total += one.size
    return kept, left


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was kept of an attempt, and where: a commit under `refs/allswell`, or a folder of ours without git."""

    task: TaskId
    attempt: int
    kind: Literal["git", "folder"]
    folder: str
    """The top of what was saved, spelled."""
    name: str
    """The ref, or the folder that holds it, spelled."""
    id: ObjectName
    """The commit, or the digest of the manifest: the same for the same content under the same name."""
    reason: str
    taken_at: int
    repository: str | None = None
    """The git folder that holds the objects, spelled; it outlives a worktree that is removed."""
    base: ObjectName | None = None
    """What it was based on: the commit at HEAD, or the digest of the baseline."""
    previous: ObjectName | None = None
    """The snapshot that stood under this name before, still reachable through this one."""
    left_out: tuple[OmittedFile, ...] = ()
    torn: tuple[str, ...] = ()
    """Files that changed while they were read: what was read is kept, and may be neither the old nor the new."""
    nested: tuple[str, ...] = ()
    """Repositories inside, whose files are kept as if they were this repository's."""
    notes: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether every file that was there is held as it was."""
        return not self.left_out and not self.torn


class FileVerdict(StrEnum):
    """What recovering does about one file."""

    WRITE = "write"
    REPLACE = "replace"
    SAME = "same"
    LEAVE = "leave"
    """The attempt never changed it, so what stands there now is nobody's loss."""
    BESIDE = "beside"
    """Someone else's work stands there: the recovered file is put beside it."""


State = tuple[str, str]
"""A file as it is compared: its kind (git's mode, which tells links and executables) and a digest of its bytes."""


def verdict(present: State | None, base: State | None, saved: State) -> FileVerdict:
    """What to do with a saved file, given what is there now and what the snapshot was based on."""
    if present is None:
        return FileVerdict.WRITE
    if present == saved:
        return FileVerdict.SAME
    if base == saved:
        return FileVerdict.LEAVE
    if present == base:
        return FileVerdict.REPLACE
    return FileVerdict.BESIDE


def beside(name: bytes, number: int) -> bytes:
    """The n-th name to try for a file that may not take its own."""
    return name + RECOVERED + (b".%d" % number if number > 1 else b"")
