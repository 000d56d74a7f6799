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
from typing import TypeVar

from allswell.errors import Unavailable

T = TypeVar("T")


class WorkThread:
    """One daemon thread and its queue of calls."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()
        self.abandoned = False

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

        def give_up() -> None:
            if not future.done():
                self.abandoned = True
                future.set_exception(Unavailable(f"{what} did not answer within {timeout:g} s"))

        self._calls.put(run)
        # A timer and the future itself: asyncio.wait would cost one more turn of the loop for every call.
        bound = loop.call_later(timeout, give_up)
        try:
            return await future
        finally:
            bound.cancel()

    def close(self) -> None:
        """End the thread after the calls that are already waiting; does not wait for it."""
        self._calls.put(None)
