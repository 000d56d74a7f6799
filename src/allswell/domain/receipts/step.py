"""What every attempt at a step of a flow leaves in its run's folder, however it ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Literal

import msgspec

from allswell.domain.agents.cost import Tokens
from allswell.domain.ids import TaskId
from allswell.domain.lease.audit import Audited
from allswell.domain.receipts.receipt import End, Verification
from allswell.domain.scopes import ScopeKind

# What is kept of a step whose time ran out, in the seed's words, and what can be done about it (F9, F10, F11).
#
# The names and the nesting of the fields are those of the document that asked for them; `run-files.schema.json` holds
# files to them. Moments are ISO 8601 texts here, because these are files for people and other programs.


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


class TimeoutRecord(msgspec.Struct, frozen=True):
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


class CutOffChoice(StrEnum):
    """What can be done about a step that was cut off with work in its hands."""

    RETRY_STEP = "retry_step"
    """Run it again on top of what it left."""
    DISCARD_AND_RETRY = "discard_and_retry"
    """Keep what it left on a recovery ref, put the files back, and run it again."""
    ESCALATE = "escalate"
    """Let a human decide."""


class ResumeOffer(msgspec.Struct, frozen=True):
    """The question of F11, as data."""

    options: tuple[CutOffChoice, ...]
    recommendation: CutOffChoice
    reason: str


SALVAGEABLE = ResumeOffer(tuple(CutOffChoice), CutOffChoice.RETRY_STEP, "Partial work exists that may be salvageable")


def offered(context: ContextForResume) -> ResumeOffer | None:
    """What there is to choose when a run goes on; None where it simply goes on after the last good step."""
    return SALVAGEABLE if context.uncommitted_changes else None


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


_OF_ENDS = {
    End.DONE: StepStatus.DONE,
    End.TIMEOUT: StepStatus.TIMEOUT,
    End.INTERRUPTED: StepStatus.INTERRUPTED,
    End.LEASE_LOST: StepStatus.LOST,
    End.CANCELLED: StepStatus.LOST,
    End.ASKED: StepStatus.ASKED,
    End.RELEASED: StepStatus.RELEASED,
}


def step_status(end: End) -> StepStatus:
    """How a step ended, by the end of its attempt: all other ends are failures to a flow."""
    return _OF_ENDS.get(end, StepStatus.FAILED)


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


# What one attempt at a step changed in its folder, and whose a change is where steps work side by side.
#
# Steps of one flow share a folder, so a file that changed between an attempt's beginning and its end may be another
# attempt's work. What tells them apart is what is declared (a file that is an output of a step is that step's) and when
# it was: the kernel's own time of a file's last change lies within the time of whoever made it. A change that lies
# within the times of several is nobody's alone. It is shown with all of them, and put back only when all of them are.

LISTED = 1_000
"""So many changes of one attempt are kept; the snapshot has all of them."""
_RACY = 50
"""Milliseconds by which the kernel's time of a change may lie before ours."""


class ChangedPath(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One path that an attempt changed, as it left it."""

    how: str
    """A added, M changed, D deleted."""
    path: str
    """Spelled, relative to the top of the working tree, or to the folder without git."""
    size: int = 0
    sha256: str = ""
    """Of its bytes, or of a link's target; empty where it was not read."""
    changed_at: int = 0
    """The kernel's time of its last change, in ms; of what is gone, its folder's."""


class StepChanges(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one attempt at a step changed since it began."""

    step: str
    number: int
    """Of the attempt, counted over all runs of the folder."""
    task: TaskId
    attempt: int
    """Of the task's own."""
    top: str
    """What paths are relative to, spelled."""
    began_at: int
    ended_at: int
    gap: str = ""
    """Why it is not certain how everything was when it began; empty: it is."""
    outputs: tuple[str, ...] = ()
    """What it was to leave, as paths are told here."""
    files: tuple[ChangedPath, ...] = ()
    more: int = 0
    """How many more there were than are listed."""


class WorkSpan(msgspec.Struct, frozen=True, gc=False):
    """When an attempt at a step was at work, on the wall clock in ms."""

    step: str
    number: int
    began_at: int
    ended_at: int


def was_made_by(left: ChangedPath, ended_at: int) -> bool:
    """Whether a change can be of an attempt that ended then: what came later is somebody else's."""
    return left.changed_at <= ended_at + _RACY


def also_by(changes: StepChanges, left: ChangedPath, others: Iterable[WorkSpan]) -> tuple[str, ...]:
    """Steps that may have made a change as well as the attempt in whose time it was made."""
    found: dict[str, None] = {}
    for other in others:
        if (other.step, other.number) == (changes.step, changes.number) or other.ended_at <= changes.began_at:
            continue  # itself, or one that was over when this one began: what that did was there then
        if left.how == "D":  # nothing is left that would say when
            within = other.began_at <= changes.ended_at and other.ended_at >= changes.began_at
        else:
            within = other.began_at - _RACY <= left.changed_at <= other.ended_at
        if within:
            found[other.step] = None
    found.pop(changes.step, None)
    return tuple(found)


Own = tuple[tuple[ChangedPath, tuple[str, ...]], ...]
"""Changes, each with the steps that may have made it too."""


def own_files(changes: StepChanges, outputs: Mapping[str, str], others: Sequence[WorkSpan]) -> Own:
    """What an attempt changed, each with the steps that may have done it too; outputs of other steps are theirs.

    `outputs` says which step each declared path belongs to.
    """
    found = []
    for left in changes.files:
        owner = outputs.get(left.path)
        if owner is None:
            found.append((left, also_by(changes, left, others)))
        elif owner == changes.step:
            found.append((left, ()))
    return tuple(found)


class RunVerdict(StrEnum):
    """How a run stands when its runner stops."""

    DONE = "done"
    FAILED = "failed"
    NEEDS_HUMAN = "needs_human"
    TIMED_OUT = "timed_out"
    INTERRUPTED = "interrupted"


class FlowSummary(msgspec.Struct, frozen=True):
    """What a run came to; `steps` says where each stands, `ran` how many ended well in this process."""

    run: str = msgspec.field(name="run_id")
    flow: str
    verdict: RunVerdict
    states: dict[str, str] = msgspec.field(name="steps")
    reasons: dict[str, str]
    """Why those stand there that are not done."""
    questions: tuple[str, ...] = msgspec.field(name="question_ids")
    ran: int
    base: str
    """The run's folder."""
