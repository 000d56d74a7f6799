"""One attempt at a step of a flow. What it left has the names of the files in the run's folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.domain.audit import Audited
from allswell.domain.capture import ContextForResume, Phase
from allswell.domain.step_receipt import Artifact, GitPlace, StepStatus, Tokens
from allswell.doors.shapes.moment import Moment
from allswell.doors.shapes.verification import VerificationShape

if TYPE_CHECKING:
    from allswell.domain.step_receipt import StepReceipt


class StepShape(Struct, frozen=True):
    """One attempt at a step, however it ended."""

    run_id: str
    flow_key: str
    step_id: str
    attempt: int
    agent_id: str
    engine: str
    provider: str
    started_at: Moment
    completed_at: Moment
    duration_ms: int
    status: StepStatus
    phase: Phase
    tokens: Tokens | None
    error: str | None
    transcript_path: str | None
    git: GitPlace | None
    exit_code: int | None
    artifacts: tuple[Artifact, ...]
    audits: tuple[Audited, ...]
    verification: VerificationShape | None
    recovery: str | None
    context_for_resume: ContextForResume | None

    @classmethod
    def of(cls, left: StepReceipt) -> StepShape:
        """What an attempt left in its run's folder."""
        return cls(
            run_id=left.run_id,
            flow_key=left.flow_key,
            step_id=left.step_id,
            attempt=left.attempt,
            agent_id=left.agent,
            engine=left.engine,
            provider=left.provider,
            started_at=left.started_at,
            completed_at=left.completed_at,
            duration_ms=left.duration_ms,
            status=left.status,
            phase=left.phase,
            tokens=left.tokens,
            error=left.error,
            transcript_path=left.transcript_path,
            git=left.git,
            exit_code=left.exit_code,
            artifacts=left.artifacts,
            audits=left.audits,
            verification=None if left.verification is None else VerificationShape.of(left.verification),
            recovery=left.recovery,
            context_for_resume=left.context_for_resume,
        )
