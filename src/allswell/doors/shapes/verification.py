"""What a verification came to, and how often that of a task has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from allswell.domain.verification import claims_to_be_done, failed_so_far, shown, verify_of
from allswell.doors.shapes.moment import Moment, moment

if TYPE_CHECKING:
    from allswell.domain.listing import TaskRow
    from allswell.domain.receipt import Verification
    from allswell.domain.task import FailedCheck
    from allswell.domain.verification import AfterCheck


class VerificationShape(Struct, frozen=True):
    """One run of the command that verifies: `output` is the end of what it printed."""

    argv: tuple[str, ...]
    passed: bool
    why: str
    elapsed_ms: int
    output: str
    left_out: int

    @classmethod
    def of(cls, came: Verification) -> VerificationShape:
        """What came of it."""
        return cls(came.argv, came.passed, came.why, came.elapsed_ms, came.output, came.left_out)


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
    """What verifies a task, whether somebody says that it is done, and what has failed since a human decided."""

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
        return cls(task, follows, followed.failed, followed.most, folder, VerificationShape.of(came))
