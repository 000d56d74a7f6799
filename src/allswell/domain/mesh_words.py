"""What is said in the mesh's channel: the protocol's own sentences, each made of an event.

A channel is any route of an alerts sink that hears of `mesh`. "Moving to" names the task that is taken next; where none
is, it is "moving on".
"""

from __future__ import annotations

from allswell.domain.event import Event
from allswell.domain.request import EXPIRED

HEARS = ("task_claimed", "request_closed", "delivery_made")
"""The events that the channel hears of."""


def claiming(task: str) -> str:
    """Somebody has taken a task."""
    return f"🎯 Claiming: {task}"


def no_response(agent: str, task: str, following: str = "") -> str:
    """A request has expired."""
    onward = f"moving to {following}" if following else "moving on"
    return f"⏱️ Timeout: No response from {agent} on {task}. Logging block, {onward}."


def unblocked(what: str, task: str) -> str:
    """A late answer has come."""
    return f"✅ Unblocked: {what}. Re-queuing {task}."


def mesh_words(event: Event, name: str, request: str = "", to: str = "") -> str | None:
    """The sentence for an event; None where the channel is told nothing.

    `name` is the name of the event's task; `request` and `to` are what was asked of whom.
    """
    if event.kind == "task_claimed":
        return claiming(name)
    if event.kind == "request_closed" and event.data["reason"] == EXPIRED:
        return no_response(to, request)
    return str(event.data["says"]) if event.kind == "delivery_made" else None
