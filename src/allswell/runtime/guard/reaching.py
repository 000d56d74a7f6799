"""The way to a watch's breakers from wherever a guard is used: from any loop, and from threads without one.

`StoredBreakers` live in the watch's loop. Whoever is there already asks them directly; others are carried there and
wait. Where there is no way (the watch's loop is closed, stayed behind in a fork, or is the very one that is being
blocked), a guard goes by the breakers of this process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from allswell.domain.breaker import BreakerPolicy, Outcome, Permit
from allswell.domain.course import PermitReport
from allswell.domain.incident import GaveUp, RateLimited
from allswell.domain.names import Millis
from allswell.engine.sync import SyncWatch
from allswell.engine.watch import Watch
from allswell.errors import Refused
from allswell.runtime.guard.breakers import Admission, AsyncBreakers, Breakers
from allswell.runtime.guard.stored import StoredBreakers
from allswell.timing.own_loop import OwnLoop

T = TypeVar("T")
log = logging.getLogger("allswell.guard")


class FromLoops:
    """Stored breakers for async code."""

    def __init__(self, stored: StoredBreakers, home: OwnLoop, patience: float) -> None:
        self._stored = stored
        self._home = home
        self._patience = patience
        self.clean = stored.clean

    async def _ask(self, work: Coroutine[Any, Any, T], alone: Callable[[], T]) -> T:
        if self._home.is_here():
            return await work
        carried = self._home.carry(work)
        if carried is None:
            return alone()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(carried), self._patience)
        except TimeoutError:  # its loop is blocked
            return alone()

    async def admit(self, service: str, policy: BreakerPolicy) -> Admission:
        """Let one call through, or say when to ask again."""
        stored = self._stored
        return await self._ask(stored.admit(service, policy), lambda: stored.admit_alone(service, policy))

    async def report(self, permit: Permit, outcome: Outcome, policy: BreakerPolicy) -> PermitReport:
        """Take a permit back with what came of it."""
        stored = self._stored
        asked = stored.report(permit, outcome, policy)
        return await self._ask(asked, lambda: stored.report_alone(permit, outcome, policy))

    async def park(self, service: str, delay: int) -> None:
        """Nobody calls this service for so many milliseconds."""
        own = self._stored.own
        await self._ask(self._stored.park(service, delay), lambda: own.park(service, delay))

    async def parked(self, service: str) -> Millis:
        """How long the service is still parked."""
        own = self._stored.own
        return await self._ask(self._stored.parked(service), lambda: own.parked(service))

    async def note(self, incident: RateLimited | GaveUp) -> None:
        """Keep what happened where others see it, and ask a human where one is needed."""
        own = self._stored.own
        await self._ask(self._stored.note(incident), lambda: own.note(incident))


class FromThreads:
    """Stored breakers for code that blocks."""

    def __init__(self, stored: StoredBreakers, home: OwnLoop, patience: float) -> None:
        self._stored = stored
        self._home = home
        self._patience = patience
        self._warned = False
        self.clean = stored.clean

    def _ask(self, work: Coroutine[Any, Any, T], alone: Callable[[], T]) -> T:
        if self._home.is_here():
            work.close()
            if not self._warned:
                self._warned = True
                log.warning("a guarded call blocks the loop of its own watch, so its breaker is this process's own")
            return alone()
        carried = self._home.carry(work)
        if carried is None:
            return alone()
        try:
            return carried.result(self._patience)
        except (TimeoutError, CancelledError):  # its loop is blocked, or was closed meanwhile
            carried.cancel()
            return alone()

    def admit(self, service: str, policy: BreakerPolicy) -> Admission:
        """Let one call through, or say when to ask again."""
        stored = self._stored
        return self._ask(stored.admit(service, policy), lambda: stored.admit_alone(service, policy))

    def report(self, permit: Permit, outcome: Outcome, policy: BreakerPolicy) -> PermitReport:
        """Take a permit back with what came of it."""
        stored = self._stored
        asked = stored.report(permit, outcome, policy)
        return self._ask(asked, lambda: stored.report_alone(permit, outcome, policy))

    def park(self, service: str, delay: int) -> None:
        """Nobody calls this service for so many milliseconds."""
        own = self._stored.own
        self._ask(self._stored.park(service, delay), lambda: own.park(service, delay))

    def parked(self, service: str) -> Millis:
        """How long the service is still parked."""
        own = self._stored.own
        return self._ask(self._stored.parked(service), lambda: own.parked(service))

    def note(self, incident: RateLimited | GaveUp) -> None:
        """Keep what happened where others see it, and ask a human where one is needed."""
        own = self._stored.own
        self._ask(self._stored.note(incident), lambda: own.note(incident))


_OF: WeakKeyDictionary[Watch, tuple[Breakers, AsyncBreakers]] = WeakKeyDictionary()
"""One set for each watch, whatever the number of its guards."""


def inner_of(watch: Watch | SyncWatch) -> Watch:
    """The watch itself, whichever face of it is given."""
    given: object = watch
    if not isinstance(given, Watch | SyncWatch):
        raise Refused("bad_watch", f"watch must be one that `allswell.open(…)` gives, not {given!r}", where="watch")
    return watch.inner if isinstance(watch, SyncWatch) else watch


def breakers_of(watch: Watch | SyncWatch) -> tuple[Breakers, AsyncBreakers]:
    """The breakers of a watch that is open."""
    inner = inner_of(watch)
    home = inner.own_loop
    if home is None:
        raise Refused(
            "not_open", "a guard needs a watch that is open: use it inside `with allswell.open(…)`", where="watch"
        )
    found = _OF.get(inner)
    if found is None:
        stored = StoredBreakers(inner)
        # An answer takes a look and a command at most, each within its own patience.
        patience = 3 * inner.pace.service_patience
        found = _OF.setdefault(inner, (FromThreads(stored, home, patience), FromLoops(stored, home, patience)))
    return found
