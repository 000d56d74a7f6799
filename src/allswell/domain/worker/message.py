"""A message of a queue, as its handler sees it: `{"type": "order.paid", "payload": …}` and what PGMQ knows of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from allswell.domain.duration import LONGEST
from allswell.domain.ids import Millis
from allswell.domain.service.retry import ErrorClass, Failure, RateLimitPause, RetryAfter, RetryPolicy, judge

BATCH = "allswell_batch"
"""The header that says which batch a message belongs to."""


class Message(msgspec.Struct, frozen=True):
    """What a handler is given."""

    queue: str
    id: int
    read_count: int
    """How often it was read, this time included. With the id, it is the token that its end is checked against."""
    type: str
    payload: Any
    """Whatever the sender gave, as JSON has it."""
    headers: Mapping[str, Any]


class Unreadable(msgspec.Struct, frozen=True):
    """A message that no handler can be found for by its type, because it has none."""

    why: str


def is_type(value: object) -> bool:
    """Whether it can be a message's type, whatever a caller without types gave."""
    return isinstance(value, str) and bool(value)


def read_body(body: object) -> tuple[str, object] | Unreadable:
    """The type and the payload of what lies in a queue."""
    if not isinstance(body, Mapping):
        return Unreadable(f"the message is {_named(body)}, and must be a JSON object with a `type`")
    kind = body.get("type")
    if not isinstance(kind, str) or not kind:
        return Unreadable(f"the message's `type` is {_named(kind)}, and must be text that names a handler")
    return kind, body.get("payload")


def _named(value: object) -> str:
    match value:
        case None:
            return "missing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "empty" if not value else "text"
        case list() | tuple():
            return "a list"
        case _:
            return "an object"


# What follows when a message was read, and when its handler failed (W5).
#
# A message is tried again after a transient failure: three times, after 10 s, 60 s and 300 s. Whether it is tried again
# is the rule that tasks go by (`retry.judge`); only the pauses are a message's own. What is permanent, or fails once
# too often, is quarantined: it leaves the queue and waits for an operator. A business failure ("the card was declined")
# is an answer, not trouble: the message ends as failed, and nobody is asked.
#
# **Poison.** A message whose handler kills the process, or hangs, leaves no end behind. PGMQ counts every reading, and
# we
# count every end that was recorded; the difference is how often nobody came back. At three it is quarantined instead of
# being handled a fourth time. Retries are counted apart, so a message that only fails is never taken for poison.
#
# A process that dies takes innocent messages with it, and they would come back together with the one that killed it,
# die with it again, and all be taken for poison. So the last reading before that is a trial: a process has one such
# message in hand at a time, and the others go back without blame. And a handler that came back too late, when its
# message was somebody else's (its process was stopped, its server restarted), has come back: that reading is no sign of
# poison.
#
# **Too late.** A handler that takes longer than its message is hidden, and whose message another worker has by then,
# has failed: its end counts as a try (`TOO_LATE`). There is no pause to be kept, for the message is in other hands; but
# after as many tries as any failure has, it is quarantined with the figures that have to be changed.

TIMEOUT, CANCELLED, LOCK, POISON, UNREADABLE = "TIMEOUT", "CANCELLED", "LOCK_TIMEOUT", "POISON", "UNREADABLE"
UNKNOWN_TYPE, EXHAUSTED, BROKEN, TOO_LATE = "UNKNOWN_TYPE", "POOL_EXHAUSTED", "BROKEN_CONNECTION", "TOO_LATE"


class MessagePolicy(msgspec.Struct, frozen=True):
    """How often a message is tried."""

    pauses: tuple[int, ...] = (10_000, 60_000, 300_000)
    """Milliseconds before each retry; there are as many retries as pauses."""
    poison_after: int = 3
    """So often a message may be read without an end."""
    unknown_pause: int = 60_000
    """Milliseconds that a message of a type without a handler waits for one: in a rolling deploy it comes soon."""
    unknown_rounds: int = 10
    """So often it waits."""


def checked_messages(policy: MessagePolicy) -> MessagePolicy:
    """This policy, or a `ValueError` that names what is wrong with it."""
    for pause in policy.pauses:
        if not 0 < pause <= LONGEST:
            raise ValueError(f"retry_pauses ({pause / 1_000:g}s) must each be more than 0 and at most 366 days")
    if not 0 < policy.unknown_pause <= LONGEST:
        raise ValueError(
            f"unknown_type_pause ({policy.unknown_pause / 1_000:g}s) must be more than 0, at most 366 days"
        )
    if policy.unknown_rounds < 0:
        raise ValueError(f"unknown_type_rounds ({policy.unknown_rounds}) must be at least 0")
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
    code: str = ""
    reason: str = ""
    """Why the last one that failed did."""


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
    if history.code == TOO_LATE and history.retries > len(policy.pauses):
        return Quarantined(TOO_LATE, f"{history.reason} (too late {history.retries} times)")
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
    if failure.code == UNKNOWN_TYPE:
        return _after_unknown_type(failure, history, policy)
    if history.code == UNKNOWN_TYPE:
        history = replace(history, retries=0)  # it only waited for its handler
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
        case RateLimitPause() if history.retries >= retries:
            return Quarantined(failure.code, f"{failure.message} (a failure after {retries} retries)")
        case RateLimitPause(delay):
            ended = MessageHistory(recorded, history.retries + 1, history.late)
            return Retried(delay, ended, failure.code, failure.message)
        case RetryAfter(delay):
            pause = Millis(policy.pauses[history.retries]) if failure.retry_after is None else delay
            ended = MessageHistory(recorded, history.retries + 1, history.late)
            return Retried(pause, ended, failure.code, failure.message)
        case gave_up:
            tried = f" ({gave_up.reason})" if history.retries else ""
            return Quarantined(failure.code, f"{failure.message}{tried}")


def _after_unknown_type(failure: MessageFailure, history: MessageHistory, policy: MessagePolicy) -> Handling:
    """A message without a handler waits for one; the rounds are counted where retries are, as long as there is none."""
    rounds = history.retries if history.code == UNKNOWN_TYPE else 0
    if rounds >= policy.unknown_rounds:
        waited = f" (waited {rounds} times for one)" if rounds else ""
        return Quarantined(failure.code, f"{failure.message}{waited}")
    ended = MessageHistory(history.recorded + 1, rounds + 1, history.late)
    return Retried(Millis(policy.unknown_pause), ended, failure.code, failure.message)


def too_slow(took: float, visibility: float) -> str:
    """What to do about a handler that takes longer than its message is hidden, both in seconds."""
    return f"takes {round(took, 1):g} s, visibility is {visibility:g} s: raise visibility_timeout, or mark it long"


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
