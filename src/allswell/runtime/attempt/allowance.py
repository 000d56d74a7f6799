"""The quota of one attempt, as it is used up (`domain.quota` has the rules)."""

from __future__ import annotations

import asyncio
import contextlib
import math

from allswell.domain import quota as rules
from allswell.domain.hold import Orders
from allswell.domain.quota import TOLD_EVERY, Merging, Quota, Spent
from allswell.engine.handle import Lease
from allswell.errors import AllswellError
from allswell.timing.clock import Clock


class Allowance:
    """What one attempt may still say to the store."""

    def __init__(self, quota: Quota, clock: Clock) -> None:
        self._quota = quota
        self._clock = clock
        self._spent = Spent()
        self._told_at = self._noted_at = -math.inf
        self._later: asyncio.Task[None] | None = None

    def request(self, size: int) -> None:
        """One more request to another agent; `Refused` where that is too much."""
        self._spent = rules.request(self._quota, self._spent, size)

    def question(self, size: int) -> None:
        """One more question; `Refused` where that is too much."""
        self._spent = rules.question(self._quota, self._spent, size)

    async def check_in(self, lease: Lease, note: str, progress: float | None = None) -> Orders | None:
        """Check in, or let one that is told soon stand for this one; None then."""
        now = self._clock.monotonic()
        told, noted = now - self._told_at, now - self._noted_at
        merging, self._spent = rules.check_in(self._quota, self._spent, len(note.encode()), told, noted)
        if merging is Merging.MERGED:
            if self._later is None or self._later.done():
                self._later = asyncio.ensure_future(self._tell_later(lease, TOLD_EVERY - told))
            return None
        self._told_at = now
        if merging is Merging.BARE:
            return await lease.checkin(progress=progress)
        self._noted_at = now
        return await lease.checkin(note, progress=progress)

    async def _tell_later(self, lease: Lease, wait: float) -> None:
        """One for all that were merged: the last of them may be the answer to what was asked."""
        await asyncio.sleep(wait / 1_000)
        if lease.lost is None and not lease.over:
            self._told_at = self._clock.monotonic()
            with contextlib.suppress(AllswellError):
                await lease.checkin()
