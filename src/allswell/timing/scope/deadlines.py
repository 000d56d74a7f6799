"""The deadlines of one event loop: a heap of our own, behind a single timer of the loop.

`asyncio.timeout` sets a timer of the loop for every block and cancels it again. Here a block costs a push on a heap
and, nearly always, a pop off its end: the loop's timer is set for the nearest deadline only and stays where it is when
that block ends early. When it fires with nothing due, it is set for what is then the nearest.
"""

from __future__ import annotations

import asyncio
import time
from contextvars import Context
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from allswell.timing.scope.scope import Scope

_DEAD_KEPT = 100


class Deadlines:
    """What expires on one loop, and when."""

    __slots__ = ("_armed_at", "_context", "_dead", "_handle", "_number", "expiries", "heap", "loop", "time")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        # asyncio's own loops say `time.monotonic()`, by a call more; virtual ones have a time of their own.
        self.time = time.monotonic if type(loop).time is asyncio.BaseEventLoop.time else loop.time
        self.heap: list[tuple[float, int, Scope]] = []
        self.expiries = 0
        """How many scopes have expired so far: what came before what, where the clock stands still."""
        self._number = 0
        self._dead = 0
        self._armed_at = inf
        self._handle: asyncio.TimerHandle | None = None
        self._context = Context()  # an empty one: that of whoever armed it would be kept alive with all its scopes

    def add(self, when: float, scope: Scope) -> None:
        """Let a scope know when its time comes."""
        self._number += 1
        heappush(self.heap, (when, self._number, scope))
        if when < self._armed_at:
            self._arm(when)

    def remove_later(self) -> None:
        """Forget a scope that was left, sooner or later: it stays in the heap until half of that is dead."""
        heap = self.heap
        self._dead += 1
        if self._dead > _DEAD_KEPT and self._dead > len(heap) // 2:
            heap[:] = [entry for entry in heap if entry[2].is_open]
            heapify(heap)
            self._dead = 0

    def _arm(self, when: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._armed_at = when
        self._handle = self.loop.call_at(when, self._tick, context=self._context)

    def _tick(self) -> None:
        """Strike everything that is due, and wait for the next. The loop may call a little early; we never do."""
        self._handle = None
        self._armed_at = inf
        try:
            self._strike(self.time())
        finally:  # whatever a task makes of being cancelled, the other deadlines hold
            if self.heap:
                self._arm(self.heap[0][0])

    def _strike(self, now: float) -> None:
        heap = self.heap
        while heap:
            when, _, scope = heap[0]
            if not scope.is_open:
                heappop(heap)
                self._dead = max(self._dead - 1, 0)
            elif when > now:
                break
            else:
                heappop(heap)
                again = scope.strike(now)
                if again is not None:
                    self._number += 1
                    heappush(heap, (again, self._number, scope))


of_loop: dict[asyncio.AbstractEventLoop, Deadlines] = {}
"""Those of each loop that has any; ask `deadlines_of` where there are none yet."""


def deadlines_of(loop: asyncio.AbstractEventLoop) -> Deadlines:
    """The deadlines of a loop; those of loops that were closed are let go when a new one comes."""
    found = of_loop.get(loop)
    if found is None:
        for closed in [known for known in list(of_loop) if known.is_closed()]:
            of_loop.pop(closed, None)
        found = of_loop[loop] = Deadlines(loop)
    return found
