"""All runs, the newest first, a page at a time."""

from __future__ import annotations

from msgspec import Struct

from allswell.domain.expense import NOTHING_SPENT, Spent
from allswell.domain.listing import TaskFilter
from allswell.domain.run import Run, went_on_in
from allswell.doors.http.call import Call
from allswell.doors.page.query import address, number_of

PAGE = 30
_COUNTED = 100


class RunRow(Struct, frozen=True):
    """One run."""

    run: Run
    open_tasks: int
    """Tasks of it that are not over; at most so many are counted as `counted` says."""
    counted: int
    went_on: str | None
    spent: Spent


class RunsScreen(Struct, frozen=True):
    """All that the template shows."""

    title: str
    now: int
    rows: list[RunRow]
    first: int
    before: str | None
    after: str | None


async def look(call: Call) -> RunsScreen:
    """Look at a page of runs."""
    first = number_of(call, "from", 100_000)
    found = (await call.views.view_runs(limit=first + PAGE + 1))[first:]
    shown = found[:PAGE]
    spent = await call.views.view_spent("run", [run.id for run in shown]) if shown else {}
    rows = []
    for run in shown:
        still = await call.views.view_tasks(TaskFilter(run=run.id, open=True, limit=_COUNTED))
        rows.append(RunRow(run, len(still), _COUNTED, went_on_in(run), spent.get(run.id, NOTHING_SPENT)))
    return RunsScreen(
        "Runs",
        (await call.views.view_agenda()).now,
        rows,
        first,
        None if first == 0 else address("/runs", from_=max(first - PAGE, 0)),
        address("/runs", from_=first + PAGE) if len(found) > PAGE else None,
    )
