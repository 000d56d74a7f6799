"""What a flow came to, and what is asked before it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.domain.receipts.step import CutOffChoice
from allswell.flows.run.runner import RunVerdict

if TYPE_CHECKING:
    from allswell.flows.run.runner import Summary
    from allswell.flows.run.state import InterruptedStep


class FlowRanShape(Struct, frozen=True):
    """What a flow came to; `steps` says where each stands, `ran` how many ended well in this process."""

    run_id: str
    flow: str
    verdict: RunVerdict
    steps: dict[str, str]
    reasons: dict[str, str]
    question_ids: tuple[str, ...]
    ran: int
    base: str
    exit: int

    @classmethod
    def of(cls, summary: Summary, code: int) -> FlowRanShape:
        """A run that has come to a stop, and the exit code that this means."""
        return cls(
            run_id=summary.run,
            flow=summary.flow,
            verdict=summary.verdict,
            steps=summary.states,
            reasons=summary.reasons,
            question_ids=summary.questions,
            ran=summary.ran,
            base=summary.base,
            exit=code,
        )


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
