"""How a task's time was spent: every millisecond between its submission and its end belongs to one span.

What a task did between two attempts is not written down anywhere; it follows from what stood in its way then: needs
that had not ended, a not-before, an open question. What is left after a failure is its pause, otherwise it was ready.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from allswell.domain.build.limits import BUILD_ROLE
from allswell.domain.ids import Millis, RunId, TaskId, question_id
from allswell.domain.lease.claim import RUN_ROLE, STEP_ROLE
from allswell.domain.run.run import Run
from allswell.domain.task.model import NOWHERE, OPEN, Attempt, State, TaskFilter, TaskRow
from allswell.engine.status.explanation import Span, clean, quoted
from allswell.engine.status.services import TaskFacts
from allswell.engine.status.task import outcome
from allswell.store.views import Views
from allswell.timing.moment import moment

Kind = Literal["waiting", "asked", "paused", "ready"]


def spent(row: TaskRow, facts: TaskFacts) -> list[Span]:
    """The spans of a task's life, in order and without gaps, up to its end or to now."""
    task, lease = row.task, row.lease
    end = facts.now if task.ended_at is None else task.ended_at
    spans: list[Span] = []
    at, before = task.created_at, None
    for attempt in sorted(facts.attempts, key=lambda one: one.token):
        spans += _between(at, attempt.granted_at, before, row, facts)
        spans.append(_held(attempt))
        at, before = attempt.ended_at, attempt
    if task.state == OPEN and lease is not None:
        spans += _between(at, lease.granted_at, before, row, facts)
        since, until = moment(lease.granted_at), moment(max(end, lease.granted_at))
        spans.append(Span("held", since, until, "holds it now", lease.agent, lease.token, None))
    else:
        spans += _between(at, Millis(end), before, row, facts)
    return [span for span in spans if span.end > span.start or span.kind == "held"]


def _held(attempt: Attempt) -> Span:
    says = outcome(attempt.outcome, attempt.detail)
    if attempt.late is not None or attempt.afterwards is not None:
        says += "; later reports were refused, and kept"
    since, until = moment(attempt.granted_at), moment(attempt.ended_at)
    return Span("held", since, until, says, attempt.agent, attempt.token, attempt.outcome)


def _between(start: Millis, end: Millis, before: Attempt | None, row: TaskRow, facts: TaskFacts) -> list[Span]:
    """What a task did while it was not held."""
    if end <= start:
        return []
    blocks = _blocks(row, facts, end)
    edges = sorted({start, end, *(edge for low, high, _, _ in blocks for edge in (low, high) if start < edge < end)})
    spans: list[Span] = []
    for low, high in pairwise(edges):
        kind, says = _during(low, high, blocks, before, row.task.role)
        same = bool(spans) and (spans[-1].kind, spans[-1].says) == (kind, says)
        since = spans.pop().start if same else moment(low)
        spans.append(Span(kind, since, moment(high), says, None, None, None))
    return spans


Block = tuple[int, int, Kind, str]


def _blocks(row: TaskRow, facts: TaskFacts, end: int) -> list[Block]:
    """What stood in the way: from when, until when, of what kind, in words; the weightier first."""
    task = row.task
    blocks: list[Block] = []
    waits_for = {wait.target for wait in row.waits}
    for question in facts.asked:
        if question.closed_at is not None or question.id in waits_for:
            who = clean(question.answered_by) or "a human"
            blocks.append((question.asked_at, question.closed_at or end, "asked", f"for {who} to answer"))
    needs = [
        (need.task.ended_at or end, need.task.name)
        for need in facts.needed
        if need.task.ended_at or need.task.id in waits_for
    ]
    if needs:
        until, name = max(needs)
        blocks.append(
            (task.created_at, until, "waiting", f"for {quoted(name, 60)}" + (" and others" if len(needs) > 1 else ""))
        )
    if task.spec.not_before is not None:
        blocks.append((task.created_at, task.spec.not_before, "paused", "until its start time"))
    if row.due is not None and row.lease is None:
        since = max((attempt.ended_at for attempt in facts.attempts), default=task.created_at)
        blocks.append((since, row.due, "paused", "until it is tried again"))
    return blocks


def _during(low: int, high: int, blocks: list[Block], before: Attempt | None, role: str) -> tuple[Kind, str]:
    for start, end, kind, says in blocks:
        if start <= low and high <= end:
            return kind, says
    if before is not None and before.outcome == "parked":
        return "paused", "until the limit was over and an agent took it"
    if before is not None and before.outcome.startswith("failed:"):
        return "paused", "after the failure, until an agent took it"
    if role in (RUN_ROLE, BUILD_ROLE, STEP_ROLE):  # run where they were started: no agent takes them
        return "ready", "until it was started" if before is None else "until it is resumed"
    return "ready", "for an agent to take it"


# Runs as a waterfall: a lane for each task, and in it how its time was spent, attempt by attempt.
#
# A lane shows what `why` shows (`spent`): waiting, being asked, pausing, ready for an agent, and each attempt by
# itself. A run of thousands shows those tasks first that are at work or wait for a human; the rest is counted.

LANES = 12
"""Lanes of one run at a glance."""
_LOOKED_AT = 200
"""Tasks of one run that are looked at for its lanes."""
_QUESTIONS = 5
_ORDER = (NOWHERE, State.HELD, State.WAITING, State.DELAYED, State.READY, State.FAILED, State.DONE)


class TaskLane(msgspec.Struct, frozen=True):
    """One task's life."""

    task: str
    name: str
    state: str
    asks: bool
    """Whether it waits for a human."""
    attempts: int
    spans: tuple[Span, ...]
    limit: Millis | None = None
    """When the attempt that runs reaches its limit."""


class Waterfall(msgspec.Struct, frozen=True):
    """Some tasks with one common clock: those of a run, or those that are in none."""

    run: str | None
    name: str
    start: int
    limit: Millis | None
    """When the run's time is up; None if it has no limit, or its clock stands."""
    stands: bool
    lanes: tuple[TaskLane, ...]
    more: int
    """Tasks that have no lane here; at least so many."""
    counts: dict[str, int]


async def waterfall(views: Views, run: Run, now: Millis, most: int = LANES) -> Waterfall:
    """The waterfall of a run."""
    rows = await _of_run(views, run.id, most)
    lanes = await _lanes(views, rows, now, most, run)
    counts = dict(Counter(row.state for row in rows))
    more = max(len(rows) - len(lanes), 0)
    stands = run.stands_since is not None
    return Waterfall(
        run.id, clean(run.name, 120), _start(lanes, run.created_at), run.limit, stands, lanes, more, counts
    )


async def loose(views: Views, rows: Sequence[TaskRow], now: Millis, most: int = LANES) -> Waterfall:
    """The waterfall of tasks that are in no run."""
    alone = [row for row in rows if row.task.run is None]
    lanes = await _lanes(views, alone, now, most, None)
    return Waterfall(None, "", _start(lanes, now), None, False, lanes, max(len(alone) - len(lanes), 0), {})


def _start(lanes: Sequence[TaskLane], otherwise: int) -> int:
    return min((span.start for lane in lanes for span in lane.spans), default=otherwise)


async def _of_run(views: Views, run: RunId, most: int) -> list[TaskRow]:
    """Tasks of a run: all that are held or wait, however many have ended; then as many others as are looked at."""
    busy = await views.view_tasks(TaskFilter(run=run, open=True, limit=_LOOKED_AT))
    ended = await views.view_tasks(TaskFilter(run=run, open=False, limit=_LOOKED_AT)) if len(busy) < most else []
    return [*busy, *ended]


async def _lanes(
    views: Views, rows: Sequence[TaskRow], now: Millis, most: int, run: Run | None
) -> tuple[TaskLane, ...]:
    places = {state: place for place, state in enumerate(_ORDER)}
    first = sorted(rows, key=lambda row: (places.get(row.state, 9), row.task.id))[:most]
    by_id = {row.task.id: row for row in rows}
    lanes = [await _lane(views, row, by_id, now, run) for row in first]
    return tuple(sorted(lanes, key=lambda lane: (min((span.start for span in lane.spans), default=now), lane.task)))


async def _lane(views: Views, row: TaskRow, rows: dict[TaskId, TaskRow], now: Millis, run: Run | None) -> TaskLane:
    task = row.task
    facts = TaskFacts(now, task.id)
    if run is not None:
        facts.runs = {run.id: run}
    if task.record.token:
        facts.attempts = await views.view_attempts(task.id)
    last = task.record.questions
    for number in range(max(last - _QUESTIONS, 0) + 1, last + 1):
        asked = await views.view_question(question_id(task.id, number))
        if asked is not None:
            facts.asked.append(asked)
    facts.needed = [rows[need] for need in task.spec.needs if need in rows]
    lease = row.lease if task.state == OPEN else None
    return TaskLane(
        task.id,
        clean(task.name, 120),
        row.state,
        any(wait.kind == "question" for wait in row.waits),
        len(facts.attempts) + (lease is not None),
        tuple(spent(row, facts)),
        None if lease is None else facts.lease_of(row).limit_at,
    )
