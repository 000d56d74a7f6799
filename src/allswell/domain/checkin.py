"""Check-ins asked for, answered and missed; stalled agents (O2, O3, O8).

A holder is asked at each multiple of the interval strictly before its limit, and has `checkpoint_timeout` to answer;
the wait runs beside the attempt's own clock. Check-ins are answers, and so is what an agent's protocol shows, which
whoever watches it tells as check-ins, soon enough for each (`tells_every`). Misses are counted per agent, over
all its leases, and cleared by any answer or by a recovery. The third one marks the agent as stalled: its supervisor
has a short grace to end it for real, then the task is taken back in any case.
"""

from __future__ import annotations

import msgspec

from allswell.domain.lease import Lease, asked_at
from allswell.domain.names import AgentId, Millis
from allswell.errors import Refused


class Agent(msgspec.Struct, frozen=True, gc=False):
    """What is held against an agent; there is no row for one that has answered."""

    id: AgentId
    misses: int
    missed_at: Millis
    stalled: bool = False
    standing: str = ""
    """Of a row that requests have to themselves: what they say of the agent (standing.py)."""


def check_progress(progress: float | None) -> None:
    """Refuse what is no share of the work; NaN is none either, and JSON would turn it into nothing."""
    if progress is not None and not 0 <= progress <= 1:
        raise Refused("bad_progress", f"progress is a share from 0 to 1, not {progress}", where="progress")


def answered(lease: Lease) -> bool:
    """Whether the next check-in to be judged was given, at or after it was asked for."""
    asked = asked_at(lease, lease.judged + 1)
    return asked is not None and lease.checkin_at is not None and lease.checkin_at >= asked


_TELLS_EVERY = 15_000
"""Milliseconds between two tellings where nothing is in a hurry: each is a write."""
_IN_TIME = 4
"""Of the time that there is to answer in, so many tellings fit."""


def tells_every(lease: Lease) -> int:
    """How often a watcher tells of an agent that talks, in milliseconds: no answer is late because it was held."""
    shortest = lease.ask_wait if lease.idle is None else min(lease.ask_wait, lease.idle)
    return min(_TELLS_EVERY, max(shortest // _IN_TIME, 1))


def missed(agent: Agent | None, lease: Lease, threshold: int, at: Millis) -> Agent:
    """The agent's record after one more miss; an answer on this lease since the last miss starts the count anew."""
    before = 0
    if agent is not None and not (lease.checkin_at is not None and lease.checkin_at > agent.missed_at):
        before = agent.misses
    return Agent(lease.agent, before + 1, at, stalled=before + 1 >= threshold)
