"""One guarded call as it is lived through: asking the breaker, judging what was raised, waiting.

`domain.service.guard` says what follows; here it is done. The steps are the same for sync and async callers and stand
in `CallTrial`; the two below it only wait in their own way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from allswell.domain.ids import Millis
from allswell.domain.receipts.step import FinalAction
from allswell.domain.service.breaker import BreakerNotice, BreakerPolicy, CallOutcome, CallRefused, Permit, outcome_of
from allswell.domain.service.classify import carried, classified, failure_of
from allswell.domain.service.guard import NOTHING, GuardedCall, PermitReport, Step, Stop, Wait, failed, refused
from allswell.domain.service.incident import (
    BreakerClosed,
    BreakerOpened,
    ClassifierBroke,
    Escalated,
    GaveUp,
    Incident,
    Parked,
    RateLimited,
    Recovered,
    RetryScheduled,
    Waiting,
    Withdrawn,
)
from allswell.domain.service.retry import ErrorClass, Failure, parked_for
from allswell.errors import BreakerOpen, ServiceParked
from allswell.runtime.call_timeouts import ATTEMPT, in_timeouts
from allswell.timing.loops import refuse_other_loops
from allswell.timing.scopes import Scope, current, remaining_ms

if TYPE_CHECKING:
    from allswell.runtime.guard.guard import Guard


# Guards inside guards: they do not multiply, and they do not wait for themselves.
#
# An error that a guard has given up on carries its mark, and no guard around it retries it or holds it against its own
# service: the innermost guard owns the loop. It is marked only where a guard is around to read it, and unmarked by the
# outermost, for one and the same object may be raised again (mocks do that).
#
# Inside the probe of a service, a guard of the same service passes without asking: the probe is out, and this is it.
# That ends with the probe, also for tasks that were started inside it and live on.

HEADER: Final = "allswell-gave-up"
"""The mark on an answer that a guarded transport hands back: the name of its service."""
_MARK: Final = "__allswell_gave_up__"
_DEEPEST = 8  # causes looked at, one inside the other


class _Probe:
    """A probe that is out, or was."""

    __slots__ = ("is_out", "service")

    def __init__(self, service: str) -> None:
        self.service = service
        self.is_out = True


_probes: ContextVar[tuple[_Probe, ...]] = ContextVar("allswell_probes", default=())


@contextmanager
def probing(permit: Permit) -> Iterator[None]:
    """What is called in here is part of a service's probe, if the permit is one."""
    if not permit.probe:
        yield
        return
    probe = _Probe(permit.service)
    token = _probes.set((*_probes.get(), probe))
    try:
        yield
    finally:
        probe.is_out = False
        _probes.reset(token)


def is_probe_of(service: str) -> bool:
    """Whether what runs here is part of this service's probe."""
    return any(probe.is_out and probe.service == service for probe in _probes.get())


def inside_a_guard() -> bool:
    """Whether this is part of an attempt of another guard."""
    scope = current()
    while scope is not None:
        if scope.kind == ATTEMPT and scope.is_open:
            return True
        scope = scope.outer
    return False


def mark(error: BaseException, service: str) -> None:
    """Note on an error that a guard has given up on it."""
    vars(error)[_MARK] = service  # past a `__setattr__` that may refuse it


def unmark(error: BaseException) -> None:
    """Let go of an error that no guard will see any more."""
    for one in _chain(error):
        vars(one).pop(_MARK, None)


def gave_up(error: BaseException) -> str | None:
    """The service whose guard has given up on this error, or on what it was raised from."""
    for one in _chain(error):
        if isinstance(one, BreakerOpen | ServiceParked):
            return one.service
        found = vars(one).get(_MARK) or _on_the_answer(one)
        if isinstance(found, str):
            return found
    return None


def _on_the_answer(error: BaseException) -> object:
    look_up = carried(carried(carried(error, "response"), "headers"), "get")
    try:
        return look_up(HEADER) if callable(look_up) else None
    except Exception:  # noqa: BLE001 - headers of somebody's own kind
        return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    for _ in range(_DEEPEST):
        if one is None:
            return
        yield one
        one = one.__cause__


log = logging.getLogger("allswell.guard")

UNCOUNTED: Final = -1
"""The generation of a permit whose result counts for nothing."""


class CallTrial:
    """One call: how far it has come, and what is known about its time."""

    __slots__ = ("_began", "_deadline", "_last", "_single", "_untold", "_waits_for", "course", "guard")

    def __init__(self, guard: Guard, *, single: bool = False) -> None:
        self.guard = guard
        self.course = GuardedCall()
        self._last: BaseException | None = None
        self._single = single
        self._began: int | None = None
        """When the attempt began that is made now, on the monotonic clock."""
        self._waits_for: str | None = None
        self._untold: list[RateLimited | GaveUp] = []
        """What the store has not been told yet."""
        whole = guard.policy.timeout
        self._deadline = None if whole is None else guard.clock.monotonic() + whole

    # --- time ---------------------------------------------------------------------------------------------------------

    def remaining(self) -> int | None:
        """Milliseconds that are left for another try: of the call's own timeout, and of every scope around it.

        The grace of a scope whose time is up is there for putting things in order: nothing is waited for in it.
        """
        return 0 if _time_is_up() else self.left()

    def left(self) -> int | None:
        """Milliseconds that an attempt can take at most; in clean-up, what is left of the grace."""
        outside = remaining_ms()
        own = None if self._deadline is None else self._deadline - self.guard.clock.monotonic()
        if own is None:
            return None if outside is None else int(outside)
        return own if outside is None else min(own, int(outside))

    def limit(self) -> int | None:
        """How long the next attempt may take; the scopes around it see to themselves."""
        limit = self.guard.policy.attempt_timeout
        if self._deadline is not None:
            own = max(self._deadline - self.guard.clock.monotonic(), 1)
            limit = own if limit is None else min(limit, own)
        return limit

    def _followed(self, error: BaseException, pause: float | None, *, escalates: bool = False) -> None:
        """Have it recorded what follows a timeout, where that is wanted."""
        record = in_timeouts.get()
        if record is None or not isinstance(error, Exception):
            return
        now = self.guard.clock.monotonic()
        last = FinalAction.ESCALATE if escalates else FinalAction.FAIL
        record.followed(
            error,
            self.guard.service,
            retries=max(self.course.attempts - 1, 0),
            limit=self.guard.policy.attempt_timeout,
            elapsed=now - (now if self._began is None else self._began),
            action=last if pause is None else FinalAction.RETRY,
        )

    def scope(self) -> Scope:
        """The scope of the next attempt."""
        # No grace: what blocks in a thread cannot be told anything, and is given up at its limit.
        return Scope(self.limit(), kind=ATTEMPT, name=self.guard.service, grace_ms=0)

    # --- steps --------------------------------------------------------------------------------------------------------

    def _begins(self, permit: Permit) -> Permit:
        self._began = self.guard.clock.monotonic()
        return permit

    def _asks(self) -> BreakerPolicy | None:
        """The policy to ask the breaker with; None where there is none to ask, or where we are its probe."""
        return None if is_probe_of(self.guard.service) else self.guard.policy.breaker

    def _refused(self, refusal: CallRefused) -> float:
        """How many seconds to wait before asking again; raises if the call is over."""
        guard = self.guard
        self.course, step = refused(self.course, guard.policy, refusal, remaining=self.remaining(), draw=guard.draw())
        if isinstance(step, Wait):
            if refusal.stand != self._waits_for:  # who polls does not tell it every time
                self._waits_for = refusal.stand
                guard.tell(Waiting(guard.service, refusal.stand, step.delay))
            return step.delay / 1_000
        last, self._last = self._last, None
        if step.action == "park" and step.delay is not None:
            raise ServiceParked(guard.service, guard.clock.wall() + step.delay, step.delay) from last
        if last is None:
            raise BreakerOpen(guard.service, step.delay, step.reason)
        self._give_up(last, step)
        raise last

    def _failure(self, error: Exception) -> Failure:
        """What was raised, as the user's own classifier or ours sees it."""
        guard = self.guard
        now = guard.clock.wall()
        try:
            return classified(error, guard.classifier, now=now)
        except Exception as broken:  # noqa: BLE001 - the call's error is what matters; this one is told
            guard.tell(ClassifierBroke(guard.service, f"{type(broken).__name__}: {broken}"))
            return failure_of(error, now=now)

    def _tells(self, failure: Failure, settled: str | None, permit: Permit) -> CallOutcome:
        """What an error tells about our service: nothing, if another guard has given up on it and told it already.

        Nor does a call that a scope around it cut off: whose time was up was the caller.
        """
        if settled is not None and not (settled == self.guard.service and permit.probe):
            return CallOutcome.UNTOLD
        if failure.error is ErrorClass.NETWORK and _time_is_up():
            return CallOutcome.UNTOLD
        return outcome_of(failure)

    def _passes_on(self, error: Exception) -> None:
        """A guard inside has given up on it, and so do we."""
        self._last = None
        if not inside_a_guard():
            unmark(error)
        self.guard.tell(
            GaveUp(self.guard.service, self.course.attempts + 1, False, "a guard inside has given up on it")
        )

    def _next(self, error: Exception, failure: Failure, report: PermitReport) -> float | None:
        """How many seconds to wait before the next attempt; None if the error is to be raised."""
        guard, service = self.guard, self.guard.service
        attempt = self.course.attempts + 1
        if failure.error is ErrorClass.RATE_LIMIT:
            limited = RateLimited(service, attempt, failure.retry_after)
            self._untold.append(limited)
            guard.tell(limited)
        self.course, step = failed(
            self.course, guard.policy, failure, report, remaining=self.remaining(), draw=guard.draw()
        )
        step = self._affordable(step)
        if isinstance(step, Wait):
            self._last, self._waits_for = error, None
            guard.tell(RetryScheduled(service, attempt, failure.error, failure.message, step.delay))
            self._followed(error, step.delay / 1_000)
            return step.delay / 1_000
        if step.action == "park" and step.delay is not None:
            guard.tell(Parked(service, step.delay))
            raise ServiceParked(service, guard.clock.wall() + step.delay, step.delay) from error
        self._give_up(error, step, failure)
        self._followed(error, None, escalates=step.action == "escalate")
        return None

    def _affordable(self, step: Step) -> Step:
        """A retry that the course allows may still be one too many."""
        if not isinstance(step, Wait):
            return step
        if self._single:
            return Stop("fail", "output has reached the caller, or the call cannot be repeated")
        guard = self.guard
        budget = guard.policy.budget
        if budget is not None and not guard.budgets.spend(guard.service, budget):
            return Stop("fail", "the retry budget of the service is used up")
        return step

    def _give_up(self, error: BaseException, step: Stop, failure: Failure | None = None) -> None:
        guard, count = self.guard, self.course.attempts
        self._last = None  # an error that is reachable from its own traceback waits for the garbage collector
        with suppress(Exception):  # an exception may refuse to be written on
            error.add_note(f"allswell: {guard.service} was given up after {count} attempts: {step.reason}")
        if inside_a_guard():
            mark(error, guard.service)
        escalates = step.action == "escalate"
        incident = GaveUp(guard.service, count, escalates, step.reason)
        if failure is not None:
            incident = replace(incident, error=failure.error, message=failure.message)
        if escalates:
            self._untold.append(incident)
        guard.tell(incident)

    def _taken(self) -> list[RateLimited | GaveUp]:
        """What the store is to be told now."""
        untold, self._untold = self._untold, []
        return untold

    def no_more(self) -> None:
        """Output has reached the caller: whatever comes, the call is not repeated."""
        self._single = True

    def _well(self) -> None:
        guard = self.guard
        self._last = None
        if self.course.attempts:
            guard.tell(Recovered(guard.service, self.course.attempts + 1))
        budget = guard.policy.budget
        if budget is not None:
            guard.budgets.earn(guard.service, budget)

    def effects(self, effects: tuple[BreakerNotice, ...], failures: int) -> None:
        """Tell what happened to the breaker."""
        for effect in effects:
            self.guard.tell(self._incident(effect, failures))

    def _incident(self, effect: BreakerNotice, failures: int) -> Incident:
        service = self.guard.service
        match effect:
            case BreakerNotice.OPENED:
                policy = self.guard.policy.breaker
                return BreakerOpened(service, failures, Millis(0 if policy is None else policy.pause))
            case BreakerNotice.CLOSED:
                return BreakerClosed(service)
            case BreakerNotice.ASK:
                return Escalated(service, failures)
            case BreakerNotice.WITHDRAW:
                return Withdrawn(service)


def _time_is_up() -> bool:
    """Whether the deadline of a scope around the call has passed."""
    scope = current()
    return scope is not None and scope.now() >= scope.deadline


def _after_probe(permit: Permit, report: PermitReport) -> Permit:
    """The permit of a probe that has gone well, for what still comes of the same call."""
    return replace(permit, generation=report.generation, probe=False)


class AsyncTrial(CallTrial):
    """A call of async code."""

    __slots__ = ()

    def __init__(self, guard: Guard, *, single: bool = False) -> None:
        refuse_other_loops()
        super().__init__(guard, single=single)

    async def admit(self) -> Permit:
        """Wait until the service may be called; raises if that cannot be waited for."""
        guard = self.guard
        while True:
            policy = self._asks()
            if policy is None:  # the rate-limit pause holds for everybody
                left = await guard.awaited.parked(guard.service)
                if not left:
                    return self._begins(Permit(guard.service, UNCOUNTED))
                wait = self._refused(CallRefused(guard.service, "parked", left, UNCOUNTED))
            else:
                clean = guard.awaited.clean(guard.service)
                if clean is not None:
                    return self._begins(clean)
                admission = await guard.awaited.admit(guard.service, policy)
                self.effects(admission.effects, admission.failures)
                if isinstance(admission.given, Permit):
                    return self._begins(admission.given)
                wait = self._refused(admission.given)
            await asyncio.sleep(wait)

    async def failed(self, error: BaseException, permit: Permit) -> float | None:
        """Judge what an attempt raised: seconds to wait before the next one, or None if it is to be raised."""
        if not isinstance(error, Exception):
            await self._report(permit, CallOutcome.UNTOLD)
            return None
        failure, settled = self._failure(error), gave_up(error)
        report = await self._report(permit, self._tells(failure, settled, permit))
        if settled is not None:
            self._passes_on(error)
            return None
        parks = parked_for(self.guard.policy.retry, failure)
        if parks is not None:
            await self.guard.awaited.park(self.guard.service, parks)
        try:
            return self._next(error, failure, report)
        finally:
            for incident in self._taken():
                await self.guard.awaited.note(incident)

    async def answering(self, permit: Permit) -> Permit:
        """Output reaches the caller, who takes as long as it takes: a probe has done its work; the rest is a call."""
        if not permit.probe:
            return permit
        return _after_probe(permit, await self._report(permit, CallOutcome.HEALTHY))

    async def succeeded(self, permit: Permit) -> None:
        """Tell that an attempt went well."""
        if self.guard.awaited.clean(permit.service) is not permit:  # otherwise there is nothing that it could change
            await self._report(permit, CallOutcome.HEALTHY)
        self._well()

    async def _report(self, permit: Permit, outcome: CallOutcome) -> PermitReport:
        policy = self.guard.policy.breaker
        if policy is None or permit.generation == UNCOUNTED:
            return NOTHING
        report = await self.guard.awaited.report(permit, outcome, policy)
        self.effects(report.effects, report.failures)
        return report


class SyncTrial(CallTrial):
    """A call of sync code."""

    __slots__ = ()

    def admit(self) -> Permit:
        """Wait until the service may be called; raises if that cannot be waited for."""
        guard = self.guard
        while True:
            policy = self._asks()
            if policy is None:  # the rate-limit pause holds for everybody
                left = guard.breakers.parked(guard.service)
                if not left:
                    return self._begins(Permit(guard.service, UNCOUNTED))
                wait = self._refused(CallRefused(guard.service, "parked", left, UNCOUNTED))
            else:
                clean = guard.breakers.clean(guard.service)
                if clean is not None:
                    return self._begins(clean)
                admission = guard.breakers.admit(guard.service, policy)
                self.effects(admission.effects, admission.failures)
                if isinstance(admission.given, Permit):
                    return self._begins(admission.given)
                wait = self._refused(admission.given)
            guard.sleep(wait)

    def failed(self, error: BaseException, permit: Permit) -> float | None:
        """Judge what an attempt raised: seconds to wait before the next one, or None if it is to be raised."""
        if not isinstance(error, Exception):
            self._report(permit, CallOutcome.UNTOLD)
            return None
        failure, settled = self._failure(error), gave_up(error)
        report = self._report(permit, self._tells(failure, settled, permit))
        if settled is not None:
            self._passes_on(error)
            return None
        parks = parked_for(self.guard.policy.retry, failure)
        if parks is not None:
            self.guard.breakers.park(self.guard.service, parks)
        try:
            return self._next(error, failure, report)
        finally:
            for incident in self._taken():
                self.guard.breakers.note(incident)

    def answering(self, permit: Permit) -> Permit:
        """Output reaches the caller, who takes as long as it takes: a probe has done its work; the rest is a call."""
        if not permit.probe:
            return permit
        return _after_probe(permit, self._report(permit, CallOutcome.HEALTHY))

    def succeeded(self, permit: Permit) -> None:
        """Tell that an attempt went well."""
        if self.guard.breakers.clean(permit.service) is not permit:  # otherwise there is nothing that it could change
            self._report(permit, CallOutcome.HEALTHY)
        self._well()

    def _report(self, permit: Permit, outcome: CallOutcome) -> PermitReport:
        policy = self.guard.policy.breaker
        if policy is None or permit.generation == UNCOUNTED:
            return NOTHING
        report = self.guard.breakers.report(permit, outcome, policy)
        self.effects(report.effects, report.failures)
        return report
