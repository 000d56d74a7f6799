"""Timeout tracking and open questions in the words of the document that asked for them (O7, O9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.doors.shapes.moment import Moment, moment

if TYPE_CHECKING:
    from allswell.domain.question import Question
    from allswell.engine.explaining.tracking import Tracking


class CountersShape(Struct, frozen=True):
    """What is counted: misses by agent, stalled agents, timeouts by open task."""

    checkpoint_misses: dict[str, int]
    stalled_agents: list[str]
    task_timeouts: dict[str, int]


class PendingQuestionShape(Struct, frozen=True):
    """A question about a task that nobody has answered yet; each option as it is labelled."""

    task_id: str
    question: str
    options: list[str]
    asked_at: Moment

    @classmethod
    def of(cls, asked: Question) -> PendingQuestionShape:
        """One that is about a task."""
        options = [option.label for option in asked.options]
        return cls(str(asked.task), asked.text, options, moment(asked.asked_at))


class TrackingShape(Struct, frozen=True):
    """What is counted, and what waits for a human."""

    timeout_tracking: CountersShape
    pending_divine_questions: list[PendingQuestionShape]

    @classmethod
    def of(cls, found: Tracking, pending: Sequence[Question]) -> TrackingShape:
        """As it stands."""
        counters = CountersShape(found.checkpoint_misses, found.stalled_agents, found.task_timeouts)
        return cls(counters, [PendingQuestionShape.of(asked) for asked in pending])
