"""The scope in effect: what every task, callback and thread inherits, and how it is asked."""

from __future__ import annotations

from contextvars import ContextVar
from math import inf
from typing import TYPE_CHECKING

from allswell.timing.scope.expiry import end_of, expire

if TYPE_CHECKING:
    from allswell.timing.scope.scope import Scope

in_effect: ContextVar[Scope | None] = ContextVar("allswell_scope", default=None)


def current() -> Scope | None:
    """The innermost scope in effect."""
    return in_effect.get()


def remaining_ms() -> float | None:
    """Milliseconds that the innermost scope in effect has left (of its grace, in clean-up); None without a limit."""
    scope = in_effect.get()
    return None if scope is None else scope.remaining_ms()


def check_deadline() -> None:
    """Raise `ScopeTimeout` if the time is up: for loops of sync code, which nothing can interrupt."""
    late = late_from(in_effect.get())
    if late is not None:
        raise late.timed_out()


def late_from(scope: Scope | None) -> Scope | None:
    """The outermost scope, from this one outward, whose time is up; it is told so, and what cleans up has its grace."""
    late = None
    while scope is not None:
        if scope.deadline != inf and scope.now() >= scope.deadline:
            late = scope
            if scope.expiry is None:
                expire(scope, end_of(scope))
        scope = scope.outer
    return late
