"""What follows a failure: try again after a pause, give up, ask a human, or wait out a limit (F4 to F7).

Retries exclude the first attempt. A pause is the class's backoff, or the provider's Retry-After, with up to half of it
on top as jitter. A pause that does not fit into the time that is left is not waited for. A Retry-After beyond the
cap is weather, not failure: the service is parked for everybody and no attempt is spent.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

import msgspec

from allswell.domain.names import Millis


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


class Failure(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What went wrong, as the holder tells it."""

    error: ErrorClass = ErrorClass.TRANSIENT
    message: str = ""
    retry_after: Millis | None = None
    """How long the provider asked to wait; only a rate limit or an overload is waited for this way."""
    services: tuple[str, ...] = ()
    """Whose limit it was: what is parked when the wait is long."""


class Rule(msgspec.Struct, frozen=True, gc=False):
    """How one error class is treated."""

    retries: int
    then: Literal["fail", "escalate"]
    """What happens when the retries are used up (at once, where there are none)."""


RULES: Mapping[ErrorClass, Rule] = {
    ErrorClass.NETWORK: Rule(3, "fail"),
    ErrorClass.SERVER: Rule(3, "fail"),
    ErrorClass.OVERLOAD: Rule(3, "fail"),
    ErrorClass.TRANSIENT: Rule(3, "fail"),
    ErrorClass.RATE_LIMIT: Rule(5, "escalate"),
    ErrorClass.VALIDATION: Rule(0, "fail"),
    ErrorClass.NOT_FOUND: Rule(0, "fail"),
    ErrorClass.CONTEXT_OVERFLOW: Rule(0, "fail"),
    ErrorClass.BUG: Rule(0, "fail"),
    ErrorClass.AUTH: Rule(0, "escalate"),
    ErrorClass.PERMANENT: Rule(0, "escalate"),
}


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


class Again(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Try again after a pause; the attempt counts."""

    delay: Millis


class Weather(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Wait until the provider's own time; the attempt does not count, and the service is parked meanwhile."""

    delay: Millis


class GiveUp(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The task has failed."""

    reason: str


class Escalate(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Only a human can help."""

    reason: str


Verdict = Again | Weather | GiveUp | Escalate


def judge(
    policy: RetryPolicy,
    failure: Failure,
    *,
    earlier: Mapping[str, int],
    remaining: int | None,
    draw: float,
) -> Verdict:
    """Decide what follows `failure`, given how often each class has failed before and the time that is left.

    `draw` is a number from [0, 1): chance comes in from outside, so that a history can be replayed.
    """
    rule = RULES[failure.error]
    asked = failure.retry_after
    limited = failure.error in (ErrorClass.RATE_LIMIT, ErrorClass.OVERLOAD)
    if limited and asked is not None and asked > policy.retry_after_cap:
        if remaining is not None and asked >= remaining:
            return GiveUp(f"{failure.error}: asked to wait {asked} ms, but only {max(remaining, 0)} ms are left")
        return Weather(Millis(asked))
    retries = rule.retries if policy.retries is None or rule.retries == 0 else policy.retries
    before = earlier.get(failure.error, 0)
    if before >= retries:
        reason = f"{failure.error} is not retried" if retries == 0 else f"{failure.error} after {before} retries"
        return Escalate(reason) if rule.then == "escalate" else GiveUp(reason)
    if sum(earlier.values()) + 1 >= policy.max_attempts:
        reason = f"{failure.error}: all {policy.max_attempts} attempts are used up"
        return Escalate(reason) if rule.then == "escalate" else GiveUp(reason)
    if failure.error is ErrorClass.RATE_LIMIT or (limited and asked is not None):
        base = min(max(policy.retry_after_default if asked is None else asked, 0), policy.retry_after_cap)
    else:
        base = policy.backoff * 2**before
    delay = Millis(base + int(base * policy.jitter * draw))
    if remaining is not None and delay >= remaining:
        return GiveUp(f"{failure.error}: the next try in {delay} ms would not fit into the {max(remaining, 0)} ms left")
    return Again(delay)


MESSAGE_KEPT = 4_000
_PLAINLY_BUGS = (TypeError, AssertionError, AttributeError, NameError, IndexError, KeyError, ZeroDivisionError)


def failure_of(error: BaseException | str | Failure) -> Failure:
    """A failure from whatever the holder has at hand: unknown errors are transient, unless plainly bugs (F7)."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, str):
        return Failure(ErrorClass.TRANSIENT, _shortened(error))
    message = _shortened(f"{type(error).__name__}: {error}")
    if isinstance(error, _PLAINLY_BUGS):
        return Failure(ErrorClass.BUG, message)
    if isinstance(error, ConnectionError | TimeoutError):
        return Failure(ErrorClass.NETWORK, message)
    return Failure(ErrorClass.TRANSIENT, message)


def _shortened(message: str) -> str:
    """A failure is recorded whatever it says: a long message keeps its start and its end, an odd one is escaped."""
    if not message.isascii() or "\0" in message:
        message = message.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
    if len(message) <= MESSAGE_KEPT:
        return message
    half = MESSAGE_KEPT // 2
    return f"{message[:half]}\n… {len(message) - 2 * half} characters left out …\n{message[-half:]}"
