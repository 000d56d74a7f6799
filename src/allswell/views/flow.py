"""Flows: the folder of a run, one attempt at a step of it, and a flow as it will run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct, field

from allswell.domain.agents.cost import Tokens
from allswell.domain.lease.audit import Audited
from allswell.domain.receipts.step import (
    Artifact,
    ContextForResume,
    CutOffChoice,
    FlowSummary,
    GitPlace,
    Phase,
    RunVerdict,
    StepStatus,
    TimeoutRecord,
)
from allswell.timing.moment import PATTERN
from allswell.views.attempt import VerificationShape
from allswell.views.fields import as_shape

if TYPE_CHECKING:
    from allswell.flows.run.folder import RunBase
    from allswell.flows.run.state import InterruptedStep

WrittenMoment = Annotated[str, Meta(pattern=PATTERN, extra_json_schema={"format": "date-time"})]
"""A moment that its file has as a text."""

# One attempt at a step of a flow. What it left has the names of the files in the run's folder.


class StepShape(Struct, frozen=True):
    """One attempt at a step, however it ended."""

    run_id: str
    flow_key: str
    step_id: str
    attempt: int
    agent: str = field(name="agent_id")
    engine: str
    provider: str
    started_at: WrittenMoment
    completed_at: WrittenMoment
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


class FlowShape(Struct, frozen=True):
    """Where it is, which runs it had, and each attempt at a step."""

    flow: str
    base: str
    folder: str
    file: str | None
    inputs: dict[str, Any]
    run_ids: tuple[str, ...]
    receipts: list[StepShape]
    timeouts: list[TimeoutRecord]

    @classmethod
    def of(cls, base: RunBase) -> FlowShape:
        """What lies in a run's folder."""
        record, receipts = base.record, base.all_receipts()
        return as_shape(
            record,
            cls,
            base=str(base.path),
            file=record.file or None,
            run_ids=record.runs,
            receipts=receipts,
            timeouts=base.all_timeouts(),
        )


# What a flow that is drawn leaves, and one that was run.


class PictureShape(Struct, frozen=True):
    """A picture was written, of so many steps."""

    file: str
    steps: int


class FlowRanShape(FlowSummary, frozen=True):
    """What a flow came to; `steps` says where each stands, `ran` how many ended well in this process."""

    exit: int


class JoinedShape(Struct, frozen=True):
    """What a run came to whose steps were taken by another process too; `ran` is how many were done here."""

    run_id: str
    flow: str
    verdict: RunVerdict
    ran: int


class CutOffShape(Struct, frozen=True):
    """A step that was cut off with work in its hands, and what can be done about it.

    `shared` names the changes that may be another step's too, and whose.
    """

    step_id: str
    changes: tuple[str, ...]
    shared: dict[str, tuple[str, ...]]
    options: tuple[CutOffChoice, ...]
    recommendation: CutOffChoice
    reason: str

    @classmethod
    def of(cls, cut: InterruptedStep) -> CutOffShape:
        """The question about one step."""
        changes = cut.context.uncommitted_changes
        return as_shape(cut.offer, cls, step_id=cut.step, changes=changes, shared=cut.shared)


class OfferShape(Struct, frozen=True):
    """What is to be chosen before a run goes on: the options, and each step that was cut off."""

    run_id: str
    options: tuple[CutOffChoice, ...]
    recommendation: CutOffChoice
    reason: str
    steps: list[CutOffShape]

    @classmethod
    def of(cls, run: str, cuts: Sequence[InterruptedStep]) -> OfferShape:
        """The question about all of them; there is at least one."""
        return as_shape(cuts[0].offer, cls, run_id=run, steps=[CutOffShape.of(cut) for cut in cuts])
