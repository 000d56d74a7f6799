"""The communication log (M3): one row for every message between agents, as it is read from the journal.

The nine fields are those of the protocol: Event, Source Agent, Target Agent, Status, Timeout (min), Blocked Task,
Resolution, Timestamp and Retry Count. There is no second truth: a row is made of an event, and of what the request
itself says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from allswell.domain.duration import show
from allswell.domain.ids import Millis
from allswell.domain.mesh.delivery import UNANSWERED
from allswell.domain.mesh.request import EXPIRED
from allswell.domain.mesh.routing import family
from allswell.domain.rules.event import Event

CommStatus = Literal["Sent", "Received", "Timeout", "Blocked", "Resolved"]
STATUSES: tuple[CommStatus, ...] = ("Sent", "Received", "Timeout", "Blocked", "Resolved")
COMMS_HEARS = (
    *("request_sent", "request_delivered", "mesh_asked", "request_expired", "request_blocked"),
    *("task_blocked_long", "request_declined", "request_closed", "request_resolved"),
)
"""The events that rows are made of."""
_MINUTE = 60_000


class RequestText(msgspec.Struct, frozen=True):
    """What a request says of itself."""

    summary: str
    to: str
    timeout: int | None
    """Milliseconds that each delivery has."""
    blocked: str
    """The name of the task that asked."""
    attempt: int = 1
    """How often it was delivered by now."""
    has_blocked: bool = False
    """Whether it has blocked the task that asked."""
    declined: bool = False
    """Whether it was declined: then its end is shown as that."""


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
    task: str = ""
    """The id of the task that asked."""
    task_name: str = ""


def comm_for(event: Event, at: Millis, asked: RequestText) -> Comm | None:
    """The row that an event is; None for what is no message between agents."""
    write = _WRITERS.get(event.kind)
    if write is None:
        return None
    about = (str(event.data["request"]), "", str(event.agent or ""), asked.to)
    row = Comm(*about, "Sent", at, task=str(event.task or ""), task_name=asked.blocked)
    return write(row, event.data, asked)


def is_among(comm: Comm, agent: str = "", status: str = "") -> bool:
    """Whether a row is about this agent, as who asks or is asked, and has this status; empty: any."""
    wanted = agent.casefold()
    named = {name.casefold() for one in (comm.source, comm.target) for name in (one, family(one))}
    return (not wanted or wanted in named) and (not status or comm.status == status)


def _sent(row: Comm, _: Mapping[str, Any], asked: RequestText) -> Comm:
    return replace(row, event=f"Request to {asked.to}: {asked.summary}")


def _delivered(row: Comm, data: Mapping[str, Any], asked: RequestText) -> Comm:
    return replace(_sent(row, data, asked), retries=int(data["attempt"]) - 1)


def _mesh_asked(row: Comm, _: Mapping[str, Any], asked: RequestText) -> Comm:
    return replace(row, event=f"Asking the mesh, for {asked.to}: {asked.summary}", retries=asked.attempt - 1)


def _expired(row: Comm, data: Mapping[str, Any], asked: RequestText) -> Comm:
    waited = int(data["timeout_ms"]) / _MINUTE
    return replace(_timeout(row, asked, waited), status="Timeout", retries=int(data["attempt"]) - 1)


def _blocked(row: Comm, data: Mapping[str, Any], asked: RequestText) -> Comm:
    waited = None if asked.timeout is None else asked.timeout / _MINUTE
    return replace(_timeout(row, asked, waited), status="Blocked", retries=int(data["attempts"]) - 1)


def _timeout(row: Comm, asked: RequestText, waited: float | None) -> Comm:
    return replace(row, event=f"Timeout waiting for {asked.to}", timeout_min=waited, blocked_task=asked.blocked)


def _blocked_long(row: Comm, data: Mapping[str, Any], asked: RequestText) -> Comm:
    said = f"Blocked for {show(int(data['blocked_ms']))}, waiting for {asked.to}"
    retries = asked.attempt - 1
    return replace(row, event=said, status="Blocked", blocked_task=asked.blocked, retries=retries, review=True)


def _declined(row: Comm, data: Mapping[str, Any], asked: RequestText) -> Comm:
    said, status = f"Declined by {data['by']}: {asked.summary}", "Resolved" if asked.has_blocked else "Received"
    reason = str(data["reason"]) or "no reason given"
    if not data["final"]:
        status, reason = "Sent", f"{reason}; others of {asked.to} may answer"
    blocked = asked.blocked if status == "Resolved" else ""
    row = replace(row, event=said, blocked_task=blocked, resolution=f"declined: {reason}", retries=asked.attempt - 1)
    return replace(row, status=status)


def _closed(row: Comm, data: Mapping[str, Any], asked: RequestText) -> Comm | None:
    outcome, reason = str(data["outcome"]), str(data["reason"])
    if asked.declined and outcome == "failed" and reason != UNANSWERED:
        return None
    row = replace(row, retries=asked.attempt - 1)
    if reason == EXPIRED:
        waited = None if asked.timeout is None else asked.timeout / _MINUTE
        return replace(_timeout(row, asked, waited), status="Timeout")
    resolution = "answered" if outcome == "done" else ": ".join(part for part in (outcome, reason) if part)
    if reason == UNANSWERED:
        said = f"Request to {asked.to} given up: {asked.summary}"
        return replace(row, event=said, status="Resolved", resolution="given up: no agent has answered it")
    if outcome in ("done", "failed"):
        said = f"Response from {asked.to}: {asked.summary}"
        return replace(row, event=said, status="Received", resolution=resolution)
    said = f"Request to {asked.to} withdrawn: {asked.summary}"
    return replace(row, event=said, status="Resolved", resolution=resolution)


def _resolved(row: Comm, data: Mapping[str, Any], asked: RequestText) -> Comm:
    said = f"Response from {data['by']}: {asked.summary}"
    queued = f"{asked.blocked} is queued again" if data["requeued"] else f"{asked.blocked} is not needed any more"
    resolution = f"answered by {data['by']} after {show(int(data['blocked_ms']))}; {queued}"
    retries = asked.attempt - 1
    return replace(
        row, event=said, status="Resolved", blocked_task=asked.blocked, resolution=resolution, retries=retries
    )


_WRITERS: Mapping[str, Callable[[Comm, Mapping[str, Any], RequestText], Comm | None]] = {
    "request_sent": _sent,
    "request_delivered": _delivered,
    "mesh_asked": _mesh_asked,
    "request_expired": _expired,
    "request_blocked": _blocked,
    "task_blocked_long": _blocked_long,
    "request_declined": _declined,
    "request_closed": _closed,
    "request_resolved": _resolved,
}


# What is said in the mesh's channel: the protocol's own sentences, each made of an event.
#
# A channel is any route of an alerts sink that hears of `mesh`, or a chat. "Moving to" names the task that is taken
# next; where none is, it is "moving on".

CHANNEL_HEARS = (
    *("task_claimed", "mesh_asked", "request_blocked", "request_closed", "request_resolved", "task_blocked_long"),
    *("request_declined", "delivery_made"),
)
"""The events that the channel hears of."""


class SentenceContext(msgspec.Struct, frozen=True):
    """What a sentence names beside its event."""

    task: str = ""
    """The name of the event's task."""
    request: str = ""
    """What was asked."""
    to: str = ""
    humans: Sequence[str] = ()
    """Who is tagged where a task is critical."""


def claiming(task: str) -> str:
    """An agent has taken a task."""
    return f"🎯 Claiming: {task}"


def no_response(agent: str, task: str, following: str = "") -> str:
    """A request has expired."""
    onward = f"moving to {following}" if following else "moving on"
    return f"⏱️ Timeout: No response from {agent} on {task}. Logging block, {onward}."


def unblocked(what: str, task: str, *, requeued: bool = True) -> str:
    """A late answer has come."""
    return f"✅ Unblocked: {what}. " + (f"Re-queuing {task}." if requeued else f"{task} is not needed any more.")


def declined(agent: str, what: str, reason: str) -> str:
    """An agent will not do what it was asked."""
    return f"🚫 Declined: {agent} will not do {what}" + (f" ({reason})." if reason else ".")


def asking_everybody(about: SentenceContext, request: str) -> str:
    """A request is about to be given up."""
    asked = f"{about.to} has not answered {about.request}, and {about.task} needs it"
    return f"🙋 Can any agent help? {asked}. `allswell respond {request}` answers."


def blocked_long(event: Event, about: SentenceContext) -> str:
    """A task has been blocked for so long that a human shall look at it; humans are tagged where it is critical."""
    data = event.data
    critical = bool(data["critical"])
    tagged = " ".join(about.humans) + " " if critical and about.humans else ""
    still = "Still blocked" if data["count"] > 1 else "Blocked"
    marked = "Critical, marked" if critical else "Marked"
    waits = f"{about.task} waits for {about.to} on {about.request}, asked by {event.agent}"
    return f"🚨 {tagged}{still} for {show(int(data['blocked_ms']))}: {waits}. {marked} for review ({data['request']})."


def mesh_words(event: Event, about: SentenceContext) -> str | None:
    """The sentence for an event; None if the channel gets no message about it."""
    data = event.data
    match event.kind:
        case "request_declined":
            return declined(str(data["by"]), about.request, str(data["reason"]))
        case "task_claimed":
            return claiming(about.task)
        case "request_closed" if data["reason"] == EXPIRED:
            return no_response(about.to, about.request)
        case "mesh_asked":
            return asking_everybody(about, str(data["request"]))
        case "request_blocked":
            return no_response(about.to, about.request, str(data["next"]))
        case "request_resolved":
            return unblocked(f"{data['by']} answered {about.request}", about.task, requeued=bool(data["requeued"]))
        case "task_blocked_long":
            return blocked_long(event, about)
        case "delivery_made":
            return str(data["says"])
        case _:
            return None
