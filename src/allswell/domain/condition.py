"""How a supervised agent is, as far as one can tell from outside, and what one goes by.

The states are told apart because what follows differs: one that waits for a human, for another agent or for its quota
has done nothing wrong; one that is quiet is nudged; one that the watch has marked as stalled is ended. Where nothing
can be seen of an agent (a remote one), its state is unknown, and then it is neither ended nor given more.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from allswell.domain.duration import felt
from allswell.domain.evidence import Standing

SPAWNING = 30_000
"""Milliseconds after its start in which an agent need not have shown anything."""
QUIET = 60_000
"""Without proof of progress for so many milliseconds an agent is quiet."""


class Condition(StrEnum):
    """How an agent is."""

    SPAWNING = "spawning"
    WORKING = "working"
    QUIET = "quiet"
    STALLED = "stalled"
    FOR_HUMAN = "waiting for a human"
    FOR_AGENT = "waiting for an agent"
    FOR_LIMIT = "waiting for a limit"
    DEAD = "dead"
    UNKNOWN = "unknown"


class Known(msgspec.Struct, frozen=True, gc=False):
    """What is known about an attempt beside its own evidence."""

    ended: str | None = None
    stalled: bool = False
    for_human: str | None = None
    for_agent: str | None = None
    for_limit: str | None = None


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """A state, and in words what it was read off."""

    condition: Condition
    evidence: str


def judge(standing: Standing | None, known: Known, now: int) -> Verdict:
    """How an agent is now; the moments are the supervisor's."""
    if known.ended is not None:
        return Verdict(Condition.DEAD, known.ended)
    if known.stalled:
        return Verdict(Condition.STALLED, _last(standing, now))
    if known.for_limit is not None:
        return Verdict(Condition.FOR_LIMIT, known.for_limit)
    if known.for_human is not None:
        return Verdict(Condition.FOR_HUMAN, known.for_human)
    if known.for_agent is not None:
        return Verdict(Condition.FOR_AGENT, known.for_agent)
    if standing is None:
        return Verdict(Condition.UNKNOWN, "nothing can be seen of it from here")
    progress = standing.progress
    if progress is None:
        if now - standing.began < SPAWNING:
            return Verdict(Condition.SPAWNING, f"started {felt(now - standing.began)} ago")
        return Verdict(Condition.QUIET, _last(standing, now))
    if now - progress.at < QUIET:
        return Verdict(Condition.WORKING, _last(standing, now))
    return Verdict(Condition.QUIET, _last(standing, now))


def _last(standing: Standing | None, now: int) -> str:
    """The last proof of progress; where there is none, what it has shown instead."""
    if standing is None:
        return "nothing can be seen of it from here"
    seen = standing.progress
    if seen is not None:
        return f"{seen.sign.value} {felt(max(now - seen.at, 0))} ago: {seen.what}"
    bare = f"no proof of progress in {felt(now - standing.began)}"
    other = next(iter(standing.last.values()), None)
    return bare if other is None else f"{bare}, only {other.sign.value} {felt(max(now - other.at, 0))} ago"
