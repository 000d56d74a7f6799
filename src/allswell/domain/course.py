"""The course of one guarded call: what follows a refusal and what follows a failure.

One value per call, replaced at every step; the loops that really call and really sleep (sync and async) only do what
stands here. A step is `Wait`, after which the service is asked again, or `Stop`.

**What is waited for fits.** A wait that would not end before the time that is left is not begun: neither a backoff, nor
a Retry-After, nor a breaker's pause. Waits are bounded without any deadline, too: no rate-limit pause beyond the
cap is slept through, and an open breaker is waited out once; if its probe fails as well, the call is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, assert_never

import msgspec
from msgspec.structs import replace

from allswell.domain.breaker import Effect, FailureAnswer, Refusal, Stand
from allswell.domain.duration import show
from allswell.domain.guard import GuardPolicy
from allswell.domain.names import Millis
from allswell.domain.retry import IN_WORDS, Again, Escalate, Failure, GiveUp, Weather, judge, weather


class Wait(msgspec.Struct, frozen=True, tag=True):
    """Sleep so long, then ask the service's breaker again."""

    delay: Millis


class Stop(msgspec.Struct, frozen=True, tag=True):
    """The call is over."""

    action: Literal["fail", "escalate", "park"]
    reason: str
    delay: Millis | None = None
    """How long the service is parked, or the breaker open, as far as that is known."""


Step = Wait | Stop

STAGGER = 10_000
"""Those who wait for a parked service come back within so many milliseconds of one another, not all at once."""


class PermitReport(msgspec.Struct, frozen=True):
    """What the breaker says when a permit is given back."""

    answer: FailureAnswer = FailureAnswer.RETRY
    wait: Millis | None = Millis(0)
    """How long until a call may go; None while a human is waited for."""
    generation: int = 0
    failures: int = 0
    effects: tuple[Effect, ...] = ()


NOTHING = PermitReport()


class Course(msgspec.Struct, frozen=True):
    """What a call has been through."""

    attempts: int = 0
    failures: Mapping[str, int] = {}
    """How often each class has failed."""
    pause: int | None = None
    """The generation of the breaker's pause that this call waits out, or has waited out."""


def refused(
    course: Course, policy: GuardPolicy, refusal: Refusal, *, remaining: int | None, draw: float
) -> tuple[Course, Step]:
    """What follows when the service may not be called now."""
    wait = refusal.wait
    if refusal.stand == "parked" and wait is not None:
        most = policy.retry.retry_after_cap
        spread = min(int(min(wait * policy.retry.jitter, STAGGER) * draw), max(most - wait, 0))
        if wait > most:
            return course, Stop("park", f"parked for {show(wait)} more, longer than anyone waits", wait)
        if remaining is not None and wait + spread >= remaining:
            return course, Stop("park", f"parked for {show(wait)} more, and {_left(remaining)}", wait)
        return course, Wait(Millis(wait + spread))
    if wait is None:
        return course, Stop("fail", "it failed too often in a row, and a human has been asked")
    what = "its breaker is open" if refusal.stand == Stand.OPEN else "its probe is out"
    if course.attempts == 0 and not policy.patient:
        return course, Stop("fail", f"{what}; ask again in {show(wait)}", wait)
    if refusal.stand == Stand.OPEN:
        if course.pause is not None and course.pause != refusal.generation:
            return course, Stop("fail", "its breaker was waited out once, and has opened again", wait)
        course = replace(course, pause=refusal.generation)
    if remaining is not None and wait >= remaining:
        return course, Stop("fail", f"{what} for {show(wait)} more, and {_left(remaining)}", wait)
    return course, Wait(wait)


def failed(
    course: Course, policy: GuardPolicy, failure: Failure, report: PermitReport, *, remaining: int | None, draw: float
) -> tuple[Course, Step]:
    """What follows when an attempt has failed and its breaker has been told."""
    parks = weather(policy.retry, failure)
    if parks is not None:
        return course, Stop("park", f"{IN_WORDS[failure.error]}: asked to wait {show(parks)}", parks)
    earlier = course.failures
    verdict = judge(policy.retry, failure, earlier=earlier, remaining=remaining, draw=draw, rules=policy.rules())
    course = Course(
        course.attempts + 1,
        {**earlier, failure.error.value: earlier.get(failure.error, 0) + 1},
        report.generation if report.wait else course.pause,
    )
    match verdict:
        case Again(delay):
            return course, _again(delay, report, remaining)
        case GiveUp(reason):
            return course, Stop("fail", reason)
        case Escalate(reason):
            return course, Stop("escalate", reason)
        case Weather(delay):
            return course, Stop("park", f"{IN_WORDS[failure.error]}: asked to wait {show(delay)}", delay)
        case _:
            assert_never(verdict)


def _again(delay: Millis, report: PermitReport, remaining: int | None) -> Step:
    """A retry waits out an open breaker too, if that fits as well."""
    if report.wait is None:
        return Stop("fail", "it failed too often in a row, and a human has been asked")
    wait = max(delay, report.wait)
    if remaining is not None and wait >= remaining:
        return Stop("fail", f"its breaker is open for {show(report.wait)}, and {_left(remaining)}", report.wait)
    return Wait(Millis(wait))


def _left(remaining: int) -> str:
    return f"only {show(max(remaining, 0))} are left"
