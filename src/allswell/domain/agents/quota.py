"""What one attempt may put into the store: so many requests, so many questions, so many bytes in all.

An agent that has gone wrong can say a thousand things a second. Requests and questions beyond the quota are refused,
and the agent is told so. **Check-ins are never refused**: a refused one would make a working agent look stalled. Those
beyond the quota are merged: one is told now and then for all of them, with its note even more seldom.

A key has a quota too, over all its attempts and all that it hands over: so much in a minute (`of_key`). An attempt's
quota holds whichever way its words come: through its socket, where its supervisor counts, or over HTTP or MCP, where
the count lies with the task, so that neither another server nor a restart begins anew. A program of the user's own that
holds a task through the Python API has the store itself in its hands, and is not counted.

The last word of an attempt (`done`, `fail`, `release`, `ask`) is said once and has a bound of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec

from allswell.errors import Refused

OVERHEAD = 200
"""Bytes that anything said costs beside its own text."""
TOLD_EVERY = 1_000
"""Milliseconds between two check-ins that are told, once the quota is used up."""
NOTED_EVERY = 60_000
"""Milliseconds between two of these that are told with their note."""


class Quota(msgspec.Struct, frozen=True, gc=False):
    """How much; every figure is a setting."""

    requests: int = 100
    questions: int = 20
    bytes: int = 16_000_000
    key_requests: int = 600
    """Of an agent's or a submitter's key, in a minute, over all its attempts."""
    key_questions: int = 60
    key_bytes: int = 64_000_000


DEFAULT = Quota()


class QuotaUse(msgspec.Struct, frozen=True, gc=False):
    """How much of it is spent."""

    requests: int = 0
    questions: int = 0
    bytes: int = 0


NOTHING = QuotaUse()
MINUTE = 60_000
"""Milliseconds in which a key's quota is whole again."""


Count = Callable[[Quota, QuotaUse, int], QuotaUse]
"""What is spent after something of a size; `Refused` where that is too much."""


def of_key(quota: Quota) -> Quota:
    """What a key may put into the store in a minute."""
    return Quota(quota.key_requests, quota.key_questions, quota.key_bytes)


def refilled(quota: Quota, spent: QuotaUse, elapsed: int) -> QuotaUse:
    """What is left of what a key has spent, so many milliseconds later."""
    if elapsed >= MINUTE:
        return NOTHING
    return QuotaUse(
        max(0, spent.requests - quota.requests * elapsed // MINUTE),
        max(0, spent.questions - quota.questions * elapsed // MINUTE),
        max(0, spent.bytes - quota.bytes * elapsed // MINUTE),
    )


def put(quota: Quota, spent: QuotaUse, size: int) -> QuotaUse:
    """What is spent after something else of this size; `Refused` where that is too much."""
    return _sized(quota, spent, size)


def request(quota: Quota, spent: QuotaUse, size: int) -> QuotaUse:
    """What is spent after one more request to another agent; `Refused` where that is too much."""
    if spent.requests >= quota.requests:
        raise _over("requests", quota.requests)
    return _sized(quota, msgspec.structs.replace(spent, requests=spent.requests + 1), size)


def question(quota: Quota, spent: QuotaUse, size: int) -> QuotaUse:
    """What is spent after one more question that is asked in passing; `Refused` where that is too much."""
    if spent.questions >= quota.questions:
        raise _over("questions", quota.questions)
    return _sized(quota, msgspec.structs.replace(spent, questions=spent.questions + 1), size)


class CheckinMerge(StrEnum):
    """What becomes of a check-in."""

    WHOLE = "whole"
    BARE = "bare"
    """It is told without its note."""
    MERGED = "merged"
    """One that is told a little later stands for it and for others."""


def check_in(quota: Quota, spent: QuotaUse, size: int, told: float, noted: float) -> tuple[CheckinMerge, QuotaUse]:
    """What becomes of a check-in, by how long ago one was told, and one with a note, in milliseconds."""
    after = msgspec.structs.replace(spent, bytes=spent.bytes + size + OVERHEAD)
    if after.bytes <= quota.bytes:
        return CheckinMerge.WHOLE, after
    if noted >= NOTED_EVERY:
        return CheckinMerge.WHOLE, spent
    return (CheckinMerge.BARE if told >= TOLD_EVERY else CheckinMerge.MERGED), spent


def _sized(quota: Quota, spent: QuotaUse, size: int) -> QuotaUse:
    total = spent.bytes + size + OVERHEAD
    if total > quota.bytes:
        raise _over("bytes", quota.bytes)
    return msgspec.structs.replace(spent, bytes=total)


def _over(what: str, most: int) -> Refused:
    text = f"this attempt has used up its {most:,} {what}; the setting quota.{what} allows more"
    return Refused("over_quota", text, where=f"quota.{what}")
