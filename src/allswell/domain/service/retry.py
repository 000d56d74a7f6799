"""What follows a failure: try again after a pause, give up, ask a human, or wait out a limit (F4 to F7).

Retries exclude the first attempt. A pause is the class's backoff, or the provider's Retry-After, with up to half of it
on top as jitter; a Retry-After with its jitter never exceeds the cap. A pause that does not fit into the time that is
left is not waited for. A Retry-After beyond the cap is a rate limit, not a failure: the service is parked for all
callers and no attempt is spent.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

import msgspec

from allswell.domain.agents.denied import Denied
from allswell.domain.duration import LONGEST, show
from allswell.domain.ids import Millis
from allswell.domain.values import Requirement, require


class ErrorClass(StrEnum):
    """Why an attempt failed, as far as the next step is concerned."""

    NETWORK = "network"
    SERVER = "server"
    OVERLOAD = "overload"
    RATE_LIMIT = "rate_limit"
    TRANSIENT = "transient"
    VALIDATION = "validation"
    NOT_FOUND = "not_found"
    AUTH = "auth"
    PERMANENT = "permanent"
    CONTEXT_OVERFLOW = "context_overflow"
    BUG = "bug"


IN_WORDS: Mapping[ErrorClass, str] = {
    ErrorClass.NETWORK: "a network error",
    ErrorClass.SERVER: "a server error",
    ErrorClass.OVERLOAD: "an overload",
    ErrorClass.RATE_LIMIT: "a rate limit",
    ErrorClass.TRANSIENT: "a failure",
    ErrorClass.VALIDATION: "a bad request",
    ErrorClass.NOT_FOUND: "something not found",
    ErrorClass.AUTH: "a refused login",
    ErrorClass.PERMANENT: "a permanent error",
    ErrorClass.CONTEXT_OVERFLOW: "a full context",
    ErrorClass.BUG: "a bug",
}
"""The classes for people; their names are for programs."""


class Failure(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What went wrong, as the holder tells it."""

    error: ErrorClass = ErrorClass.TRANSIENT
    message: str = ""
    retry_after: Millis | None = None
    """How long the provider asked to wait; only a rate limit or an overload is waited for this way."""
    services: tuple[str, ...] = ()
    """Whose limit it was: what is parked when the wait is long."""
    status: int | None = None
    """The HTTP status, where there was an answer."""
    parked: bool = False
    """Nothing was called, because the service was parked already: no failure, however short the rest of it is."""
    denied: Denied | None = None
    """The calls that the agent's program refused, where the agent then could not go on."""
    account: bool = False
    """Whether the provider refuses the agent's whole account (a login, a quota), and so all of its tasks."""


class RetryRule(msgspec.Struct, frozen=True, gc=False):
    """How one error class is treated."""

    retries: int
    then: Literal["fail", "escalate"]
    """What happens when the retries are used up (at once, where there are none)."""


RULES: Mapping[ErrorClass, RetryRule] = {
    ErrorClass.NETWORK: RetryRule(3, "fail"),
    ErrorClass.SERVER: RetryRule(3, "fail"),
    ErrorClass.OVERLOAD: RetryRule(3, "fail"),
    ErrorClass.TRANSIENT: RetryRule(3, "fail"),
    ErrorClass.RATE_LIMIT: RetryRule(5, "escalate"),
    ErrorClass.VALIDATION: RetryRule(0, "fail"),
    ErrorClass.NOT_FOUND: RetryRule(0, "fail"),
    ErrorClass.CONTEXT_OVERFLOW: RetryRule(0, "fail"),
    ErrorClass.BUG: RetryRule(0, "fail"),
    ErrorClass.AUTH: RetryRule(0, "escalate"),
    ErrorClass.PERMANENT: RetryRule(0, "escalate"),
}


TASK_RULES: Mapping[ErrorClass, RetryRule] = {**RULES, ErrorClass.CONTEXT_OVERFLOW: RetryRule(0, "escalate")}
"""The rules for attempts at tasks: another one would fill its context the same way, so a human is asked to split it."""


class RetryPolicy(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """The figures behind the rules; every one is a setting."""

    backoff: int = 1_000
    """The first pause; each further one is twice the last."""
    jitter: float = 0.5
    """At most this share of a pause is added to it by chance."""
    retry_after_default: int = 60_000
    retry_after_cap: int = 300_000
    max_attempts: int = 6
    """A total over all classes, the first attempt included."""
    retries: int | None = None
    """Where set, replaces the number of retries of every class that is retried at all."""
    timeouts: int | None = None
    """Where set, a task is tried again so often in all, timeouts and failures counted together, and a timeout beyond
    that asks a human, whatever `timeout_escalation` says: what `retry:` of a flow's step means."""


_COUNT_MAX = 1_000_000


def retry_rules(retry: RetryPolicy) -> list[Requirement]:
    """Every rule that these figures must keep."""
    backoff, cap = ("retry.backoff", f"{retry.backoff} ms"), ("retry.retry_after_cap", f"{retry.retry_after_cap} ms")
    wait = ("retry.retry_after_default", f"{retry.retry_after_default} ms")
    attempts, retries = ("retry.max_attempts", retry.max_attempts), ("retry.retries", retry.retries)
    counts = (attempts, retries, ("retry.timeouts", retry.timeouts))
    return [
        require(retry.backoff <= LONGEST, "{} must be at most 366 days", backoff),
        require(retry.retry_after_cap <= LONGEST, "{} must be at most 366 days", cap),
        require(retry.backoff >= 0, "{} must not be negative", backoff),
        require(0 <= retry.jitter <= 1, "{} must be between 0 and 1", ("retry.jitter", retry.jitter)),
        require(0 <= retry.retry_after_default <= retry.retry_after_cap, "{} must be at most {}", wait, cap),
        *(require((one[1] or 0) <= _COUNT_MAX, f"{{}} must be at most {_COUNT_MAX:,}", one) for one in counts),
        require(retry.max_attempts >= 1, "{} must be at least 1", attempts),
        *(require((one[1] or 0) >= 0, "{} must not be negative", one) for one in counts[1:]),
    ]


LIMITS = (ErrorClass.RATE_LIMIT, ErrorClass.OVERLOAD)
"""The classes whose Retry-After is heeded."""


def parked_for(policy: RetryPolicy, failure: Failure) -> Millis | None:
    """For how long a failure parks its service for all callers; None if it is not a rate limit."""
    asked = failure.retry_after
    if failure.error not in LIMITS or asked is None:
        return None
    return asked if failure.parked or asked > policy.retry_after_cap else None


class RetryAfter(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Try again after a pause; the attempt counts."""

    delay: Millis


class RateLimitPause(msgspec.Struct, frozen=True, gc=False, tag="Weather"):
    """Wait until the provider's own time; the attempt does not count, and the service is parked meanwhile."""

    delay: Millis


class GiveUp(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The task has failed."""

    reason: str


class Escalate(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Only a human can help."""

    reason: str


Verdict = RetryAfter | RateLimitPause | GiveUp | Escalate


def judge(
    policy: RetryPolicy,
    failure: Failure,
    *,
    earlier: Mapping[str, int],
    remaining: int | None,
    draw: float,
    rules: Mapping[ErrorClass, RetryRule] = RULES,
    timed_out: int = 0,
) -> Verdict:
    """Decide what follows `failure`, given how often each class has failed before and the time that is left.

    `timed_out` is how often it has reached its limit, which counts where the policy says so.
    `draw` is a number from [0, 1): chance comes in from outside, so that a history can be replayed.
    """
    rule, said = rules[failure.error], IN_WORDS[failure.error]
    asked = failure.retry_after
    limited = failure.error in LIMITS
    long = parked_for(policy, failure)
    if long is not None:
        if remaining is not None and long >= remaining:
            return GiveUp(f"{said}: asked to wait {show(long)}, with only {show(max(remaining, 0))} left")
        return RateLimitPause(long)
    retries = rule.retries if policy.retries is None or rule.retries == 0 else policy.retries
    before = earlier.get(failure.error, 0)
    timeouts = 0 if policy.timeouts is None else timed_out
    if before + timeouts >= retries:
        reason = f"{said} after {before} retr{'y' if before == 1 else 'ies'}"
        if retries == 0:
            reason = f"{said} is not retried" if rule.retries == 0 else "no retries asked for"
            if rule.retries and rule.then == "escalate":
                reason = f"it met {said}, and no retries were asked for"
        return Escalate(reason) if rule.then == "escalate" else GiveUp(reason)
    if sum(earlier.values()) + 1 >= policy.max_attempts:
        reason = f"{said}: all {policy.max_attempts} attempts are used up"
        return Escalate(reason) if rule.then == "escalate" else GiveUp(reason)
    if failure.error is ErrorClass.RATE_LIMIT or (limited and asked is not None):
        base = min(max(policy.retry_after_default if asked is None else asked, 0), policy.retry_after_cap)
        most = policy.retry_after_cap
    else:
        base = policy.backoff * 2**before
        most = LONGEST
    delay = Millis(min(base + int(base * policy.jitter * draw), most))
    if remaining is not None and delay >= remaining:
        left = show(max(remaining, 0))
        return GiveUp(f"{said}: the next try in {show(delay)} would not fit into the {left} left")
    return RetryAfter(delay)
