"""What an agent is asked by others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from allswell.doors.shapes.moment import Moment, moment

if TYPE_CHECKING:
    from allswell.domain.inbox import InboxItem


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


class InboxShape(Struct, frozen=True):
    """What an agent is asked, the oldest first; `agent_id` of each is who asks, `task_id` for which task."""

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
                )
                for item in items
            ]
        )


class RespondedShape(Struct, frozen=True):
    """A request that was answered."""

    request_id: str
