"""Where breakers live: the protocol that guards speak, and the one that keeps them in this process.

Two questions and a note: may this service be called (`admit`), what came of it (`report`), and everybody has to wait
(`park`). A store can answer them as well as a dictionary: the rules stand in `domain.breaker`, the row is a `Service`,
and no moment leaves here, only lengths of time.

**A call that goes well costs nothing.** `clean` answers without I/O and without a lock: it gives the permit that
everybody gets while nothing is known against a service. Who still finds the same permit there afterwards has nothing to
report, because nothing has changed that a success could change back.

In this process breakers are shared by all its threads and loops. After a fork the child has a copy of its own.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

import msgspec

from allswell.domain import breaker
from allswell.domain.breaker import CLEAN, BreakerPolicy, Effect, Outcome, Permit, Refusal, Service
from allswell.domain.course import PermitReport
from allswell.domain.incident import GaveUp, RateLimited
from allswell.domain.names import Millis
from allswell.timing.clock import Clock, SystemClock


class Admission(msgspec.Struct, frozen=True):
    """The answer to "may I call it?", and what came to light by asking."""

    given: Permit | Refusal
    failures: int = 0
    effects: tuple[Effect, ...] = ()


class Breakers(Protocol):
    """The breakers of many services; to be used by any thread."""

    def clean(self, service: str) -> Permit | None:
        """The permit for a service that nothing is known against, without asking anybody."""
        ...

    def admit(self, service: str, policy: BreakerPolicy) -> Admission:
        """Let one call through, or say when to ask again."""
        ...

    def report(self, permit: Permit, outcome: Outcome, policy: BreakerPolicy) -> PermitReport:
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

    async def admit(self, service: str, policy: BreakerPolicy) -> Admission:
        """Let one call through, or say when to ask again."""
        ...

    async def report(self, permit: Permit, outcome: Outcome, policy: BreakerPolicy) -> PermitReport:
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


class _Cell:
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
        self._cells: dict[str, _Cell] = {}
        self._lock = threading.Lock()
        # A thread of the parent may hold the lock at the fork, and is not there any more to let go of it.
        forgets = weakref.WeakMethod(self._forked)
        os.register_at_fork(after_in_child=lambda: (own := forgets()) is not None and own())

    def _forked(self) -> None:
        self._lock = threading.Lock()

    def _cell(self, service: str) -> _Cell:
        found = self._cells.get(service)
        return self._cells.setdefault(service, _Cell(service)) if found is None else found

    def clean(self, service: str) -> Permit | None:
        """The permit for a service that nothing is known against, without asking anybody."""
        found = self._cells.get(service)
        return self._cell(service).clean if found is None else found.clean

    def admit(self, service: str, policy: BreakerPolicy) -> Admission:
        """Let one call through, or say when to ask again."""
        with self._lock:
            cell = self._cell(service)
            given, change = breaker.admit(service, cell.service, policy, self._clock.monotonic())
            cell.become(service, change.service)
            if isinstance(given, Permit) and not given.probe and cell.clean is not None:
                given = cell.clean
            return Admission(given, change.service.failures, change.effects)

    def report(self, permit: Permit, outcome: Outcome, policy: BreakerPolicy) -> PermitReport:
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

    def standing(self, service: str) -> tuple[breaker.Stand, Service]:
        """Where a service's breaker stands now, and the row behind it: for whoever wants to see."""
        found = self._cell(service).service
        return breaker.stand(found, self._clock.monotonic()), found

    def forget(self, service: str) -> None:
        """Start afresh with a service; calls that are under way have no say any more."""
        with self._lock:
            cell = self._cell(service)
            cell.become(service, Service(generation=cell.service.generation + 1))


class Awaited:
    """Breakers that answer at once, for those who wait for an answer."""

    def __init__(self, breakers: Breakers) -> None:
        self._breakers = breakers
        self.clean = breakers.clean

    async def admit(self, service: str, policy: BreakerPolicy) -> Admission:
        """Let one call through, or say when to ask again."""
        return self._breakers.admit(service, policy)

    async def report(self, permit: Permit, outcome: Outcome, policy: BreakerPolicy) -> PermitReport:
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
