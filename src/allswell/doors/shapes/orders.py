"""What a holder is told in answer to its words: how much time is left, and what it should do now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.doors.shapes.moment import Moment, moment

if TYPE_CHECKING:
    from allswell.domain.hold import Orders


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
    def of(cls, orders: Orders) -> OrdersShape:
        """What the store says; only a supervisor has more to say."""
        return cls(
            orders.remaining_ms, moment(orders.deadline), orders.asked, stop=None, order=None, answers=[], inbox=[]
        )


class LastWordShape(Struct, frozen=True):
    """The answer to a word that ends an attempt: where the task stands now.

    Whoever speaks through a supervisor is told its orders, and no `state`.
    """

    task_id: str
    said: str
    state: str | None
    orders: OrdersShape | None
