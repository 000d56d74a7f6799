"""Event loops: which one runs here, what lives in one, and a group of tasks that end together.

Under other loops than asyncio's our deadlines would do nothing, silently, so they are refused.

A scope ends what is inside it by cancelling an asyncio task. A trio task is none, and code that is driven by hand or by
another library has none either: a deadline around it would never come. `with` in plain threads is another matter (it is
checked, as it says), and so are calls that block: those hold wherever they are made.

trio is not imported for this: a program that runs under it has imported it already.
"""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

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


# A group of asyncio tasks that end together, in an order one can rely on.
#
# `asyncio.TaskGroup` keeps its children in a set and cancels them in the order of their addresses: twenty runs, twenty
# orders, and no seed that could bring one back. A `Nursery` keeps them in the order they were started and cancels them
# in that order. Otherwise it is a TaskGroup: the block ends when every child has ended; a failing child cancels its
# siblings and the body; a child that was cancelled by someone else simply has ended. It differs in three points, all
# on purpose:
#
# - **The first error is raised as itself**, never in an ExceptionGroup. Our callers decide by type (`except
#   LeaseLost`), and what follows the first error is mostly its echo: siblings that fail while they are being
#   cancelled. The rule has no exceptions, because a type that depends on how many children failed is a race in
#   disguise. Nothing is lost: the other errors stand, with their tracebacks, in the notes of the first. Only
#   KeyboardInterrupt and SystemExit come before it.
# - **A repeated cancel reaches the children again.** TaskGroup passes on the first one only, so that a child
#   that swallows it outlives every deadline, however often the host is cancelled. We ourselves cancel once:
#   twice would cut clean-up short.
# - **`cancel()` ends the children quietly** and leaves the body alone: that is how background loops stop.
#
# As in TaskGroup, an error comes before a cancel from outside that arrives beside it. Such a cancel is not forgotten:
# it is still counted in `cancelling()`, and from Python 3.13 on it is delivered at the host's next await. (Before,
# `uncancel` cannot take back a delivery, and an `asyncio.timeout` further out would leak it.)

_BODY = "the body"


class Nursery:
    """`async with Nursery() as n: n.start(work())`: children that never outlive their block."""

    def __init__(self) -> None:
        self._host: asyncio.Task[object] | None = None
        self._cancels_on_entry = 0
        # A dict is an ordered set: start order, and a child leaves in constant time.
        self._children: dict[asyncio.Task[Any], None] = {}
        self._errors: list[tuple[str, BaseException]] = []
        self._ending = False  # children were told to stop; no new ones
        self._in_body = False
        self._we_cancelled_host = False
        self._empty: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        if self._host is not None:
            raise RuntimeError("A Nursery is entered once; make a new one for each block.")
        refuse_other_loops()
        self._host = asyncio.current_task()
        if self._host is None:
            raise RuntimeError("A Nursery is entered inside a task.")
        self._cancels_on_entry = self._host.cancelling()
        self._in_body = True
        return self

    def start(self, coro: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Start a child; refused once the nursery is ending, so that nobody slips past a cancel."""
        if self._ending or not (self._in_body or self._children):
            coro.close()
            state = "is not open yet" if self._host is None else "is ending, or has ended"
            raise RuntimeError(f"This nursery {state}: {name or coro!r} was not started.")
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._children[task] = None
        task.add_done_callback(self._ended)
        return task

    def cancel(self) -> None:
        """Cancel all children in start order, again on every call; the body goes on, nothing is raised."""
        self._ending = True
        for child in list(self._children):
            child.cancel()

    def _ended(self, child: asyncio.Task[Any]) -> None:
        del self._children[child]
        if not self._children and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)
        if child.cancelled():
            return
        error = child.exception()
        if error is None:
            return
        self._errors.append((child.get_name(), error))
        if not self._ending:
            self.cancel()
        if self._in_body and self._host is not None and not self._we_cancelled_host:
            self._we_cancelled_host = True
            self._host.cancel()

    async def __aexit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        host = self._host
        if host is None:
            raise RuntimeError("This nursery was left without having been entered.")
        self._in_body = False
        was_cancelled = isinstance(error, asyncio.CancelledError)
        if error is not None and not was_cancelled:
            self._errors.append((_BODY, error))
        if self._we_cancelled_host:
            host.uncancel()  # it has struck: the host stood at an await of the body when we called it
        elif was_cancelled or (error is not None and not self._ending):
            self.cancel()
        cancelled = await self._until_empty()
        try:
            if self._errors:
                # Against the count on entry, not zero: we may be part of a cancelled task's clean-up.
                if sys.version_info >= (3, 13) and host.cancelling() > self._cancels_on_entry:
                    host.uncancel()
                    host.cancel()
                _raise_first(self._errors, error)
            elif cancelled is not None and not was_cancelled:
                raise cancelled
        finally:
            # An exception that is reachable from its own traceback waits for the garbage collector.
            self._errors.clear()
            del error, cancelled

    async def _until_empty(self) -> asyncio.CancelledError | None:
        """Wait for the last child, passing every cancel of the host on to those that are left."""
        cancelled = None
        while self._children:
            self._empty = asyncio.get_running_loop().create_future()
            try:
                await self._empty
            except asyncio.CancelledError as cancel:
                cancelled = cancel
                self.cancel()
        return cancelled


def _raise_first(errors: list[tuple[str, BaseException]], in_flight: BaseException | None) -> None:
    """Raise the error that came first, unless it is in flight already; the others become its notes."""
    raised = next((e for _, e in errors if isinstance(e, KeyboardInterrupt | SystemExit)), errors[0][1])
    for name, other in errors:
        if other is not raised:
            trace = textwrap.indent("".join(traceback.format_exception(other)), "  | ")
            raised.add_note(f"In the same nursery {name} failed too:\n{trace}".rstrip())
    if raised is in_flight:
        return
    context = raised.__context__
    try:
        raise raised
    finally:
        # Raising puts the host's cancel there, over the context the error was born with.
        raised.__context__ = context
        del raised, errors, in_flight
