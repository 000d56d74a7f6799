"""What is kept of a step whose time ran out, in the seed's words, and what can be done about it (F9, F10, F11).

The names and the nesting of the fields are those of the document that asked for them; `run-files.schema.json` holds
files to them. Moments are ISO 8601 texts here, because these are files for people and other programs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from allswell.domain.deadline import ScopeKind


class Phase(StrEnum):
    """How far a step has come (F13)."""

    WORK = "work"
    """Its command, its agent or its function is at work."""
    FINALIZE = "finalize"
    """What it left is audited, looked for and measured, and its receipt written."""
    ROUTE = "route"
    """The store is told, and what follows is decided."""


class TimeoutEvent(msgspec.Struct, frozen=True):
    """Which limit, and how long it really took."""

    timestamp: str
    scope: ScopeKind
    timeout_ms: int
    elapsed_ms: int


class LastKnownState(msgspec.Struct, frozen=True):
    """Where the step stood."""

    step_id: str
    agent_key: str
    phase: Phase
    progress_indicator: str
    """The last proof of progress in words; empty where there was none."""


class PartialArtifact(msgspec.Struct, frozen=True):
    """A file that the step was to leave."""

    path: str
    complete: bool
    bytes_written: int


class ContextForResume(msgspec.Struct, frozen=True):
    """What somebody who goes on needs."""

    last_successful_checkpoint: str | None
    """The last step that ended well."""
    uncommitted_changes: tuple[str, ...]
    transcript_path: str | None


class Capture(msgspec.Struct, frozen=True):
    """The receipt of a timeout: first partial, with what is known at once, then whole."""

    status: Literal["timeout"]
    partial: bool
    timeout_event: TimeoutEvent
    last_known_state: LastKnownState
    partial_artifacts: tuple[PartialArtifact, ...]
    context_for_resume: ContextForResume


class FinalAction(StrEnum):
    """What really followed a timeout."""

    ESCALATE = "escalate"
    RETRY = "retry"
    FAIL = "fail"


class TimeoutLine(msgspec.Struct, frozen=True):
    """One line of `timeouts.jsonl`."""

    timestamp: str
    run_id: str
    flow_key: str
    step_id: str
    scope: ScopeKind
    timeout_ms: int
    elapsed_ms: int
    retry_count: int
    final_action: FinalAction
    recovery_path: str
    """The receipt, which exists when the line does."""


class Choice(StrEnum):
    """What can be done about a step that was cut off with work in its hands."""

    RETRY_STEP = "retry_step"
    """Run it again on top of what it left."""
    DISCARD_AND_RETRY = "discard_and_retry"
    """Keep what it left on a recovery ref, put the files back, and run it again."""
    ESCALATE = "escalate"
    """Let a human decide."""


class Offer(msgspec.Struct, frozen=True):
    """The question of F11, as data."""

    options: tuple[Choice, ...]
    recommendation: Choice
    reason: str


SALVAGEABLE = Offer(tuple(Choice), Choice.RETRY_STEP, "Partial work exists that may be salvageable")


def offered(context: ContextForResume) -> Offer | None:
    """What there is to choose when a run goes on; None where it simply goes on after the last good step."""
    return SALVAGEABLE if context.uncommitted_changes else None
