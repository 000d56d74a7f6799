"""Attempts: how one ended, what its holder said afterwards, what its verification came to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Raw, Struct, field

from allswell.domain.agents.cost import ExpenseRow, usd
from allswell.domain.duration import felt
from allswell.domain.lease.late import LateReports, afterwards
from allswell.domain.lease.verification import AfterCheck, claims_to_be_done, failed_so_far, shown, verify_of
from allswell.domain.receipts.receipt import End, Verification
from allswell.domain.task.model import Attempt, FailedCheck, TaskRow
from allswell.timing.moment import Moment, moment
from allswell.views.fields import as_shape

if TYPE_CHECKING:
    from allswell.runtime.attempt import AttemptOutcome


class LateWordShape(Struct, frozen=True):
    """Something that a holder said after its lease had ended: refused, and kept."""

    verb: str
    at: Moment = field(name="said_at")
    text: str
    cut: bool


class LateCheckinShape(Struct, frozen=True):
    """The last check-in that came too late."""

    checkin_at: Moment
    note: str
    progress: float | None

    @classmethod
    def of(cls, after: LateReports) -> LateCheckinShape | None:
        """What it said; None if there was none."""
        return None if after.checkin_at is None else cls(moment(after.checkin_at), after.note, after.progress)


class AttemptShape(Struct, frozen=True):
    """How one attempt ended; `late` is the result or failure that it brought too late."""

    attempt: int
    token: int
    agent_id: str
    granted_at: Moment
    ended_at: Moment
    outcome: str
    detail: str
    warning: str
    """What a human should know of it although it ended well, as calls that were refused; else empty."""
    cost_usd: float | None
    """What it said that it cost; null is unknown."""
    tokens_in: int | None
    tokens_out: int | None
    late: Raw | None
    late_words: list[LateWordShape]
    late_words_more: int
    late_checkins: int
    late_checkin: LateCheckinShape | None
    cost_estimated: bool = False
    """Whether its cost, or a part of it, is priced by a table of ours: its client has not reported it."""

    @classmethod
    def of(cls, ended: Attempt, expense: ExpenseRow | None = None) -> AttemptShape:
        """An attempt with what came after it."""
        after = afterwards(ended)
        return cls(
            attempt=ended.token,
            token=ended.token,
            agent_id=ended.agent,
            granted_at=moment(ended.granted_at),
            ended_at=moment(ended.ended_at),
            outcome=ended.outcome,
            detail=ended.detail,
            warning=ended.warning,
            cost_usd=None if expense is None else usd(expense.cost),
            tokens_in=None if expense is None else expense.given,
            tokens_out=None if expense is None else expense.written,
            late=None if ended.late is None else Raw(ended.late.encode()),
            late_words=[as_shape(word, LateWordShape) for word in after.words],
            late_words_more=after.more,
            late_checkins=after.checkins,
            late_checkin=LateCheckinShape.of(after),
            cost_estimated=expense is not None and expense.estimated,
        )


# What a verification came to, and how often that of a task has failed.


class VerificationShape(Struct, frozen=True):
    """One run of the command that verifies: `output` is the end of what it printed."""

    argv: tuple[str, ...]
    passed: bool
    why: str
    elapsed_ms: int
    output: str
    left_out: int

    @property
    def says(self) -> str:
        """How the command ended, in words."""
        how = f"passed in {felt(self.elapsed_ms)}" if self.passed else f"failed ({self.why})"
        return f"`{shown(self.argv)}` {how}"


class FailedCheckShape(Struct, frozen=True):
    """A verification of a task that has failed, and of which attempt's work."""

    token: int
    failed_at: Moment
    why: str
    elapsed_ms: int
    output: str
    by: str | None

    @classmethod
    def of(cls, check: FailedCheck) -> FailedCheckShape:
        """One of them."""
        return cls(check.token, moment(check.failed_at), check.why, check.elapsed, check.said, check.by or None)


class ProofShape(Struct, frozen=True):
    """What verifies a task, whether its holder says that it is done, and what has failed since a human decided."""

    command: str
    said_done: bool
    failed: int
    most: int
    failures: list[FailedCheckShape]

    @classmethod
    def of(cls, row: TaskRow) -> ProofShape | None:
        """Of a task; None where its holder's word is enough."""
        task, said = row.task, row.task.record.said_done
        command = verify_of(task)
        if not command:
            return None
        held = row.lease is not None and said is not None and said.token == row.lease.token
        waits = row.lease is None and bool(row.waits) and claims_to_be_done(task)
        failures = [FailedCheckShape.of(check) for check in task.record.failed_checks]
        return cls(shown(command), held or waits, failed_so_far(task), task.spec.policy.verify_attempts, failures)


class VerifiedShape(Struct, frozen=True):
    """What a verification by hand came to, and what followed: the task is done, is mended, or a human is asked."""

    task_id: str
    follows: Literal["accept", "mend", "ask"]
    failed: int
    most: int
    folder: str
    verification: VerificationShape

    @classmethod
    def of(cls, task: str, folder: str, came: Verification, followed: AfterCheck) -> VerifiedShape:
        """All of it."""
        follows: Literal["accept", "mend", "ask"] = "ask"
        if followed.follows.value in ("accept", "mend"):
            follows = "accept" if followed.follows.value == "accept" else "mend"
        return cls(task, follows, followed.failed, followed.most, folder, as_shape(came, VerificationShape))


# What a command came to that was run under watch.


class RanShape(Struct, frozen=True):
    """How the last attempt ended; `exit_code` is the command's own, `exit` what `allswell run` ends with."""

    task_id: str
    state: str
    attempts: int
    end: End | None
    reason: str
    exit_code: int | None
    exit: int
    receipt_id: str | None
    receipt_path: str | None
    snapshot: str | None
    stdout: str | None
    stderr: str | None
    worktree: str | None
    verification: VerificationShape | None
    """What came of the verification of the last attempt's work."""
    warnings: list[str]

    @classmethod
    def of(
        cls, outcome: AttemptOutcome | None, task: str, state: str, attempts: int, code: int, worktree: str | None
    ) -> RanShape:
        """The outcome of the last attempt, if one was begun, and how the task stands."""
        receipt = None if outcome is None else outcome.receipt
        came = None if outcome is None else outcome.verification
        path = None if outcome is None else outcome.receipt_path
        stdout, stderr = (None, None) if outcome is None else outcome.transcript
        return cls(
            task_id=task,
            state=state,
            attempts=attempts,
            end=None if outcome is None else outcome.end,
            reason="" if outcome is None else outcome.reason,
            exit_code=None if outcome is None else outcome.exit_code,
            exit=code,
            receipt_id=None if receipt is None else receipt.id,
            receipt_path=None if path is None else str(path),
            snapshot=None if receipt is None or receipt.snapshot is None else receipt.snapshot.name,
            stdout=None if stdout is None else str(stdout),
            stderr=None if stderr is None else str(stderr),
            worktree=worktree,
            verification=None if came is None else as_shape(came, VerificationShape),
            warnings=[] if outcome is None else list(outcome.warnings),
        )
