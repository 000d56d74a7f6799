"""What a scope does once its time is up: when it cancels, how often, and when its body is given up.

A scope cancels its task once, and again at every third of the grace while the body goes on. It never cancels at every
await: a cancel that comes again and again cuts clean-up short and pierces shields. For the same reason a scope whose
task is already being ended by one further in (the loop was late, and both are due) waits a third before it adds to it.
"""

from __future__ import annotations

import asyncio
import threading
from math import inf
from typing import TYPE_CHECKING

from allswell.domain.deadline import end_of_grace
from allswell.domain.spending import label

if TYPE_CHECKING:
    from allswell.timing.scope.scope import Scope

SHORTEST_PAUSE = 0.05
"""Between two cancels of one scope, however short what is outside has cut its grace; seconds."""


class Expiry:
    """What a scope has done since its time was up; instants are those of its clock."""

    __slots__ = ("cancels", "end", "fenced", "last", "number")

    def __init__(self, number: int, end: float) -> None:
        self.number = number
        """Which one it is on its loop: two may fall into the same instant."""
        self.end = end
        """When the grace is over."""
        self.cancels = 0
        self.last = -inf
        """When it last cancelled."""
        self.fenced = False
        """Whether the body was given up."""


def strike(scope: Scope, task: asyncio.Task[object], now: float) -> float:
    """Tell the body to stop, or tell it again, or give it up; returns when to come back."""
    expiry = scope.expiry or expire(scope, end_of(scope))
    if now >= expiry.end and scope.given_up is not None and not scope.given_up.done():
        expiry.fenced = True
        scope.given_up.set_result(None)
    pause = max((expiry.end - scope.deadline) / 3, SHORTEST_PAUSE)
    told = max(expiry.last, _told_from_inside(scope))
    if now >= told + pause:
        task.cancel(f"{label(scope.kind, scope.name)} reached its limit")
        expiry.cancels += 1
        expiry.last = told = now
    return min(told + pause, expiry.end) if now < expiry.end else told + pause


_expiring = threading.Lock()


def expire(scope: Scope, end: float) -> Expiry:
    """Note that a scope's time is up. Its loop and a thread that works for it may both be the first to see it."""
    with _expiring:
        if scope.expiry is None:
            number = 0
            if scope.deadlines is not None:
                number = scope.deadlines.expiries = scope.deadlines.expiries + 1
            scope.expiry = Expiry(number, end)
        return scope.expiry


def _told_from_inside(scope: Scope) -> float:
    """When a scope further in, of the same task and still open, last cancelled it."""
    last, inner = -inf, scope.inner
    while inner is not None:
        if inner.is_open and inner.expiry is not None:
            last = max(last, inner.expiry.last)
        inner = inner.inner
    return last


def end_of(scope: Scope, told: float | None = None) -> float:
    """Until when a body that was told to stop (at the deadline, unless it was sooner) may take to do so."""
    told = scope.deadline if told is None else told
    outer = scope.outer
    if outer is None or outer.deadline == inf:
        return end_of_grace(told, scope.grace_ms / 1_000)
    outer_end = end_of(outer) if outer.expiry is None else outer.expiry.end
    ahead = 0.0 if outer.deadlines is scope.deadlines else scope.now() - outer.now()
    return end_of_grace(told, scope.grace_ms / 1_000, outer.deadline + ahead, outer_end + ahead)
