"""Runs: all of them, a page at a time; and one: what needs what, and why it is not over yet."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from allswell.build.overview import glance_at_builds
from allswell.build.state import BuildRows, kept_spec
from allswell.domain.access.rights import check_beside
from allswell.domain.build.limits import BUILD_ROLE
from allswell.domain.build.state import BuildGlance, ComponentStatus, work_on
from allswell.domain.ids import RunId
from allswell.domain.rules.event import Entry
from allswell.domain.run.run import Run
from allswell.domain.task.model import NOWHERE, State, TaskFilter, TaskRow
from allswell.engine.lookup import find_run
from allswell.engine.status.explanation import Explanation, clean
from allswell.engine.status.overview import OpenQuestion
from allswell.engine.status.timeline import waterfall
from allswell.errors import Refused
from allswell.interfaces.http.request_context import RequestContext
from allswell.interfaces.web.questions import ShownQuestion, show_question
from allswell.interfaces.web.screen import address, number_of, place_of
from allswell.interfaces.web.timeline import MOST, DrawnGraph, DrawnWaterfall, GraphThing, draw_graph, draw_waterfall
from allswell.views.detail import ShownRunShape, chain_of, load_run
from allswell.views.explanation import load_explanation
from allswell.views.run import RunShape, load_runs

_LANES = 60
_LOOKED_AT = 1_000
_FIRST = (NOWHERE, State.HELD, State.FAILED, State.WAITING, State.DELAYED, State.READY)


class RunScreen(Struct, frozen=True):
    """All that the template shows."""

    title: str
    now: int
    run: Run
    earlier: list[Run]
    """Those that it was before: one that has ended can go on in another."""
    last: Run
    shown: ShownRunShape
    why: Explanation
    graph: DrawnGraph
    left_out: int
    """Tasks that are not in the picture; at least so many."""
    fall: DrawnWaterfall


def is_about(call: RequestContext, entry: Entry) -> bool:
    """Whether an event is about the run on the screen."""
    return not call.named("run").startswith("r_") or entry.event.run in (call.named("run"), None)


async def look_at_run(call: RequestContext) -> RunScreen:
    """Look at one run."""
    views = call.views
    id_ = await find_run(views, call.named("run"))
    shown = await load_run(views, call.artifacts, id_)
    run, *others = await chain_of(views, id_)
    last = others[-1] if others else run
    explained, _ = await load_explanation(views, call.artifacts, id_, call.place, _LOOKED_AT)
    rows = await views.view_tasks(TaskFilter(run=last.id, limit=_LOOKED_AT))
    return RunScreen(
        run.name,
        explained.now,
        run,
        [run, *others][:-1],
        last,
        shown,
        explained,
        draw_graph(_things(rows), f"The tasks of {clean(run.name, 60)}"),
        max(len(rows) - MOST, 0),
        draw_waterfall(await waterfall(views, last, explained.now, _LANES), explained.now),
    )


def _things(rows: Sequence[TaskRow]) -> list[GraphThing]:
    """What is drawn: of many tasks, those first that are at work or wait."""
    places = {state: place for place, state in enumerate(_FIRST)}
    shown = {row.task.id for row in sorted(rows, key=lambda row: places.get(row.state, 9))[:MOST]}
    return [_thing(row) for row in rows if row.task.id in shown]


def _thing(row: TaskRow) -> GraphThing:
    task = row.task
    state = "asked" if row.asks else row.state
    under = {"asked": "asks you", "held": "at work"}.get(state, state)
    if row.lease is not None:
        under = f"{clean(row.lease.agent, 20)}"
    return GraphThing(task.id, task.name, state, under, place_of(task.id), task.spec.needs)


# All runs, the newest first, a page at a time.

PAGE = 30
_COUNTED = 100


class RunRow(Struct, frozen=True):
    """One run."""

    run: RunShape
    open_tasks: int
    """Tasks of it that are not over; at most so many are counted as `counted` says."""
    counted: int


class RunsScreen(Struct, frozen=True):
    """All that the template shows."""

    title: str
    now: int
    rows: list[RunRow]
    first: int
    before: str | None
    after: str | None


async def look_at_runs(call: RequestContext) -> RunsScreen:
    """Look at a page of runs."""
    first = number_of(call, "from", 100_000)
    found = (await load_runs(call.views, call.artifacts, first + PAGE + 1)).runs[first:]
    rows = []
    for run in found[:PAGE]:
        still = await call.views.view_tasks(TaskFilter(run=RunId(run.run_id), open=True, limit=_COUNTED))
        rows.append(RunRow(run, len(still), _COUNTED))
    return RunsScreen(
        "Runs",
        (await call.views.view_agenda()).now,
        rows,
        first,
        None if first == 0 else address("/runs", from_=max(first - PAGE, 0)),
        address("/runs", from_=first + PAGE) if len(found) > PAGE else None,
    )


# A build: its components with their states, holders and audits, what only a human can decide, and what comes next.

_BUILDS = 50


class BuildsScreen(Struct, frozen=True):
    """The builds that are not over."""

    title: str
    now: int
    builds: list[BuildGlance]


class BuildRow(Struct, frozen=True):
    """One component."""

    one: ComponentStatus
    doing: str
    missing: list[str]
    """What it needs and is not merged."""


class BuildScreen(Struct, frozen=True):
    """All that the template shows."""

    title: str
    now: int
    run: Run
    glance: BuildGlance
    graph: DrawnGraph
    questions: list[ShownQuestion]
    rows: list[BuildRow]


async def look_at_all(call: RequestContext) -> BuildsScreen:
    """Look at the builds that are not over."""
    check_beside(call.key, "builds")
    now = (await call.views.view_agenda()).now
    return BuildsScreen("Builds", now, await glance_at_builds(call.views, _BUILDS))


async def look(call: RequestContext) -> BuildScreen:
    """Look at one build."""
    check_beside(call.key, "builds")
    views = call.views
    run = await views.view_run(RunId(await find_run(views, call.named("run"))))
    spec = None if run is None else await kept_spec(views, run.id)
    if run is None or spec is None:
        raise Refused("unknown_run", f"{call.named('run')!r} is a run, and no build", where="run")
    standing = await BuildRows(views, run.id).look(spec, run.created_at)
    coordinating = await views.view_tasks(TaskFilter(open=True, run=run.id, role=BUILD_ROLE, limit=1))
    glance = BuildGlance(run.id, spec.name, any(row.lease is not None for row in coordinating), standing)
    components = standing.components
    asked = [await views.view_question(one.id) for one in standing.questions if one.choice is None]
    return BuildScreen(
        title=spec.name,
        now=(await views.view_agenda()).now,
        run=run,
        glance=glance,
        graph=draw_graph(
            [_component_thing(one) for one in components.values()], f"The components of {clean(spec.name, 60)}"
        ),
        questions=[show_question(call, OpenQuestion(one, None, 0)) for one in asked if one is not None],
        rows=[
            BuildRow(
                one,
                work_on(one) if one.state == "held" else "",
                [need for need in one.needs if components[need].state != "merged"],
            )
            for one in components.values()
        ],
    )


def _component_thing(one: ComponentStatus) -> GraphThing:
    under = f"{clean(one.holder, 20)}" if one.holder and one.state == "held" else one.state
    href = f"#c-{one.name}" if one.task is None else place_of(one.task)
    return GraphThing(one.name, one.name, one.state, under, href, one.needs)
