"""What follows when a message was read, and when its handler failed (W5).

A message is tried again after a transient failure: three times, after 10 s, 60 s and 300 s. Whether it is tried again
is the rule that tasks go by (`retry.judge`); only the pauses are a message's own. What is permanent, or fails once too
often, is quarantined: it leaves the queue and waits for an operator. A business failure ("the card was declined") is an
answer, not trouble: the message ends as failed, and nobody is asked.

**Poison.** A message whose handler kills the process, or hangs, leaves no end behind. PGMQ counts every reading, and we
count every end that was recorded; the difference is how often nobody came back. At three it is quarantined instead of
being handled a fourth time. Retries are counted apart, so a message that only fails is never taken for poison.
"""

from __future__ import annotations

import msgspec

from allswell.domain.duration import LONGEST
from allswell.domain.names import Millis
from allswell.domain.retry import Again, ErrorClass, Failure, RetryPolicy, Weather, judge

TIMEOUT, CANCELLED, LOCK, POISON, UNREADABLE = "TIMEOUT", "CANCELLED", "LOCK_TIMEOUT", "POISON", "UNREADABLE"
UNKNOWN_TYPE, EXHAUSTED, BROKEN = "UNKNOWN_TYPE", "POOL_EXHAUSTED", "BROKEN_CONNECTION"


class MessagePolicy(msgspec.Struct, frozen=True):
    """How often a message is tried."""

    pauses: tuple[int, ...] = (10_000, 60_000, 300_000)
    """Milliseconds before each retry; there are as many retries as pauses."""
    poison_after: int = 3
    """So often a message may be read without an end."""


def checked_messages(policy: MessagePolicy) -> MessagePolicy:
    """This policy, or a `ValueError` that names what is wrong with it."""
    for pause in policy.pauses:
        if not 0 < pause <= LONGEST:
            raise ValueError(f"retry_pauses ({pause / 1_000:g}s) must each be more than 0 and at most 366 days")
    if policy.poison_after < 1:
        raise ValueError(f"poison_after ({policy.poison_after}) must be at least 1")
    return policy


MESSAGES = MessagePolicy()


class MessageHistory(msgspec.Struct, frozen=True):
    """What is known of earlier readings of a message."""

    recorded: int = 0
    """How many readings had an end that was recorded."""
    retries: int = 0
    """How often it was tried again after a failure."""


class MessageFailure(msgspec.Struct, frozen=True):
    """Why a message could not be handled: a class for the rules, a code for programs, a sentence for people."""

    error: ErrorClass
    code: str
    message: str
    retry_after: Millis | None = None
    business: bool = False


class Retried(msgspec.Struct, frozen=True):
    """It shows again after a pause."""

    delay: Millis
    history: MessageHistory
    code: str = ""
    reason: str = ""


class Quarantined(msgspec.Struct, frozen=True):
    """It leaves the queue and waits for an operator."""

    code: str
    reason: str


class FailedForGood(msgspec.Struct, frozen=True):
    """It has ended as failed."""

    code: str
    reason: str


Handling = Retried | Quarantined | FailedForGood


def before_handling(read_count: int, history: MessageHistory, policy: MessagePolicy = MESSAGES) -> Quarantined | None:
    """Whether a message that was just read is poison; None: it may be handled."""
    unaccounted = read_count - 1 - history.recorded
    if unaccounted < policy.poison_after:
        return None
    return Quarantined(
        POISON, f"read {unaccounted} times, and no end was recorded: its handler hangs, or ends the process"
    )


def after_failure(failure: MessageFailure, history: MessageHistory, policy: MessagePolicy = MESSAGES) -> Handling:
    """What follows a failure that was not of the process."""
    if failure.business:
        return FailedForGood(failure.code, failure.message)
    retries = len(policy.pauses)
    verdict = judge(
        RetryPolicy(jitter=0.0, retries=retries, max_attempts=retries + 1),
        Failure(failure.error, failure.message, failure.retry_after),
        earlier={failure.error: history.retries},
        remaining=None,
        draw=0.0,
    )
    recorded = history.recorded + 1
    match verdict:
        case Weather(delay):
            return Retried(delay, MessageHistory(recorded, history.retries), failure.code, failure.message)
        case Again(delay):
            pause = Millis(policy.pauses[history.retries]) if failure.retry_after is None else delay
            return Retried(pause, MessageHistory(recorded, history.retries + 1), failure.code, failure.message)
        case gave_up:
            tried = f" ({gave_up.reason})" if history.retries else ""
            return Quarantined(failure.code, f"{failure.message}{tried}")


def after_giving_back(history: MessageHistory) -> Retried:
    """A worker that stops gives back what it had begun: an end, and no failure."""
    return Retried(Millis(0), MessageHistory(history.recorded + 1, history.retries))


def after_retry_by_operator(read_count: int) -> MessageHistory:
    """An operator's retry starts afresh: nothing that happened before counts."""
    return MessageHistory(recorded=read_count)
