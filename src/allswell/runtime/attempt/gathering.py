"""Gathering an attempt's evidence while it runs: what it says, what it prints, what its processes and its folder show.

Looks are taken a few times within the idle limit, and not more often than they are cheap; those of several attempts
together (`tower`). Before an attempt is called idle, one more is taken (`look_now`): no verdict is older than
the moment it is given.

While somebody else works in the same folder, it is not looked at: a file does not say who wrote it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from allswell.domain.evidence import Evidence, Look, Sign, Standing, at_work
from allswell.domain.expense import Expense, Meter
from allswell.domain.protocol import Said
from allswell.runtime.attempt.neighbours import WorkPlace
from allswell.runtime.attempt.order import Order
from allswell.runtime.attempt.streams import Streams
from allswell.runtime.attempt.tower import Tower
from allswell.runtime.evidence import WorkLook
from allswell.timing.clock import Clock

_SELDOM = 5.0
"""Seconds between two looks at the processes, at most."""
_OFTEN = 0.1
_WORK_SELDOM = 10.0
_WORK_SHARE = 50
"""A look at the folder may take this fraction of the time between two of them."""
_FIRST = 1.0
"""Seconds by which the first look at the folder may be older than the attempt, if somebody else has taken one."""


class Gathering:
    """What one attempt has shown so far."""

    def __init__(
        self, order: Order, place: WorkPlace | None, clock: Clock, tell: Callable[[Evidence], None], tower: Tower
    ) -> None:
        self.standing = Standing(clock.monotonic())
        self.session: tuple[str, str] | None = None
        """The agent's own session, where its protocol names it: dialect and id."""
        self.meter = Meter()
        """What it has said of its cost."""
        self.on_cost: Callable[[], None] | None = None
        """Called when it has said more of it."""
        self.neighbour: str | None = None
        """Who works in the same folder, as of the last look: then files are no evidence."""
        self._order = order
        self._clock = clock
        self._tell = tell
        self._tower = tower
        self._loop = asyncio.get_running_loop()
        self._place = place
        self._work = None if place is None else WorkLook(place.folder, ours=order.store)
        self._work_seen = 0.0
        """When the folder was looked at last, on the loop's clock."""
        self._before: Look | None = None
        idle = order.limits.idle
        self._every = _SELDOM if idle is None else min(max(idle / 8_000, _OFTEN), _SELDOM)
        self._work_every = _WORK_SELDOM if idle is None else min(max(idle / 4_000, _OFTEN), _WORK_SELDOM)
        self._looking = asyncio.Lock()

    def heard(self, sign: Sign, what: str) -> None:
        """Note something; on the loop."""
        seen = Evidence(sign, self._clock.monotonic(), what[:500])
        self.standing = self.standing.heard(seen)
        self._tell(seen)

    def note(self, seen: Evidence) -> None:
        """Note evidence that somebody else has gathered."""
        self.standing = self.standing.heard(seen)

    def said(self, said: Said) -> None:
        """A line of a protocol has passed; in a pump's thread."""
        with contextlib.suppress(RuntimeError):  # the loop has been closed, and nobody wants to know any more
            self._loop.call_soon_threadsafe(self._hear_line, said)

    def _hear_line(self, said: Said) -> None:
        if said.session is not None:
            self.session = (said.dialect, said.session)
        if said.progress:
            self.heard(Sign.PROTOCOL, f"{said.dialect}: {said.what}")

    def reported(self, line: bytes) -> None:
        """A line has passed that may say what it cost; in a pump's thread."""
        with contextlib.suppress(RuntimeError):  # the loop has been closed, and nobody wants to know any more
            self._loop.call_soon_threadsafe(self._hear_cost, line)

    def spent(self, more: Expense) -> None:
        """It has said outright what it cost."""
        self.meter.add(more)
        if self.on_cost is not None:
            self.on_cost()

    def _hear_cost(self, line: bytes) -> None:
        if self.meter.hear(line) and self.on_cost is not None:
            self.on_cost()

    def begin(self) -> None:
        """The command is about to start: what changes from now on counts."""
        if self._work is not None and self._place is not None:
            self._tower.come(self._place)
            self._work_seen = self._loop.time()
            self._work.begin()

    def end(self) -> None:
        """It is over."""
        if self._place is not None:
            self._tower.leave(self._place)

    async def watch(self, reaper: int, streams: Streams) -> None:
        """Look now and then, for as long as the attempt runs."""
        due_work, may_be_old = 0.0, min(self._work_every / 10, _FIRST)
        while True:
            now = self._loop.time()
            took = await self._look(reaper, streams, work_since=now - may_be_old if now >= due_work else None)
            if took is not None:
                due_work = now + max(self._work_every, took * _WORK_SHARE)
                may_be_old = self._work_every / 2
            await self._tower.pause(self._every)

    async def look_now(self, reaper: int, streams: Streams) -> None:
        """One more look at everything, before a verdict."""
        await self._look(reaper, streams, work_since=self._loop.time())

    async def _look(self, reaper: int, streams: Streams, *, work_since: float | None) -> float | None:
        """Look at the processes, and at the folder if wanted; the seconds that a look at the folder took."""
        async with self._looking:
            processes = await self._tower.look_at(reaper)
            now = Look(self._clock.monotonic(), processes, streams.printed, streams.new)
            streams.asked()
            before, self._before = self._before, now
            if before is not None:
                if now.printed > before.printed:
                    news = "" if now.new > before.new else ", nothing of it new"
                    self.heard(Sign.OUTPUT, f"{now.printed - before.printed} bytes{news}")
                working = at_work(before, now, self._order.limits.busy)
                if working is not None:
                    self.heard(Sign.PROCESS, working)
            return None if work_since is None else await self._look_at_work(work_since)

    async def last_look(self) -> None:
        """A look at the folder alone, when everybody has been stopped: what was written last was progress, too."""
        async with self._looking:
            await self._look_at_work(self._loop.time())

    async def _look_at_work(self, no_older: float) -> float | None:
        """Look at the folder, if it tells anything; the seconds that it took."""
        if self._work is None or self._place is None or self._before is None:
            return None
        since, self._work_seen = self._work_seen, self._loop.time()
        left, self.neighbour = (
            self.neighbour,
            await self._tower.neighbour(self._place, self._before.processes, since=since),
        )
        if left is not None or self.neighbour is not None:  # one who has left may have written until then
            self._work.begin()
            return 0.0
        seen = await self._tower.look_at_work(self._work, since=no_older)
        changed = self._work.changed(seen.prints)
        if changed is not None:
            self.heard(Sign.WORK, f"{changed} changed" if not changed.endswith(")") else changed)
        return seen.took
