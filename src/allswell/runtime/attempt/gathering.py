"""Gathering an attempt's evidence while it runs: what it says, what it prints, what its processes and its folder show.

Looks are taken a few times within the idle limit, and not more often than they are cheap; those of several attempts
together (`tower`). Before an attempt is called idle, one more is taken (`look_now`): no verdict is older than
the moment it is given.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from allswell.domain.evidence import Evidence, Look, Sign, Standing, at_work
from allswell.domain.protocol import Said
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

    def __init__(self, order: Order, clock: Clock, tell: Callable[[Evidence], None], tower: Tower) -> None:
        self.standing = Standing(clock.monotonic())
        self.session: tuple[str, str] | None = None
        """The agent's own session, where its protocol names it: dialect and id."""
        self._order = order
        self._clock = clock
        self._tell = tell
        self._tower = tower
        self._loop = asyncio.get_running_loop()
        self._work = None if order.folder is None else WorkLook(order.folder, ours=order.store)
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
            if work_since is None or self._work is None:
                return None
            seen = await self._tower.look_at_work(self._work, since=work_since)
            changed = self._work.changed(seen.prints)
            if changed is not None:
                self.heard(Sign.WORK, f"{changed} changed" if not changed.endswith(")") else changed)
            return seen.took
