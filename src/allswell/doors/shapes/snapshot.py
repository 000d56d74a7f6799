"""A snapshot of an attempt's work, and what became of giving it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from allswell.domain.snapshot import Why
from allswell.doors.shapes.moment import Moment, moment

if TYPE_CHECKING:
    from allswell.domain.snapshot import LeftOut, Snapshot
    from allswell.runtime.snapshot import Recovery


class LeftOutShape(Struct, frozen=True, gc=False):
    """A file whose bytes are not kept, and why."""

    path: str
    why: Why
    detail: str

    @classmethod
    def of(cls, left: LeftOut) -> LeftOutShape:
        """One of them."""
        return cls(left.path, left.why, left.detail)


class SnapshotShape(Struct, frozen=True):
    """What was kept of an attempt, and where: a commit under `name`, or a folder; `snapshot_id` tells its content."""

    snapshot_id: str
    name: str
    kind: Literal["git", "folder"]
    task_id: str
    attempt: int
    folder: str
    reason: str
    taken_at: Moment
    repository: str | None
    base: str | None
    previous: str | None
    whole: bool
    left_out: list[LeftOutShape]
    torn: tuple[str, ...]
    nested: tuple[str, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, kept: Snapshot) -> SnapshotShape:
        """What was kept."""
        return cls(
            snapshot_id=kept.id,
            name=kept.name,
            kind=kept.kind,
            task_id=kept.task,
            attempt=kept.attempt,
            folder=kept.folder,
            reason=kept.reason,
            taken_at=moment(kept.taken_at),
            repository=kept.repository,
            base=kept.base,
            previous=kept.previous,
            whole=kept.whole,
            left_out=[LeftOutShape.of(left) for left in kept.left_out],
            torn=kept.torn,
            nested=kept.nested,
            notes=kept.notes,
        )


class ConflictShape(Struct, frozen=True, gc=False):
    """A file that somebody else has changed since: the saved one was put beside it."""

    path: str
    recovered: str


class RecoveryShape(Struct, frozen=True):
    """What was written where, and what was left as it is."""

    folder: str
    written: tuple[str, ...]
    replaced: tuple[str, ...]
    conflicts: list[ConflictShape]
    same: int
    deleted: tuple[str, ...]
    missing: list[LeftOutShape]

    @classmethod
    def of(cls, done: Recovery) -> RecoveryShape:
        """What was done."""
        return cls(
            folder=done.folder,
            written=done.written,
            replaced=done.replaced,
            conflicts=[ConflictShape(one.path, one.recovered) for one in done.conflicts],
            same=done.same,
            deleted=done.deleted,
            missing=[LeftOutShape.of(left) for left in done.missing],
        )
