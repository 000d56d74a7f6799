"""Flows: the folder of a run, one attempt at a step of it, and a flow as it will run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct, field

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
    Tokens,
)
from allswell.timing.moment import PATTERN
from allswell.views.attempt import VerificationShape
from allswell.views.fields import as_shape

if TYPE_CHECKING:
    from allswell.flows.graph import FlowLayout, GraphNode
    from allswell.flows.run.folder import RunBase
    from allswell.flows.run.state import InterruptedStep
    from allswell.flows.spec import Flow, Step

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


# A flow as it will run: its steps in waves.


class NodeShape(Struct, frozen=True):
    """A step with its place: in which wave, on which row, and whether on the longest way through the flow."""

    step_id: str
    what: str
    limit_ms: int
    overridden: bool
    members: int
    needs: tuple[str, ...]
    wave: int
    row: int
    longest: bool
    audited: bool


class GraphShape(Struct, frozen=True):
    """A flow and all its steps."""

    flow: str
    limit_ms: int
    steps: list[NodeShape]

    @classmethod
    def of(cls, flow: Flow, layout: FlowLayout) -> GraphShape:
        """A flow that was laid out."""
        steps = {step.id: step for step in flow.steps}
        return cls(flow.name, flow.timeouts.flow, [_node(flow, steps[node.id], node) for node in layout.nodes])


class PictureShape(Struct, frozen=True):
    """A picture was written, of so many steps."""

    file: str
    steps: int


def _node(flow: Flow, step: Step, node: GraphNode) -> NodeShape:
    overridden = step.timeout_override is not None
    return as_shape(node, NodeShape, step_id=node.id, limit_ms=flow.limit(step), overridden=overridden)


# What a flow came to, and what is asked before it goes on.


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
        return cls(
            step_id=cut.step,
            changes=cut.context.uncommitted_changes,
            shared=cut.shared,
            options=cut.offer.options,
            recommendation=cut.offer.recommendation,
            reason=cut.offer.reason,
        )


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
        first = cuts[0].offer
        steps = [CutOffShape.of(cut) for cut in cuts]
        return cls(run, first.options, first.recommendation, first.reason, steps)
