"""Scopes that are left where or when they must not be: the tree is put in order, and the caller told what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from allswell.timing.scope.scope import Scope


def entered_twice(scope: Scope) -> RuntimeError:
    """For a scope that is used a second time."""
    return RuntimeError(f"{scope!r} was entered before; a scope is entered once, so make one for each block.")


def not_open(scope: Scope) -> RuntimeError:
    """For a scope that is left without being open."""
    return RuntimeError(f"{scope!r} was left, but is not open.")


def left_elsewhere(scope: Scope) -> RuntimeError:
    """For a scope that another task leaves than the one that entered it."""
    entered = "outside any task" if scope.task is None else f"in {scope.task.get_name()}"
    return RuntimeError(
        f"{scope!r} was entered {entered} and left elsewhere; a scope belongs to one task. In an async generator, "
        "leave it before `yield`, or close the generator where it is used (contextlib.aclosing)."
    )


def left_before(scope: Scope, inner: Scope) -> RuntimeError:
    """For a scope that is left before one inside it; what is inside is closed and its cancels are taken back."""
    error = RuntimeError(
        f"{scope!r} was left while {inner!r}, entered inside it, is open: a generator was left in the middle of its "
        "block. Close it where it is used (contextlib.aclosing), or leave the scope before `yield`."
    )
    part: Scope | None = inner
    while part is not None:
        part.is_open = False
        if part.expiry is not None and part.task is not None:
            for _ in range(part.expiry.cancels):
                part.task.uncancel()
        part = part.inner
    return error
