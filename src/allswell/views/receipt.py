"""The receipt of an attempt: what it left that did not end well, or worked on a branch of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

from allswell.domain.agents.evidence import EvidenceKind
from allswell.domain.agents.status import Survivors, still_run
from allswell.domain.receipts.receipt import Change, End, Receipt, ResourceUse, told
from allswell.domain.receipts.snapshot import FileConflict, OmissionReason
from allswell.timing.moment import Moment
from allswell.views.attempt import VerificationShape
from allswell.views.fields import as_shape

if TYPE_CHECKING:
    from allswell.runtime.workspace.diff import AttemptChanges


# A snapshot of an attempt's work, and what became of giving it back.


class LeftOutShape(Struct, frozen=True, gc=False):
    """A file whose bytes are not kept, and why."""

    path: str
    why: OmissionReason
    detail: str


class SnapshotShape(Struct, frozen=True):
    """What was kept of an attempt, and where: a commit under `name`, or a folder; `snapshot_id` tells its content."""

    id: str = field(name="snapshot_id")
    name: str
    kind: Literal["git", "folder"]
    task: str = field(name="task_id")
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


class RecoveryShape(Struct, frozen=True):
    """What was written where, and what was left as it is."""

    folder: str
    written: tuple[str, ...]
    replaced: tuple[str, ...]
    conflicts: list[FileConflict]
    same: int
    deleted: tuple[str, ...]
    missing: list[LeftOutShape]


# Processes that still run after their attempt.


class SurvivorShape(Struct, frozen=True):
    """One process."""

    pid: int
    command: str


class SurvivorsShape(Struct, frozen=True):
    """What is left of one attempt; its folder and its slot are kept for as long as it is."""

    task_id: str
    name: str
    attempt: int
    agent_id: str
    host: str
    folder: str
    since_at: Moment
    processes: list[SurvivorShape]
    says: str
    """In a sentence."""

    @classmethod
    def of(cls, left: Survivors) -> SurvivorsShape:
        """What is left of one attempt, as programs outside see it."""
        says = still_run(left.processes)
        return as_shape(left, cls, task_id=left.task, agent_id=left.holder, since_at=left.since, says=says)


class EvidenceShape(Struct, frozen=True):
    """Something that an attempt has shown, so long after its beginning."""

    sign: EvidenceKind
    at: int = field(name="after_ms")
    what: str


class TranscriptShape(Struct, frozen=True):
    """What a stream printed: the file, and how many bytes are not in it."""

    path: str
    bytes: int
    left_out: int


class BranchShape(Struct, frozen=True):
    """Where the work of an attempt is that had a worktree of its own."""

    name: str
    repository: str
    base: str
    commit: str
    worktree: str | None
    uncommitted: int


class UsedShape(Struct, frozen=True):
    """What all processes of an attempt have used."""

    user_ms: int
    system_ms: int
    max_rss_kb: int

    @classmethod
    def of(cls, used: ResourceUse) -> UsedShape:
        """What was used."""
        return cls(round(used.user_seconds * 1000), round(used.system_seconds * 1000), used.max_rss_kb)


class AdviceShape(Struct, frozen=True):
    """What to type next."""

    look: list[str]
    recover: list[str]
    resume: list[str]
    merge: list[str]


class ReceiptShape(Struct, frozen=True):
    """One attempt's receipt; moments are of the clock of the machine that it ran on."""

    receipt_id: str
    status: End
    partial: bool
    task_id: str
    name: str
    attempt: int
    token: int
    agent_id: str
    run_id: str | None
    reason: str
    limit_ms: int | None
    began_at: Moment
    ended_at: Moment
    elapsed_ms: int
    exit_code: int | None
    signal: int | None
    killed: bool
    survivors: tuple[int, ...]
    running: list[SurvivorShape]
    """The same, with their commands."""
    proven: bool
    """Whether it was known that no other process was left."""
    argv: tuple[str, ...]
    cwd: str
    last_evidence: EvidenceShape | None
    last_evidence_ms: int | None
    evidence: list[EvidenceShape]
    session: str | None
    open_call: str | None
    """The call of a tool that had brought nothing when it was over, in words."""
    stdout: TranscriptShape | None
    stderr: TranscriptShape | None
    snapshot: SnapshotShape | None
    branch: BranchShape | None
    verification: VerificationShape | None
    changed: list[Change]
    changed_more: int
    used: UsedShape | None
    advice: AdviceShape
    warnings: tuple[str, ...]
    path: str
    says: str
    """What happened, in a sentence."""

    @classmethod
    def of(cls, kept: Receipt, path: Path) -> ReceiptShape:
        """A receipt that lies in a file."""
        return as_shape(
            kept,
            cls,
            receipt_id=kept.id,
            task_id=kept.task,
            agent_id=kept.agent,
            run_id=kept.run,
            open_call=kept.open_call or None,
            used=None if kept.used is None else UsedShape.of(kept.used),
            path=str(path),
            says=told(kept),
        )


class ReceiptsShape(Struct, frozen=True):
    """Receipts, the newest last."""

    receipts: list[ReceiptShape]


class ReceiptPageShape(Struct, frozen=True):
    """Receipts, the newest first; `next` is what to give as `after` for the next page, null at the end."""

    receipts: list[ReceiptShape]
    next: str | None


# Where the work of a task is: on a branch, or in a snapshot that can be given back.


class WorkShape(Struct, frozen=True):
    """The work of a task that had a worktree of its own and has ended well."""

    branch: str | None
    repository: str
    base: str
    commit: str
    files: int
    changed: list[Change]
    merged: bool | None
    worktree: str | None
    uncommitted: int
    receipt_id: str
    look: tuple[str, ...]
    merge: tuple[str, ...]

    @classmethod
    def of(cls, receipt: ReceiptShape, branch: BranchShape, merged: bool | None) -> WorkShape:  # noqa: FBT001
        """What a receipt holds about a branch; `merged` is null if that cannot be known."""
        return as_shape(
            branch,
            cls,
            branch=branch.name or None,
            files=len(receipt.changed) + receipt.changed_more,
            changed=receipt.changed,
            merged=merged,
            receipt_id=receipt.receipt_id,
            look=receipt.advice.look,
            merge=receipt.advice.merge,
        )


class TaskArtifacts(Struct, frozen=True):
    """What the attempts at one task have left: part of what is shown of the task."""

    receipt_ids: list[str]
    work: WorkShape | None
    worktree: str | None


class RecoverShape(Struct, frozen=True):
    """What there is of a task's work: a branch, or a snapshot; and what was given back of that."""

    work: WorkShape | None
    snapshot: SnapshotShape | None
    recovery: RecoveryShape | None


# What an attempt has changed.


class DiffShape(Struct, frozen=True):
    """What an attempt has changed, from its beginning (or HEAD, where `gap` says what was not noted) to `until`."""

    task_id: str
    attempt: int
    since: str
    until: str
    gap: str | None
    changed: list[Change]
    unshown: list[str]
    diff: str

    @classmethod
    def of(cls, task: str, found: AttemptChanges) -> DiffShape:
        """What was found to have changed."""
        shown = found.difference
        return cls(
            task_id=task,
            attempt=found.attempt,
            since="HEAD" if found.gap else "its beginning",
            until=found.until,
            gap=found.gap or None,
            changed=list(shown.changed),
            unshown=list(shown.unshown),
            diff=shown.text.decode("utf-8", "backslashreplace"),
        )
