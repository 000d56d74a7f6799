"""How calls to a service are made: the policy of a guard, and what it would do (F4 to F8).

A policy is a plain value: it can be stored, sent and compared, and it is checked where it is made. `decide` shows what
it means, and calls nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Literal, assert_never, cast

import msgspec
from msgspec.structs import fields, replace

from allswell.domain.duration import LONGEST, Duration, parse, show
from allswell.domain.ids import Millis
from allswell.domain.service.breaker import (
    BreakerNotice,
    BreakerPolicy,
    BreakerState,
    CallOutcome,
    CallRefused,
    FailureAnswer,
    breaker_rules,
    outcome_of,
)
from allswell.domain.service.classify import class_of_answer, failure_of, named_class
from allswell.domain.service.retry import (
    IN_WORDS,
    RULES,
    ErrorClass,
    Escalate,
    Failure,
    GiveUp,
    RateLimitPause,
    RetryAfter,
    RetryPolicy,
    RetryRule,
    judge,
    parked_for,
    retry_rules,
)
from allswell.errors import Refused


class RetryBudget(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A limit on the retries of a whole service: each costs a token, and only calls that go well earn new ones.

    When most calls fail, retries would multiply the load on a service that is already sick; with a budget they run dry.
    """

    tokens: int = 10
    """How many can be saved up; one is there to begin with for each."""
    earn: float = 0.1
    """What a call that went well adds."""


class GuardPolicy(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How calls to one service are made; lengths of time are milliseconds. An impossible one is refused at once."""

    timeout: int | None = None
    """The whole of a call: attempts, pauses and waits. None: whatever the scopes around it leave."""
    attempt_timeout: int | None = 120_000
    """One attempt; its expiry is a network error. None: whatever the scopes around it leave."""
    retry: RetryPolicy = RetryPolicy()
    retries: Mapping[str, int] = {}
    """The number of retries of single error classes, where it is not the usual one: `{"server": 5}`."""
    breaker: BreakerPolicy | None = BreakerPolicy()
    """None: no breaker."""
    budget: RetryBudget | None = None
    patient: bool = False
    """Whether a first attempt, too, waits out an open breaker's pause. Retries always do, if the time allows."""

    def __post_init__(self) -> None:
        broken = [text for holds, text in _rules(self) if not holds]
        if broken:
            raise Refused("bad_policy", "impossible policy: " + "; ".join(broken), where=broken[0].split(" ", 1)[0])

    def rules(self) -> Mapping[ErrorClass, RetryRule]:
        """The retry rule of every class, as this policy has it."""
        if not self.retries:
            return RULES
        own = {ErrorClass(name): RetryRule(count, RULES[ErrorClass(name)].then) for name, count in self.retries.items()}
        return {**RULES, **own}

    def decide(
        self,
        error: BaseException | Failure | ErrorClass | str | int,
        *,
        attempt: int = 1,
        remaining: float | Duration | None = None,
        retry_after: Duration | None = None,
    ) -> RetryDecision:
        """What would follow if this attempt failed so, and why; nothing is called, nothing is counted.

        `error` is an exception, the name of an error class, or a status; `attempt` counts from 1, and the attempts
        before it are taken to have failed the same way.
        """
        failure = _as_failure(error, retry_after)
        left = _whole(remaining)
        if attempt < 1:
            raise Refused("bad_attempt", f"attempt ({attempt}) must be 1 or more", where="attempt")
        earlier = {failure.error.value: attempt - 1}
        verdict = judge(self.retry, failure, earlier=earlier, remaining=left, draw=0.0, rules=self.rules())
        tells = outcome_of(failure)
        match verdict:
            case RetryAfter(delay):
                longest = judge(self.retry, failure, earlier=earlier, remaining=None, draw=1.0, rules=self.rules())
                latest = longest.delay if isinstance(longest, RetryAfter) else delay
                if left is not None and latest >= left:
                    latest = Millis(left - 1)
                return RetryDecision(failure.error, "retry", f"attempt {attempt + 1} follows", tells, delay, latest)
            case RateLimitPause(delay):
                return RetryDecision(failure.error, "park", "the service is parked for all tasks", tells, delay, delay)
            case GiveUp(reason):
                return RetryDecision(failure.error, "fail", reason, tells)
            case Escalate(reason):
                return RetryDecision(failure.error, "escalate", reason, tells)


class RetryDecision(msgspec.Struct, frozen=True):
    """What a policy would do after a failure."""

    error: ErrorClass
    action: Literal["retry", "fail", "escalate", "park"]
    reason: str
    tells: CallOutcome
    """What it tells the breaker about the service."""
    delay: Millis = Millis(0)
    """The pause before the next attempt without jitter, or how long the service is parked."""
    latest: Millis = Millis(0)
    """The pause with all the jitter there can be."""

    def explain(self) -> str:
        """The decision in a sentence."""
        match self.action:
            case "retry":
                pause = show(self.delay) if self.delay == self.latest else f"{show(self.delay)} to {show(self.latest)}"
                return f"{self.error}: {self.reason} after {pause}"
            case "park":
                return f"{self.error}: {self.reason} for {show(self.delay)}; no attempt is used up"
            case "fail":
                return f"fail: {self.reason}"
            case "escalate":
                return f"ask a human: {self.reason}"


def _whole(remaining: float | Duration | None) -> int | None:
    """What is left in whole milliseconds, as `allswell.remaining_ms()` or a person says it."""
    if isinstance(remaining, float) and 0 <= remaining <= LONGEST:
        return math.floor(remaining)
    return None if remaining is None else parse(cast("Duration", remaining), where="remaining")


def _as_failure(error: BaseException | Failure | ErrorClass | str | int, retry_after: Duration | None) -> Failure:
    wait = None if retry_after is None else parse(retry_after, where="retry_after")
    if isinstance(error, str):
        return Failure(named_class(error, "error"), retry_after=wait)
    if isinstance(error, int):
        if isinstance(error, bool) or not 400 <= error <= 599:
            raise Refused("bad_status", f"{error} is not a status of an error; those are 400 to 599", where="error")
        return Failure(class_of_answer(error, says_when=wait is not None), retry_after=wait, status=error)
    given: object = error
    if not isinstance(given, BaseException | Failure):
        raise Refused("bad_error", f"{given!r} is not an exception, failure, error class or status", where="error")
    failure = failure_of(error)
    return failure if wait is None else msgspec.structs.replace(failure, retry_after=wait)


# --- what a policy must keep ------------------------------------------------------------------------------------------


def _rules(policy: GuardPolicy) -> Iterator[tuple[bool, str]]:
    """Every rule, with whether it is kept; a value that is not a number is reported before numbers are compared."""
    wrong = [(False, text) for fine, text in _kinds(policy) if not fine]
    if wrong:
        yield from wrong
        return
    yield from ((rule.holds, rule.says) for rule in retry_rules(policy.retry))
    for name in ("timeout", "attempt_timeout"):
        length: int | None = getattr(policy, name)
        yield length is None or 0 < length <= LONGEST, f"{name} ({length} ms) must be positive and at most 366 days"
    for error, count in policy.retries.items():
        known = next((rule for name, rule in RULES.items() if name == error), None)
        yield known is not None, f"retries.{error} names no error class; choose one of: {', '.join(ErrorClass)}"
        yield count >= 0, f"retries.{error} ({count}) must not be negative"
        yield known is None or known.retries > 0 or count == 0, f"retries.{error} ({count}): {error} is never retried"
    if policy.breaker is not None:
        attempt, lease = policy.attempt_timeout, policy.breaker.probe_lease
        yield from ((rule.holds, rule.says) for rule in breaker_rules(policy.breaker))
        yield (
            attempt is None or attempt <= lease,
            (
                f"attempt_timeout ({attempt} ms) must be at most breaker.probe_lease ({lease} ms), or a probe would be"
                " given up while it may still run"
            ),
        )
    if policy.budget is not None:
        yield policy.budget.tokens >= 1, f"budget.tokens ({policy.budget.tokens}) must be at least 1"
        yield 0 <= policy.budget.earn <= 1, f"budget.earn ({policy.budget.earn}) must be between 0 and 1"


_OPTIONAL = frozenset({"timeout", "attempt_timeout", "retries", "timeouts"})
_SHARES = frozenset({"jitter", "earn"})


def _kinds(policy: GuardPolicy) -> Iterator[tuple[bool, str]]:
    """Whether there is a number where one belongs: a msgspec value checks kinds when it is decoded, not when made."""
    parts: list[tuple[str, object, type]] = [("retry", policy.retry, RetryPolicy)]
    parts += [] if policy.breaker is None else [("breaker", policy.breaker, BreakerPolicy)]
    parts += [] if policy.budget is None else [("budget", policy.budget, RetryBudget)]
    figures: dict[str, object] = {name: getattr(policy, name) for name in ("timeout", "attempt_timeout")}
    for name, part, kind in parts:
        if not isinstance(part, kind):
            yield False, f"{name} must be a {kind.__name__}, not {part!r}"
            continue
        figures |= {f"{name}.{field.name}": getattr(part, field.name) for field in fields(kind) if field.name != "then"}
    yield isinstance(policy.patient, bool), f"patient ({policy.patient!r}) must be true or false"
    retries: object = policy.retries
    if isinstance(retries, Mapping):
        figures |= {f"retries.{error}": count for error, count in retries.items()}
    else:
        yield False, f"retries must map error classes to numbers, not {retries!r}"
    for name, value in figures.items():
        field = name.rpartition(".")[2]
        if value is None and (field in _OPTIONAL):
            continue
        if field in _SHARES:
            fine = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            yield fine, f"{name} ({value!r}) must be a number"
        else:
            fine = isinstance(value, int) and not isinstance(value, bool)
            yield fine, f"{name} ({value!r}) must be a whole number"


DEFAULT = GuardPolicy()


# The course of one guarded call: what follows a refusal and what follows a failure.
#
# One value per call, replaced at every step; the loops that really call and really sleep (sync and async) only do what
# stands here. A step is `Wait`, after which the service is asked again, or `Stop`.
#
# **What is waited for fits.** A wait that would not end before the time that is left is not begun: neither a backoff,
# nor a Retry-After, nor a breaker's pause. Waits are bounded without any deadline, too: no rate-limit pause beyond the
# cap is slept through, and an open breaker is waited out once; if its probe fails as well, the call is over.


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
    effects: tuple[BreakerNotice, ...] = ()


NOTHING = PermitReport()


class GuardedCall(msgspec.Struct, frozen=True):
    """What a call has been through."""

    attempts: int = 0
    failures: Mapping[str, int] = {}
    """How often each class has failed."""
    pause: int | None = None
    """The generation of the breaker's pause that this call waits out, or has waited out."""


def refused(
    course: GuardedCall, policy: GuardPolicy, refusal: CallRefused, *, remaining: int | None, draw: float
) -> tuple[GuardedCall, Step]:
    """What follows when the service may not be called now."""
    wait = refusal.wait
    if refusal.stand == "parked" and wait is not None:
        most = policy.retry.retry_after_cap
        spread = min(int(min(wait * policy.retry.jitter, STAGGER) * draw), max(most - wait, 0))
        if wait > most:
            return course, Stop("park", f"parked for {show(wait)} more, longer than any caller waits", wait)
        if remaining is not None and wait + spread >= remaining:
            return course, Stop("park", f"parked for {show(wait)} more, and {_left(remaining)}", wait)
        return course, Wait(Millis(wait + spread))
    if wait is None:
        return course, Stop("fail", "it failed too often in a row, and a human has been asked")
    what = "its breaker is open" if refusal.stand == BreakerState.OPEN else "its probe is out"
    if course.attempts == 0 and not policy.patient:
        return course, Stop("fail", f"{what}; ask again in {show(wait)}", wait)
    if refusal.stand == BreakerState.OPEN:
        if course.pause is not None and course.pause != refusal.generation:
            return course, Stop("fail", "its breaker was waited out once, and has opened again", wait)
        course = replace(course, pause=refusal.generation)
    if remaining is not None and wait >= remaining:
        return course, Stop("fail", f"{what} for {show(wait)} more, and {_left(remaining)}", wait)
    return course, Wait(wait)


def failed(
    course: GuardedCall,
    policy: GuardPolicy,
    failure: Failure,
    report: PermitReport,
    *,
    remaining: int | None,
    draw: float,
) -> tuple[GuardedCall, Step]:
    """What follows when an attempt has failed and its breaker has counted that."""
    parks = parked_for(policy.retry, failure)
    if parks is not None:
        return course, Stop("park", f"{IN_WORDS[failure.error]}: asked to wait {show(parks)}", parks)
    earlier = course.failures
    verdict = judge(policy.retry, failure, earlier=earlier, remaining=remaining, draw=draw, rules=policy.rules())
    course = GuardedCall(
        course.attempts + 1,
        {**earlier, failure.error.value: earlier.get(failure.error, 0) + 1},
        report.generation if report.wait else course.pause,
    )
    match verdict:
        case RetryAfter(delay):
            return course, _again(delay, report, remaining)
        case GiveUp(reason):
            return course, Stop("fail", reason)
        case Escalate(reason):
            return course, Stop("escalate", reason)
        case RateLimitPause(delay):
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
