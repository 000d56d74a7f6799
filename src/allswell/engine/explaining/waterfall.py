"""Runs as a waterfall: a lane for each task, and in it how its time was spent, attempt by attempt.

What a lane shows is what `why` tells (past.py): waiting, being asked, pausing, ready for somebody, and each attempt by
itself. A run of thousands shows those tasks first that are at work or wait for somebody; the rest is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from allswell.domain.listing import TaskFilter, TaskRow
from allswell.domain.names import Millis, RunId, TaskId, question_id
from allswell.domain.run import Run
from allswell.domain.task import OPEN, State
from allswell.engine.explaining.facts import Facts
from allswell.engine.explaining.past import spent
from allswell.engine.explaining.shapes import Span
from allswell.engine.explaining.standing import state_of
from allswell.engine.explaining.words import clean
from allswell.store.views import Views

LANES = 12
"""Lanes of one run at a glance."""
_LOOKED_AT = 200
"""Tasks of one run that are looked at for its lanes."""
_QUESTIONS = 5
_ORDER = (State.HELD, State.WAITING, State.DELAYED, State.READY, State.FAILED, State.DONE)


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
    start: Millis
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
    counts = dict(Counter(str(state_of(row) or "nowhere") for row in rows))
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


def _start(lanes: Sequence[TaskLane], otherwise: Millis) -> Millis:
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
    first = sorted(rows, key=lambda row: (places.get(state_of(row) or State.HELD, 9), row.task.id))[:most]
    by_id = {row.task.id: row for row in rows}
    lanes = [await _lane(views, row, by_id, now, run) for row in first]
    return tuple(sorted(lanes, key=lambda lane: (min((span.start for span in lane.spans), default=now), lane.task)))


async def _lane(views: Views, row: TaskRow, rows: dict[TaskId, TaskRow], now: Millis, run: Run | None) -> TaskLane:
    task = row.task
    facts = Facts(now, task.id)
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
    state = state_of(row)
    lease = row.lease if task.state == OPEN else None
    return TaskLane(
        task.id,
        clean(task.name, 120),
        "nowhere" if state is None else state.value,
        any(wait.kind == "question" for wait in row.waits),
        len(facts.attempts) + (lease is not None),
        tuple(spent(row, facts)),
        None if lease is None else facts.lease_of(row).deadline,
    )
