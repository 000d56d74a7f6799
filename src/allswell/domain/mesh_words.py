"""What is said in the mesh's channel: the protocol's own sentences, each made of an event.

A channel is any route of an alerts sink that hears of `mesh`. "Moving to" names the task that is taken next; where none
is, it is "moving on".
"""

from __future__ import annotations

from allswell.domain.event import Event
from allswell.domain.request import EXPIRED

HEARS = ("task_claimed", "mesh_asked", "request_blocked", "request_closed", "request_resolved", "delivery_made")
"""The events that the channel hears of."""


def claiming(task: str) -> str:
    """Somebody has taken a task."""
    return f"🎯 Claiming: {task}"


def no_response(agent: str, task: str, following: str = "") -> str:
    """A request has expired."""
    onward = f"moving to {following}" if following else "moving on"
    return f"⏱️ Timeout: No response from {agent} on {task}. Logging block, {onward}."


def unblocked(what: str, task: str = "") -> str:
    """A late answer has come."""
    return f"✅ Unblocked: {what}. Re-queuing {task}." if task else f"✅ Unblocked: {what}."


def asking_everybody(to: str, request: str, task: str) -> str:
    """A request is about to be given up."""
    return f"🙋 Can anybody help? {to} has not answered {request}, and {task} needs it."


def mesh_words(event: Event, name: str, request: str = "", to: str = "") -> str | None:
    """The sentence for an event; None where the channel is told nothing.

    `name` is the name of the event's task; `request` and `to` are what was asked of whom.
    """
    if event.kind == "task_claimed":
        return claiming(name)
    data = event.data
    match event.kind:
        case "request_closed" if data["reason"] == EXPIRED:
            return no_response(to, request)
        case "mesh_asked":
            return asking_everybody(to, request, name)
        case "request_blocked":
            return no_response(to, request, str(data["next"]))
        case "request_resolved":
            return unblocked(f"{data['by']} answered {request}", name if data["requeued"] else "")
        case "delivery_made":
            return str(data["says"])
        case _:
            return None
