"""The communication log (M3): one row for every message between agents, as it is read from the journal.

The nine fields are those of the protocol: Event, Source Agent, Target Agent, Status, Timeout (min), Blocked Task,
Resolution, Timestamp and Retry Count. There is no second truth: a row is made of an event, and of what the request
itself says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from allswell.domain.duration import show
from allswell.domain.event import Event
from allswell.domain.names import Millis
from allswell.domain.redelivery import UNANSWERED
from allswell.domain.request import EXPIRED

CommStatus = Literal["Sent", "Received", "Timeout", "Blocked", "Resolved"]
STATUSES: tuple[CommStatus, ...] = ("Sent", "Received", "Timeout", "Blocked", "Resolved")
HEARS = (
    *("request_sent", "request_delivered", "mesh_asked", "request_expired", "request_blocked"),
    *("task_blocked_long", "request_closed", "request_resolved"),
)
"""The events that rows are made of."""
_MINUTE = 60_000


class Asked(msgspec.Struct, frozen=True):
    """What a request says of itself."""

    summary: str
    to: str
    timeout: int | None
    """Milliseconds that each delivery has."""
    blocked: str
    """The name of the task that asked."""
    attempt: int = 1
    """How often it was delivered by now."""


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
    review: bool = False
    """Whether a human shall look at it."""


def comm_for(event: Event, at: Millis, asked: Asked) -> Comm | None:
    """The row that an event is; None for what is no message between agents."""
    write = _WRITERS.get(event.kind)
    if write is None:
        return None
    row = Comm(str(event.data["request"]), "", str(event.agent or ""), asked.to, "Sent", at)
    return write(row, event.data, asked)


def _sent(row: Comm, _: Mapping[str, Any], asked: Asked) -> Comm:
    return replace(row, event=f"Request to {asked.to}: {asked.summary}")


def _delivered(row: Comm, data: Mapping[str, Any], asked: Asked) -> Comm:
    return replace(_sent(row, data, asked), retries=int(data["attempt"]) - 1)


def _mesh_asked(row: Comm, _: Mapping[str, Any], asked: Asked) -> Comm:
    return replace(row, event=f"Asking the mesh, for {asked.to}: {asked.summary}", retries=asked.attempt - 1)


def _expired(row: Comm, data: Mapping[str, Any], asked: Asked) -> Comm:
    waited = int(data["timeout_ms"]) / _MINUTE
    return replace(_timeout(row, asked, waited), status="Timeout", retries=int(data["attempt"]) - 1)


def _blocked(row: Comm, data: Mapping[str, Any], asked: Asked) -> Comm:
    waited = None if asked.timeout is None else asked.timeout / _MINUTE
    return replace(_timeout(row, asked, waited), status="Blocked", retries=int(data["attempts"]) - 1)


def _timeout(row: Comm, asked: Asked, waited: float | None) -> Comm:
    return replace(row, event=f"Timeout waiting for {asked.to}", timeout_min=waited, blocked_task=asked.blocked)


def _blocked_long(row: Comm, data: Mapping[str, Any], asked: Asked) -> Comm:
    said = f"Blocked for {show(int(data['blocked_ms']))}, waiting for {asked.to}"
    retries = asked.attempt - 1
    return replace(row, event=said, status="Blocked", blocked_task=asked.blocked, retries=retries, review=True)


def _closed(row: Comm, data: Mapping[str, Any], asked: Asked) -> Comm:
    outcome, reason = str(data["outcome"]), str(data["reason"])
    row = replace(row, retries=asked.attempt - 1)
    if reason == EXPIRED:
        waited = None if asked.timeout is None else asked.timeout / _MINUTE
        return replace(_timeout(row, asked, waited), status="Timeout")
    resolution = "answered" if outcome == "done" else ": ".join(part for part in (outcome, reason) if part)
    if reason == UNANSWERED:
        said = f"Request to {asked.to} given up: {asked.summary}"
        return replace(row, event=said, status="Resolved", resolution="given up: nobody has answered it")
    if outcome in ("done", "failed"):
        said = f"Response from {asked.to}: {asked.summary}"
        return replace(row, event=said, status="Received", resolution=resolution)
    said = f"Request to {asked.to} withdrawn: {asked.summary}"
    return replace(row, event=said, status="Resolved", resolution=resolution)


def _resolved(row: Comm, data: Mapping[str, Any], asked: Asked) -> Comm:
    said = f"Response from {data['by']}: {asked.summary}"
    queued = f"{asked.blocked} is queued again" if data["requeued"] else f"{asked.blocked} is not needed any more"
    resolution = f"answered by {data['by']} after {show(int(data['blocked_ms']))}; {queued}"
    retries = asked.attempt - 1
    return replace(
        row, event=said, status="Resolved", blocked_task=asked.blocked, resolution=resolution, retries=retries
    )


_WRITERS: Mapping[str, Callable[[Comm, Mapping[str, Any], Asked], Comm]] = {
    "request_sent": _sent,
    "request_delivered": _delivered,
    "mesh_asked": _mesh_asked,
    "request_expired": _expired,
    "request_blocked": _blocked,
    "task_blocked_long": _blocked_long,
    "request_closed": _closed,
    "request_resolved": _resolved,
}
