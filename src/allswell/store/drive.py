"""Running a unit of work to its end where there is no event loop."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from allswell.errors import Bug

T = TypeVar("T")


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, without an event loop."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise Bug("a unit of work awaited something other than its transaction")
