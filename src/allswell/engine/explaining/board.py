"""The board: open tasks as short lines, those that need somebody first. What a live table shows."""

from __future__ import annotations

import msgspec

from allswell.domain.listing import TaskFilter, TaskRow
from allswell.domain.names import Millis, TaskId
from allswell.domain.task import OPEN, State
from allswell.engine.explaining.ended import outcome
from allswell.engine.explaining.facts import Facts
from allswell.engine.explaining.overview import Overview, look
from allswell.engine.explaining.standing import ASKING, stand
from allswell.engine.explaining.words import clean, quoted
from allswell.store.views import Views

_SHOWN = (State.HELD, State.WAITING, State.DELAYED, State.READY)
EACH = 100
"""How many tasks of each state are looked at."""


class Line(msgspec.Struct, frozen=True):
    """One open task on the board."""

    task: str
    name: str
    state: str
    trouble: int
    who: str
    since: Millis | None
    progress: float | None
    note: str
    due: Millis | None
    ahead: str
    """What happens next."""


class Board(msgspec.Struct, frozen=True):
    """The watch as a table."""

    overview: Overview
    lines: tuple[Line, ...]


async def board(views: Views, text: str = "", each: int = EACH) -> Board:
    """Read the board; a bounded number of tasks, however many are open.

    With a `text`, only those that have it in their name, id, role or holder: then those that have ended, too.
    """
    overview = await look(views)
    facts = Facts(overview.now)
    facts.agents = {agent.id: agent for agent in await views.view_agents()}
    facts.services = await views.view_services()
    facts.runs = {run.id: run for run in await views.view_runs()}
    rows: list[TaskRow] = []
    if text:
        rows += await views.view_tasks(TaskFilter(open=True, text=text, limit=each * len(_SHOWN)))
        rows += await views.view_tasks(TaskFilter(open=False, text=text, limit=each))
    for state in () if text else _SHOWN:
        if overview.counts.get(state):
            rows += await views.view_tasks(TaskFilter(states=(state.value,), limit=each))
    facts.rows = {row.task.id: row for row in rows}
    lines = [line(row, facts) for row in rows]
    return Board(overview, tuple(sorted(lines, key=_place)))


_ORDER = {State.HELD.value: 0, State.DELAYED.value: 1, State.READY.value: 2, State.WAITING.value: 3}
_TROUBLED = 60


def _place(line: Line) -> tuple[int, int, int, str]:
    return (-line.trouble if line.trouble >= _TROUBLED else 0, _ORDER.get(line.state, 4), line.since or 0, line.task)


def line(row: TaskRow, facts: Facts) -> Line:
    """One task in short."""
    standing = stand(row, facts)
    task, lease = row.task, row.lease
    trouble, who, note, ahead, due = standing.trouble, "", "", "", row.due
    if lease is not None:
        who, note = clean(lease.agent, 40), clean(lease.note)
    elif row.waits:
        asked = [wait.target for wait in row.waits if wait.kind == "question"]
        if asked:
            trouble, who, ahead = ASKING, "you", f"allswell why {asked[0]}"
        else:
            need = facts.rows.get(TaskId(row.waits[0].target))
            first = row.waits[0].target if need is None else quoted(need.task.name, 60)
            ahead = f"needs {first}" + (f" and {len(row.waits) - 1:,} more" if len(row.waits) > 1 else "")
    elif task.state != OPEN:
        note = clean(task.record.reason)
    elif task.record.handover is not None:
        note = f"{clean(task.record.handover.agent, 40)} {outcome(task.record.handover.reason)}"
    far = facts.limit_of(task) if standing.state == State.READY else None  # the run's end is no news about each task
    notable = [one for one in standing.next if not one.routine and one.at != far]
    if notable:
        due, ahead = notable[0].at, notable[0].what
    elif trouble >= _TROUBLED and not ahead:
        ahead = "overdue: nobody sweeps"
    since = standing.since or task.created_at
    progress = None if lease is None else lease.progress
    return Line(task.id, clean(task.name, 120), standing.state, trouble, who, since, progress, note, due, ahead)


def changes(before: Board | None, after: Board) -> list[str]:
    """What is different, one sentence each; for those who read lines instead of a table."""
    old = {} if before is None else {line.task: line for line in before.lines}
    new = {line.task: line for line in after.lines}
    told = []
    for id_, now in new.items():
        was = old.get(id_)
        if was is None or (was.state, was.who, was.note) != (now.state, now.who, now.note):
            who = f" by {now.who}" if now.state == State.HELD else f" for {now.who}" if now.who else ""
            note = f": {quoted(now.note)}" if now.note and now.state == State.HELD else ""
            told.append(f"{quoted(now.name, 60)} is {now.state}{who}{note}")
    told += [f"{quoted(was.name, 60)} is off the board" for id_, was in old.items() if id_ not in new]
    seen = set() if before is None else {(need.kind, need.id) for need in before.overview.needs}
    told += [f"! {need.what}" for need in after.overview.needs if (need.kind, need.id) not in seen]
    return told
