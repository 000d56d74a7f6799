"""A thread that notices when an event loop does not turn, and says where it stands.

Deadlines on a loop fire when the loop turns. Code that blocks it (a sync call, a long computation) makes all of them
late, and nothing on the loop can tell. So a thread beside it asks now and then for a sign of life, and reports once for
every time that none comes within the limit, with the stack of the thread that is stuck. It costs the loop one callback
per half of the limit. It reports and does nothing else: a blocked thread cannot be interrupted.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Self

import msgspec

from allswell.domain.deadline import positive
from allswell.domain.duration import Duration
from allswell.timing.foreign import refuse_other_loops

log = logging.getLogger(__name__)


class BlockedLoop(msgspec.Struct, frozen=True):
    """A loop that does not turn."""

    seconds: float
    """For how long it has not, when it was noticed."""
    stack: str
    """Where its thread stands."""


def _warn(found: BlockedLoop) -> None:
    log.warning("the event loop has not turned for %.1f s; its thread stands at\n%s", found.seconds, found.stack)


class LoopWatchdog:
    """`async with LoopWatchdog("1s"): …` reports every time that the loop stands still for so long."""

    def __init__(self, limit: float | Duration = 1_000, *, on_blocked: Callable[[BlockedLoop], None] = _warn) -> None:
        self._limit = positive(limit, where="limit") / 1_000
        self._on_blocked = on_blocked
        self._stop = threading.Event()
        self._answered = threading.Event()
        self._thread: threading.Thread | None = None

    async def __aenter__(self) -> Self:
        if self._thread is not None:
            raise RuntimeError("This watchdog was started before; make a new one.")
        refuse_other_loops()
        watched = asyncio.get_running_loop(), threading.get_ident()
        self._thread = threading.Thread(target=self._watch, args=watched, name="allswell-watchdog", daemon=True)
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._answered.set()  # the thread ends at once; nobody waits for it

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        while not self._stop.wait(self._limit / 2):
            self._answered.clear()
            asked = time.monotonic()
            try:
                loop.call_soon_threadsafe(self._answered.set)
            except RuntimeError:
                return  # the loop is closed
            if not self._answered.wait(self._limit) and not self._stop.is_set():
                self._report(time.monotonic() - asked, thread)
                while not self._answered.wait(self._limit) and not loop.is_closed():
                    pass  # once for each time that it stands still

    def _report(self, seconds: float, thread: int) -> None:
        frame = sys._current_frames().get(thread)  # noqa: SLF001 - the documented way to see another thread's stack
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "(its thread has ended)\n"
        try:
            self._on_blocked(BlockedLoop(seconds, stack))
        except Exception:
            log.exception("what was to be told of a blocked loop failed")
