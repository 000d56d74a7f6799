"""Read models: what people and followers look at. All rows are taken at once; no cursor outlives its function."""

from __future__ import annotations

import sqlite3

from allswell.domain.checkin import Agent
from allswell.domain.journal import Entry, Position
from allswell.domain.lease import Lease
from allswell.domain.listing import LAST, TaskFilter, TaskRow, folded
from allswell.domain.names import QuestionId, RunId, TaskId
from allswell.domain.question import Question
from allswell.domain.run import Run
from allswell.domain.service import ServiceRow
from allswell.domain.task import ENDS, Attempt, State, Wait
from allswell.store.own_clock import StoreClock, settling_of
from allswell.store.sqlite import rows
from allswell.store.sqlite.schema import SQL
from allswell.store.views import Agenda

_FEW = {
    State.HELD.value: "task.id IN (SELECT task FROM lease)",
    State.WAITING.value: "task.id IN (SELECT task FROM wait)",
    State.DELAYED.value: "task.id IN (SELECT owner FROM timer)",
}
"""Of a million open tasks few stand like that: these are found by their own rows."""
_STATE = SQL["view_state"]
_STANDS = SQL["view_stands"].format(state=_STATE)


def tasks(connection: sqlite3.Connection, which: TaskFilter) -> list[TaskRow]:
    """The tasks that fit, by id."""
    beyond, place = ("task.id < ?", which.after or LAST) if which.newest else ("task.id > ?", which.after)
    conditions, values = [beyond], [place]
    ends = [state for state in which.states if state in ENDS]
    if which.open is True or (which.states and not ends):
        conditions.append("ended_at IS NULL")
    if which.open is False or (which.states and len(ends) == len(which.states)):
        conditions.append("ended_at IS NOT NULL")
    if which.ids is not None:
        conditions.append("task.id IN (SELECT value FROM json_each(?))")
        values.append(rows.text(which.ids))
    for condition, value in (("run = ?", which.run), ("name = ?", which.name), ("role = ?", which.role)):
        if value is not None:
            conditions.append(condition)
            values.append(value)
    if which.text:
        conditions.append(SQL["view_text"])
        values.append(folded(which.text))
    if len(which.states) == len(ends) == 1:
        conditions.append("state = ?")
        values.append(ends[0])
        if ends[0] != State.DONE:
            conditions.append("state <> 'open' AND state <> 'done'")  # lets the partial index serve
    elif which.states:
        conditions.append(_STANDS)
        values.append(rows.text(which.states))
    if len(which.states) == 1 and which.states[0] in _FEW:
        conditions.append(_FEW[which.states[0]])
    if which.states == (State.READY.value,) and which.role is not None:
        conditions.append("task.id IN (SELECT ready.task FROM lane JOIN ready ON ready.lane = lane.id WHERE role = ?)")
        values.append(which.role)
    return _tasks(connection, " AND ".join(conditions), (*values, which.limit), "DESC" if which.newest else "ASC")


def one_task(connection: sqlite3.Connection, task: TaskId) -> TaskRow | None:
    """One task."""
    found = _tasks(connection, "task.id = ?", (task, 1))
    return found[0] if found else None


def _tasks(
    connection: sqlite3.Connection, condition: str, values: tuple[str | int, ...], order: str = "ASC"
) -> list[TaskRow]:
    statement = SQL["view_tasks"].format(condition=condition, order=order)
    connection.execute("BEGIN")  # one snapshot for both statements
    try:
        found = connection.execute(statement, values).fetchall()
        listed = rows.text([row[0] for row in found])
        waits: dict[str, list[Wait]] = {}
        for row in connection.execute(SQL["read_wait"], (listed,)).fetchall():
            waits.setdefault(row[0], []).append(Wait(*row))
    finally:
        connection.execute("ROLLBACK")
    return [
        TaskRow(
            rows.task(row),
            None if row[14] is None else Lease(*row[14:]),
            row[12] is not None,
            row[13],
            tuple(waits.get(row[0], ())),
        )
        for row in found
    ]


def payload(connection: sqlite3.Connection, task: TaskId) -> tuple[str | None, str | None]:
    """A task's payload and result; neither if there is no such task."""
    found = connection.execute(SQL["view_payload"], (task,)).fetchall()
    return (found[0][0], found[0][1]) if found else (None, None)


def results(connection: sqlite3.Connection, run: RunId, role: str, after: str, limit: int) -> list[tuple[TaskId, str]]:
    """The results of a run's tasks of one role that are done."""
    return connection.execute(SQL["view_results"], (run, role, after, limit)).fetchall()


def attempts(connection: sqlite3.Connection, task: TaskId) -> list[Attempt]:
    """A task's ended attempts, in order."""
    first = connection.execute(SQL["read_first_attempt"], (rows.text([task]),)).fetchall()
    found = {attempt.token: attempt for attempt in map(rows.first_attempt, first)}
    found |= {row[1]: Attempt(*row) for row in connection.execute(SQL["view_attempts"], (task,)).fetchall()}
    return list(found.values())


def questions(connection: sqlite3.Connection, *, open_only: bool, limit: int) -> list[Question]:
    """Questions, the oldest first."""
    statement = SQL["view_open_questions" if open_only else "view_questions"]
    return [rows.question(row) for row in connection.execute(statement, (limit,)).fetchall()]


def one_question(connection: sqlite3.Connection, question: QuestionId) -> Question | None:
    """One question."""
    found = connection.execute(SQL["read_question"], (rows.text([question]),)).fetchall()
    return rows.question(found[0]) if found else None


def runs(connection: sqlite3.Connection, limit: int) -> list[Run]:
    """Runs, the newest first."""
    return [Run(*row) for row in connection.execute(SQL["view_runs"], (limit,)).fetchall()]


def one_run(connection: sqlite3.Connection, run: RunId) -> Run | None:
    """One run."""
    found = connection.execute(SQL["read_run"], (rows.text([run]),)).fetchall()
    return Run(*found[0]) if found else None


def agents(connection: sqlite3.Connection) -> list[Agent]:
    """What is held against agents."""
    return [rows.agent(row) for row in connection.execute(SQL["view_agents"]).fetchall()]


def services(connection: sqlite3.Connection) -> dict[str, ServiceRow]:
    """The services that something is or was held against."""
    return rows.services(connection.execute(SQL["read_services"]).fetchall())


def agenda(connection: sqlite3.Connection, clock: StoreClock) -> Agenda:
    """What a sweeper has to do, and when."""
    last, due, spreads, word = connection.execute(SQL["view_agenda"]).fetchall()[0]
    now, stands = clock.see(last, settling_of(word))
    return Agenda(now, due, bool(spreads), stands)


def journal(connection: sqlite3.Connection, after: Position, limit: int) -> list[Entry]:
    """Events after a position."""
    found: list[Entry] = []
    cursor = connection.execute(SQL["view_journal"], (after.id,))
    try:
        for row in cursor:
            told = rows.events(row)
            found += [Entry(Position(0, number), row[1], event) for number, event in told if number > after.id]
            if len(found) >= limit:
                break
    finally:
        cursor.close()
    return found[:limit]


def cursor(connection: sqlite3.Connection, follower: str) -> Position:
    """Where a follower has got to."""
    found = connection.execute(SQL["view_cursor"], (follower,)).fetchall()
    return Position(*found[0]) if found else Position()


def cursors(connection: sqlite3.Connection) -> dict[str, Position]:
    """Where every follower has got to."""
    return {row[0]: Position(*row[1:]) for row in connection.execute(SQL["view_cursors"]).fetchall()}


def all_kept(connection: sqlite3.Connection, prefix: str) -> dict[str, str]:
    """What the watch keeps about itself under keys that begin so."""
    return dict(connection.execute(SQL["view_kept"], (prefix,)).fetchall())


def kept(connection: sqlite3.Connection, key: str) -> str | None:
    """What the watch keeps about itself under a key."""
    found = connection.execute(SQL["read_kept"], (key,)).fetchall()
    return None if not found else str(found[0][0])
