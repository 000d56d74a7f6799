"""The store's clock: the wall clock, but never behind a moment that was already told or stored.

What was told in this process is kept in memory. What was stored is read off the newest event: writers are serial and
stamp events with this clock, so it is the greatest. When a store is opened, the last renewal of a lease counts too,
so that beats, which leave no event, are not forgotten by a restart. Nothing is written for the clock's sake.

A wall that was set back makes the clock stand still until the wall has caught up; it never makes it go back.
"""

from __future__ import annotations

import threading

from allswell.domain.names import Millis
from allswell.timing.clock import Clock


class StoreClock:
    """Moments that never go back; asked by the writer's and the views' threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0
        self._guard = threading.Lock()

    def now(self, stored: int) -> Millis:
        """The present moment, not before the stored one."""
        with self._guard:
            self._last = max(self._last, stored, self._clock.wall())
            return Millis(self._last)
