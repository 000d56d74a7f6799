"""What a snapshot in git says about itself: in its message for programs, and beside its tree what no tree can hold."""

from __future__ import annotations

import msgspec

from allswell.domain.names import TaskId
from allswell.domain.snapshot import LeftOut, Snapshot, spell
from allswell.runtime.git import Git

HEADER = "Allswell-Snapshot: "


class Inside(msgspec.Struct, frozen=True, omit_defaults=True):
    """A repository inside: where, and what its HEAD was."""

    path: str
    head: str | None = None


class Particulars(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the tree cannot say, in the same bytes for the same content."""

    left_out: tuple[LeftOut, ...] = ()
    torn: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    """In the tree and not on disk: a sparse checkout's."""
    nested: tuple[Inside, ...] = ()
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
    particulars: str
    base: str | None = None
    previous: str | None = None


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


def read_particulars(git: Git, header: Header) -> Particulars:
    """What a snapshot's tree cannot say."""
    text = git.run("cat-file", "blob", f"{header.particulars}:snapshot.json")
    return msgspec.json.decode(text, type=Particulars)


def to_snapshot(git: Git, ref: str, commit: str, header: Header, about: Particulars) -> Snapshot:
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
