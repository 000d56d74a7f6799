"""One handling of one message: who has it, since when, whether it was given up; and the loop that async ones run on."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from allswell.domain.worker.limits import Layers
from allswell.domain.worker.message import too_slow
from allswell.runtime.calls import ThreadCall
from allswell.worker.connection import HandlerConnection, Limit
from allswell.worker.handlers import Handler
from allswell.worker.queue import QueueMessage, QueueToken

# The event loop that async handlers run on, in a thread of its own.
#
# A handler's slot waits for it here. One that is given up is cancelled, and again at every look, until it ends: by
# level, for a handler may swallow a cancel. A handler that blocks the loop itself cannot be cancelled; then the loop
# is left to it, and handlers that come later get a new one.

_DEEPEST = 100
_LOOPS = str(Path(asyncio.__file__).parent)
PATIENCE = 1.0
"""A loop that does not turn for so long, when somebody must be cancelled, is left behind."""


class HandlerLoop:
    """A loop in a thread; made when the first async handler is called."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: _LoopThread | None = None

    def begin(self, work: Callable[[], Coroutine[Any, Any, object]]) -> AsyncCall:
        """Start a handler."""
        with self._lock:
            if self._current is None:
                self._current = _LoopThread()
            turning = self._current
            turning.handlers += 1
        return AsyncCall(self, turning, work)

    def ended(self, turning: _LoopThread) -> None:
        """A handler has ended; a loop that was left behind ends with its last one."""
        with self._lock:
            turning.handlers -= 1
            over = turning is not self._current and turning.handlers == 0
        if over:
            turning.loop.stop()

    def leave(self, turning: _LoopThread) -> None:
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

    def __init__(
        self, home: HandlerLoop, turning: _LoopThread, work: Callable[[], Coroutine[Any, Any, object]]
    ) -> None:
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
        """Where it waits, from the handler inward; and what holds its loop, if something does."""
        waits = [] if self._task is None else _awaited(self._task.get_coro())
        told = "".join(traceback.format_list(waits))
        held = self._turning.held()
        return f"{told}its event loop is held by this:\n{held}" if held else told

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


def _awaited(coroutine: object) -> list[traceback.FrameSummary]:
    """The lines at which a coroutine waits, and what it awaits, and so on, down to a future."""
    lines: list[traceback.FrameSummary] = []
    while coroutine is not None and len(lines) < _DEEPEST:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            code = frame.f_code
            lines.append(traceback.FrameSummary(code.co_filename, frame.f_lineno, code.co_name))
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return lines


class _LoopThread:
    """A loop, its thread, and how many handlers are on it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.handlers = 0
        self.thread = 0
        threading.Thread(target=self._turn, name="allswell-handlers", daemon=True).start()

    def held(self) -> str:
        """The stack of what runs on the loop now; empty where it waits."""
        frame = sys._current_frames().get(self.thread)  # noqa: SLF001 - the documented way to see another thread's
        lines = [] if frame is None else traceback.extract_stack(frame)
        inside = [line for line in lines if not line.filename.startswith(_LOOPS) and line.filename != __file__]
        begin = next((place for place, line in enumerate(lines) if line.name == "_run_once"), len(lines))
        if not lines or lines[-1].name in ("select", "poll") or not inside or begin == len(lines):
            return ""
        return "".join(traceback.format_list([line for line in lines[begin:] if line in inside]))

    def _turn(self) -> None:
        self.thread = threading.get_ident()
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()


CANCEL_SECONDS = 5.0
"""How long the server is asked to cancel a statement before its connection is cut all the same."""


class MessagesInHand:
    """The messages that a worker has read and that have no end yet, over all its shifts, and until when each is hidden.

    One that shows again meanwhile is not read again by its own worker (`Queue.unread`).
    """

    def __init__(self) -> None:
        self._held: dict[tuple[int, int], tuple[QueueToken, float]] = {}

    def take(self, token: QueueToken, until: float) -> None:
        """A message was read; its handler counts as stuck after so long on the monotonic clock."""
        self._held[token.id, token.sent] = token, until

    def let_go(self, token: QueueToken) -> None:
        """It has an end, or may be read again."""
        key = token.id, token.sent
        held = self._held.get(key)
        if held is not None and held[0] == token:
            self._held.pop(key, None)

    def more(self, token: QueueToken) -> float | None:
        """For how many seconds more a message is to be hidden that was read though it is in hand; None: it is not."""
        held = self._held.get((token.id, token.sent))
        return None if held is None else max(held[1] - time.monotonic(), 1.0)


CALLER = "_perform"
"""The function that calls handlers (session.py): a handler's stack is told from there on."""


class MessageAttempt:
    """A message in a handler's hands. Two threads speak to it: the handler's, and whoever gives it up."""

    def __init__(
        self, taken: QueueMessage, connection: HandlerConnection, handler: Handler | None, layers: Layers, since: float
    ) -> None:
        self.taken = taken
        self.connection = connection
        self.handler = handler
        """None where the message says of no type that has one."""
        self.limit = Limit(layers, since + layers.visibility_timeout)
        self._visibility = layers.visibility_timeout
        self.began = since
        """When its handler began, or when its message was last hidden for longer."""
        self.first_began = since
        self.kept = False
        """Whether its message stays in hand when its handler has ended: its end is written elsewhere."""
        self.call: ThreadCall[None] | None = None
        self.async_call: AsyncCall | None = None
        self.given_up = False
        self._ended = False
        self._thread = 0
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Called in the handler's thread."""
        self._thread = threading.get_ident()
        self.began = self.first_began = time.monotonic()
        self.connection.limit = self.limit

    def hidden_again(self, since: float, visibility: float) -> None:
        """Its message was hidden for longer."""
        self.began = since
        self.limit.ends = since + visibility

    def slept(self, seconds: float) -> None:
        """The whole process stood still for so long: the handler had nothing of it."""
        self.began += seconds
        self.first_began += seconds

    def too_slow(self) -> str:
        """What to do about a handler that takes longer than its message is hidden; empty where it does not."""
        took = time.monotonic() - self.first_began
        if took <= self._visibility or self.handler is None or self.handler.long:
            return ""
        return too_slow(took, self._visibility)

    def give_up(self) -> bool:
        """Count on it no longer: its slot is free at once. False if it has ended, or somebody did so before."""
        with self._lock:
            if self._ended or self.given_up:
                return False
            self.given_up = True
        if self.call is not None:
            self.call.give_up()
        return True

    def end(self) -> bool:
        """It has come back; False if it was given up before."""
        with self._lock:
            self._ended = not self.given_up
            return self._ended

    def stack(self) -> str:
        """Where its handler stands."""
        if self.async_call is not None:
            return self.async_call.stack()
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - the documented way to see another thread's
        if frame is None:
            return "(its thread has ended)\n"
        lines = traceback.extract_stack(frame)
        begin = next((place for place, line in enumerate(lines) if line.name == CALLER), -1)
        return "".join(traceback.format_list(lines[begin + 1 :]))

    def cut(self) -> None:
        """Cancel its statement on the server and cut its connection, in a thread of its own: nobody waits for it."""
        threading.Thread(target=self._cut, name="allswell-cut", daemon=True).start()

    def _cut(self) -> None:
        with contextlib.suppress(Exception):  # the connection is cut in any case
            self.connection.cancel_safe(timeout=CANCEL_SECONDS)
        self.connection.cut()
        while self.async_call is not None and self.async_call.stop():
            time.sleep(1.0)  # by level: a handler may swallow a cancel
