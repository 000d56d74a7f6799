"""The receipt of an attempt: what it left that did not end well, or worked on a branch of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.domain.evidence import Sign
from allswell.domain.receipt import End, told
from allswell.doors.shapes.moment import Moment, moment
from allswell.doors.shapes.snapshot import SnapshotShape
from allswell.doors.shapes.verification import VerificationShape

if TYPE_CHECKING:
    from pathlib import Path

    from allswell.domain.evidence import Evidence
    from allswell.domain.receipt import Advice, Branch, Change, Receipt, Transcript, Used


class EvidenceShape(Struct, frozen=True):
    """Something that an attempt has shown, so long after its beginning."""

    sign: Sign
    after_ms: int
    what: str

    @classmethod
    def of(cls, seen: Evidence) -> EvidenceShape:
        """What was seen."""
        return cls(seen.sign, seen.at, seen.what)


class TranscriptShape(Struct, frozen=True):
    """What a stream printed: the file, and how many bytes are not in it."""

    path: str
    bytes: int
    left_out: int

    @classmethod
    def of(cls, stream: Transcript) -> TranscriptShape:
        """One stream."""
        return cls(stream.path, stream.bytes, stream.left_out)


class BranchShape(Struct, frozen=True):
    """Where the work of an attempt is that had a worktree of its own."""

    name: str
    repository: str
    base: str
    commit: str
    worktree: str | None
    uncommitted: int

    @classmethod
    def of(cls, branch: Branch) -> BranchShape:
        """A branch."""
        return cls(branch.name, branch.repository, branch.base, branch.commit, branch.worktree, branch.uncommitted)


class ChangeShape(Struct, frozen=True, gc=False):
    """A file that is not as it was: A added, M changed, D deleted, T of another kind."""

    how: str
    path: str

    @classmethod
    def of(cls, change: Change) -> ChangeShape:
        """One file."""
        return cls(change.how, change.path)


class UsedShape(Struct, frozen=True):
    """What all processes of an attempt have used."""

    user_ms: int
    system_ms: int
    max_rss_kb: int

    @classmethod
    def of(cls, used: Used) -> UsedShape:
        """What was used."""
        return cls(round(used.user_seconds * 1000), round(used.system_seconds * 1000), used.max_rss_kb)


class AdviceShape(Struct, frozen=True):
    """What to type next."""

    look: list[str]
    recover: list[str]
    resume: list[str]
    merge: list[str]

    @classmethod
    def of(cls, advice: Advice, typed: Callable[[str], str]) -> AdviceShape:
        """Commands, each as it is to be typed here."""
        return cls(*(list(map(typed, lines)) for lines in (advice.look, advice.recover, advice.resume, advice.merge)))


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
    argv: tuple[str, ...]
    cwd: str
    last_evidence: EvidenceShape | None
    last_evidence_ms: int | None
    evidence: list[EvidenceShape]
    session: str | None
    stdout: TranscriptShape | None
    stderr: TranscriptShape | None
    snapshot: SnapshotShape | None
    branch: BranchShape | None
    verification: VerificationShape | None
    changed: list[ChangeShape]
    changed_more: int
    used: UsedShape | None
    advice: AdviceShape
    warnings: tuple[str, ...]
    path: str
    says: str
    """What happened, in a sentence."""

    @classmethod
    def of(cls, kept: Receipt, path: Path, typed: Callable[[str], str]) -> ReceiptShape:
        """A receipt that lies in a file; `typed` says how a command is to be typed here."""
        last, branch, used = kept.last_evidence, kept.branch, kept.used
        return cls(
            receipt_id=kept.id,
            status=kept.status,
            partial=kept.partial,
            task_id=kept.task,
            name=kept.name,
            attempt=kept.attempt,
            token=kept.token,
            agent_id=kept.agent,
            run_id=kept.run,
            reason=kept.reason,
            limit_ms=kept.limit_ms,
            began_at=moment(kept.began_at),
            ended_at=moment(kept.ended_at),
            elapsed_ms=kept.elapsed_ms,
            exit_code=kept.exit_code,
            signal=kept.signal,
            killed=kept.killed,
            survivors=kept.survivors,
            argv=kept.argv,
            cwd=kept.cwd,
            last_evidence=None if last is None else EvidenceShape.of(last),
            last_evidence_ms=kept.last_evidence_ms,
            evidence=[EvidenceShape.of(seen) for seen in kept.evidence],
            session=kept.session,
            stdout=None if kept.stdout is None else TranscriptShape.of(kept.stdout),
            stderr=None if kept.stderr is None else TranscriptShape.of(kept.stderr),
            snapshot=None if kept.snapshot is None else SnapshotShape.of(kept.snapshot),
            branch=None if branch is None else BranchShape.of(branch),
            verification=None if kept.verification is None else VerificationShape.of(kept.verification),
            changed=[ChangeShape.of(change) for change in kept.changed],
            changed_more=kept.changed_more,
            used=None if used is None else UsedShape.of(used),
            advice=AdviceShape.of(kept.advice, typed),
            warnings=kept.warnings,
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
