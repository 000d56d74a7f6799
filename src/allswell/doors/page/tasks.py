"""Tasks as a list, the newest first: by state, by role, by run, by a text in their name, a page at a time."""

from __future__ import annotations

from msgspec import Struct

from allswell.domain.listing import TaskFilter, TaskRow
from allswell.domain.names import RunId, TaskId
from allswell.domain.task import State
from allswell.doors.http.call import Call
from allswell.doors.page.query import address, choice_of, text_of
from allswell.doors.shapes.task import stands
from allswell.engine.explaining.words import clean, many
from allswell.engine.finding import find_run

PAGE = 100
STATES = (*(state.value for state in State), "open")
_OPEN = ("held", "ready", "delayed", "waiting")
_NAMED = 200


class TaskLine(Struct, frozen=True):
    """One task."""

    row: TaskRow
    state: str
    about: str
    """What there is to be said of its state, in a few words."""


class TasksScreen(Struct, frozen=True):
    """All that the template shows."""

    title: str
    now: int
    lines: list[TaskLine]
    tallies: list[tuple[str, int, str]]
    """Each state, how many tasks are in it, and where they are listed."""
    state: str
    role: str
    text: str
    run: str
    run_name: str
    first: str | None
    """Where the list begins, if this is not its first page."""
    after: str | None
    filtered: bool


async def look(call: Call) -> TasksScreen:
    """Look at a page of tasks."""
    state, role, text = choice_of(call, "state", STATES), text_of(call, "role"), text_of(call, "text")
    after, run = text_of(call, "after"), text_of(call, "run")
    of_run = RunId(await find_run(call.views, run)) if run else None
    asked = TaskFilter(
        open=True if state == "open" else None,
        run=of_run,
        role=role or None,
        states=(state,) if state and state != "open" else (),
        after=after,
        limit=PAGE + 1,
        text=text,
        newest=True,
    )
    found = await call.views.view_tasks(asked)
    counts = await call.views.view_counts()
    shown = found[:PAGE]
    names = await _names(call, shown)
    kept = {"role": role, "text": text, "run": of_run or ""}
    return TasksScreen(
        title="Tasks",
        now=(await call.views.view_agenda()).now,
        lines=[TaskLine(row, stands(row), _about(row, names)) for row in shown],
        tallies=[
            (one, counts[one], address("/tasks", state=one, **kept)) for one in map(str, State) if counts.get(one)
        ],
        state=state,
        role=role,
        text=text,
        run=of_run or "",
        run_name="" if of_run is None else await _run_name(call, of_run),
        first=address("/tasks", state=state, **kept) if after else None,
        after=address("/tasks", state=state, after=shown[-1].task.id, **kept) if len(found) > PAGE else None,
        filtered=bool(state or role or text or run or after),
    )


async def _run_name(call: Call, id_: RunId) -> str:
    run = await call.views.view_run(id_)
    return id_ if run is None else run.name


async def _names(call: Call, rows: list[TaskRow]) -> dict[str, str]:
    """The names of what tasks wait for: most stand on the same page, a few more are looked up."""
    names: dict[str, str] = {row.task.id: row.task.name for row in rows}
    waited = [wait.target for row in rows for wait in row.waits[:1] if wait.kind != "question"]
    needed = dict.fromkeys(waited + [_first_word(row.task.record.reason) for row in rows])
    missing = tuple(TaskId(one) for one in needed if one.startswith(("t_", "m_")) and one not in names)[:_NAMED]
    found = await call.views.view_tasks(TaskFilter(ids=missing, limit=_NAMED)) if missing else []
    return names | {row.task.id: row.task.name for row in found}


def _about(row: TaskRow, names: dict[str, str]) -> str:
    task = row.task
    if row.lease is not None:
        return clean(row.lease.note, 120)
    if row.waits:
        first = row.waits[0]
        more = f" and {many(len(row.waits) - 1, 'more')}".removesuffix("s") if len(row.waits) > 1 else ""
        if first.kind == "question":
            return f"for your answer{more}"
        return f"for {clean(names.get(first.target, first.target), 60)}{more}"
    if task.ended_at is None or task.state == State.DONE:
        return ""
    reason = task.record.reason
    named = _first_word(reason)
    return clean(names.get(named, named) + reason.removeprefix(named), 120)


def _first_word(reason: str | None) -> str:
    """A reason may begin with the id of another task: “t_… was failed”."""
    return (reason or "").partition(" ")[0]
