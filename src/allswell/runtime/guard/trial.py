"""One guarded call as it is lived through: asking the breaker, judging what was raised, waiting.

`domain.course` says what follows; here it is done. The steps are the same for sync and async callers and stand in
`Trial`; the two below it only wait in their own way.

**Guards inside guards do not multiply.** An error that a guard has given up on carries its mark, and no guard around it
retries it or holds it against its own service: the innermost guard owns the loop. Inside the probe of a service, a
guard of the same service passes without asking: the probe is out, and this is it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from allswell.domain.breaker import BreakerPolicy, Effect, Outcome, Permit, Refusal, outcome_of
from allswell.domain.classify import classified, failure_of
from allswell.domain.course import NOTHING, Course, Report, Step, Stop, Wait, failed, refused
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
from allswell.timing.scope import Scope, current, remaining_ms

if TYPE_CHECKING:
    from allswell.runtime.guard.guard import Guard

log = logging.getLogger("allswell.guard")

MARK: Final = "__allswell_gave_up__"
"""Set on an error by the guard that has given up on it: the name of its service."""
HEADER: Final = "allswell-gave-up"
"""The same on an answer that a guarded transport hands back."""

ATTEMPT: Final = "attempt"
"""The kind of scope that an attempt has."""

probed: ContextVar[tuple[str, ...]] = ContextVar("allswell_probed", default=())
"""The services whose probe this context is."""


@contextmanager
def probing(permit: Permit) -> Iterator[None]:
    """What is called in here is part of a service's probe, if the permit is one."""
    if not permit.probe:
        yield
        return
    token = probed.set((*probed.get(), permit.service))
    try:
        yield
    finally:
        probed.reset(token)


_DEEPEST = 8  # causes looked at, one inside the other
UNCOUNTED: Final = -1
"""The generation of a permit whose result counts for nothing."""


class Trial:
    """One call: how far it has come, and what is known about its time."""

    __slots__ = ("_deadline", "_last", "_single", "course", "guard")

    def __init__(self, guard: Guard, *, single: bool = False) -> None:
        self.guard = guard
        self.course = Course()
        self._last: BaseException | None = None
        self._single = single
        whole = guard.policy.timeout
        self._deadline = None if whole is None else guard.clock.monotonic() + whole

    # --- time ---------------------------------------------------------------------------------------------------------

    def remaining(self) -> int | None:
        """Milliseconds that are left: of the call's own timeout, and of every scope around it."""
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
        return None if self.guard.service in probed.get() else self.guard.policy.breaker

    def _refused(self, refusal: Refusal) -> float:
        """How many seconds to wait before asking again; raises if the call is over."""
        guard = self.guard
        self.course, step = refused(self.course, guard.policy, refusal, remaining=self.remaining(), draw=guard.draw())
        if isinstance(step, Wait):
            guard.tell(Waiting(guard.service, refusal.stand, step.delay))
            return step.delay / 1_000
        last = self._last
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

    def _tells(self, error: Exception, failure: Failure, permit: Permit) -> Outcome:
        """What an error tells about our service: one that another guard has given up on was told by it already."""
        service = gave_up(error)
        if service is None or (service == self.guard.service and permit.probe):
            return outcome_of(failure)
        return Outcome.UNTOLD

    def _next(self, error: Exception, failure: Failure, report: Report) -> float | None:
        """How many seconds to wait before the next attempt; None if the error is to be raised."""
        guard, service = self.guard, self.guard.service
        attempt = self.course.attempts + 1
        if failure.error is ErrorClass.RATE_LIMIT and not failure.parked:
            guard.tell(RateLimited(service, attempt, failure.retry_after))
        self.course, step = failed(
            self.course, guard.policy, failure, report, remaining=self.remaining(), draw=guard.draw()
        )
        step = self._affordable(step, error)
        if isinstance(step, Wait):
            self._last = error
            guard.tell(RetryScheduled(service, attempt, failure.error, failure.message, step.delay))
            return step.delay / 1_000
        if step.action == "park" and step.delay is not None:
            if isinstance(error, ServiceParked):
                return None
            raise ServiceParked(service, guard.clock.wall() + step.delay, step.delay) from error
        self._give_up(error, step)
        return None

    def _affordable(self, step: Step, error: Exception) -> Step:
        """A retry that the course allows may still be one too many."""
        if not isinstance(step, Wait):
            return step
        if gave_up(error) is not None:
            return Stop("fail", "a guard inside has given up on it")
        if self._single:
            return Stop("fail", "output has reached the caller, or the call cannot be repeated")
        guard = self.guard
        budget = guard.policy.budget
        if budget is not None and not guard.budgets.spend(guard.service, budget):
            return Stop("fail", "the retry budget of the service is used up")
        return step

    def _give_up(self, error: BaseException, step: Stop) -> None:
        guard = self.guard
        if gave_up(error) is None:
            count = self.course.attempts
            error.add_note(f"allswell: {guard.service} was given up after {count} attempts: {step.reason}")
            if inside_a_guard():
                mark(error, guard.service)
        elif not inside_a_guard():
            unmark(error)
        guard.tell(GaveUp(guard.service, self.course.attempts, step.action == "escalate", step.reason))

    def no_more(self) -> None:
        """Output has reached the caller: whatever comes, the call is not repeated."""
        self._single = True

    def _well(self) -> None:
        guard = self.guard
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


class AsyncTrial(Trial):
    """A call of async code."""

    __slots__ = ()

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
                admission = await guard.awaited.admit(guard.service, policy)
                self.effects(admission.effects, admission.failures)
                if isinstance(admission.given, Permit):
                    return admission.given
                wait = self._refused(admission.given)
            await asyncio.sleep(wait)

    async def failed(self, error: BaseException, permit: Permit) -> float | None:
        """Judge what an attempt raised: seconds to wait before the next one, or None if it is to be raised."""
        guard = self.guard
        if not isinstance(error, Exception):
            await self._report(permit, Outcome.UNTOLD)
            return None
        failure = self._failure(error)
        report = await self._report(permit, self._tells(error, failure, permit))
        parks = weather(guard.policy.retry, failure)
        if parks is not None and not failure.parked:
            await guard.awaited.park(guard.service, parks)
            guard.tell(Parked(guard.service, parks))
        return self._next(error, failure, report)

    async def succeeded(self, permit: Permit) -> None:
        """Tell that an attempt went well."""
        await self._report(permit, Outcome.HEALTHY)
        self._well()

    async def _report(self, permit: Permit, outcome: Outcome) -> Report:
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
                admission = guard.breakers.admit(guard.service, policy)
                self.effects(admission.effects, admission.failures)
                if isinstance(admission.given, Permit):
                    return admission.given
                wait = self._refused(admission.given)
            guard.sleep(wait)

    def failed(self, error: BaseException, permit: Permit) -> float | None:
        """Judge what an attempt raised: seconds to wait before the next one, or None if it is to be raised."""
        guard = self.guard
        if not isinstance(error, Exception):
            self._report(permit, Outcome.UNTOLD)
            return None
        failure = self._failure(error)
        report = self._report(permit, self._tells(error, failure, permit))
        parks = weather(guard.policy.retry, failure)
        if parks is not None and not failure.parked:
            guard.breakers.park(guard.service, parks)
            guard.tell(Parked(guard.service, parks))
        return self._next(error, failure, report)

    def succeeded(self, permit: Permit) -> None:
        """Tell that an attempt went well."""
        self._report(permit, Outcome.HEALTHY)
        self._well()

    def _report(self, permit: Permit, outcome: Outcome) -> Report:
        policy = self.guard.policy.breaker
        if policy is None or permit.generation == UNCOUNTED:
            return NOTHING
        report = self.guard.breakers.report(permit, outcome, policy)
        self.effects(report.effects, report.failures)
        return report


def inside_a_guard() -> bool:
    """Whether this is part of an attempt of another guard: only then is there anybody to read a mark."""
    scope = current()
    while scope is not None:
        if scope.kind == ATTEMPT:
            return True
        scope = scope.outer
    return False


def mark(error: BaseException, service: str) -> None:
    """Note on an error that a guard has given up on it."""
    try:
        setattr(error, MARK, service)
    except (AttributeError, TypeError):
        return  # an exception with slots: a guard around it may try again, which is no more than it costs


def unmark(error: BaseException) -> None:
    """Let go of an error that no guard will see any more: the same object may be raised again (mocks do)."""
    one: BaseException | None = error
    for _ in range(_DEEPEST):
        if one is None:
            return
        vars(one).pop(MARK, None)
        one = one.__cause__


def gave_up(error: BaseException) -> str | None:
    """The service whose guard has given up on this error, or on what it was raised from."""
    one: BaseException | None = error
    for _ in range(_DEEPEST):
        if one is None:
            return None
        if isinstance(one, BreakerOpen | ServiceParked):
            return one.service
        found = getattr(one, MARK, None)
        if isinstance(found, str):
            return found
        headers = getattr(getattr(one, "response", None), "headers", None)
        if headers is not None and HEADER in headers:
            return str(headers[HEADER])
        one = one.__cause__
    return None
