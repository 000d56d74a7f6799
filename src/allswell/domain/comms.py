"""The communication log (M3): one row for every message between agents, as it is read from the journal.

The nine fields are those of the protocol: Event, Source Agent, Target Agent, Status, Timeout (min), Blocked Task,
Resolution, Timestamp and Retry Count. There is no second truth: a row is made of an event, and of what the request
itself says.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from allswell.domain.duration import show
from allswell.domain.event import Event
from allswell.domain.names import Millis
from allswell.domain.request import EXPIRED

CommStatus = Literal["Sent", "Received", "Timeout", "Blocked", "Resolved"]
STATUSES: tuple[CommStatus, ...] = ("Sent", "Received", "Timeout", "Blocked", "Resolved")
HEARS = (
    *("request_sent", "request_delivered", "request_expired", "request_blocked", "request_closed"),
    "request_resolved",
)
"""The events that rows are made of."""
_MINUTE = 60_000


class Asked(msgspec.Struct, frozen=True):
    """What a request says of itself."""

    summary: str
    to: str
    timeout: int | None
    """Milliseconds."""
    blocked: str
    """The name of the task that asked."""
    deliveries: int = 1
    """How often it was delivered."""


class Comm(msgspec.Struct, frozen=True):
    """One row of the log."""

    request: str
    event: str
    source: str
    target: str
    status: CommStatus
    at: Millis
    timeout_min: float | None = None
    """How long was waited, where it was in vain."""
    blocked_task: str = ""
    resolution: str = ""
    retries: int = 0


def comm_for(event: Event, at: Millis, asked: Asked) -> Comm | None:
    """The row that an event is; None for what is no message between agents.

    Each delivery is a message, and each that expires a Timeout; Blocked is the last of them.
    """
    if event.kind not in HEARS:
        return None
    data = event.data
    request, source = str(data["request"]), str(event.agent or "")
    again = int(data.get("attempt", 1)) - 1
    match event.kind:
        case "request_sent" | "request_delivered":
            said = f"Request to {asked.to}: {asked.summary}"
            return Comm(request, said, source, asked.to, "Sent", at, retries=again)
        case "request_expired":
            said, minutes = f"Timeout waiting for {asked.to}", data["timeout_ms"] / _MINUTE
            return Comm(request, said, source, asked.to, "Timeout", at, minutes, asked.blocked, retries=again)
        case "request_blocked":
            said, again = f"Timeout waiting for {asked.to}", int(data["attempts"]) - 1
            minutes = None if asked.timeout is None else asked.timeout / _MINUTE
            return Comm(request, said, source, asked.to, "Blocked", at, minutes, asked.blocked, retries=again)
        case "request_resolved":
            said = f"Response from {data['by']}: {asked.summary}"
            note = f"answered by {data['by']} after {show(int(data['blocked_ms']))}"
            note += f"; {asked.blocked} is queued again" if data["requeued"] else f"; {asked.blocked} is over already"
            again = asked.deliveries - 1
            return Comm(request, said, source, asked.to, "Resolved", at, None, asked.blocked, note, again)
        case _:
            return _closed(event, at, asked)


def _closed(event: Event, at: Millis, asked: Asked) -> Comm:
    """The end of a request that has blocked nobody."""
    request, source = str(event.data["request"]), str(event.agent or "")
    outcome, reason = str(event.data["outcome"]), str(event.data["reason"])
    if reason == EXPIRED:
        minutes = None if asked.timeout is None else asked.timeout / _MINUTE
        said = f"Timeout waiting for {asked.to}"
        return Comm(request, said, source, asked.to, "Timeout", at, minutes, asked.blocked)
    answered = outcome == "done"
    resolution = "answered" if answered else ": ".join(part for part in (outcome, reason) if part)
    if outcome in ("done", "failed"):
        said = f"Response from {asked.to}: {asked.summary}"
        again = asked.deliveries - 1
        return Comm(request, said, source, asked.to, "Received", at, resolution=resolution, retries=again)
    said = f"Request to {asked.to} withdrawn: {asked.summary}"
    return Comm(request, said, source, asked.to, "Resolved", at, resolution=resolution)
