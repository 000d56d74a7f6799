"""Calls of sync functions inside a scope, in a thread that can be given up.

A function in a thread is told that its time is up by `allswell.check_deadline()`, if it asks, and by every scope that
it enters. At the end of the grace it is given up: the caller goes on, the thread's slot is filled anew, and what the
function still does is fenced.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

from allswell.errors import Refused
from allswell.runtime.threads import ThreadCall, Threads
from allswell.timing.per_loop import PerLoop
from allswell.timing.scope import Scope, run
from allswell.timing.scope.expiry import end_of, expire

T = TypeVar("T")

log = logging.getLogger(__name__)

SLOTS = 64
"""Threads for calls from async code; callers beyond wait, within their own deadline."""

FOR_TASKS = Threads(SLOTS)
_FOR_THREADS = Threads()  # here a caller waits for each call: there are never more than callers


async def run_in_thread(scope: Scope, function: Callable[[], T], *, threads: Threads = FOR_TASKS) -> T:
    """Await a sync call inside a scope; back at the latest when the scope's grace is over."""

    async def body() -> T:
        context = copy_context()  # in which this scope is the one in effect
        return await ended(threads.call(lambda: context.run(function)), scope)

    return await run(scope, body)


async def ended(call: ThreadCall[T], scope: Scope, *, stop: Callable[[], None] | None = None) -> T:
    """The call's result. A thread cannot be cancelled, so neither can this; who awaits it is let go by `run`."""
    loop = asyncio.get_running_loop()
    cancelled: asyncio.CancelledError | None = None
    while not call.done():
        waiter: asyncio.Future[None] = loop.create_future()
        call.tell(functools.partial(_ends[loop].tell, waiter))
        try:
            await waiter
        except asyncio.CancelledError as cancel:
            cancelled = cancel
            if call.never_began():
                raise
            if stop is not None:
                stop()
            if scope.fenced:
                call.give_up()
    if cancelled is not None:
        raise cancelled
    return call.result()


class Ends:
    """Calls that have ended, told to their loop together: to wake it costs more than what is told."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._wake = functools.partial(loop.call_soon_threadsafe, self._settle)
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._woken = False

    def tell(self, waiter: asyncio.Future[None]) -> None:
        """Wake the loop, unless it has been and has not come yet; in the call's thread."""
        self._waiters.append(waiter)  # first: who comes before the look below takes it along
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._wake()

    def _settle(self) -> None:
        self._woken = False  # first: what is told from now on is told anew
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)


_ends = PerLoop(Ends)


def call_in_thread(scope: Scope, function: Callable[[], T], *, threads: Threads = _FOR_THREADS) -> T:
    """A sync call inside a scope, for sync callers; back at the latest when the scope's grace is over."""
    context = copy_context()
    context.run(scope.enter, None)
    call = threads.call(lambda: context.run(function))
    try:
        ended = call.wait(scope.remaining())
        if not ended:
            expiry = scope.expiry or expire(scope, end_of(scope))
            ended = call.wait(expiry.end - scope.now())
    except BaseException:  # the caller is interrupted: nobody waits for the call any more
        _fence(scope, call)
        raise
    if not ended:
        _fence(scope, call)
        log.warning("%r did not stop within its grace and was given up; its thread is replaced", scope)
        raise scope.timed_out(abandoned=True)
    try:
        result = call.result()
    except BaseException as error:
        context.run(scope.__exit__, type(error), error, None)
        raise
    context.run(scope.__exit__, None, None, None)
    return result


def settled(result: T) -> T:
    """What a sync function returned, unless it is async in disguise: nobody would await it in time."""
    if result is not None and inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        text = "the function returned something to be awaited; give an async function, not one that makes a coroutine"
        raise Refused("not_sync", text, where="function")
    return result


def _fence(scope: Scope, call: ThreadCall[T]) -> None:
    scope.book()
    (scope.expiry or expire(scope, scope.now())).fenced = True
    call.give_up()
