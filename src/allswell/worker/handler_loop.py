"""The event loop that async handlers run on, in a thread of its own.

A handler's slot waits for it here. One that is given up is cancelled, and again at every look, until it ends: by level,
for a handler may swallow a cancel. A handler that blocks the loop itself cannot be cancelled; then the loop is left to
it, and handlers that come later get a new one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

PATIENCE = 1.0
"""A loop that does not turn for so long, when somebody must be cancelled, is left behind."""


class HandlerLoop:
    """A loop in a thread; made when the first async handler is called."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: _Turning | None = None

    def begin(self, work: Callable[[], Coroutine[Any, Any, object]]) -> AsyncCall:
        """Start a handler."""
        with self._lock:
            if self._current is None:
                self._current = _Turning()
            turning = self._current
            turning.handlers += 1
        return AsyncCall(self, turning, work)

    def ended(self, turning: _Turning) -> None:
        """A handler has ended; a loop that was left behind ends with its last one."""
        with self._lock:
            turning.handlers -= 1
            over = turning is not self._current and turning.handlers == 0
        if over:
            turning.loop.stop()

    def leave(self, turning: _Turning) -> None:
        """Have later handlers run on a new loop."""
        with self._lock:
            if self._current is turning:
                self._current = None

    def close(self) -> None:
        """Let the loop end when the last handler on it has ended."""
        with self._lock:
            turning, self._current = self._current, None
            over = turning is not None and turning.handlers == 0
        if over and turning is not None:
            turning.loop.call_soon_threadsafe(turning.loop.stop)


class AsyncCall:
    """One async handler that runs."""

    def __init__(self, home: HandlerLoop, turning: _Turning, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self._home = home
        self._turning = turning
        self._work = work
        self._task: asyncio.Task[object] | None = None
        self._over = threading.Event()
        turning.loop.call_soon_threadsafe(self._start)

    def wait(self) -> None:
        """Wait for its end; raises what it raised."""
        self._over.wait()
        if self._task is not None:
            self._task.result()

    def stop(self) -> bool:
        """Cancel it, once more each time; False if it has ended. Not to be called on the loop."""
        if self._over.is_set():
            return False
        turned = threading.Event()
        try:
            self._turning.loop.call_soon_threadsafe(self._cancel, turned)
        except RuntimeError:  # it has ended just now, and its loop with it
            return False
        if not turned.wait(PATIENCE):
            self._home.leave(self._turning)
        return True

    def stack(self) -> str:
        """Where it stands: the innermost line that waits."""
        frames = [] if self._task is None else self._task.get_stack()
        return "".join(f'  File "{frame.f_code.co_filename}", line {frame.f_lineno}\n' for frame in frames)

    def _start(self) -> None:
        self._task = self._turning.loop.create_task(self._work())
        self._task.add_done_callback(self._ended)

    def _cancel(self, turned: threading.Event) -> None:
        turned.set()
        if self._task is not None:
            self._task.cancel()

    def _ended(self, _task: asyncio.Task[object]) -> None:
        self._over.set()
        self._home.ended(self._turning)


class _Turning:
    """A loop, its thread, and how many handlers are on it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.handlers = 0
        threading.Thread(target=self._turn, name="allswell-handlers", daemon=True).start()

    def _turn(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()
