"""Telling the store that an agent's protocol shows progress: it answers an asked-for check-in (O2).

A stream of tokens is one check-in now and then, not a thousand; how often is the lease's to say (`domain.checkin`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from allswell.domain.evidence import Sign, Standing
from allswell.engine.handle import Lease
from allswell.errors import AllswellError
from allswell.timing.clock import Clock


class Teller:
    """Says for one attempt what its protocol says, between `begin` and `end`."""

    def __init__(self, lease: Lease, standing: Callable[[], Standing], clock: Clock) -> None:
        self._lease = lease
        self._standing = standing
        self._clock = clock
        self._on = False
        self._told_at = 0
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """It runs; it may have spoken while it was being started."""
        self._on = True
        self.soon()

    def soon(self) -> None:
        """It has spoken."""
        if self._on and (self._task is None or self._task.done()):
            self._task = asyncio.ensure_future(self._tell())

    def end(self) -> None:
        """Tell nothing new; what is being told may still arrive."""
        self._on = False

    def close(self) -> None:
        """Tell nothing any more."""
        if self._task is not None:
            self._task.cancel()

    async def _tell(self) -> None:
        while (seen := self._standing().last.get(Sign.PROTOCOL)) is not None and seen.at > self._told_at:
            await asyncio.sleep(max(self._told_at + self._lease.tells_every - self._clock.monotonic(), 0) / 1_000)
            self._told_at = self._clock.monotonic()
            with contextlib.suppress(AllswellError):  # a loss stands in the lease; that the store is away passes
                await self._lease.checkin()
