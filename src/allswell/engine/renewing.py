"""Renewing what a watch holds, for as long as it is open.

A lease is due at a third of its length. Those that would be due soon after come along: so the leases of a fleet, taken
at two hundred different moments, are renewed in a few batches and soon all at once, and not in two hundred.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from allswell.domain.command import CheckIn
from allswell.domain.hold import Orders
from allswell.engine.backend import Backend
from allswell.engine.handle import Lease
from allswell.engine.signal import Signal, either
from allswell.errors import AllswellError

_SOON = 6_000
"""A lease comes along that would be due within a sixth of its length (which is in milliseconds)."""
_NOTHING_HELD = 60.0


class Renewing:
    """The leases of one watch that have to be renewed."""

    def __init__(self, engine: Backend) -> None:
        self._engine = engine
        self._held: dict[tuple[str, int], Lease] = {}
        self._sooner = Signal()
        self._next = 0.0
        """When the next look is due, on the loop's clock."""

    def hold(self, lease: Lease) -> None:
        """Renew this one too, from now on."""
        self._held[(lease.task, lease.token)] = lease
        due = lease.renew_at
        if due is not None and due < self._next:
            self._sooner.fire()

    async def work(self) -> None:
        """Renew every lease in time, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            news = self._sooner.listen()
            self._held = {key: lease for key, lease in self._held.items() if not lease.over and lease.lost is None}
            moments = [(due, lease) for lease in self._held.values() if (due := lease.renew_at) is not None]
            now = loop.time()
            self._next = min((due for due, _ in moments), default=now + _NOTHING_HELD)
            if self._next > now:
                await either(news, self._next - now)
                continue
            due_soon = [lease for due, lease in moments if due <= now + (lease.length or 0) / _SOON]
            try:
                answers = await say_many(self._engine, due_soon, proof=False)
            except AllswellError:
                answers = []  # the store is away: the leases lapse, or it comes back in time
            if not any(isinstance(answer, Orders) for answer in answers):
                await asyncio.sleep(self._engine.pace.retry_first)


async def say_many(engine: Backend, leases: Sequence[Lease], *, proof: bool) -> list[Orders | AllswellError]:
    """Check in on many leases at once; orders, or what went wrong, for each."""
    sent = asyncio.get_running_loop().time()
    said = [CheckIn(lease.task, lease.token, lease.agent, proof) for lease in leases]
    answers = await engine.check_in_many(said)
    return [lease.heard(answer, sent) for lease, answer in zip(leases, answers, strict=True)]
