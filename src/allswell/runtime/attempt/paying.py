"""Telling the store what an attempt has cost, and having it ended when its task has cost what it may.

Agents report at the end of a session or of a turn. Most end by themselves then, so an attempt that has reached the
limit has a moment to do so before it is ended: what was done well is done.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from allswell.domain.expense import Meter, shown
from allswell.engine.handle import Lease
from allswell.errors import AllswellError

MOMENT = 2.0
"""Seconds in which an agent may end by itself after it has reported."""
_PATIENCE = 10.0
"""Seconds for the store to take note."""


class Paying:
    """Follows what one attempt costs."""

    def __init__(self, lease: Lease, meter: Meter, stop: Callable[[str], None]) -> None:
        self._lease = lease
        self._meter = meter
        self._stop = stop
        self._watching: asyncio.Task[None] | None = None

    def hear(self) -> None:
        """It has said more of what it costs; the store is asked only where there is a limit to reach."""
        if self._lease.max_cost is not None and (self._watching is None or self._watching.done()):
            self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        if await self._tell():
            await asyncio.sleep(MOMENT)
            spent = self._meter.total
            self._stop(f"its task has cost what it may: this attempt {shown(None if spent is None else spent.cost)}")

    async def settle(self) -> bool:
        """It is over: tell all of it; whether its task has reached what it may cost."""
        self.close()
        return await self._tell()

    def close(self) -> None:
        """Watch no more."""
        if self._watching is not None:
            self._watching.cancel()

    async def _tell(self) -> bool:
        expense = self._meter.total
        if expense is None:
            return False
        with contextlib.suppress(AllswellError, TimeoutError):  # money that cannot be told is no reason to fail
            async with asyncio.timeout(_PATIENCE):
                return await self._lease.spend(expense)
        return False
