"""What the journal says in numbers: how attempts ended, and how long tasks lay ready before somebody took them.

A tally is a function of the journal up to a place, and of nothing else. So every process that reads the same journal
has the same numbers, whoever did the work; one that starts anew goes on from what was kept, and no number ever goes
back. An attempt counts once, under what ended it first: a lapsed lease is followed by a task that goes back, and is
one lapse. Of tasks that lie ready only the last `MOST` are known; others are not part of the waits.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from allswell.domain.ids import Millis, TaskId
from allswell.domain.question import DENIED
from allswell.domain.rules.event import Event, Position

MOST = 100_000
KEPT = 2_000
"""So many tasks in flight, and so many that lie ready, are kept with a tally."""
BUCKETS = (100, 500, 1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 14_400_000)
"""Milliseconds: the bounds under which waits are counted."""
ENDS: Mapping[str, str] = {
    "task_completed": "done",
    "task_retried": "failed",
    "task_failed": "failed",
    "task_returned": "returned",
    "task_cancelled": "cancelled",
    "task_skipped": "skipped",
    "task_split": "split",
    "agent_timeout": "timeout",
    "agent_idle": "idle",
    "lease_lapsed": "lapsed",
    "stalled_agent_recovered": "stalled",
    "cost_limit": "cost_limit",
    "request_blocked": "blocked",
}
"""What ends an attempt, and what that is called."""
OTHER = "asked"
"""An attempt that was over before the next one began, and of which nothing else was told: it waited for a human."""
_READY = ("task_submitted", "task_ready", "task_returned", "task_retried")


def _ended(event: Event) -> str | None:
    """What an event says about the end of an attempt; None if nothing."""
    if event.kind == "question_asked" and event.data.get("kind") in ("failure", DENIED):
        return "failed"  # only a human can mend it, so there is no next attempt to tell of
    return ENDS.get(event.kind)


class StoredTally(msgspec.Struct, frozen=True):
    """A tally as it is kept."""

    position: Position = Position()
    ends: Mapping[str, int] = {}
    waits: tuple[int, ...] = ()
    """How many waits were within each of the bounds, and beyond them all; each wait counts once."""
    waited: int = 0
    """All waits together, in milliseconds."""
    held: Mapping[TaskId, int] = {}
    ready: Mapping[TaskId, int] = {}


class JournalTally:
    """Numbers of the journal up to a place."""

    def __init__(self, kept: StoredTally | None = None) -> None:
        kept = kept or StoredTally()
        self.position = kept.position
        self.ends: dict[str, int] = dict(kept.ends)
        self.waits = list(kept.waits) if len(kept.waits) == len(BUCKETS) + 1 else [0] * (len(BUCKETS) + 1)
        self.waited = kept.waited
        self._held: dict[TaskId, int] = dict(kept.held)
        self._ready: dict[TaskId, int] = dict(kept.ready)

    def take(self, position: Position, at: Millis, event: Event) -> None:
        """The next entry of the journal."""
        self.position = position
        task = event.task
        if task is None:
            return
        if event.kind == "task_claimed":
            if task in self._held:
                self._end(task, OTHER)
            self._held[task] = int(event.token or 0)
            since = self._ready.pop(task, None)
            if since is not None:
                self._wait(max(0, at - since))
            return
        ended = _ended(event)
        if ended is not None and task in self._held:
            self._end(task, ended)
        if event.kind in _READY:
            self._ready.pop(task, None)
            self._ready[task] = at + int(event.data.get("delay_ms") or 0)
            if len(self._ready) > MOST:
                del self._ready[next(iter(self._ready))]
        elif ended is not None:
            self._ready.pop(task, None)

    def _end(self, task: TaskId, how: str) -> None:
        del self._held[task]
        self.ends[how] = self.ends.get(how, 0) + 1

    def _wait(self, length: int) -> None:
        self.waited += length
        place = next((place for place, most in enumerate(BUCKETS) if length <= most), len(BUCKETS))
        self.waits[place] += 1

    def kept(self) -> StoredTally:
        """What another process needs to go on from here."""
        held = dict(list(self._held.items())[-KEPT:])
        ready = dict(list(self._ready.items())[-KEPT:])
        return StoredTally(self.position, dict(self.ends), tuple(self.waits), self.waited, held, ready)
