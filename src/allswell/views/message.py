"""Requests between agents: what was asked, what waits in an inbox, and what has come of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from allswell.views.fields import Moment, moment
from allswell.views.lease import ClaimShape
from allswell.views.question import QuestionShape

if TYPE_CHECKING:
    from allswell.domain.lease.claim import Granted
    from allswell.domain.mesh.request import InboxItem
    from allswell.engine.mesh import Requested


NEXT_TASK: Literal["next_task"] = "next_task"


class RequestedShape(Struct, frozen=True):
    """How a request to another agent stands; `result` is what came of it, or why nothing did.

    Where nobody has answered and the task waits for it now, it is `blocked`, `fallback` says what to do, and `next` is
    the task that was claimed instead, or null.
    """

    request_id: str
    state: str
    result: Any
    blocked: bool
    fallback: Literal["next_task"] | None
    next: ClaimShape | None
    kind: str | None
    """Null where it is not known here."""

    @classmethod
    def of(
        cls,
        request: str,
        state: str,
        result: object = None,
        following: Granted | None = None,
        kind: str | None = None,
    ) -> RequestedShape:
        """A request in this state; `following` is what was claimed where it is blocked."""
        blocked = state == "blocked"
        claimed = None if following is None else ClaimShape.of(following)
        shown, fallback = None if blocked else result, None if not blocked else NEXT_TASK
        return cls(request, state, shown, blocked, fallback, claimed, kind)

    @classmethod
    def waited_for(cls, ended: Requested) -> RequestedShape:
        """What came of a request that was waited for."""
        result = ended.answer if ended.state == "done" else ended.reason or None
        following = None if ended.next is None else ended.next.granted
        return cls.of(ended.request_id, ended.state, result, following, ended.kind)


# What an agent is asked by others.


class InboxItemShape(Struct, frozen=True):
    """A request that waits for an answer; `expires_at` is null where it is late already, and an answer still counts."""

    request_id: str
    kind: str
    agent_id: str
    to: str
    summary: str
    payload: Any
    task_id: str
    attempt: int
    expires_at: Moment | None
    asked_at: Moment
    new: bool
    """Whether this delivery was not listed to the agent before."""


class InboxShape(Struct, frozen=True):
    """What an agent is asked, the oldest first; `agent_id` of each is who asks, `task_id` for which task.

    What is addressed to others, and may be answered by it, is another list.
    """

    requests: list[InboxItemShape]

    @classmethod
    def of(cls, items: Sequence[InboxItem]) -> InboxShape:
        """What is in an inbox."""
        return cls(
            [
                InboxItemShape(
                    item.request_id,
                    item.kind,
                    item.sender,
                    item.to,
                    item.summary,
                    item.payload,
                    item.task,
                    item.attempt,
                    moment(item.expires_at),
                    moment(item.asked_at),
                    item.new,
                )
                for item in items
            ]
        )


class RespondedShape(Struct, frozen=True):
    """A request that was answered."""

    request_id: str


class DeclinedShape(Struct, frozen=True):
    """A request that was declined."""

    request_id: str


# What has come of questions to humans and of requests to other agents.


class AnswersShape(Struct, frozen=True):
    """Questions and requests as they stand; one that nobody has answered yet is open, and its answer null or empty."""

    questions: list[QuestionShape]
    requests: list[RequestedShape]
