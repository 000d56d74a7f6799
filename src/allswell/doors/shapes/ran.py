"""What a command came to that was run under watch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.domain.receipt import End
from allswell.doors.shapes.verification import VerificationShape

if TYPE_CHECKING:
    from allswell.runtime.attempt import Outcome


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
        cls, outcome: Outcome | None, task: str, state: str, attempts: int, code: int, worktree: str | None
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
            verification=None if came is None else VerificationShape.of(came),
            warnings=[] if outcome is None else list(outcome.warnings),
        )
