"""Runs: all of them, a page at a time; and one: what needs what, and why it is not over yet."""

from __future__ import annotations

from collections.abc import Sequence

from allswell.build.overview import glance_at_builds
from allswell.build.state import BuildRows, kept_spec
from allswell.domain.access.rights import check_beside
from allswell.domain.build.limits import BUILD_ROLE
from allswell.domain.build.state import BuildGlance, ComponentStatus, work_on
from allswell.domain.ids import RunId
from allswell.domain.rules.event import Entry
from allswell.domain.task.model import NOWHERE, State, TaskFilter, TaskRow
from allswell.engine.lookup import find_run
from allswell.engine.status.explanation import clean
from allswell.engine.status.overview import OpenQuestion
from allswell.engine.status.timeline import waterfall
from allswell.errors import Refused
from allswell.interfaces.http.request_context import RequestContext
from allswell.interfaces.web.questions import show_question
from allswell.interfaces.web.screen import Seen, address, number_of, place_of
from allswell.interfaces.web.timeline import MOST, GraphThing, draw_graph, draw_waterfall
from allswell.views.detail import chain_of, load_run
from allswell.views.explanation import load_explanation
from allswell.views.run import load_runs

_LANES = 60
_LOOKED_AT = 1_000
_FIRST = (NOWHERE, State.HELD, State.FAILED, State.WAITING, State.DELAYED, State.READY)


def is_about(call: RequestContext, entry: Entry) -> bool:
    """Whether an event is about the run on the screen."""
    return not call.named("run").startswith("r_") or entry.event.run in (call.named("run"), None)


async def look_at_run(call: RequestContext) -> Seen:
    """Look at one run."""
    views = call.views
    id_ = await find_run(views, call.named("run"))
    shown = await load_run(views, call.artifacts, id_)
    run, *others = await chain_of(views, id_)
    last = others[-1] if others else run
    explained, _ = await load_explanation(views, call.artifacts, id_, call.place, _LOOKED_AT)
    rows = await views.view_tasks(TaskFilter(run=last.id, limit=_LOOKED_AT))
    return Seen(
        title=run.name,
        now=explained.now,
        run=run,
        earlier=[run, *others][:-1],  # those that it was before: one that has ended can go on in another
        last=last,
        shown=shown,
        why=explained,
        graph=draw_graph(_things(rows), f"The tasks of {clean(run.name, 60)}"),
        left_out=max(len(rows) - MOST, 0),
        fall=draw_waterfall(await waterfall(views, last, explained.now, _LANES), explained.now),
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


async def look_at_runs(call: RequestContext) -> Seen:
    """Look at a page of runs."""
    first = number_of(call, "from", 100_000)
    found = (await load_runs(call.views, call.artifacts, first + PAGE + 1)).runs[first:]
    rows = []
    for run in found[:PAGE]:
        still = await call.views.view_tasks(TaskFilter(run=RunId(run.run_id), open=True, limit=_COUNTED))
        rows.append((run, len(still)))
    return Seen(
        title="Runs",
        now=(await call.views.view_agenda()).now,
        rows=rows,
        counted=_COUNTED,
        first=first,
        before=None if first == 0 else address("/runs", from_=max(first - PAGE, 0)),
        after=address("/runs", from_=first + PAGE) if len(found) > PAGE else None,
    )


# A build: its components with their states, holders and audits, what only a human can decide, and what comes next.

_BUILDS = 50


async def look_at_builds(call: RequestContext) -> Seen:
    """Look at the builds that are not over."""
    check_beside(call.key, "builds")
    now = (await call.views.view_agenda()).now
    return Seen(title="Builds", now=now, builds=await glance_at_builds(call.views, _BUILDS))


async def look_at_build(call: RequestContext) -> Seen:
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
    return Seen(
        title=spec.name,
        now=(await views.view_agenda()).now,
        run=run,
        glance=glance,
        graph=draw_graph(
            [_component_thing(one) for one in components.values()], f"The components of {clean(spec.name, 60)}"
        ),
        questions=[show_question(call, OpenQuestion(one, None, 0)) for one in asked if one is not None],
        rows=[
            (
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
