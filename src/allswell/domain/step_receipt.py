"""What every attempt at a step of a flow leaves in its run's folder, however it ended."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from allswell.domain.audit import Audited
from allswell.domain.capture import ContextForResume, Phase
from allswell.domain.receipt import Verification


class StepStatus(StrEnum):
    """How an attempt at a step ended."""

    DONE = "done"
    FAILED = "failed"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    """Somebody stopped the flow: a signal, or a shutdown."""
    RELEASED = "released"
    """It gave the step back without a verdict."""
    ASKED = "asked"
    """A human has to decide."""
    LOST = "lost"
    """The step was not its holder's any more: somebody else has it, or it was called off."""


class Tokens(msgspec.Struct, frozen=True):
    """What a model was given and what it wrote."""

    prompt: int
    completion: int
    total: int


class Artifact(msgspec.Struct, frozen=True):
    """A file that a step left, as it was when the step ended."""

    name: str
    path: str
    sha256: str
    bytes: int


class GitPlace(msgspec.Struct, frozen=True):
    """Where the repository stood when the attempt ended."""

    sha: str | None
    branch: str | None


class StepReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a step."""

    engine: str
    provider: str
    """What did the work: `command`, `python`, or the agent's provider."""
    agent: str
    run_id: str
    flow_key: str
    step_id: str
    attempt: int
    started_at: str
    completed_at: str
    duration_ms: int
    status: StepStatus
    phase: Phase
    """How far it came."""
    tokens: Tokens | None
    error: str | None
    transcript_path: str | None
    git: GitPlace | None
    exit_code: int | None = None
    artifacts: tuple[Artifact, ...] = ()
    audits: tuple[Audited, ...] = ()
    verification: Verification | None = None
    """What came of the verification of its work, with the end of what it printed."""
    recovery: str | None = None
    """The receipt of what was kept of its work, where it did not end well."""
    context_for_resume: ContextForResume | None = None
    """Where it did not end well: what somebody who goes on needs."""
