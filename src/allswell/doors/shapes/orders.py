"""What a holder is told in answer to its words: how much time is left, and what it should do now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from allswell.doors.shapes.moment import Moment, moment

if TYPE_CHECKING:
    from allswell.engine.checking_in import HolderNews
    from allswell.runtime.speaking.words import ToldAgent


class AnsweredShape(Struct, frozen=True):
    """What was answered to a question."""

    question_id: str
    choice: str
    answer: str


class OrdersShape(Struct, frozen=True):
    """The answer to a check-in.

    `asked` says that a check-in is owed, `order` in which words it was asked for. `stop` says why the attempt is being
    ended: save what there is, and go. `answers` are those to questions that were asked while the work went on.
    `inbox` are requests of other agents that wait for an answer.
    """

    remaining_ms: int
    deadline: Moment | None
    asked: bool
    stop: str | None
    order: str | None
    answers: list[AnsweredShape]
    inbox: list[str]

    @classmethod
    def of(cls, news: HolderNews) -> OrdersShape:
        """What the store says; that an attempt is being ended is known to a supervisor alone."""
        orders = news.orders
        answers = [AnsweredShape(one.id, one.choice or "", one.answer) for one in news.answered]
        return cls(
            orders.remaining_ms, moment(orders.deadline), orders.asked, None, news.order, answers, list(news.inbox)
        )

    @classmethod
    def told_by(cls, supervisor: ToldAgent) -> OrdersShape:
        """What a supervisor says to its agent."""
        told = supervisor
        order = None if "order" not in told.more else msgspec.json.decode(told.more["order"], type=str)
        answers = [AnsweredShape(one["question"], one["choice"], one["answer"]) for one in told.answers]
        return cls(told.remaining_ms, moment(told.deadline), told.checkin, told.stop, order, answers, list(told.inbox))


class LastWordShape(Struct, frozen=True):
    """The answer to a word that ends an attempt: where the task stands now.

    Whoever speaks through a supervisor is told its orders, and no `state`.
    """

    task_id: str
    said: str
    state: str | None
    orders: OrdersShape | None
