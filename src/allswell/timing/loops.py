"""Other event loops than asyncio's: there our deadlines would do nothing, silently, so they are refused.

A scope ends what is inside it by cancelling an asyncio task. A trio task is none, and code that is driven by hand or by
another library has none either: a deadline around it would never come. `with` in plain threads is another matter (it is
checked, as it says), and so are calls that block: those hold wherever they are made.

trio is not imported for this: a program that runs under it has imported it already.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from allswell.errors import Refused

# The event loop that this code runs in, if there is one.


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The running event loop; None in a thread that has none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


_DO = (
    "run this part under asyncio (asyncio.run, or anyio.run with backend='asyncio'), or call it from a thread"
    " (trio.to_thread.run_sync) by its sync form"
)


def refuse_trio() -> None:
    """Raise `Refused` in code that trio runs; threads that trio has started are threads like any other."""
    trio = sys.modules.get("trio")
    if trio is None:
        return
    try:
        trio.lowlevel.current_trio_token()
    except (AttributeError, RuntimeError):  # half imported, or not inside `trio.run`
        return
    raise Refused("not_asyncio", f"Allswell needs asyncio, and this runs under trio: {_DO}")


def refuse_other_loops() -> None:
    """Raise `Refused` in async code that is not run by asyncio."""
    if running_loop() is None:
        refuse_trio()
        raise Refused("not_asyncio", f"Allswell needs asyncio, and no asyncio loop runs here: {_DO}")
    if asyncio.current_task() is None:  # trio as a guest of asyncio's loop
        refuse_trio()


# The event loop that something lives in, for those who come from other loops and from threads.

T = TypeVar("T")


class OwnLoop:
    """The loop in which this was made."""

    __slots__ = ("_loop", "_process")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()

    def is_here(self) -> bool:
        """Whether the caller runs in it."""
        return running_loop() is self._loop

    def carry(self, work: Coroutine[Any, Any, T]) -> Future[T] | None:
        """Begin something in it; None if it is closed, or runs in the process that this one was forked from."""
        if os.getpid() == self._process:
            try:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
            except RuntimeError:  # it is closed
                pass
        work.close()
        return None


# What each event loop has one of.


class PerLoop(dict[asyncio.AbstractEventLoop, T]):
    """One for each loop, made when it is first asked for; those of closed loops are let go when a new one comes."""

    def __init__(self, make: Callable[[asyncio.AbstractEventLoop], T]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, loop: asyncio.AbstractEventLoop) -> T:
        for closed in [known for known in list(self) if known.is_closed()]:
            self.pop(closed, None)
        made = self[loop] = self._make(loop)
        return made
