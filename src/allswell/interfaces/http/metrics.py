"""`/metrics`: the state of the watch in the text format of Prometheus, made of the store and of the journal's tally.

Nothing is counted by the way in this process: what a scrape tells is what the store holds at that moment, so several
servers on one store tell the same, and a restart loses nothing (`ServerTally`). Labels are states, outcomes, roles and
services, never a task's id. What a role or a service is called comes from users, so each family has a bound.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from allswell.domain.access.key import Key
from allswell.domain.access.rights import check_beside
from allswell.domain.agents.cost import Spent
from allswell.domain.ids import Millis, TaskId
from allswell.domain.question import DENIED
from allswell.domain.rules.event import Event, Position
from allswell.domain.service.breaker import BreakerState, stand
from allswell.domain.task.model import State
from allswell.engine.status.verdict import VerdictLevel, look
from allswell.engine.wakeup import either
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, Unavailable
from allswell.interfaces.http.request_context import ServerState

PATH = "/metrics"
_FRESH = 1.0
"""Seconds for which a scrape is good enough for the next one."""
_LABELS_MOST = 200
_MILLION = 1_000_000


class Metrics:
    """What is told to Prometheus."""

    def __init__(self) -> None:
        self._told = b""
        self._told_at = float("-inf")
        self._telling = asyncio.Lock()

    async def answer(self, house: ServerState, key: Key | None) -> Response:
        """A scrape; whoever shows a key needs one that may look. `Refused` otherwise."""
        if key is not None:
            check_beside(key, "metrics")
        loop = asyncio.get_running_loop()
        async with self._telling:
            if loop.time() - self._told_at > _FRESH:
                self._told = generate_latest(_Scrape(await _families(house)))
                self._told_at = loop.time()
        return Response(self._told, media_type=CONTENT_TYPE_LATEST)


class _Scrape(Collector):
    """Families that are made already."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        """All of them."""
        return self._families


async def _families(house: ServerState) -> list[Metric]:
    views = house.gate.watch.views
    agenda = await views.view_agenda()
    counts = await views.view_counts()
    questions = await views.view_questions()
    services = await views.view_services()
    lost = await views.view_orphans()
    spent = await views.view_spent("role")
    seen = await look(views, house.place)
    late = 0 if agenda.next_due is None else max(0, agenda.now - agenda.next_due)
    age = max((agenda.now - one.asked_at for one in questions), default=0)
    levels = [one.level for one in seen.concerns]
    return [
        _gauge("verdict", "The overall verdict: 1 at its level, 0 at all others.", "level", _at(seen.level)),
        _gauge("concerns", "Concerns of the verdict by level.", "level", {one: levels.count(one) for one in _LEVELS}),
        _gauge("tasks", "Tasks by the state they are in.", "state", {one: counts.get(one, 0) for one in State}),
        _gauge("questions_open", "Questions that wait for a human.", "", {"": len(questions)}),
        _gauge("question_age_seconds", "Age of the oldest question that waits for a human.", "", {"": age / 1_000}),
        _gauge("unaccounted_tasks", "Open tasks that nothing would ever move again; must be 0.", "", {"": len(lost)}),
        _gauge("overdue_seconds", "How long due time limits have waited to be enforced.", "", {"": late / 1_000}),
        _breakers({name: stand(row.state, agenda.now) for name, row in sorted(services.items())[:_LABELS_MOST]}),
        *_tallied(None if house.counting is None else house.counting.tally),
        *_costs(dict(sorted(spent.items())[:_LABELS_MOST])),
    ]


_LEVELS = (VerdictLevel.BROKEN, VerdictLevel.NEEDS_HUMAN, VerdictLevel.WAITING)


def _at(level: VerdictLevel) -> dict[str, float]:
    return {one.value: float(one is level) for one in VerdictLevel}


def _gauge(name: str, says: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"allswell_{name}", says, labels=[label] if label else [])
    for one, value in values.items():
        family.add_metric([str(one)] if label else [], value)
    return family


def _breakers(stands: Mapping[str, BreakerState]) -> Metric:
    says = "State of the breaker of a service: 1 at its state, 0 at all others."
    family = GaugeMetricFamily("allswell_breaker_state", says, labels=["service", "state"])
    for service, now in stands.items():
        for state in BreakerState:
            family.add_metric([service, state.value], float(state is now))
    return family


def _tallied(tally: JournalTally | None) -> list[Metric]:
    """What the journal counts; nothing until it was read to its end."""
    if tally is None:
        return []
    ends = CounterMetricFamily("allswell_attempts", "Attempts that have ended, by how.", labels=["outcome"])
    for outcome in dict.fromkeys((*ENDS.values(), OTHER)):
        ends.add_metric([outcome], tally.ends.get(outcome, 0))
    says = "How long tasks lay ready before they were claimed."
    waits = HistogramMetricFamily("allswell_claim_wait_seconds", says)
    total, buckets = 0, []
    for most, count in zip((*BUCKETS, None), tally.waits, strict=True):
        total += count
        buckets.append(("+Inf" if most is None else repr(most / 1_000), float(total)))
    waits.add_metric([], buckets, sum_value=tally.waited / 1_000)
    return [ends, waits]


def _costs(spent: Mapping[str, Spent]) -> list[Metric]:
    cost = CounterMetricFamily("allswell_cost_usd", "What attempts said that they cost, by role.", labels=["role"])
    tokens = CounterMetricFamily(
        "allswell_tokens", "Tokens that attempts said they used, by role and direction.", labels=["role", "direction"]
    )
    for role, sums in spent.items():
        cost.add_metric([role], (sums.cost or 0) / _MILLION)
        tokens.add_metric([role, "in"], sums.given or 0)
        tokens.add_metric([role, "out"], sums.written or 0)
    return [cost, tokens]


# Counting what the journal tells, for `/metrics`: read once from where the last server left off, then as it grows.
#
# The numbers are those of the journal, so two servers tell the same, and a restart loses
# nothing:
# every minute, and at the end, the tally is kept among the watch's own words. Of two servers, the one that is further
# keeps its.

WORD = "metrics.tally"
_CHUNK = 1_000
_KEEP_SECONDS = 60.0
_AGAIN = 1.0
_LOOK = 2.0
"""Seconds between two looks at a journal that says nothing new."""


class ServerTally:
    """The tally of a server."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.tally: JournalTally | None = None
        """None until the journal was read to its end: numbers that are on their way would look like a storm."""

    async def count(self) -> None:
        """Read along, until cancelled; then what was counted is kept."""
        loop = asyncio.get_running_loop()
        tally: JournalTally | None = None
        kept_at = loop.time()
        try:
            while True:
                try:
                    if tally is None:
                        tally = JournalTally(await self._recalled())
                    news = self._watch.on_event()
                    entries = await self._watch.views.journal(tally.position, _CHUNK)
                    for entry in entries:
                        tally.take(entry.position, entry.at, entry.event)
                    if len(entries) == _CHUNK:
                        continue
                    self.tally = tally
                    if loop.time() - kept_at > _KEEP_SECONDS:
                        kept_at = loop.time()
                        await self._keep(tally)
                except Unavailable:
                    await asyncio.sleep(_AGAIN)
                    continue
                await either(news, _LOOK)
        finally:
            if tally is not None:
                with contextlib.suppress(AllswellError, TimeoutError):
                    async with asyncio.timeout(_AGAIN):
                        await self._keep(tally)

    async def _recalled(self) -> StoredTally | None:
        return _read(await self._watch.recall(WORD))

    async def _keep(self, tally: JournalTally) -> None:
        before = await self._watch.recall(WORD)
        other = _read(before)
        if other is None or other.position < tally.position:
            await self._watch.swap(WORD, before, msgspec.json.encode(tally.kept()).decode())


def _read(word: str | None) -> StoredTally | None:
    try:
        return None if word is None else msgspec.json.decode(word, type=StoredTally)
    except msgspec.DecodeError:
        return None  # of another version: it is counted anew


# What the journal says in numbers: how attempts ended, and how long tasks lay ready before somebody took them.
#
# A tally is a function of the journal up to a place, and of nothing else. So every process that reads the same journal
# has the same numbers, whoever did the work; one that starts anew goes on from what was kept, and no number ever goes
# back. An attempt counts once, under what ended it first: a lapsed lease is followed by a task that goes back, and is
# one lapse. Of tasks that lie ready only the last `MOST` are known; others are not part of the waits.

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
    "token_limit": "token_limit",
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
