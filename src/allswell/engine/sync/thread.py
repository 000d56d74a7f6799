"""A watch in a thread of its own, and the way to have something done there.

An event loop of its own runs in a background thread, so leases are renewed and timers swept while the caller works.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, Self, TypeVar

from allswell.engine.watch import Watch
from allswell.errors import Unavailable

T = TypeVar("T")


class OwnThread:
    """A watch that is open in a loop and a thread of its own."""

    def __init__(self, make: Callable[[], Watch]) -> None:
        self._make = make
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="allswell", daemon=True)
        self._opened: threading.Event = threading.Event()
        self._closing: asyncio.Event | None = None
        self._error: BaseException | None = None
        self._watch: Watch | None = None
        self._guard = threading.Lock()
        self._over = False

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._live())
        except BaseException as error:  # noqa: BLE001 - it is raised again in start() or stop()
            self._error = error
        finally:
            with self._guard:
                self._over = True
            self._loop.run_until_complete(self._end_all())
            self._opened.set()
            self._loop.close()

    async def _live(self) -> None:
        self._closing = asyncio.Event()
        async with self._make() as watch:
            self._watch = watch
            self._opened.set()
            await self._closing.wait()
            self._watch = None

    async def _end_all(self) -> None:
        """Whoever still waits for an answer is told that none will come."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def start(self) -> Self:
        """Open the watch; what is wrong with it is raised here."""
        self._thread.start()
        self._opened.wait()
        self._raise()
        return self

    def stop(self) -> None:
        """Close the watch and end its thread."""
        if self._closing is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the watch's loop and wait for it, or until the watch is closed."""
        with self._guard:
            if self._over:
                work.close()
                raise Unavailable("the watch is closed")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise Unavailable("the watch was closed before the store answered") from None

    @property
    def inner(self) -> Watch:
        """The watch behind it, which lives in a loop and a thread of its own; for what carries its calls there."""
        return self._open

    @property
    def _open(self) -> Watch:
        if self._watch is None:
            raise Unavailable("the watch is closed")
        return self._watch
