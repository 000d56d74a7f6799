"""Read models: what people and followers look at. All rows are taken at once; no cursor outlives its function."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from allswell.domain.agents.cost import ExpenseRow, Spent
from allswell.domain.ids import TaskId
from allswell.domain.lease.model import Agent, AgentRecord, LeaseRow
from allswell.domain.notify.delivery import Delivery, memory_key
from allswell.domain.question import Question
from allswell.domain.rules.event import Entry, Position
from allswell.domain.rules.query import (
    Query,
    SweepAgenda,
    ViewAgenda,
    ViewAgents,
    ViewAttempts,
    ViewCounts,
    ViewCursor,
    ViewCursors,
    ViewDeliveries,
    ViewExpenses,
    ViewHealth,
    ViewJournal,
    ViewKept,
    ViewOrphans,
    ViewPayload,
    ViewQuestion,
    ViewQuestions,
    ViewResults,
    ViewRun,
    ViewRuns,
    ViewServices,
    ViewSpent,
    ViewTask,
    ViewTasks,
    ViewValue,
)
from allswell.domain.run.run import Run
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.model import ENDS, LAST, Attempt, State, TaskRow, WaitState, folded
from allswell.errors import Unavailable
from allswell.store.clock import StoreClock, settling_of
from allswell.store.sqlite import paths, rows
from allswell.store.sqlite.connection import NEWEST, SQL, connect_reader, translated
from allswell.store.views import Views
from allswell.timing.clock import SystemClock

_FEW = {
    State.HELD.value: "task.id IN (SELECT task FROM lease)",
    State.WAITING.value: "task.id IN (SELECT task FROM wait)",
    State.DELAYED.value: "task.id IN (SELECT owner FROM timer)",
}
"""Of a million open tasks few stand like that: these are found by their own rows."""
_STATE = SQL["view_state"]
_STANDS = SQL["view_stands"].format(state=_STATE)


def tasks(connection: sqlite3.Connection, query: ViewTasks) -> list[TaskRow]:
    """The tasks that fit, by id."""
    which = query.which
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
    equal = (("run = ?", which.run), ("name = ?", which.name), ("role = ?", which.role))
    for condition, value in (*equal, ("task.id < ?", which.below or None)):
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


def one_task(connection: sqlite3.Connection, query: ViewTask) -> TaskRow | None:
    """One task."""
    fetched = _tasks(connection, "task.id = ?", (query.task, 1))
    return fetched[0] if fetched else None


def _tasks(
    connection: sqlite3.Connection, condition: str, values: tuple[str | int, ...], order: str = "ASC"
) -> list[TaskRow]:
    statement = SQL["view_tasks"].format(condition=condition, order=order)
    connection.execute("BEGIN")  # one snapshot for both statements
    try:
        fetched = connection.execute(statement, values).fetchall()
        listed = rows.text([row[0] for row in fetched])
        waits: dict[str, list[WaitState]] = {}
        for row in connection.execute(SQL["read_wait"], (listed,)).fetchall():
            waits.setdefault(row[0], []).append(WaitState(*row))
    finally:
        connection.execute("ROLLBACK")
    return [
        TaskRow(
            rows.task(row),
            None if row[14] is None else LeaseRow(*row[14:]),
            row[12] is not None,
            row[13],
            tuple(waits.get(row[0], ())),
        )
        for row in fetched
    ]


def payload(connection: sqlite3.Connection, query: ViewPayload) -> tuple[str | None, str | None]:
    """A task's payload and result; neither if there is no such task."""
    fetched = connection.execute(SQL["view_payload"], (query.task,)).fetchall()
    return (fetched[0][0], fetched[0][1]) if fetched else (None, None)


def results(connection: sqlite3.Connection, query: ViewResults) -> list[tuple[TaskId, str]]:
    """The results of a run's tasks of one role that are done."""
    return connection.execute(SQL["view_results"], (query.run, query.role, query.after, query.limit)).fetchall()


def attempts(connection: sqlite3.Connection, query: ViewAttempts) -> list[Attempt]:
    """A task's ended attempts, in order."""
    first = connection.execute(SQL["read_first_attempt"], (rows.text([query.task]),)).fetchall()
    by_token = {attempt.token: attempt for attempt in map(rows.first_attempt, first)}
    by_token |= {row[1]: Attempt(*row) for row in connection.execute(SQL["view_attempts"], (query.task,)).fetchall()}
    return list(by_token.values())


def questions(connection: sqlite3.Connection, query: ViewQuestions) -> list[Question]:
    """Questions, the oldest first."""
    statement = SQL["view_open_questions" if query.open_only else "view_questions"]
    return [rows.question(row) for row in connection.execute(statement, (query.limit,)).fetchall()]


def one_question(connection: sqlite3.Connection, query: ViewQuestion) -> Question | None:
    """One question."""
    fetched = connection.execute(SQL["read_question"], (rows.text([query.question]),)).fetchall()
    return rows.question(fetched[0]) if fetched else None


def runs(connection: sqlite3.Connection, query: ViewRuns) -> list[Run]:
    """Runs, the newest first."""
    return [Run(*row) for row in connection.execute(SQL["view_runs"], (query.limit,)).fetchall()]


def one_run(connection: sqlite3.Connection, query: ViewRun) -> Run | None:
    """One run."""
    fetched = connection.execute(SQL["read_run"], (rows.text([query.run]),)).fetchall()
    return Run(*fetched[0]) if fetched else None


def health(connection: sqlite3.Connection, _: ViewHealth) -> dict[str, AgentRecord]:
    """What requests say of agents."""
    return rows.health(connection.execute(SQL["view_health"]).fetchall())


def agents(connection: sqlite3.Connection, _: ViewAgents) -> list[Agent]:
    """What is held against agents."""
    return [rows.agent(row) for row in connection.execute(SQL["view_agents"]).fetchall()]


def services(connection: sqlite3.Connection, _: ViewServices) -> dict[str, ServiceRow]:
    """The services that something is or was held against."""
    return rows.services(connection.execute(SQL["read_services"]).fetchall())


def agenda(connection: sqlite3.Connection, clock: StoreClock) -> SweepAgenda:
    """What a sweeper has to do, and when."""
    last, due, spread, word = connection.execute(SQL["view_agenda"]).fetchall()[0]
    now, stands = clock.see(last, settling_of(word))
    return SweepAgenda(now, due, spread is not None, stands, spread or "")


def journal(connection: sqlite3.Connection, query: ViewJournal) -> list[Entry]:
    """Events after a position."""
    entries: list[Entry] = []
    cursor = connection.execute(SQL["view_journal"], (query.after.id,))
    try:
        for row in cursor:
            decoded = rows.events(row)
            entries += [
                Entry(Position(0, number), row[1], event) for number, event in decoded if number > query.after.id
            ]
            if len(entries) >= query.limit:
                break
    finally:
        cursor.close()
    return entries[: query.limit]


def cursor(connection: sqlite3.Connection, query: ViewCursor) -> Position:
    """Where a follower has got to."""
    fetched = connection.execute(SQL["view_cursor"], (query.follower,)).fetchall()
    return Position(*fetched[0]) if fetched else Position()


def cursors(connection: sqlite3.Connection, _: ViewCursors) -> dict[str, Position]:
    """Where every follower has got to."""
    return {row[0]: Position(*row[1:]) for row in connection.execute(SQL["view_cursors"]).fetchall()}


def kept(connection: sqlite3.Connection, query: ViewKept) -> dict[str, str]:
    """What the watch keeps about itself under keys that begin so."""
    return dict(connection.execute(SQL["view_kept"], (query.prefix,)).fetchall())


def value(connection: sqlite3.Connection, query: ViewValue) -> str | None:
    """What the watch keeps about itself under a key."""
    fetched = connection.execute(SQL["read_kept"], (query.key,)).fetchall()
    return None if not fetched else str(fetched[0][0])


# How many tasks stand where, and whether every open one is accounted for, without looking at each of them.
#
# A million open tasks are counted in a fraction of a second by the rows that show where they stand: leases, waits,
# places in line, timers. Each open task has one of them, and which ones go together is known, so where the sums add up
# nobody is missing. Only where they do not, the invariant is asked of every task (`view_unaccounted`).


def counts(connection: sqlite3.Connection, _: ViewCounts) -> dict[str, int]:
    """How many tasks stand where."""
    connection.execute("BEGIN")
    try:
        by_state = dict(connection.execute(SQL["view_counts_bad"]).fetchall())
        by_state |= {state: count for state, count in _open(connection).items() if count}
        (total,) = connection.execute(SQL["view_count_all"]).fetchone()
    finally:
        connection.execute("ROLLBACK")
    if done := total - sum(by_state.values()):
        by_state[State.DONE.value] = done
    return by_state


def orphans(connection: sqlite3.Connection, query: ViewOrphans) -> list[TaskId]:
    """Open tasks that nothing will ever move again."""
    connection.execute("BEGIN")
    try:
        if _adds_up(connection):
            return []
        return [TaskId(row[0]) for row in connection.execute(SQL["view_unaccounted"], (query.limit,)).fetchall()]
    finally:
        connection.execute("ROLLBACK")


def _open(connection: sqlite3.Connection) -> dict[str, int]:
    """How many open tasks stand where; one that stands nowhere counts as delayed."""
    unended, held, waiting, ready = connection.execute(SQL["view_counts_open"]).fetchone()
    delayed = unended - held - waiting - ready
    return {
        State.HELD.value: held,
        State.WAITING.value: waiting,
        State.READY.value: ready,
        State.DELAYED.value: delayed,
    }


def _adds_up(connection: sqlite3.Connection) -> bool:
    """Whether as many tasks have a timer alone as are delayed, every lease has one, and nobody waits in vain."""
    standing = _open(connection)

    def count(name: str) -> int:
        (fetched,) = connection.execute(SQL[name]).fetchone()
        return int(fetched)

    timers = count("count_timers")
    fewer = "count_timers_of_ready" if timers < standing[State.READY.value] else "count_ready_with_timers"
    alone = timers - count("count_timers_of_leases") - count("count_timers_of_waits") - count(fewer)
    return alone == standing[State.DELAYED.value] and not count("find_untimed") and not count("find_in_vain")


# What attempts have cost, in SQLite.

T = TypeVar("T")


def expenses(connection: sqlite3.Connection, query: ViewExpenses) -> list[ExpenseRow]:
    """What the attempts at a task have cost."""
    return [rows.expense(row) for row in connection.execute(SQL["read_expense"], (rows.text([query.task]),)).fetchall()]


def spent(connection: sqlite3.Connection, query: ViewSpent) -> dict[str, Spent]:
    """The sums of what attempts have cost."""
    column = "''" if query.by == "all" else query.by
    statement = SQL["view_spent" if query.keys else "view_all_spent"].format(column=column)
    values = (rows.text(list(query.keys)), query.since) if query.keys else (query.since,)
    return {row[0]: Spent(*row[1:]) for row in connection.execute(statement, values).fetchall()}


# What sinks still have to deliver, in SQLite.


def enlist(
    connection: sqlite3.Connection,
    follower: str,
    after: Position,
    upto: Position,
    deliveries: Sequence[Delivery],
    memory: str,
) -> bool:
    """Keep new deliveries and the follower's memory, if the cursor is where it believes, and move that."""
    if cursor(connection, ViewCursor(follower)) != after:
        return False
    connection.execute(SQL["advance"], (follower, upto.xid, upto.id))
    connection.executemany(SQL["insert_delivery"], map(_row, deliveries))
    if memory:
        connection.execute(SQL["put_kept"], (memory_key(follower), memory))
    return True


def forget(connection: sqlite3.Connection, follower: str, sink: str) -> None:
    """Forget a follower with all that is kept of it."""
    connection.execute(SQL["delete_cursor"], (follower,))
    connection.execute(SQL["delete_deliveries_of"], (sink,))
    connection.execute(SQL["delete_kept"], (follower,))


def revise(connection: sqlite3.Connection, changed: Sequence[Delivery], gone: Sequence[Delivery]) -> None:
    """Write deliveries as they are now, and forget those that are gone."""
    connection.executemany(
        SQL["update_delivery"],
        [
            (
                delivery.tries,
                delivery.next_at,
                delivery.failing_since,
                delivery.given_up,
                delivery.reason,
                delivery.sink,
                *delivery.place,
            )
            for delivery in changed
        ],
    )
    connection.executemany(SQL["delete_delivery"], [(delivery.sink, *delivery.place) for delivery in gone])


def deliveries(connection: sqlite3.Connection, query: ViewDeliveries) -> list[Delivery]:
    """What is still to be delivered or was given up, in its order."""
    which = query.which
    asked = (which.sink, which.target, which.given_up, which.limit)
    return [_delivery(row) for row in connection.execute(SQL["view_deliveries"], asked).fetchall()]


def _row(delivery: Delivery) -> tuple[Any, ...]:
    return (
        *(delivery.sink, *delivery.place, delivery.id, delivery.target, delivery.at, delivery.body),
        *(delivery.tries, delivery.next_at, delivery.failing_since, delivery.given_up, delivery.reason),
    )


def _delivery(row: tuple[Any, ...]) -> Delivery:
    sink, xid, number, part, id_, target, at, body, tries, next_at, since, given_up, reason = row
    return Delivery(sink, id_, target, (xid, number, part), at, body, tries, next_at, since, bool(given_up), reason)


_VIEWS: Mapping[type[Query[Any]], Callable[[sqlite3.Connection, Any], Any]] = {
    ViewTasks: tasks,
    ViewTask: one_task,
    ViewPayload: payload,
    ViewResults: results,
    ViewAttempts: attempts,
    ViewExpenses: expenses,
    ViewSpent: spent,
    ViewQuestions: questions,
    ViewQuestion: one_question,
    ViewRuns: runs,
    ViewRun: one_run,
    ViewAgents: agents,
    ViewHealth: health,
    ViewServices: services,
    ViewCounts: counts,
    ViewOrphans: orphans,
    ViewJournal: journal,
    ViewCursor: cursor,
    ViewCursors: cursors,
    ViewDeliveries: deliveries,
    ViewKept: kept,
    ViewValue: value,
}
"""What each query does here, but for the agenda."""


def view(connection: sqlite3.Connection, clock: StoreClock, query: Query[T]) -> T:
    """The answer to a query."""
    answer: Any = agenda(connection, clock) if type(query) is ViewAgenda else _VIEWS[type(query)](connection, query)
    result: T = answer
    return result


# The views of a store that is there, read in the caller's own thread: no event loop, no writer, nothing to wait for.
#
# It is for those who look once and go, such as a command line, and must start fast. None of its coroutines ever
# suspends, so `store.port.run_sync` can run them without an event loop.


class SqliteReader(Views):
    """A store to look at; `with` opens it. `current` is false where its schema is not one for this version."""

    def __init__(self, location: str | Path, *, busy_timeout: int = 5_000) -> None:
        self.path = paths.locate(location)
        self._busy_timeout = busy_timeout
        self._clock = StoreClock(SystemClock())
        self._reader: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        paths.close_to_others(self.path)
        with translated(self.path, self._busy_timeout):
            self._reader = connect_reader(self.path, self._busy_timeout)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _look(self, look: Callable[[sqlite3.Connection], T]) -> T:
        if self._reader is None:
            raise Unavailable("the store is not open")
        with translated(self.path, self._busy_timeout):
            return look(self._reader)

    @property
    def current(self) -> bool:
        """Whether the views fit the schema; where they do not, opening the store brings it up to date or refuses."""

        def version(connection: sqlite3.Connection) -> bool:
            if connection.execute(SQL["find_meta"]).fetchone() != (1,):
                return False
            version, oldest_writer = connection.execute(SQL["read_version"]).fetchone() or (0, 0)
            return bool(oldest_writer <= NEWEST <= version)

        return self._look(version)

    async def view(self, query: Query[T]) -> T:
        """The answer to a query."""
        return self._look(lambda reader: view(reader, self._clock, query))
