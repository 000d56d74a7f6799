"""A thread that works off calls one by one, for drivers that block.

A unit of work on a store is a coroutine that awaits nothing but the transaction. Where the transaction's methods never
really wait for the event loop, the whole unit can be run to its end inside the driver's thread: one hop to the thread
and back for a whole batch, instead of one for every statement.

Every call has a bound. When it passes, the caller gets `Unavailable` and goes on; the thread may still be stuck in the
driver, so whoever owns it must treat it as lost (`abandoned`) and start another.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from allswell.errors import Unavailable

T = TypeVar("T")


class WorkThread:
    """One daemon thread and its queue of calls."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()
        self.abandoned = False
        self._bounds: dict[asyncio.Future[Any], tuple[float, str]] = {}
        """What each caller waits for, until when."""
        self._watch: asyncio.TimerHandle | None = None

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    async def call(self, function: Callable[[], T], *, timeout: float, what: str) -> T:
        """The function's result, computed in the thread; `what` names the bound in the error when it passes."""
        if self.abandoned:
            raise Unavailable(f"{what}: an earlier call is still stuck")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        def run() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = function()
            except BaseException as caught:  # noqa: BLE001 - it is raised again where the caller waits
                error = caught
            try:
                loop.call_soon_threadsafe(settle, result, error)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more

        self._calls.put(run)
        until = loop.time() + timeout
        self._bounds[future] = (until, f"{what} did not answer within {timeout:g} s")
        if self._watch is None or until < self._watch.when():
            self._set_watch(loop, until)
        try:
            return await future
        finally:
            del self._bounds[future]

    def _set_watch(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        """One timer for all callers, set anew only when it has run out: most calls end long before their bound."""
        if self._watch is not None:
            self._watch.cancel()
        self._watch = loop.call_at(when, self._give_up_on_the_late, loop)

    def _give_up_on_the_late(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watch = None
        now = loop.time()
        for future, (until, said) in self._bounds.items():
            if until <= now and not future.done():
                self.abandoned = True
                future.set_exception(Unavailable(said))
        waiting = [until for until, _ in self._bounds.values() if until > now]
        if waiting:
            self._set_watch(loop, min(waiting))

    def close(self) -> None:
        """End the thread after the calls that are already waiting; does not wait for it."""
        if self._watch is not None and not self._bounds:
            self._watch.cancel()
        self._calls.put(None)
