"""What is said in the mesh's channel: the protocol's own sentences, each made of an event.

A channel is any route of an alerts sink that hears of `mesh`, or a chat. "Moving to" names the task that is taken next;
where none is, it is "moving on".
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from allswell.domain.duration import show
from allswell.domain.event import Event
from allswell.domain.request import EXPIRED

HEARS = (
    *("task_claimed", "mesh_asked", "request_blocked", "request_closed", "request_resolved", "task_blocked_long"),
    "delivery_made",
)
"""The events that the channel hears of."""


class About(msgspec.Struct, frozen=True):
    """What a sentence names beside its event."""

    task: str = ""
    """The name of the event's task."""
    request: str = ""
    """What was asked."""
    to: str = ""
    humans: Sequence[str] = ()
    """Who is tagged where a task is critical."""


def claiming(task: str) -> str:
    """Somebody has taken a task."""
    return f"🎯 Claiming: {task}"


def no_response(agent: str, task: str, following: str = "") -> str:
    """A request has expired."""
    onward = f"moving to {following}" if following else "moving on"
    return f"⏱️ Timeout: No response from {agent} on {task}. Logging block, {onward}."


def unblocked(what: str, task: str, *, requeued: bool = True) -> str:
    """A late answer has come."""
    return f"✅ Unblocked: {what}. " + (f"Re-queuing {task}." if requeued else f"{task} is not needed any more.")


def asking_everybody(about: About, request: str) -> str:
    """A request is about to be given up."""
    asked = f"{about.to} has not answered {about.request}, and {about.task} needs it"
    return f"🙋 Can anybody help? {asked}. `allswell respond {request}` answers."


def blocked_long(event: Event, about: About) -> str:
    """A task has been blocked for so long that somebody shall look at it; humans are tagged where it is critical."""
    data = event.data
    critical = bool(data["critical"])
    tagged = " ".join(about.humans) + " " if critical and about.humans else ""
    still = "Still blocked" if data["count"] > 1 else "Blocked"
    marked = "Critical, marked" if critical else "Marked"
    waits = f"{about.task} waits for {about.to} on {about.request}, asked by {event.agent}"
    return f"🚨 {tagged}{still} for {show(int(data['blocked_ms']))}: {waits}. {marked} for review ({data['request']})."


def mesh_words(event: Event, about: About) -> str | None:
    """The sentence for an event; None where the channel is told nothing."""
    data = event.data
    match event.kind:
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
