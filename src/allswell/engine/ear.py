"""How a process takes calls from others: at once while they are rare, ever more seldom while they lead to nothing.

Every call costs each waiting process a look at the store. A fleet that waits for one kind of work would look ten
thousand times for nothing while others are busy with another kind. So after each call the next one is heard only
after a pause, which doubles up to the pace of polling; a look that found something, or a quiet while, takes it back
to the beginning. What arrives during a pause is not lost: it is one call at its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_FIRST = 0.005


class Ear:
    """Passes calls on to `ring`, and bounds how often; `most` is the longest pause, in seconds."""

    def __init__(self, ring: Callable[[], None], *, most: float) -> None:
        self._ring = ring
        self._most = most
        self._pause = min(_FIRST, most)
        self._open_at = 0.0
        self._later: asyncio.TimerHandle | None = None
        self._closed = False

    def call(self) -> None:
        """Somebody called."""
        if self._closed or self._later is not None:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now >= self._open_at:
            if now >= self._open_at + self._most:
                self.rewarded()
            self._pass_on()
        else:
            self._later = loop.call_at(self._open_at, self._pass_on)

    def rewarded(self) -> None:
        """A look found something: calls are worth hearing."""
        self._pause = min(_FIRST, self._most)

    def close(self) -> None:
        """Hear nothing more."""
        self._closed = True
        if self._later is not None:
            self._later.cancel()
            self._later = None

    def _pass_on(self) -> None:
        self._later = None
        self._open_at = asyncio.get_running_loop().time() + self._pause
        self._pause = min(self._pause * 2, self._most)
        self._ring()
