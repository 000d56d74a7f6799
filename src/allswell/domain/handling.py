"""What follows when a message was read, and when its handler failed (W5).

A message is tried again after a transient failure: three times, after 10 s, 60 s and 300 s. Whether it is tried again
is the rule that tasks go by (`retry.judge`); only the pauses are a message's own. What is permanent, or fails once too
often, is quarantined: it leaves the queue and waits for an operator. A business failure ("the card was declined") is an
answer, not trouble: the message ends as failed, and nobody is asked.

**Poison.** A message whose handler kills the process, or hangs, leaves no end behind. PGMQ counts every reading, and we
count every end that was recorded; the difference is how often nobody came back. At three it is quarantined instead of
being handled a fourth time. Retries are counted apart, so a message that only fails is never taken for poison.

A process that dies takes innocent messages with it, and they would come back together with the one that killed it, die
with it again, and all be taken for poison. So the last reading before that is a trial: a process has one such message
in hand at a time, and the others go back without blame. And a handler that came back too late, when its message was
somebody else's (its process was stopped, its server restarted), has come back: that reading is no sign of poison.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

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
    late: int = 0
    """How many readings ended when the message was somebody else's already."""


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
    unaccounted = _unaccounted(read_count, history)
    if unaccounted < policy.poison_after:
        return None
    return Quarantined(
        POISON, f"read {unaccounted} times, and no end was recorded: its handler hangs, or ends the process"
    )


def on_trial(read_count: int, history: MessageHistory, policy: MessagePolicy = MESSAGES) -> bool:
    """Whether a message that was just read is poison if nobody comes back from this reading either."""
    return policy.poison_after > 1 and _unaccounted(read_count, history) == policy.poison_after - 1


def _unaccounted(read_count: int, history: MessageHistory) -> int:
    """How many of the readings before this one nobody came back from."""
    return read_count - 1 - history.recorded - history.late


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
            ended = MessageHistory(recorded, history.retries, history.late)
            return Retried(delay, ended, failure.code, failure.message)
        case Again(delay):
            pause = Millis(policy.pauses[history.retries]) if failure.retry_after is None else delay
            ended = MessageHistory(recorded, history.retries + 1, history.late)
            return Retried(pause, ended, failure.code, failure.message)
        case gave_up:
            tried = f" ({gave_up.reason})" if history.retries else ""
            return Quarantined(failure.code, f"{failure.message}{tried}")


def after_giving_back(history: MessageHistory) -> Retried:
    """A worker that stops gives back what it had begun: an end, and no failure."""
    return Retried(Millis(0), MessageHistory(history.recorded + 1, history.retries, history.late))


def after_turning_away(history: MessageHistory, place: int, most: int) -> Retried:
    """Another one is on trial: an end as well, and it shows again by its place in the line, a second for each.

    At most after so many seconds. All at once would be turned away together each time, and go through one by one only.
    """
    return replace(after_giving_back(history), delay=Millis(min(place, most) * 1_000))


def after_retry_by_operator(read_count: int) -> MessageHistory:
    """An operator's retry starts afresh: nothing that happened before counts."""
    return MessageHistory(recorded=read_count)
