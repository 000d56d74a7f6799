"""The deadlines of one event loop: a heap of our own, behind a single timer of the loop.

`asyncio.timeout` sets a timer of the loop for every block and cancels it again. Here a block costs a push on a heap
and, mostly, a pop off one of its ends: the loop's timer is set for the nearest deadline only and stays where it is when
that block ends early. When it fires with nothing due, it is set for what is then the nearest.
"""

from __future__ import annotations

import asyncio
import time
from contextvars import Context
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from allswell.timing.per_loop import PerLoop

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

    def remove(self, scope: Scope) -> None:
        """Forget a scope that was left: at once where it came first, else when half of the heap is dead."""
        heap = self.heap
        if heap and heap[0][2] is scope:
            heappop(heap)
            return
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


of_loop = PerLoop(Deadlines)
