"""What an agent is asked, as it reads it."""

from __future__ import annotations

from typing import Any

import msgspec

from allswell.domain.duration import show
from allswell.domain.names import Millis, TaskId


class InboxItem(msgspec.Struct, frozen=True):
    """A request that waits for an answer."""

    request_id: TaskId
    kind: str
    sender: str
    """The agent that asks."""
    to: str
    summary: str
    payload: Any
    task: TaskId
    """The task for which it asks."""
    attempt: int
    """How often it was delivered."""
    expires_at: Millis | None
    """Until when this delivery can be answered in time; None: it is late already, and an answer still counts."""


def told_to_agent(item: InboxItem, left: int | None) -> str:
    """What an agent at work is told of a request, in every way it can hear; `left` are milliseconds."""
    late = "nobody answered it in time, and an answer still counts" if left is None else f"{show(left)} left"
    text = item.summary if item.payload is None else f"{item.summary} (`allswell inbox` has the rest)"
    return (
        f"{item.sender} asks you ({item.kind} {item.request_id}; {late}): {text}"
        f" Answer with `allswell respond {item.request_id} 'your answer'`, then go on with your own task."
    )
