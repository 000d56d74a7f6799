"""Sweeping out what finished tasks leave behind, as often as the work makes it necessary.

A claimed task leaves a dead entry at the very front of the index that the next pick reads from. Entries are dropped as
they are met, but the pages they stood in stay until a vacuum, and every pick walks through all of them: after 300,000
tasks, 2,100 empty pages and 1.7 ms for each pick (PostgreSQL 15, seen). The server's own vacuum looks in once a minute;
a busy queue needs it sooner. So each process counts the rows it takes out of `ready`, and vacuums the two tables that
turn over with them once that many have gone. A vacuum so early finds little to do and holds up nobody: it takes no lock
that a reader or a writer would meet, passes over a table that is being vacuumed, and gives no space back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from allswell.errors import AllswellError


class Broom:
    """Counts what has gone, and sweeps in the background when it is time; a sweep that fails is left to the next."""

    def __init__(self, sweep: Callable[[], Awaitable[None]], every: int) -> None:
        self._sweep = sweep
        self._every = every
        self._gone = 0
        self._sweeping: asyncio.Task[None] | None = None

    def count(self, gone: int) -> None:
        """So many rows have left; called on the event loop."""
        self._gone += gone
        if self._gone >= self._every and (self._sweeping is None or self._sweeping.done()):
            self._gone = 0
            self._sweeping = asyncio.get_running_loop().create_task(self._run(), name="allswell-postgres-broom")

    async def _run(self) -> None:
        try:
            await self._sweep()
        except AllswellError:
            return  # the server is away or busy: its own vacuum will do, or our next

    async def close(self, timeout: float) -> None:
        """Let a sweep under way end within this time; nothing depends on it."""
        sweeping = self._sweeping
        if sweeping is not None:
            await asyncio.wait([sweeping], timeout=timeout)
            sweeping.cancel()
