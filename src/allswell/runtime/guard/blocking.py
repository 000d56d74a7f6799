"""Where code that blocks runs under a guard: in a thread that can be given up, or where it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

from allswell.runtime.calling import call_in_thread
from allswell.timing.scope import Scope, ScopeTimeout

T = TypeVar("T")
Place = Literal["thread", "here"]


def call_blocking(on: Place, scope: Scope, function: Callable[[], T]) -> T:
    """Call a function inside the scope of an attempt."""
    return _here(scope, function) if on == "here" else call_in_thread(scope, function)


def _here(scope: Scope, function: Callable[[], T]) -> T:
    """Call a function inside a scope that cannot interrupt it; what it brought late, it has brought."""
    brought: list[T] = []
    try:
        with scope:
            brought.append(function())
    except ScopeTimeout as late:
        if not brought or late.scope is not scope:
            raise
    return brought[0]
