"""An attempt that has ended, and what its holder still said afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Raw, Struct

from allswell.domain.expense import usd
from allswell.domain.late import afterwards
from allswell.doors.shapes.moment import Moment, moment

if TYPE_CHECKING:
    from allswell.domain.expense import ExpenseRow
    from allswell.domain.late import Afterwards, LateWord
    from allswell.domain.task import Attempt


class LateWordShape(Struct, frozen=True):
    """Something that a holder said after its lease had ended: refused, and kept."""

    verb: str
    said_at: Moment
    text: str
    cut: bool

    @classmethod
    def of(cls, word: LateWord) -> LateWordShape:
        """One of them."""
        return cls(word.verb, moment(word.at), word.text, word.cut)


class LateCheckinShape(Struct, frozen=True):
    """The last check-in that came too late."""

    checkin_at: Moment
    note: str
    progress: float | None

    @classmethod
    def of(cls, after: Afterwards) -> LateCheckinShape | None:
        """What it said; None if there was none."""
        return None if after.checkin_at is None else cls(moment(after.checkin_at), after.note, after.progress)


class AttemptShape(Struct, frozen=True):
    """How one attempt ended; `late` is the result or failure that it brought too late."""

    attempt: int
    token: int
    agent_id: str
    granted_at: Moment
    ended_at: Moment
    outcome: str
    detail: str
    cost_usd: float | None
    """What it said that it cost; null is unknown."""
    tokens_in: int | None
    tokens_out: int | None
    late: Raw | None
    late_words: list[LateWordShape]
    late_words_more: int
    late_checkins: int
    late_checkin: LateCheckinShape | None

    @classmethod
    def of(cls, ended: Attempt, expense: ExpenseRow | None = None) -> AttemptShape:
        """An attempt with what came after it."""
        after = afterwards(ended)
        return cls(
            attempt=ended.token,
            token=ended.token,
            agent_id=ended.agent,
            granted_at=moment(ended.granted_at),
            ended_at=moment(ended.ended_at),
            outcome=ended.outcome,
            detail=ended.detail,
            cost_usd=None if expense is None else usd(expense.cost),
            tokens_in=None if expense is None else expense.given,
            tokens_out=None if expense is None else expense.written,
            late=None if ended.late is None else Raw(ended.late.encode()),
            late_words=[LateWordShape.of(word) for word in after.words],
            late_words_more=after.more,
            late_checkins=after.checkins,
            late_checkin=LateCheckinShape.of(after),
        )
