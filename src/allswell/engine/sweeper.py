"""The sweeper's loop: look at the agenda, handle what is due, sleep until the next thing could be.

A store that cannot be reached is waited for. A timer whose handling breaks in a way nobody foresaw is set aside for a
while and reported, so that one sick row holds up no other.

After a jump between the wall clock and the monotonic one (the machine slept) nothing is judged before every lease has
got one more window: `mind_the_clock` stands before every look of the sweeper and every batch of the engine. How far the
two clocks were apart is kept in the store, so that a process which was not there before notices it too (ADR 9).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from allswell.engine import sweep
from allswell.engine.batch import Performed
from allswell.engine.batcher import Work, commit
from allswell.engine.book import News
from allswell.engine.pace import Pace
from allswell.engine.signal import Signal, either
from allswell.errors import Unavailable
from allswell.store.call import Call
from allswell.store.port import CommitUnknown, Due, Store, Transaction
from allswell.timing.clock import Clock

log = logging.getLogger(__name__)
_KEPT = "clock"


class Sweeper:
    """One process's share of the sweeping; any number may run on one store."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        pace: Pace,
        draw: Callable[[], float],
        tell: Callable[[News], None],
        call: Callable[[News], Call],
        machine: str | None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._pace = pace
        self._draw = draw
        self._tell = tell
        self._call = call
        self._machine = machine
        """Whose clocks these are; without it, nothing is kept in the store, nor compared with it."""
        self._apart = self._drift()
        """How far the wall was ahead of the monotonic clock when that was last looked at."""
        self._minding = asyncio.Lock()
        self._agenda = Signal()
        self._next_look: float | None = None
        self._set_aside: dict[str, float] = {}
        """Owners of timers and spreads that broke, each with when it is tried again (on the loop's clock)."""

    @property
    def troubles(self) -> Sequence[str]:
        """What could not be handled and is set aside; for those who look after the watch."""
        return list(self._set_aside)

    def hear(self, news: News) -> None:
        """Wake up if something was committed that cannot wait for the next look."""
        if news.spreads or (news.due is not None and (self._next_look is None or news.due < self._next_look)):
            self._agenda.fire()

    async def work(self) -> None:
        """Sweep until cancelled."""
        pause = self._pace.retry_first
        while True:
            news = self._agenda.listen()
            try:
                sleep = await self.sweep()
                pause = self._pace.retry_first
            except (Unavailable, CommitUnknown):  # unknown can only be the end of a look, which has changed nothing
                sleep = pause * (0.5 + self._draw() / 2)
                pause = min(pause * 2, self._pace.retry_most)
            except Exception:
                log.exception("a look at the agenda failed; the next is in %g s", self._pace.retry_most)
                sleep = self._pace.retry_most
            if sleep > 0:
                await either(news, sleep)

    async def sweep(self) -> float:
        """One look at the agenda, and one round of work if there is any; how long to sleep until the next, in s."""
        if self.jumped:
            await self.mind_the_clock()
        agenda = await self._store.view_agenda()
        due = agenda.next_due
        if not agenda.spreads and (due is None or due > agenda.now):
            most = self._pace.sweep_most * (0.75 + self._draw() / 4)
            sleep = most if due is None else min(most, (due - agenda.now) / 1000)
            self._next_look = agenda.now + sleep * 1000
            return sleep
        dues, spreads = await self._store.transact(sweep.look, durable=False)
        loop_now = asyncio.get_running_loop().time()
        self._set_aside = {owner: until for owner, until in self._set_aside.items() if until > loop_now}
        dues = [due for due in dues if due.owner not in self._set_aside]
        worked = bool(dues) and await self._tick(dues)
        for id_ in spreads:
            if id_ not in self._set_aside:
                worked = await self._guarded([id_], lambda tx, id_=id_: sweep.spread(tx, id_)) or worked  # type: ignore[misc]
        return 0.0 if worked else self._pace.sweep_busy * (0.5 + self._draw())

    async def _tick(self, dues: Sequence[Due]) -> bool:
        """Handle timers together; if that breaks, one by one, so that only the sick one is set aside."""
        owners = [due.owner for due in dues]
        if len(dues) == 1:
            return await self._guarded(owners, lambda tx: sweep.tick(tx, dues))
        try:
            return await self._commit(lambda tx: sweep.tick(tx, dues))
        except (Unavailable, CommitUnknown):
            raise
        except Exception:
            log.exception("handling %d timers together failed; trying them one by one", len(dues))
        return any([await self._tick([due]) for due in dues])

    async def _guarded(self, owners: Sequence[str], work: Callable[[Transaction], Awaitable[Performed]]) -> bool:
        try:
            return await self._commit(work)
        except (Unavailable, CommitUnknown):
            raise
        except Exception:
            log.exception("%s cannot be handled and is set aside for %g s", owners[0], self._pace.set_aside)
            self._set_aside[owners[0]] = asyncio.get_running_loop().time() + self._pace.set_aside
            return True

    async def _commit(self, work: Work) -> bool:
        performed = await commit(self._store, work, call=self._call)
        self._tell(performed.news)
        return bool(performed.answers[0])

    # --- when the clocks have come apart ----------------------------------------------------------------------------

    def _drift(self) -> int:
        return self._clock.wall() - self._clock.monotonic()

    def _far(self, one: int, other: int) -> bool:
        return abs(one - other) > self._pace.clock_jump * 1000

    @property
    def jumped(self) -> bool:
        """Whether the clocks have come apart since they were last looked at; then mind them before judging anybody."""
        return not self._store.shared_clock and self._far(self._drift(), self._apart)

    async def look_back(self) -> None:
        """Take up where the last process on this machine left: a jump since then is found like one of our own time."""
        if self._store.shared_clock or self._machine is None:
            return
        kept = await self._recall()
        if kept is not None:
            self._apart = kept
        if kept is None or (not self.jumped and abs(kept - self._drift()) * 2 > self._pace.clock_jump * 1000):
            await self._remember(self._drift())

    async def mind_the_clock(self) -> None:
        """Give every lease one more window, unless another process on this machine has done so since the jump."""
        async with self._minding:
            apart = self._drift()
            if not self._far(apart, self._apart):
                return
            kept = await self._recall()
            if kept is None or self._far(apart, kept):
                await self._give_one_more_window(apart - self._apart)
                await self._remember(apart)
            self._apart = apart

    async def _recall(self) -> int | None:
        """How far the clocks of this machine were apart for whoever looked last; None where nobody has."""
        told = None if self._machine is None else await self._store.recall(_KEPT)
        machine, _, apart = (told or "").rpartition(" ")
        return int(apart) if told and machine == self._machine else None

    async def _remember(self, apart: int) -> None:
        if self._machine is not None:
            await self._store.remember(_KEPT, f"{self._machine} {apart}")

    async def _give_one_more_window(self, jumped: int) -> None:
        after: object = ""
        while isinstance(after, str):
            start = after
            performed = await commit(
                self._store,
                lambda tx, start=start: sweep.wake_up(tx, start, jumped),  # type: ignore[misc]
                call=self._call,
            )
            self._tell(performed.news)
            after = performed.answers[0]
