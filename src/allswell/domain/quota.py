"""What one attempt may put into the store: so many requests, so many questions, so many bytes in all.

An agent that has gone wrong can say a thousand things a second. Requests and questions beyond the quota are refused,
and the agent is told so. **Check-ins are never refused**: a refused one would make a working agent look stalled. Those
beyond the quota are merged: one is told now and then for all of them, with its note even more seldom.

The last word of an attempt (`done`, `fail`, `release`, `ask`) is said once and has a bound of its own.
"""

from __future__ import annotations

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


DEFAULT = Quota()


class Spent(msgspec.Struct, frozen=True, gc=False):
    """How much of it is spent."""

    requests: int = 0
    questions: int = 0
    bytes: int = 0


def request(quota: Quota, spent: Spent, size: int) -> Spent:
    """What is spent after one more request to another agent; `Refused` where that is too much."""
    if spent.requests >= quota.requests:
        raise _over("requests", quota.requests)
    return _sized(quota, msgspec.structs.replace(spent, requests=spent.requests + 1), size)


def question(quota: Quota, spent: Spent, size: int) -> Spent:
    """What is spent after one more question that is asked in passing; `Refused` where that is too much."""
    if spent.questions >= quota.questions:
        raise _over("questions", quota.questions)
    return _sized(quota, msgspec.structs.replace(spent, questions=spent.questions + 1), size)


class Merging(StrEnum):
    """What becomes of a check-in."""

    WHOLE = "whole"
    BARE = "bare"
    """It is told without its note."""
    MERGED = "merged"
    """One that is told a little later stands for it and for others."""


def check_in(quota: Quota, spent: Spent, size: int, told: float, noted: float) -> tuple[Merging, Spent]:
    """What becomes of a check-in, by how long ago one was told, and one with a note, in milliseconds."""
    after = msgspec.structs.replace(spent, bytes=spent.bytes + size + OVERHEAD)
    if after.bytes <= quota.bytes:
        return Merging.WHOLE, after
    if noted >= NOTED_EVERY:
        return Merging.WHOLE, spent
    return (Merging.BARE if told >= TOLD_EVERY else Merging.MERGED), spent


def _sized(quota: Quota, spent: Spent, size: int) -> Spent:
    total = spent.bytes + size + OVERHEAD
    if total > quota.bytes:
        raise _over("bytes", quota.bytes)
    return msgspec.structs.replace(spent, bytes=total)


def _over(what: str, most: int) -> Refused:
    text = f"this attempt has used up its {most:,} {what}; the setting quota.{what} allows more"
    return Refused("over_quota", text, where=f"quota.{what}")
