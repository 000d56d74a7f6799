"""A request to another agent."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from allswell.doors.shapes.claim import ClaimShape


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
