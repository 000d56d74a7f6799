"""Retries against the scope they happen in: attempts, pauses with all their jitter, Retry-After (F3 to F7).

Two courses are followed to their end, each of one kind of failure, because they are the longest of their kinds:

- **hanging**: every attempt runs into its limit, is a network error, and is retried after a pause that doubles; where
  the service has a breaker, the failures open it, and its pause is waited out as well, by a lone caller too;
- **limited**: every attempt is answered at once with 429 and no Retry-After, and the last one takes all its time.

How many retries there are and how long each pause is, is asked of `judge` and of the breaker, which decide it at run
time: there is no second truth. Mixed courses can be longer; they are bounded by `max_attempts`, and by the scope, which
never waits for a retry that cannot fit. That is also why this matters: what does not fit does not happen.

Retries of a library below (`tries_inside`) multiply: an SDK with two retries of its own makes 3 × 4 × 2 minutes.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from allswell.domain.check.model import (
    CheckFigure,
    CheckRule,
    Finding,
    Location,
    Severity,
    SumCheck,
    SumTerm,
    at_least,
    at_most,
    exact,
    one,
    pauses,
    times,
)
from allswell.domain.duration import LONGEST
from allswell.domain.service.breaker import (
    CLEAN,
    BreakerPolicy,
    CallOutcome,
    Permit,
    admit,
    outcome_of,
    pause_left,
    report,
)
from allswell.domain.service.retry import ErrorClass, Failure, RetryAfter, RetryPolicy, judge

RETRIES_FIT = CheckRule("retries_fit", Severity.ERROR, "All attempts and the pauses between them fit into their scope.")
RETRIES_ABOVE_TOTAL = CheckRule(
    "retries_above_total", Severity.ERROR, "The number of retries is less than the total of attempts."
)
RETRY_AFTER_FITS = CheckRule(
    "retry_after_fits", Severity.WARNING, "The longest Retry-After that is waited for fits into its scope."
)
_MOST_FOLLOWED = 10_000


class Retrying(msgspec.Struct, frozen=True):
    """Something that is tried again when it fails."""

    what: str
    """In words: `a call of a model`, `step build`."""
    attempt: CheckFigure
    """The most that one attempt may take."""
    policy: RetryPolicy
    figures: tuple[CheckFigure, ...] = ()
    """The figures of the policy that somebody wrote."""
    tries_inside: int = 1
    """How often a library below tries within one attempt, each time for the attempt's whole limit."""
    place: Location | None = None
    """Where it is asked for, if no figure says so."""
    breaker: BreakerPolicy | None = None
    """The breaker of the service that is called, where there is one."""


class RetrySchedule(msgspec.Struct, frozen=True):
    """The pauses of one course."""

    waits: tuple[int, ...]
    """All of them, each as long as it can get."""
    bases: tuple[int, ...]
    """The retries' own, without jitter."""
    worst: tuple[int, ...]
    """The same, with the most of it."""
    breaks: tuple[int, ...]
    """The breaker's, where they are longer than the retry's own: without chance."""

    def terms(self, jitter: float) -> tuple[SumTerm, ...]:
        """All its pauses, as a sum has them."""
        own = (pauses(self.bases, self.worst, jitter),) if self.bases else ()
        if not self.breaks:
            return own
        shut = times(len(self.breaks), self.breaks[0])
        return (*own, SumTerm(f"breaker.pause {shut.text}", shut.total))


def course(policy: RetryPolicy, error: ErrorClass, breaker: BreakerPolicy | None = None) -> RetrySchedule:
    """Every pause that a policy, and a breaker, grant to a row of failures of one class."""
    failure = Failure(error)
    shut = _Breaker(breaker) if breaker is not None and outcome_of(failure) is CallOutcome.FAILED else None
    waits: list[int] = []
    bases: list[int] = []
    worst: list[int] = []
    breaks: list[int] = []
    # A course beyond the longest duration fits nowhere; there is no use in following it further.
    while len(waits) < _MOST_FOLLOWED and sum(waits) <= LONGEST:
        earlier = {str(error): len(waits)}
        least = judge(policy, failure, earlier=earlier, remaining=None, draw=0.0)
        most = judge(policy, failure, earlier=earlier, remaining=None, draw=1.0)
        pause = 0 if shut is None else shut.fail()
        if not isinstance(least, RetryAfter) or not isinstance(most, RetryAfter) or pause is None:
            break
        waits.append(max(pause, most.delay))
        if pause > most.delay:
            breaks.append(pause)
        else:
            bases.append(least.delay)
            worst.append(most.delay)
    return RetrySchedule(tuple(waits), tuple(bases), tuple(worst), tuple(breaks))


class _Breaker:
    """The breaker of a service that only one caller calls, whose every call fails."""

    def __init__(self, policy: BreakerPolicy) -> None:
        self._policy = policy
        self._service = CLEAN
        self._now = 0

    def fail(self) -> int | None:
        """How long it is shut after one more failure; None where a human is waited for."""
        given, change = admit("", self._service, self._policy, self._now)
        if isinstance(given, Permit):
            change = report(change.service, self._policy, given, CallOutcome.FAILED, self._now)
        self._service = change.service
        pause = pause_left(self._service, self._now)
        self._now += pause or 0
        return pause


def hanging(retrying: Retrying, scope: CheckFigure) -> SumCheck | None:
    """The sum of the course on which every attempt takes all its time; None where nothing is retried."""
    path = course(retrying.policy, ErrorClass.NETWORK, retrying.breaker)
    if not path.waits:
        return None
    attempts = times(len(path.waits) + 1, retrying.attempt.length, inside=retrying.tries_inside)
    return SumCheck((attempts, *path.terms(retrying.policy.jitter)), ">", scope.length)


def limited(retrying: Retrying, scope: CheckFigure) -> SumCheck | None:
    """The sum of the course on which every attempt but the last is answered at once with 429."""
    path = course(retrying.policy, ErrorClass.RATE_LIMIT)
    if not path.waits:
        return None
    last = times(1, retrying.attempt.length, inside=retrying.tries_inside)
    return SumCheck((*path.terms(retrying.policy.jitter), last), ">", scope.length)


def retries_fit(
    retrying: Retrying, scope: CheckFigure, *, most: int | None = None, severity: Severity = Severity.ERROR
) -> Iterator[Finding]:
    """Retries that are granted but can never all happen; `most` is how long the scope could be made."""
    figures = (*retrying.figures, scope, retrying.attempt)
    inside = ", each of them with the tries of the library below," if retrying.tries_inside > 1 else ""
    told = (
        (hanging(retrying, scope), ErrorClass.NETWORK, "that keeps running into its limit"),
        (limited(retrying, scope), ErrorClass.RATE_LIMIT, "that keeps being answered with 429"),
    )
    for made, error, course_ in told:
        if made is not None and made.total > scope.value:
            yield RETRIES_FIT.broken(
                f"The retries of {retrying.what} {course_}{inside} do not fit into {scope.name}.",
                figures,
                sum=made,
                fix=_fix(retrying, scope, made, error, most),
                severity=severity,
                place=None if retrying.figures else retrying.place,
            )


def _fix(retrying: Retrying, scope: CheckFigure, made: SumCheck, error: ErrorClass, most: int | None) -> str:
    ways = []
    if made.total <= (LONGEST if most is None else most):
        ways.append(f"give {scope.name} at least {at_least(made.total)}")
    waits = _all_waits(retrying, error)
    tries = retrying.tries_inside * (len(waits) + 1 if error is ErrorClass.NETWORK else 1)
    longest = (scope.length - sum(waits)) // tries
    if longest > 0:
        ways.append(f"make {retrying.attempt.name} at most {at_most(longest)}")
    if (fewer := _retries_that_fit(retrying, scope, error)) is not None:
        ways.append(f"allow only {fewer} {'retry' if fewer == 1 else 'retries'}" if fewer else "allow no retries")
    said = ", or ".join(ways) or "make the pauses between attempts shorter"
    return said[0].upper() + said[1:] + "."


def _all_waits(retrying: Retrying, error: ErrorClass) -> tuple[int, ...]:
    """Every pause on that course, each as long as it can get."""
    return course(retrying.policy, error, retrying.breaker).waits


def _retries_that_fit(retrying: Retrying, scope: CheckFigure, error: ErrorClass) -> int | None:
    """The most retries that would fit; None if not even a first attempt does."""
    attempt = retrying.attempt.length * retrying.tries_inside
    spent = attempt
    for number, pause in enumerate(_all_waits(retrying, error)):
        spent += pause + (attempt if error is ErrorClass.NETWORK else 0)
        if spent > scope.value:
            return number if attempt <= scope.value else None
    return None


def retries_above_total(retries: CheckFigure, max_attempts: CheckFigure) -> Iterator[Finding]:
    """A number of retries that the total over all classes cuts off."""
    if retries.value >= max_attempts.value:
        possible = max_attempts.length - 1
        yield RETRIES_ABOVE_TOTAL.broken(
            f"{retries.name} ({retries.length}) can never be reached: {max_attempts.name} ({max_attempts.length})"
            f" counts the first attempt too, and leaves {possible}.",
            (retries, max_attempts),
            fix=f"Set {max_attempts.name} to {retries.length + 1}, or {retries.name} to {possible}.",
        )


def retry_after_fits(cap: CheckFigure, scope: CheckFigure) -> Iterator[Finding]:
    """A wait that is too short to park the service and too long to be waited for ends the call instead."""
    if cap.value >= scope.value:
        yield RETRY_AFTER_FITS.broken(
            f"A Retry-After of {exact(scope.length)} or more, up to {cap.name}, neither parks the service nor fits"
            f" into {scope.name}: the call is given up.",
            (cap, scope) if cap.written else (scope, cap),
            sum=SumCheck((one(cap.length),), "≥", scope.length),
            fix=f"Make {cap.name} less than {exact(scope.length)}, so that a longer wait parks the service.",
        )
