"""Where the work of a task is: on a branch, or in a snapshot that can be given back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.doors.shapes.receipt import ChangeShape
from allswell.doors.shapes.snapshot import RecoveryShape, SnapshotShape

if TYPE_CHECKING:
    from allswell.domain.receipt import Branch, Receipt


class WorkShape(Struct, frozen=True):
    """The work of a task that had a worktree of its own and has ended well."""

    branch: str | None
    repository: str
    base: str
    commit: str
    files: int
    changed: list[ChangeShape]
    merged: bool | None
    worktree: str | None
    uncommitted: int
    receipt_id: str
    look: tuple[str, ...]
    merge: tuple[str, ...]

    @classmethod
    def of(cls, receipt: Receipt, branch: Branch, *, merged: bool | None) -> WorkShape:
        """What a receipt tells of a branch; `merged` is null where that cannot be told."""
        return cls(
            branch=branch.name or None,
            repository=branch.repository,
            base=branch.base,
            commit=branch.commit,
            files=len(receipt.changed) + receipt.changed_more,
            changed=[ChangeShape.of(change) for change in receipt.changed],
            merged=merged,
            worktree=branch.worktree,
            uncommitted=branch.uncommitted,
            receipt_id=receipt.id,
            look=receipt.advice.look,
            merge=receipt.advice.merge,
        )


class RecoverShape(Struct, frozen=True):
    """What there is of a task's work: a branch, or a snapshot; and what was given back of that."""

    work: WorkShape | None
    snapshot: SnapshotShape | None
    recovery: RecoveryShape | None
