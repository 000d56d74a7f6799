"""A build: its components with their states, holders and audits, what only a human can decide, and what comes next."""

from __future__ import annotations

from msgspec import Struct

from allswell.build.glancing import glance_at_builds
from allswell.build.place import kept_spec
from allswell.build.rows import BuildRows
from allswell.domain.access import check_beside
from allswell.domain.build.glance import BuildGlance, work_on
from allswell.domain.build.roles import BUILD_ROLE
from allswell.domain.build.standing import ComponentStanding
from allswell.domain.listing import TaskFilter
from allswell.domain.names import RunId
from allswell.domain.run import Run
from allswell.doors.http.call import Call
from allswell.doors.page.asking import ShownQuestion, show_question
from allswell.doors.page.graph import DrawnGraph, GraphThing, draw_graph
from allswell.doors.page.rendering import place_of
from allswell.engine.explaining.front import OpenQuestion
from allswell.engine.explaining.words import clean
from allswell.engine.finding import find_run
from allswell.errors import Refused

_BUILDS = 50


class BuildsScreen(Struct, frozen=True):
    """The builds that are not over."""

    title: str
    now: int
    builds: list[BuildGlance]


class BuildRow(Struct, frozen=True):
    """One component."""

    one: ComponentStanding
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


async def look_at_all(call: Call) -> BuildsScreen:
    """Look at the builds that are not over."""
    check_beside(call.key, "builds")
    now = (await call.views.view_agenda()).now
    return BuildsScreen("Builds", now, await glance_at_builds(call.views, _BUILDS))


async def look(call: Call) -> BuildScreen:
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
        graph=draw_graph([_thing(one) for one in components.values()], f"The components of {clean(spec.name, 60)}"),
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


def _thing(one: ComponentStanding) -> GraphThing:
    under = f"{clean(one.holder, 20)}" if one.holder and one.state == "held" else one.state
    href = f"#c-{one.name}" if one.task is None else place_of(one.task)
    return GraphThing(one.name, one.name, one.state, under, href, one.needs)
