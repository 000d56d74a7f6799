"""A thread that works off calls one by one, for drivers that block.

A unit of work on a store is a coroutine that awaits nothing but the transaction. Where the transaction's methods never
really wait for the event loop, the whole unit can be run to its end inside the driver's thread: one hop to the thread
and back for a whole batch, instead of one for every statement.

Every call has a bound. When it passes, the caller gets `Unavailable` and goes on; the thread may still be stuck in the
driver, so whoever owns it must treat it as lost (`abandoned`) and start another. Where there can be no other, it is
trusted again once it comes back (`trusted_again`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from allswell.errors import Unavailable

T = TypeVar("T")


class ThreadJob(Generic[T]):
    """One call, on its way through the thread."""

    __slots__ = ("_error", "_function", "_result", "_tell", "_thread", "has_run")

    def __init__(self, function: Callable[[], T], thread: WorkThread, tell: Callable[[], None] | None = None) -> None:
        self._function = function
        self._thread = thread
        self._tell = tell
        """Called in the thread when it is over."""
        self.has_run = False
        self._result: T | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Do it; in the thread."""
        try:
            self._result = self._function()
        except BaseException as caught:  # noqa: BLE001 - it is raised again where the caller waits
            self._error = caught
        self.has_run = True
        self._thread.comes_back()
        if self._tell is not None:
            self._tell()

    def result(self) -> T:
        """What came of it."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # it is over, and there is no error: this is it


class WorkThread:
    """One daemon thread and its queue of calls."""

    def __init__(self, name: str, *, trusted_again: bool = False) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()
        self.abandoned = False
        self._trusted_again = trusted_again
        self._bounds: dict[asyncio.Future[Any], tuple[float, str]] = {}
        """What each caller waits for, until when."""
        self._watch: asyncio.TimerHandle | None = None

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def comes_back(self) -> None:
        """It is not stuck now: a call has ended."""
        if self.abandoned and self._trusted_again:
            self.abandoned = False

    def post(self, function: Callable[[], object]) -> None:
        """Have a function called in the thread, whose end nobody waits for; what it raises is lost."""
        self._calls.put(ThreadJob(function, self).run)

    async def call(self, function: Callable[[], T], *, timeout: float, what: str) -> T:
        """The function's result, computed in the thread; `what` names the bound in the error when it passes."""
        if self.abandoned:
            raise Unavailable(f"{what}: an earlier call is still stuck")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def settle() -> None:
            if not future.done():
                future.set_result(None)

        def tell() -> None:
            try:
                loop.call_soon_threadsafe(settle)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more

        job = ThreadJob(function, self, tell)
        self._calls.put(job.run)
        until = loop.time() + timeout
        self._bounds[future] = (until, f"{what} did not answer within {timeout:g} s")
        if self._watch is None or until < self._watch.when():
            self._set_watch(loop, until)
        try:
            await future
        finally:
            del self._bounds[future]
            if job.has_run:  # perhaps in the very moment in which it was given up
                self.comes_back()
        return job.result()

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
