"""What the simulator itself knows about the history, gathered from commits alone.

Nothing here asks the rules what is right: moments, counts and needs are worked out a second time, in the plainest way,
so that a mistake in the rules shows as a difference.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from allswell.domain.checkin import Agent
from allswell.domain.command import Command
from allswell.domain.lease import Lease
from allswell.domain.names import TaskId
from allswell.domain.task import OPEN
from allswell.store.memory.tables import Tables
from allswell.store.port import Changes


class Counts(msgspec.Struct):
    """How often a task has ended badly since a human last spoke."""

    bad: dict[str, int] = msgspec.field(default_factory=dict)
    """By what is asked about: timeout, stall, lapse."""
    failures: dict[str, int] = msgspec.field(default_factory=dict)


class Span(msgspec.Struct):
    """The life of one lease, in numbers of commits."""

    agent: str
    first: int
    last: int | None = None


class Shadow:
    """The history so far."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.commits = 0
        self.jumped = False
        """Whether the store's clock was ever made to jump."""
        self.sent: dict[str, Command] = {}
        """Every command that a caller has sent, by its id."""
        self.leases: dict[TaskId, Lease] = {}
        self.spans: dict[tuple[TaskId, int], Span] = {}
        self.tokens: dict[TaskId, int] = {}
        self.ended: dict[TaskId, str] = {}
        self.done: dict[TaskId, int] = {}
        """How often each task was completed."""
        self.split: dict[TaskId, list[TaskId]] = {}
        self.counts: dict[TaskId, Counts] = {}
        self.not_until: dict[TaskId, int] = {}
        self.questions_waited_for: dict[str, None] = {}
        self.questions_closed: dict[str, str | None] = {}
        self.agents: dict[str, Agent] = {}
        self.agent_since: dict[str, float] = {}
        """When each agent's row was last written (virtual seconds)."""
        self.parked_since: dict[str, float] = {}
        self.ready_since: dict[TaskId, float] = {}
        self.granted: dict[str, list[tuple[TaskId, int]]] = {}
        """Every lease of each agent, in the order of granting."""

    def settle(self, changes: Changes) -> None:
        """Follow a clock that was set: what runs has the time left that it had."""
        for lease in changes.moved.leases if changes.moved is not None else ():
            self.leases[lease.task] = lease
        for event in changes.events:
            if event.kind == "clock_set":
                self.not_until = {task: moment + event.data["by_ms"] for task, moment in self.not_until.items()}

    def counts_of(self, task: TaskId) -> Counts:
        """The counts of a task, made if need be."""
        return self.counts.setdefault(task, Counts())

    def fates(self, needs: Iterable[TaskId]) -> list[str]:
        """What became of these needs (open, good or bad); one that was split is all of its parts."""
        found: list[str] = []
        for need in needs:
            state = self.tables.tasks[need].state
            if state == "split":
                found += self.fates(self.split[need])
            else:
                found.append("open" if state == OPEN else "good" if state == "done" else "bad")
        return found


def over_at(lease: Lease) -> int:
    """The first moment at which this lease is over, from the row alone."""
    ends = [int(lease.deadline)]
    if lease.length is not None:
        ends.append(lease.renewed_at + lease.length)
    if lease.idle is not None:
        ends.append((lease.checkin_at if lease.checkin_at is not None else lease.granted_at) + lease.idle)
    if lease.stalled_at is not None:
        ends.append(lease.stalled_at + lease.grace)
    return min(ends)


def asked_moment(lease: Lease, number: int) -> int:
    """When the holder is asked for its n-th check-in."""
    return lease.granted_at + number * lease.ask_every


def changes_at(lease: Lease) -> int:
    """The first moment at which this lease can change by itself: it is over, or a check-in counts as missed."""
    asked = asked_moment(lease, lease.judged + 1)
    over = over_at(lease)
    return over if asked >= lease.deadline else min(over, asked + lease.ask_wait)
