"""Bringing free slots and ready tasks together, for one agent of the fleet.

One claim waits for all of an agent's free slots; when it is served, the others claim at once, in one batch. The order
is the store's: priority, then what unblocks most and what is oldest. While the agent's account is parked, or the fleet
is paused, nobody claims; once its account is open again, each slot comes back at a moment of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence

from allswell.domain.address import inbox_role
from allswell.domain.claim import fits
from allswell.domain.command import Claim
from allswell.domain.fleet import AgentSpec
from allswell.domain.listing import TaskFilter
from allswell.domain.names import NO_COMMAND, TaskId
from allswell.domain.service import lets_in, shut
from allswell.engine.handle import Lease
from allswell.engine.signal import Signal, either
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, Unavailable
from allswell.runtime.supervisor.plan import Slot

_WAIT = 5_000
"""Milliseconds after which a waiting claim looks up: a slot may be free, an account parked."""
_MOMENT = 0.5
_PAGE = 1_000


class Dispatch:
    """The dispatcher of one agent."""

    def __init__(
        self,
        watch: Watch,
        spec: AgentSpec,
        slots: Sequence[Slot],
        *,
        lease: int,
        take: Callable[[Slot, Lease], None],
        may: Callable[[], bool],
    ) -> None:
        self.spec = spec
        self.slots = slots
        self.waits = ""
        """Why its free slots take nothing, where something keeps them."""
        self.news = Signal()
        """Fired when a slot is free again, or the fleet may go on."""
        self._watch = watch
        self._lease = lease
        self._take = take
        self._may = may
        self._busy: dict[str, None] = {}

    async def work(self) -> None:
        """Dispatch for ever; whoever cancels this loses no task."""
        while True:
            news = self.news.listen()
            try:
                free = await self._free()
                if not free:
                    await either(news, _MOMENT if self.waits else _WAIT / 1_000)
                    continue
                await self._fill(free)
            except Unavailable:
                await asyncio.sleep(_MOMENT)  # the store is away; it is asked again

    def takes(self, role: str) -> bool:
        """Whether it takes tasks of this role: one of its own, or what its agent is asked itself."""
        own = (self.spec.roles(), (inbox_role(self.spec.name),))
        return any(fits(Claim(NO_COMMAND, self.slots[0].holder, roles), role) for roles in own)

    def freed(self, slot: Slot) -> None:
        """A slot has nothing to do any more."""
        self._busy.pop(slot.holder, None)
        self.news.fire()

    async def _free(self) -> list[Slot]:
        now = asyncio.get_running_loop().time()
        idle = [slot for slot in self.slots if slot.holder not in self._busy and slot.rests_until <= now]
        resting = any(slot.rests_until > now for slot in self.slots)
        self.waits = "could not be started, and is tried again soon" if resting and not idle else ""
        if not self._may():
            self.waits = "the fleet is paused"
            return []
        if not idle:
            return []
        account = (await self._watch.views.view_services()).get(self.spec.limit_of())
        if account is None:
            return idle
        moment = await self._watch.now()
        closed = shut(account, moment)
        let_in = [slot for slot in idle if lets_in(account, slot.holder, moment)]
        if not let_in:
            self.waits = f"{account.id} is {'parked' if closed is None else closed.stand}"
        return let_in

    async def _fill(self, free: Sequence[Slot]) -> None:
        first, *others = free
        if await self._claim(first, _WAIT) and others:
            await asyncio.gather(*(self._claim(slot, 0) for slot in others), return_exceptions=True)

    async def _claim(self, slot: Slot, wait: int) -> bool:
        """Whether a slot has got a task. Nothing is awaited between the two: no cancel can come between them."""
        lease = await self._claim_work(slot, wait)
        if lease is None:
            return False
        self._busy[slot.holder] = None
        self._take(slot, lease)
        return True

    async def _claim_work(self, slot: Slot, wait: int) -> Lease | None:
        """A task of its roles; an agent of which nothing runs is started for what it is asked itself, too."""
        roles = self.spec.roles()
        asked = () if self._busy else (inbox_role(self.spec.name),)  # whoever runs hears of it (mailbox.py)
        if roles is None and asked:
            lease = await self._watch.claim(agent=slot.holder, roles=asked, lease=self._lease)
            if lease is not None:
                return lease
        roles = None if roles is None else (*roles, *asked)
        return await self._watch.claim(agent=slot.holder, roles=roles, wait=wait, lease=self._lease)


async def give_back(watch: Watch, holders: Sequence[str], *, but: Collection[TaskId] = ()) -> int:
    """Release what is held under these names: what an earlier owner of them has left, but for some tasks."""
    mine, after, count = set(holders), "", 0
    while True:
        page = await watch.tasks(TaskFilter(states=("held",), after=after, limit=_PAGE))
        for row in page:
            lease = row.lease
            if lease is not None and lease.agent in mine and lease.task not in but:
                with contextlib.suppress(AllswellError):
                    await watch.held(lease.task, lease.token, lease.agent).release("supervisor_died")
                    count += 1
        if len(page) < _PAGE:
            return count
        after = page[-1].task.id
