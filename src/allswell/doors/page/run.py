"""A run: what needs what, how its time was spent, and why it is not over yet."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from allswell.build.place import kept_spec
from allswell.domain.expense import NOTHING_SPENT, Spent
from allswell.domain.journal import Entry
from allswell.domain.listing import TaskFilter, TaskRow
from allswell.domain.names import RunId
from allswell.domain.run import Run, last_of
from allswell.domain.task import State
from allswell.doors.http.call import Call
from allswell.doors.page.drawing import DrawnWaterfall, draw_waterfall
from allswell.doors.page.graph import MOST, DrawnGraph, GraphThing, draw_graph
from allswell.doors.page.rendering import place_of
from allswell.engine.explaining.shapes import Explanation
from allswell.engine.explaining.standing import state_of
from allswell.engine.explaining.waterfall import waterfall
from allswell.engine.explaining.why import why
from allswell.engine.explaining.words import clean
from allswell.engine.finding import find_run
from allswell.errors import Refused

_LANES = 60
_LOOKED_AT = 1_000
_FIRST = (State.HELD, State.FAILED, State.WAITING, State.DELAYED, State.READY)


class RunScreen(Struct, frozen=True):
    """All that the template shows."""

    title: str
    now: int
    run: Run
    earlier: list[Run]
    """Those that it was before: one that has ended can go on in another."""
    last: Run
    why: Explanation
    graph: DrawnGraph
    left_out: int
    """Tasks that are not in the picture; at least so many."""
    fall: DrawnWaterfall
    spent: Spent
    build: bool
    """Whether it is one of a build, which has a screen of its own."""


def is_about(call: Call, entry: Entry) -> bool:
    """Whether an event is about the run on the screen."""
    return not call.named("run").startswith("r_") or entry.event.run in (call.named("run"), None)


async def look(call: Call) -> RunScreen:
    """Look at one run."""
    views = call.views
    id_ = await find_run(views, call.named("run"))
    run = await views.view_run(RunId(id_))
    if run is None:
        raise Refused("unknown_run", f"there is no run {call.named('run')!r}", where="run")
    *earlier, last = last_of(run, {one.id: one for one in await views.view_runs()})
    explained = await why(views, id_, _LOOKED_AT)
    rows = await views.view_tasks(TaskFilter(run=last.id, limit=_LOOKED_AT))
    spent = await views.view_spent("run", (last.id,))
    return RunScreen(
        run.name,
        explained.now,
        run,
        list(earlier),
        last,
        explained,
        draw_graph(_things(rows), f"The tasks of {clean(run.name, 60)}"),
        max(len(rows) - MOST, 0),
        draw_waterfall(await waterfall(views, last, explained.now, _LANES), explained.now),
        spent.get(last.id, NOTHING_SPENT),
        await kept_spec(views, last.id) is not None,
    )


def _things(rows: Sequence[TaskRow]) -> list[GraphThing]:
    """What is drawn: of many tasks, those first that are at work or wait."""
    places = {state: place for place, state in enumerate(_FIRST)}
    shown = {row.task.id for row in sorted(rows, key=lambda row: places.get(state_of(row) or State.FAILED, 9))[:MOST]}
    return [_thing(row) for row in rows if row.task.id in shown]


def _thing(row: TaskRow) -> GraphThing:
    task = row.task
    asks = any(wait.kind == "question" for wait in row.waits)
    state = "asked" if asks and row.lease is None else str(state_of(row) or "nowhere")
    under = {"asked": "asks you", "held": "at work"}.get(state, state)
    if row.lease is not None:
        under = f"{clean(row.lease.agent, 20)}"
    return GraphThing(task.id, task.name, state, under, place_of(task.id), task.spec.needs)
