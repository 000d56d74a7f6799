"""One guarded call as it is lived through: asking the breaker, judging what was raised, waiting.

`domain.course` says what follows; here it is done. The steps are the same for sync and async callers and stand in
`Trial`; the two below it only wait in their own way.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from allswell.domain.breaker import BreakerPolicy, Effect, Outcome, Permit, Refusal, outcome_of
from allswell.domain.classify import classified, failure_of
from allswell.domain.course import NOTHING, Course, PermitReport, Step, Stop, Wait, failed, refused
from allswell.domain.incident import (
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
from allswell.domain.names import Millis
from allswell.domain.retry import ErrorClass, Failure, weather
from allswell.errors import BreakerOpen, ServiceParked
from allswell.runtime.guard.nesting import ATTEMPT, gave_up, inside_a_guard, is_probe_of, mark, unmark
from allswell.timing.foreign import refuse_other_loops
from allswell.timing.scope import Scope, current, remaining_ms

if TYPE_CHECKING:
    from allswell.runtime.guard.guard import Guard

log = logging.getLogger("allswell.guard")

UNCOUNTED: Final = -1
"""The generation of a permit whose result counts for nothing."""


class Trial:
    """One call: how far it has come, and what is known about its time."""

    __slots__ = ("_deadline", "_last", "_single", "_untold", "_waits_for", "course", "guard")

    def __init__(self, guard: Guard, *, single: bool = False) -> None:
        self.guard = guard
        self.course = Course()
        self._last: BaseException | None = None
        self._single = single
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

    def scope(self) -> Scope:
        """The scope of the next attempt."""
        # No grace: what blocks in a thread cannot be told anything, and is given up at its limit.
        return Scope(self.limit(), kind=ATTEMPT, name=self.guard.service, grace_ms=0)

    # --- steps --------------------------------------------------------------------------------------------------------

    def _asks(self) -> BreakerPolicy | None:
        """The policy to ask the breaker with; None where there is none to ask, or where we are its probe."""
        return None if is_probe_of(self.guard.service) else self.guard.policy.breaker

    def _refused(self, refusal: Refusal) -> float:
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

    def _tells(self, failure: Failure, settled: str | None, permit: Permit) -> Outcome:
        """What an error tells about our service: nothing, if another guard has given up on it and told it already.

        Nor does a call that a scope around it cut off: whose time was up was the caller.
        """
        if settled is not None and not (settled == self.guard.service and permit.probe):
            return Outcome.UNTOLD
        if failure.error is ErrorClass.NETWORK and _time_is_up():
            return Outcome.UNTOLD
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
            return step.delay / 1_000
        if step.action == "park" and step.delay is not None:
            guard.tell(Parked(service, step.delay))
            raise ServiceParked(service, guard.clock.wall() + step.delay, step.delay) from error
        self._give_up(error, step, failure)
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

    def effects(self, effects: tuple[Effect, ...], failures: int) -> None:
        """Tell what happened to the breaker."""
        for effect in effects:
            self.guard.tell(self._incident(effect, failures))

    def _incident(self, effect: Effect, failures: int) -> Incident:
        service = self.guard.service
        match effect:
            case Effect.OPENED:
                policy = self.guard.policy.breaker
                return BreakerOpened(service, failures, Millis(0 if policy is None else policy.pause))
            case Effect.CLOSED:
                return BreakerClosed(service)
            case Effect.ASK:
                return Escalated(service, failures)
            case Effect.WITHDRAW:
                return Withdrawn(service)


def _time_is_up() -> bool:
    """Whether the deadline of a scope around the call has passed."""
    scope = current()
    return scope is not None and scope.now() >= scope.deadline


def _after_probe(permit: Permit, report: PermitReport) -> Permit:
    """The permit of a probe that has gone well, for what still comes of the same call."""
    return replace(permit, generation=report.generation, probe=False)


class AsyncTrial(Trial):
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
                    return Permit(guard.service, UNCOUNTED)
                wait = self._refused(Refusal(guard.service, "parked", left, UNCOUNTED))
            else:
                clean = guard.awaited.clean(guard.service)
                if clean is not None:
                    return clean
                admission = await guard.awaited.admit(guard.service, policy)
                self.effects(admission.effects, admission.failures)
                if isinstance(admission.given, Permit):
                    return admission.given
                wait = self._refused(admission.given)
            await asyncio.sleep(wait)

    async def failed(self, error: BaseException, permit: Permit) -> float | None:
        """Judge what an attempt raised: seconds to wait before the next one, or None if it is to be raised."""
        if not isinstance(error, Exception):
            await self._report(permit, Outcome.UNTOLD)
            return None
        failure, settled = self._failure(error), gave_up(error)
        report = await self._report(permit, self._tells(failure, settled, permit))
        if settled is not None:
            self._passes_on(error)
            return None
        parks = weather(self.guard.policy.retry, failure)
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
        return _after_probe(permit, await self._report(permit, Outcome.HEALTHY))

    async def succeeded(self, permit: Permit) -> None:
        """Tell that an attempt went well."""
        if self.guard.awaited.clean(permit.service) is not permit:  # otherwise there is nothing that it could change
            await self._report(permit, Outcome.HEALTHY)
        self._well()

    async def _report(self, permit: Permit, outcome: Outcome) -> PermitReport:
        policy = self.guard.policy.breaker
        if policy is None or permit.generation == UNCOUNTED:
            return NOTHING
        report = await self.guard.awaited.report(permit, outcome, policy)
        self.effects(report.effects, report.failures)
        return report


class SyncTrial(Trial):
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
                    return Permit(guard.service, UNCOUNTED)
                wait = self._refused(Refusal(guard.service, "parked", left, UNCOUNTED))
            else:
                clean = guard.breakers.clean(guard.service)
                if clean is not None:
                    return clean
                admission = guard.breakers.admit(guard.service, policy)
                self.effects(admission.effects, admission.failures)
                if isinstance(admission.given, Permit):
                    return admission.given
                wait = self._refused(admission.given)
            guard.sleep(wait)

    def failed(self, error: BaseException, permit: Permit) -> float | None:
        """Judge what an attempt raised: seconds to wait before the next one, or None if it is to be raised."""
        if not isinstance(error, Exception):
            self._report(permit, Outcome.UNTOLD)
            return None
        failure, settled = self._failure(error), gave_up(error)
        report = self._report(permit, self._tells(failure, settled, permit))
        if settled is not None:
            self._passes_on(error)
            return None
        parks = weather(self.guard.policy.retry, failure)
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
        return _after_probe(permit, self._report(permit, Outcome.HEALTHY))

    def succeeded(self, permit: Permit) -> None:
        """Tell that an attempt went well."""
        if self.guard.breakers.clean(permit.service) is not permit:  # otherwise there is nothing that it could change
            self._report(permit, Outcome.HEALTHY)
        self._well()

    def _report(self, permit: Permit, outcome: Outcome) -> PermitReport:
        policy = self.guard.policy.breaker
        if policy is None or permit.generation == UNCOUNTED:
            return NOTHING
        report = self.guard.breakers.report(permit, outcome, policy)
        self.effects(report.effects, report.failures)
        return report
