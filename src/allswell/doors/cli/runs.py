"""`runs`: what was opened, how long it may take, what it has cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allswell.doors.cli.advice import in_words
from allswell.doors.cli.commands import LOOKING, Commands
from allswell.doors.cli.frame import Frame
from allswell.doors.cli.options import Json, Store
from allswell.doors.cli.people import Limit
from allswell.doors.cli.render import Column, table, when

if TYPE_CHECKING:
    from allswell.domain.expense import Spent
    from allswell.domain.question import Question
    from allswell.domain.run import Run
    from allswell.store.views import Views

_PAGE = 100
_COLUMNS = (
    Column("ID"),
    Column("NAME", 12),
    Column("OPENED"),
    Column("LIMIT", 12),
    Column("ENDED", 12),
    Column("COST", None, right=True),
    Column("FLOW", 8, spare=True),
)


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(LOOKING, "runs", runs, "allswell runs --json")


def runs(limit: Limit = _PAGE, store: Store = None, json: Json = False) -> None:
    """List runs, the newest first."""
    from allswell.domain.expense import NOTHING_SPENT, shown
    from allswell.doors.cli import flowshown
    from allswell.doors.cli.limits import limit_of
    from allswell.doors.shapes.run import RunShape, RunsShape
    from allswell.engine.explaining.runs import waited_for

    frame = Frame(store, json=json)

    async def work(views: Views) -> tuple[list[Run], list[Question], dict[str, Spent], int]:
        found = await views.view_runs(limit)
        spent = await views.view_spent("run", [run.id for run in found]) if found else {}
        return found, await views.view_questions(), spent, (await views.view_agenda()).now

    found, questions, spent, now = frame.look(work)
    flows = flowshown.flows_in(frame.home)
    rows = []
    for run in found:
        ended = "" if run.ended_at is None else f"{run.reason or 'ended'}, {when(run.ended_at, now)}"
        limit_ = limit_of(run, waited_for(run, questions), now)
        flow = "" if run.id not in flows else flows[run.id].run
        cost = "" if run.id not in spent else shown(spent[run.id].cost)
        opened, of_flow = when(run.created_at, now), flow if flow != run.id else "flow"
        rows.append([run.id, run.name, opened, limit_, ended, cost, of_flow])
    none = in_words("No runs. `allswell submit NAME --run RUN --run-timeout 8h` opens one.")
    told = [
        RunShape.of(run, flow=flows[run.id].run if run.id in flows else None, spent=spent.get(run.id, NOTHING_SPENT))
        for run in found
    ]
    frame.say(RunsShape(told), table(_COLUMNS, rows) if rows else none)
