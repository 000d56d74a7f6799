"""Bringing free slots and ready tasks together, for one agent of the fleet.

One claim waits for all of an agent's free slots; when it is served, the others claim at once, in one batch. The order
is the store's: priority, then what unblocks most and what is oldest. While the agent's account is parked, or the fleet
is paused, no agent claims; once its account is open again, each slot comes back at a moment of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field

from allswell.domain.agents.fleet import MAIN, AgentSpec, Fleet
from allswell.domain.agents.quota import DEFAULT as QUOTA
from allswell.domain.agents.quota import Quota
from allswell.domain.agents.usage import USAGE_LIMIT_PAUSE, Thresholds
from allswell.domain.ids import NO_COMMAND, AgentId, TaskId
from allswell.domain.lease.claim import fits
from allswell.domain.mesh.routing import inbox_role
from allswell.domain.rules.command import Claim
from allswell.domain.service.service import lets_in, shut
from allswell.domain.task.model import TaskFilter
from allswell.engine.budget import NO_BUDGETS, Budgets
from allswell.engine.lease import Lease
from allswell.engine.wakeup import Signal, Waiter, either
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, Unavailable
from allswell.runtime.receipts import StateDir
from allswell.timing.clock import Clock, SystemClock

# The orders of a supervisor: its fleet and its limits, all of them settings.


@dataclass(frozen=True)
class SupervisorPlan:
    """How one supervisor works; lengths of time are milliseconds."""

    fleet: Fleet
    home: StateDir
    name: str = MAIN
    host: str = field(default_factory=socket.gethostname)
    lease: int = 30_000
    stop: int = 30_000
    thresholds: Thresholds = field(default_factory=Thresholds)
    park_limits: bool = True
    limit_pause: int = USAGE_LIMIT_PAUSE
    quota: Quota = QUOTA
    """What each attempt may put into the store."""
    budgets: Budgets = NO_BUDGETS
    """What may be spent in a day."""
    reminder: int | None = 3_600_000
    bring_needs: bool = False
    """Whether a task in a worktree begins with the work of its needs (docs/adr/0079)."""
    conflict_role: str = ""
    """Whose agents resolve what does not merge then; empty: a human is asked."""
    drain: bool = False
    """Stop when nothing is left that this fleet could do."""
    clock: Clock = field(default_factory=SystemClock)
    beside: Sequence[Callable[[Watch], Coroutine[object, object, None]]] = ()
    """What is done beside the fleet for as long as it is watched, such as telling sinks; it must not fail."""
    tell: Callable[[str], None] = lambda _: None
    """Takes a line for the person who watches the supervisor itself."""


@dataclass
class Slot:
    """One place in the fleet: an agent that can hold one task at a time."""

    spec: AgentSpec
    holder: AgentId
    rests_until: float = 0.0
    """On the loop's clock: it could not be started, and is not tried at once again."""


_WAIT = 5_000
"""Milliseconds after which a waiting claim looks up: a slot may be free, an account parked."""
_MOMENT = 0.5
_PAGE = 1_000
_STANDS = {"refused": "refused by its provider, and waits for your answer"}


class Dispatcher:
    """The dispatcher of one agent."""

    def __init__(  # noqa: PLR0913 - five of them are keywords
        self,
        watch: Watch,
        spec: AgentSpec,
        slots: Sequence[Slot],
        *,
        lease: int,
        take: Callable[[Slot, Lease], None],
        hindrance: Callable[[], str],
        trusted: Callable[[], float],
        kept: Callable[[Slot], str] = lambda _: "",
    ) -> None:
        self.spec = spec
        self.slots = slots
        self.waits = ""
        """Why its free slots take nothing, where something keeps them."""
        self.news = Signal()
        """Fired when a slot is free again, or the fleet may go on."""
        self.halt = Signal()
        """Fired when an account is parked, or the fleet paused: what waits for a task here looks again first."""
        self._watch = watch
        self._lease = lease
        self._take = take
        self._hindrance = hindrance
        self._trusted = trusted
        self._account = spec.limit_of()
        self._roles, self._inbox = spec.roles(), (inbox_role(spec.name),)
        """Which tasks it takes; and what its agent is asked itself."""
        self._kept = kept
        """Says of a slot why it takes nothing: processes of an earlier attempt still run there."""
        self._busy: dict[str, None] = {}

    async def work(self) -> None:
        """Dispatch for ever; cancelling this loses no task."""
        while True:
            news, halted = self.news.listen(), self.halt.listen()
            try:
                free, self.waits = await self._free()
                if not free:
                    await either(news, _MOMENT if self.waits else _WAIT / 1_000)
                    continue
                await self._fill(free, halted)
            except Unavailable:
                await asyncio.sleep(_MOMENT)  # the store is away; it is asked again

    def takes(self, role: str) -> bool:
        """Whether it takes tasks of this role: one of its own, or what its agent is asked itself."""
        own = (self._roles, self._inbox)
        return any(fits(Claim(NO_COMMAND, self.slots[0].holder, roles), role) for roles in own)

    def freed(self, slot: Slot) -> None:
        """A slot has nothing to do any more."""
        self._busy.pop(slot.holder, None)
        self.news.fire()

    async def _free(self) -> tuple[list[Slot], str]:
        """The slots that may take a task, and what keeps them if none may; read at once, never in between."""
        now = asyncio.get_running_loop().time()
        idle = [slot for slot in self.slots if slot.holder not in self._busy and slot.rests_until <= now]
        resting = any(slot.rests_until > now for slot in self.slots)
        if hindrance := self._hindrance():
            return [], hindrance
        kept = {slot.holder: why for slot in idle if (why := self._kept(slot))}
        if idle and len(kept) == len(idle):
            return [], next(iter(kept.values()))
        idle = [slot for slot in idle if slot.holder not in kept]
        if not idle:
            return [], "could not be started, and is tried again soon" if resting else ""
        account = (await self._watch.views.view_services()).get(self._account)
        if account is None:
            return idle, ""
        moment = await self._watch.now()
        closed = shut(account, moment)
        let_in = [slot for slot in idle if lets_in(account, slot.holder, moment)]
        if let_in:
            return let_in, ""
        stand = "parked" if closed is None else str(closed.stand)
        return [], f"{account.id} is {_STANDS.get(stand, stand)}"

    async def _fill(self, free: Sequence[Slot], halted: Waiter) -> None:
        first, *others = free
        if await self._claim(first, _WAIT, halted) and others:
            await asyncio.gather(*(self._claim(slot, 0, halted) for slot in others), return_exceptions=True)

    async def _claim(self, slot: Slot, wait: int, halted: Waiter) -> bool:
        """Whether a slot has got a task. What was claimed and is not begun is given back, a cancel or not.

        A claim that waits out an outage would be served when the store is back, under a name that may be lost by then.
        One that waits while its account is parked would be served with what another has just been refused.
        """
        lease = await self._claim_unless(slot, wait, halted)
        if lease is None:
            return False
        back = "supervisor_stopped"
        try:
            back = await self._why_not(slot)
        finally:
            if back:
                lease.over = True
                await asyncio.shield(asyncio.ensure_future(self._give_back(lease, back)))
        if back:
            return False
        self._busy[slot.holder] = None
        self._take(slot, lease)
        return True

    async def _give_back(self, lease: Lease, reason: str) -> None:
        """Release what was not begun; that its task was cancelled, or that the store is away, ends nothing here."""
        with contextlib.suppress(AllswellError):  # what is still ours lapses with its lease
            await self._watch.held(lease.task, lease.token, lease.agent).release(reason)

    async def _claim_unless(self, slot: Slot, wait: int, halted: Waiter) -> Lease | None:
        """Claim; nothing, once our name may be lost or we are halted."""
        halting = asyncio.ensure_future(halted.wait())
        try:
            async with asyncio.timeout(self._trusted()) as limit:

                def stop(done: asyncio.Future[None]) -> None:
                    with contextlib.suppress(RuntimeError):  # the claim is over already
                        if not done.cancelled():
                            limit.reschedule(done.get_loop().time())

                halting.add_done_callback(stop)
                return await self._claim_work(slot, wait)
        except TimeoutError:
            return None
        finally:
            halting.cancel()

    async def _why_not(self, slot: Slot) -> str:
        """Why a task that was claimed just now is given back; empty: it is begun."""
        if not self._trusted():  # we stood still meanwhile
            return "supervisor_stopped"
        if self._hindrance():
            return "fleet_paused"
        with contextlib.suppress(Unavailable):
            free, _ = await self._free()
            return "" if slot in free else "usage_limit"
        return ""

    async def _claim_work(self, slot: Slot, wait: int) -> Lease | None:
        """A task of its roles; an agent of which nothing runs is started for what it is asked itself, too."""
        roles = self._roles
        asked = () if self._busy else self._inbox  # agents at work hear of it (`Mailbox`)
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
