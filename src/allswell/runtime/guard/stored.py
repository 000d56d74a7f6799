"""Breakers that live in a store: shared by every process that has it open (F5, F8).

    async with allswell.open(url) as watch:
        guard = allswell.guard("anthropic", watch=watch)

**A call that goes well asks nobody.** What was last heard of the services is trusted for `pace.service_trust` (1 s): as
long as nothing is held against a service, calls are let through by what is known here, and a success is told to nobody.
After that one look at the store, for all services and all callers together, is good for the next while; it locks and
writes nothing. So a breaker that another process has opened is seen here within that time. As soon as anything is held
against a service, every call asks, and every result is told. A failure is always told.

**Everything is bounded.** An answer is waited for up to `pace.service_patience` (2 s). What was sent goes on without
its caller, cancelled or not: a report is not lost, and a probe that was given to somebody who has gone is given back.

**Without the store it goes on.** While the store cannot be reached, guards go by breakers of this process (fail open,
logged once): each process then finds out for itself. One that knew a service to be shut begins half-open, with a probe
of its own. What happened meanwhile is not told to the store afterwards: it would be old news.

All of it runs in the watch's own loop. Callers in other loops and threads are carried there; a function that blocks the
watch's own loop cannot be, and goes by this process's breakers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, NamedTuple, TypeVar
from weakref import ref

from allswell.domain import breaker
from allswell.domain.breaker import CLEAN, BreakerPolicy, Outcome, Permit, Service
from allswell.domain.course import NOTHING, PermitReport
from allswell.domain.event import Event
from allswell.domain.incident import GaveUp, RateLimited
from allswell.domain.names import Millis
from allswell.domain.service import ServiceRow
from allswell.domain.serving import Told
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, Bug, Unavailable
from allswell.runtime.guard.breakers import Admission, MemoryBreakers

T = TypeVar("T")
log = logging.getLogger("allswell.guard")
LOOK_AGAIN = 1_000
"""How long a store that could not be reached is left alone."""


class OwnPermit(Permit, frozen=True):
    """A permit of this process's own breakers, given while the store was away."""


class _Known(NamedTuple):
    """What was last heard of a service."""

    heard: int
    state: Service
    clean: Permit | None
    """What everybody gets while nothing is held against it."""


class StoredBreakers:
    """The breakers of one watch; used in its loop only, but for `clean` and what goes without the store."""

    def __init__(self, watch: Watch) -> None:
        self._open = ref(watch)  # whoever holds these breakers must not keep it alive
        self._clock = watch.clock
        self._trust = round(watch.pace.service_trust * 1_000)
        self._patience = watch.pace.service_patience
        self._known: dict[str, _Known] = {}
        self._looking: asyncio.Task[dict[str, ServiceRow]] | None = None
        self._sent: set[asyncio.Task[Any]] = set()
        self._away_until: int | None = None
        self.own = MemoryBreakers(self._clock)

    @property
    def _watch(self) -> Watch:
        watch = self._open()
        if watch is None:
            raise Unavailable("the watch is gone")
        return watch

    # --- what is known ------------------------------------------------------------------------------------------------

    def clean(self, service: str) -> Permit | None:
        """The permit for a service that nothing is known against, without asking anybody."""
        known = self._known.get(service)
        if known is None or self._clock.monotonic() - known.heard >= self._trust:
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
        self._known[service] = _Known(heard, state, permit)

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

    async def _told(self, service: str, task: asyncio.Task[Told]) -> Told:
        """What the store says of a service, once it does; that is what is known of it then."""
        told = await self._bounded(task)
        self._learn(service, told.state, self._clock.monotonic())
        return told

    async def _admitted(self, service: str, policy: BreakerPolicy) -> Told:
        task = self._start(self._watch.admit(service, policy))
        try:
            return await self._told(service, task)
        except BaseException:
            task.add_done_callback(lambda late: self._give_back(late, policy))
            raise

    def _give_back(self, task: asyncio.Task[Told], policy: BreakerPolicy) -> None:
        """A probe that was given to somebody who has gone would keep the service shut until its lease ends."""
        watch = self._open()
        if watch is None or task.cancelled() or task.exception() is not None:
            return
        given = task.result().given
        if isinstance(given, Permit) and given.probe:
            self._start(watch.report(given, Outcome.UNTOLD, policy))

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

    def _gone(self, error: Unavailable | Bug) -> None:
        if self._away_until is None:
            log.warning("breakers are this process's own until the store is back: %s", error)
            for service, known in self._known.items():
                if known.state.open_until is not None:
                    self.own.adopt(service, known.state.failures)
        self._away_until = self._clock.monotonic() + LOOK_AGAIN

    def admit_alone(self, service: str, policy: BreakerPolicy) -> Admission:
        """Let one call through by this process's own breaker, or say when to ask again."""
        admission = self.own.admit(service, policy)
        given = admission.given
        if isinstance(given, Permit):
            given = OwnPermit(given.service, given.generation, given.probe)
        return Admission(given, admission.failures, admission.effects)

    def report_alone(self, permit: Permit, outcome: Outcome, policy: BreakerPolicy) -> PermitReport:
        """Count here what could not be told; a permit of the store's says nothing about our own generations."""
        self._known.pop(permit.service, None)  # or it would still be said to be clean
        if not isinstance(permit, OwnPermit):
            _, state = self.own.standing(permit.service)
            permit = Permit(permit.service, state.generation)
        return self.own.report(permit, outcome, policy)

    # --- what guards ask ----------------------------------------------------------------------------------------------

    async def admit(self, service: str, policy: BreakerPolicy) -> Admission:
        """Let one call through, or say when to ask again."""
        permit = self.clean(service)
        if permit is not None:
            return Admission(permit)
        if self._away():
            return self.admit_alone(service, policy)
        try:
            permit = await self._look(service)
            if permit is not None:
                return Admission(permit)
            told = await self._admitted(service, policy)
        except (Unavailable, Bug) as error:
            self._gone(error)
            return self.admit_alone(service, policy)
        if told.given is None:
            raise Bug(f"the store did not say whether {service} may be called")
        return Admission(told.given, told.state.failures, told.effects)

    async def report(self, permit: Permit, outcome: Outcome, policy: BreakerPolicy) -> PermitReport:
        """Take a permit back with what came of it; what can change nothing is told to nobody."""
        if isinstance(permit, OwnPermit):
            return self.report_alone(permit, outcome, policy)
        if outcome is Outcome.UNTOLD and not permit.probe:
            return NOTHING
        if self._away():
            return self.report_alone(permit, outcome, policy)
        try:
            if outcome is Outcome.HEALTHY and not permit.probe and await self._look(permit.service) is not None:
                return NOTHING
            reporting = self._start(self._watch.report(permit, outcome, policy))
            told = await self._told(permit.service, reporting)
        except (Unavailable, Bug) as error:
            self._gone(error)
            return self.report_alone(permit, outcome, policy)
        state = told.state
        return PermitReport(breaker.answer(state, policy), told.wait, state.generation, state.failures, told.effects)

    async def park(self, service: str, delay: int) -> None:
        """Nobody calls this service for so many milliseconds."""
        if not self._away():
            try:
                await self._told(service, self._start(self._watch.park(service, delay)))
            except (Unavailable, Bug) as error:
                self._gone(error)
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
        if not self._away():
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
