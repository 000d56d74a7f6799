"""Where breakers live: the protocol that guards speak, and the one that keeps them in this process.

Two questions and a note: may this service be called (`admit`), what came of it (`report`), and everybody has to wait
(`park`). A store can answer them as well as a dictionary: the rules stand in `domain.service.breaker`, the row is a
`Service`, and no moment leaves here, only lengths of time.

**A call that goes well costs nothing.** `clean` answers without I/O and without a lock: it gives the permit that
everybody gets while nothing is known against a service. Who still finds the same permit there afterwards has nothing to
report, because nothing has changed that a success could change back.

In this process breakers are shared by all its threads and loops. After a fork the child has a copy of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary, ref

import msgspec

from allswell.domain.ids import Millis
from allswell.domain.rules.event import Event
from allswell.domain.service import breaker
from allswell.domain.service.breaker import (
    CLEAN,
    BreakerNotice,
    BreakerPolicy,
    CallOutcome,
    CallRefused,
    Permit,
    Service,
)
from allswell.domain.service.calls import ServiceReply
from allswell.domain.service.guard import NOTHING, PermitReport
from allswell.domain.service.incident import GaveUp, RateLimited
from allswell.domain.service.service import ServiceRow
from allswell.engine.sync import SyncWatch
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, Bug, Refused, Unavailable
from allswell.timing.clock import Clock, SystemClock
from allswell.timing.loops import OwnLoop


class CallAdmission(msgspec.Struct, frozen=True):
    """The answer to "may I call it?", and what came to light by asking."""

    given: Permit | CallRefused
    failures: int = 0
    effects: tuple[BreakerNotice, ...] = ()


class Breakers(Protocol):
    """The breakers of many services; to be used by any thread."""

    def clean(self, service: str) -> Permit | None:
        """The permit for a service that nothing is known against, without asking anybody."""
        ...

    def admit(self, service: str, policy: BreakerPolicy) -> CallAdmission:
        """Let one call through, or say when to ask again."""
        ...

    def report(self, permit: Permit, outcome: CallOutcome, policy: BreakerPolicy) -> PermitReport:
        """Take a permit back with what came of it."""
        ...

    def park(self, service: str, delay: int) -> None:
        """Nobody calls this service for so many milliseconds."""
        ...

    def parked(self, service: str) -> Millis:
        """How long the service is still parked."""
        ...

    def note(self, incident: RateLimited | GaveUp) -> None:
        """Keep what happened where others see it, and ask a human where one is needed."""
        ...


class AsyncBreakers(Protocol):
    """The same for a place that has to be waited for."""

    def clean(self, service: str) -> Permit | None:
        """The permit for a service that nothing is known against, without asking anybody."""
        ...

    async def admit(self, service: str, policy: BreakerPolicy) -> CallAdmission:
        """Let one call through, or say when to ask again."""
        ...

    async def report(self, permit: Permit, outcome: CallOutcome, policy: BreakerPolicy) -> PermitReport:
        """Take a permit back with what came of it."""
        ...

    async def park(self, service: str, delay: int) -> None:
        """Nobody calls this service for so many milliseconds."""
        ...

    async def parked(self, service: str) -> Millis:
        """How long the service is still parked."""
        ...

    async def note(self, incident: RateLimited | GaveUp) -> None:
        """Keep what happened where others see it, and ask a human where one is needed."""
        ...


class _ServiceCell:
    """One service: its row, and the permit that everybody gets while the row is clean."""

    __slots__ = ("clean", "service")

    def __init__(self, name: str) -> None:
        self.service = CLEAN
        self.clean: Permit | None = Permit(name, CLEAN.generation)

    def become(self, name: str, service: Service) -> None:
        self.service = service
        untouched = Service(generation=service.generation)
        if service != untouched:
            self.clean = None
        elif self.clean is None or self.clean.generation != service.generation:
            self.clean = Permit(name, service.generation)


class MemoryBreakers:
    """The breakers of this process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = SystemClock() if clock is None else clock
        self._cells: dict[str, _ServiceCell] = {}
        self._lock = threading.Lock()
        # A thread of the parent may hold the lock at the fork, and is not there any more to let go of it.
        forgets = weakref.WeakMethod(self._forked)
        os.register_at_fork(after_in_child=lambda: (own := forgets()) is not None and own())

    def _forked(self) -> None:
        self._lock = threading.Lock()

    def _cell(self, service: str) -> _ServiceCell:
        found = self._cells.get(service)
        return self._cells.setdefault(service, _ServiceCell(service)) if found is None else found

    def clean(self, service: str) -> Permit | None:
        """The permit for a service that nothing is known against, without asking anybody."""
        found = self._cells.get(service)
        return self._cell(service).clean if found is None else found.clean

    def admit(self, service: str, policy: BreakerPolicy) -> CallAdmission:
        """Let one call through, or say when to ask again."""
        with self._lock:
            cell = self._cell(service)
            given, change = breaker.admit(service, cell.service, policy, self._clock.monotonic())
            cell.become(service, change.service)
            if isinstance(given, Permit) and not given.probe and cell.clean is not None:
                given = cell.clean
            return CallAdmission(given, change.service.failures, change.effects)

    def report(self, permit: Permit, outcome: CallOutcome, policy: BreakerPolicy) -> PermitReport:
        """Take a permit back with what came of it."""
        with self._lock:
            cell = self._cell(permit.service)
            now = self._clock.monotonic()
            change = breaker.report(cell.service, policy, permit, outcome, now)
            cell.become(permit.service, change.service)
            service = change.service
            return PermitReport(
                breaker.answer(service, policy),
                breaker.pause_left(service, now),
                service.generation,
                service.failures,
                change.effects,
            )

    def park(self, service: str, delay: int) -> None:
        """Nobody calls this service for so many milliseconds."""
        with self._lock:
            cell = self._cell(service)
            cell.become(service, breaker.park(cell.service, self._clock.monotonic() + delay))

    def parked(self, service: str) -> Millis:
        """How long the service is still parked."""
        until = self._cell(service).service.parked_until
        return Millis(0 if until is None else max(until - self._clock.monotonic(), 0))

    def note(self, incident: RateLimited | GaveUp) -> None:
        """Nobody else sees what happens in this process: the log and the guard's hook have told it."""

    def answered(self, service: str) -> None:
        """A human says: try it now."""
        with self._lock:
            cell = self._cell(service)
            cell.become(service, breaker.answered(cell.service, self._clock.monotonic()))

    def adopt(self, service: str, failures: int) -> None:
        """Go on with a service that is known to be shut elsewhere: its next caller here is the probe."""
        with self._lock:
            cell = self._cell(service)
            now = Millis(self._clock.monotonic())
            cell.become(service, Service(failures, cell.service.generation + 1, open_until=now))

    def standing(self, service: str) -> tuple[breaker.BreakerState, Service]:
        """Where a service's breaker stands now, and the row behind it: for whoever wants to see."""
        found = self._cell(service).service
        return breaker.stand(found, self._clock.monotonic()), found

    def forget(self, service: str) -> None:
        """Start afresh with a service; calls that are under way have no say any more."""
        with self._lock:
            cell = self._cell(service)
            cell.become(service, Service(generation=cell.service.generation + 1))


class InstantBreakers:
    """Breakers that answer at once, for those who wait for an answer."""

    def __init__(self, breakers: Breakers) -> None:
        self._breakers = breakers
        self.clean = breakers.clean

    async def admit(self, service: str, policy: BreakerPolicy) -> CallAdmission:
        """Let one call through, or say when to ask again."""
        return self._breakers.admit(service, policy)

    async def report(self, permit: Permit, outcome: CallOutcome, policy: BreakerPolicy) -> PermitReport:
        """Take a permit back with what came of it."""
        return self._breakers.report(permit, outcome, policy)

    async def park(self, service: str, delay: int) -> None:
        """Nobody calls this service for so many milliseconds."""
        self._breakers.park(service, delay)

    async def parked(self, service: str) -> Millis:
        """How long the service is still parked."""
        return self._breakers.parked(service)

    async def note(self, incident: RateLimited | GaveUp) -> None:
        """Keep what happened where others see it, and ask a human where one is needed."""
        self._breakers.note(incident)


SHARED = MemoryBreakers()
"""The breakers of every guard that is not given others."""


T = TypeVar("T")
log = logging.getLogger("allswell.guard")
LOOK_AGAIN = 1_000
"""How long a store that could not be reached is left alone."""
UNSHARED = 60_000
"""How long a service goes by this process's own breaker once the key was refused a word on it."""


class OwnPermit(Permit, frozen=True):
    """A permit of this process's own breakers, given while the store was away."""


class _KnownService(NamedTuple):
    """What was last heard of a service."""

    heard: int
    state: Service
    clean: Permit | None
    """What everybody gets while nothing is held against it."""


class StoredBreakers:
    """The breakers of one watch; used in its loop only, but for `clean` and what goes without the store.

        async with allswell.open(url) as watch:
            guard = allswell.guard("anthropic", watch=watch)

    **A call that goes well asks nobody.** What was last heard of the services is trusted for `pace.service_trust` (1
    s):
    as long as nothing is held against a service, calls are let through by what is known here, and a success is told to
    nobody.
    After that one look at the store, for all services and all callers together, is good for the next while; it locks
    and
    writes nothing. So a breaker that another process has opened is seen here within that time. As soon as anything is
    held against a service, every call asks, and every result is told. A failure is always told.

    **Everything is bounded.** An answer is waited for up to `pace.service_patience` (2 s). What was sent goes on
    without
    its caller, cancelled or not: a report is not lost, and a probe that was given to somebody who has gone is given
    back.

    **Without the store it goes on.** While the store cannot be reached, guards go by breakers of this process (fail
    open,
    logged once): each process then finds out for itself. One that knew a service to be shut begins half-open, with a
    probe of its own. What happened meanwhile is not told to the store afterwards: it would be old news.

    All of it runs in the watch's own loop. Callers in other loops and threads are carried there; a function that blocks
    the watch's own loop cannot be, and goes by this process's breakers.
    """

    def __init__(self, watch: Watch) -> None:
        self._open = ref(watch)  # whoever holds these breakers must not keep it alive
        self._clock = watch.clock
        self._trust = round(watch.pace.service_trust * 1_000)
        self._patience = watch.pace.service_patience
        self._known: dict[str, _KnownService] = {}
        self._looking: asyncio.Task[dict[str, ServiceRow]] | None = None
        self._sent: set[asyncio.Task[Any]] = set()
        self._away_until: int | None = None
        self._unshared: dict[str, int] = {}
        """Services on which the key has no word, since no task that it holds uses them, and until when that counts."""
        self.own = MemoryBreakers(self._clock)

    @property
    def _watch(self) -> Watch:
        watch = self._open()
        if watch is None:
            raise Unavailable("the store is closed")
        return watch

    # --- what is known ------------------------------------------------------------------------------------------------

    def clean(self, service: str) -> Permit | None:
        """The permit for a service that nothing is known against, without asking anybody."""
        known = self._known.get(service)
        if known is None or self._clock.monotonic() - known.heard >= self._trust or service in self._unshared:
            return None
        return known.clean

    def _learn(self, service: str, state: Service, heard: int) -> None:
        before = self._known.get(service)
        permit = None
        if state == Service(generation=state.generation):
            old = None if before is None else before.clean
            permit = (
                old if old is not None and old.generation == state.generation else Permit(service, state.generation)
            )
        self._known[service] = _KnownService(heard, state, permit)

    async def _look(self, service: str) -> Permit | None:
        """The permit for a service that nothing is held against, asking the store if that was too long ago."""
        known = self._known.get(service)
        if known is None or self._clock.monotonic() - known.heard >= self._trust:
            heard = self._clock.monotonic()
            if self._looking is None:
                self._looking = self._start(self._watch.views.view_services())
                self._looking.add_done_callback(self._looked)
            rows = await self._bounded(self._looking)
            for name in dict.fromkeys((*rows, *self._known, service)):
                known = self._known.get(name)
                if known is None or known.heard < heard:  # what was answered since is newer than what was seen
                    self._learn(name, rows[name].state if name in rows else CLEAN, heard)
            known = self._known[service]
        return known.clean

    def _looked(self, task: asyncio.Task[dict[str, ServiceRow]]) -> None:
        if self._looking is task:
            self._looking = None

    # --- sending ------------------------------------------------------------------------------------------------------

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin something that goes on without whoever wanted it."""
        task = asyncio.ensure_future(work)
        self._sent.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._sent.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited for it was told

    async def _bounded(self, task: asyncio.Task[T]) -> T:
        """The outcome of what was begun, or `Unavailable` when patience ends; what was begun goes on."""
        done, _ = await asyncio.wait({task}, timeout=self._patience)
        if not done:
            raise Unavailable(f"the store has not answered within service_patience {self._patience:g} s")
        if task.cancelled():
            raise Unavailable("the watch was closed before the store answered")
        result = task.result()
        if self._away_until is not None:
            self._away_until = None
            log.info("the store is back: breakers are shared again")
        return result

    async def _told(self, service: str, task: asyncio.Task[ServiceReply]) -> ServiceReply:
        """What the store says of a service, once it does; that is what is known of it then."""
        told = await self._bounded(task)
        self._learn(service, told.state, self._clock.monotonic())
        return told

    async def _admitted(self, service: str, policy: BreakerPolicy) -> ServiceReply:
        task = self._start(self._watch.admit(service, policy))
        try:
            return await self._told(service, task)
        except BaseException:
            task.add_done_callback(lambda late: self._give_back(late, policy))
            raise

    def _give_back(self, task: asyncio.Task[ServiceReply], policy: BreakerPolicy) -> None:
        """A probe that was given to somebody who has gone would keep the service shut until its lease ends."""
        watch = self._open()
        if watch is None or task.cancelled() or task.exception() is not None:
            return
        given = task.result().given
        if isinstance(given, Permit) and given.probe:
            self._start(watch.report(given, CallOutcome.UNTOLD, policy))

    # --- the store is away --------------------------------------------------------------------------------------------

    def _away(self) -> bool:
        """Whether the store is left alone for now; from time to time one caller tries it again for all."""
        if self._away_until is None:
            return False
        now = self._clock.monotonic()
        if now < self._away_until:
            return True
        self._away_until = now + round(self._patience * 1_000) + LOOK_AGAIN
        return False

    def _is_unshared(self, service: str) -> bool:
        until = self._unshared.get(service)
        if until is not None and self._clock.monotonic() >= until:
            del self._unshared[service]
        return service in self._unshared

    def _refused(self, service: str, error: Refused) -> None:
        """The key has no word on a service; anything else that is refused is for whoever has called."""
        if error.code != "not_allowed":
            raise error
        if service not in self._unshared:
            log.warning("the breaker of %s is this process's own: %s", service, error.message)
        self._unshared[service] = self._clock.monotonic() + UNSHARED

    def _gone(self, error: Unavailable | Bug) -> None:
        if self._away_until is None:
            log.warning("breakers are this process's own until the store is back: %s", error)
            for service, known in self._known.items():
                if known.state.open_until is not None:
                    self.own.adopt(service, known.state.failures)
        self._away_until = self._clock.monotonic() + LOOK_AGAIN

    def admit_alone(self, service: str, policy: BreakerPolicy) -> CallAdmission:
        """Let one call through by this process's own breaker, or say when to ask again."""
        admission = self.own.admit(service, policy)
        given = admission.given
        if isinstance(given, Permit):
            given = OwnPermit(given.service, given.generation, given.probe)
        return CallAdmission(given, admission.failures, admission.effects)

    def report_alone(self, permit: Permit, outcome: CallOutcome, policy: BreakerPolicy) -> PermitReport:
        """Count here what could not be told; a permit of the store's says nothing about our own generations."""
        self._known.pop(permit.service, None)  # or it would still be said to be clean
        if not isinstance(permit, OwnPermit):
            _, state = self.own.standing(permit.service)
            permit = Permit(permit.service, state.generation)
        return self.own.report(permit, outcome, policy)

    # --- what guards ask ----------------------------------------------------------------------------------------------

    async def admit(self, service: str, policy: BreakerPolicy) -> CallAdmission:
        """Let one call through, or say when to ask again."""
        permit = self.clean(service)
        if permit is not None:
            return CallAdmission(permit)
        if self._away() or self._is_unshared(service):
            return self.admit_alone(service, policy)
        try:
            permit = await self._look(service)
            if permit is not None:
                return CallAdmission(permit)
            told = await self._admitted(service, policy)
        except (Unavailable, Bug) as error:
            self._gone(error)
            return self.admit_alone(service, policy)
        except Refused as error:
            self._refused(service, error)
            return self.admit_alone(service, policy)
        if told.given is None:
            raise Bug(f"the store did not say whether {service} may be called")
        return CallAdmission(told.given, told.state.failures, told.effects)

    async def report(self, permit: Permit, outcome: CallOutcome, policy: BreakerPolicy) -> PermitReport:
        """Take a permit back with what came of it; what can change nothing is told to nobody."""
        if isinstance(permit, OwnPermit):
            return self.report_alone(permit, outcome, policy)
        if outcome is CallOutcome.UNTOLD and not permit.probe:
            return NOTHING
        if self._away() or self._is_unshared(permit.service):
            return self.report_alone(permit, outcome, policy)
        try:
            if outcome is CallOutcome.HEALTHY and not permit.probe and await self._look(permit.service) is not None:
                return NOTHING
            reporting = self._start(self._watch.report(permit, outcome, policy))
            told = await self._told(permit.service, reporting)
        except (Unavailable, Bug) as error:
            self._gone(error)
            return self.report_alone(permit, outcome, policy)
        except Refused as error:
            self._refused(permit.service, error)
            return self.report_alone(permit, outcome, policy)
        state = told.state
        return PermitReport(breaker.answer(state, policy), told.wait, state.generation, state.failures, told.effects)

    async def park(self, service: str, delay: int) -> None:
        """Nobody calls this service for so many milliseconds."""
        if not self._away() and not self._is_unshared(service):
            try:
                await self._told(service, self._start(self._watch.park(service, delay)))
            except (Unavailable, Bug) as error:
                self._gone(error)
            except Refused as error:
                self._refused(service, error)
            else:
                return
        self.own.park(service, delay)

    async def note(self, incident: RateLimited | GaveUp) -> None:
        """Write a rate limit into the journal; ask a human about what only a human can mend."""
        if (isinstance(incident, GaveUp) and incident.error is None) or self._away():
            return
        try:
            await self._bounded(self._start(_said(self._watch, incident)))
        except (Unavailable, Bug) as error:
            self._gone(error)
        except AllswellError as error:  # the call's own error is what matters
            log.warning("the store does not take what happened to %s: %s", incident.service, error)

    async def parked(self, service: str) -> Millis:
        """How long the service is still parked."""
        if not self._away() and not self._is_unshared(service):
            try:
                if await self._look(service) is not None:
                    return Millis(0)
                until = self._known[service].state.parked_until
                if until is None:
                    return Millis(0)
                now = await self._bounded(self._start(self._watch.now()))
                return Millis(max(until - now, 0))
            except (Unavailable, Bug) as error:
                self._gone(error)
        return self.own.parked(service)


async def _said(watch: Watch, incident: RateLimited | GaveUp) -> None:
    if isinstance(incident, RateLimited):
        about = {"service": incident.service, "count": incident.attempt, "retry_after_ms": incident.retry_after}
        await watch.notice(Event("rate_limited", data=about))
    elif incident.error is not None:
        await watch.ask_for_help(incident.service, incident.error, incident.reason, incident.message)


# The way to a watch's breakers from wherever a guard is used: from any loop, and from threads without one.
#
# `StoredBreakers` live in the watch's loop. Whoever is there already asks them directly; others are carried there and
# wait. Where there is no way (the watch's loop is closed, stayed behind in a fork, or is the very one that is being
# blocked), a guard goes by the breakers of this process.


class _CarriedBreakers:
    """Stored breakers, asked from anywhere; what a call gives is there at once, or awaited, as `_ask` has it."""

    def __init__(self, stored: StoredBreakers, home: OwnLoop, patience: float) -> None:
        self._stored = stored
        self._home = home
        self._patience = patience
        self._warned = False
        self.clean = stored.clean

    def _ask(self, work: Coroutine[Any, Any, T], alone: Callable[[], T]) -> Any:  # noqa: ANN401 - a T, or awaited
        raise NotImplementedError

    def admit(self, service: str, policy: BreakerPolicy) -> Any:  # noqa: ANN401 - as below
        """Let one call through, or say when to ask again."""
        stored = self._stored
        return self._ask(stored.admit(service, policy), lambda: stored.admit_alone(service, policy))

    def report(self, permit: Permit, outcome: CallOutcome, policy: BreakerPolicy) -> Any:  # noqa: ANN401
        """Take a permit back with what came of it."""
        stored = self._stored
        asked = stored.report(permit, outcome, policy)
        return self._ask(asked, lambda: stored.report_alone(permit, outcome, policy))

    def park(self, service: str, delay: int) -> Any:  # noqa: ANN401
        """Nobody calls this service for so many milliseconds."""
        own = self._stored.own
        return self._ask(self._stored.park(service, delay), lambda: own.park(service, delay))

    def parked(self, service: str) -> Any:  # noqa: ANN401
        """How long the service is still parked."""
        own = self._stored.own
        return self._ask(self._stored.parked(service), lambda: own.parked(service))

    def note(self, incident: RateLimited | GaveUp) -> Any:  # noqa: ANN401
        """Keep what happened where others see it, and ask a human where one is needed."""
        own = self._stored.own
        return self._ask(self._stored.note(incident), lambda: own.note(incident))


class AsyncStoredBreakers(_CarriedBreakers):
    """Stored breakers for async code."""

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


class SyncStoredBreakers(_CarriedBreakers):
    """Stored breakers for code that blocks."""

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
        found = _OF.setdefault(
            inner, (SyncStoredBreakers(stored, home, patience), AsyncStoredBreakers(stored, home, patience))
        )
    return found
