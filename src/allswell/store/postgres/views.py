"""What can be looked at without a transaction: each view is one round trip with one snapshot, on a desk of its own.

What each of them tells, `store/views.py` says.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from allswell.domain.agents.cost import ExpenseRow, Spent
from allswell.domain.ids import TaskId
from allswell.domain.lease.model import Agent, AgentRecord
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
from allswell.domain.task.model import LAST, Attempt, State, TaskRow, folded
from allswell.store.postgres.connection_thread import SQL, Session
from allswell.store.postgres.pipeline import Statement
from allswell.store.postgres.transaction import ServerClock
from allswell.store.postgres.values import (
    EVENTS_MOST,
    entries_of,
    first_attempt_of,
    health_of,
    json,
    question_of,
    service_of,
    task_row_of,
    texts,
)
from allswell.store.views import Views

# What sinks still have to deliver, in PostgreSQL.


def enlist(
    session: Session, follower: str, after: Position, upto: Position, deliveries: Sequence[Delivery], memory: str
) -> bool:
    """Keep new deliveries and the follower's memory, if the cursor is where it believes, and move that."""
    session.ask((SQL["lock_cursor"], (follower,)))
    rows = session.ask((SQL["select_cursor"], (follower,)))[0].fetchall()
    if (Position(*rows[0]) if rows else Position()) != after:
        return False
    session.ask(
        (SQL["advance_cursor"], (follower, upto.xid, upto.id)),
        (SQL["insert_deliveries"], (json([_row(one) for one in deliveries]),)),
        *([(SQL["put_kept"], (memory_key(follower), memory))] if memory else []),
    )
    return True


def forget(session: Session, follower: str, sink: str) -> None:
    """Forget a follower with all that is kept of it."""
    session.ask(
        (SQL["lock_cursor"], (follower,)),
        (SQL["delete_cursor"], (follower,)),
        (SQL["delete_deliveries_of"], (sink,)),
    )
    kept = [key for key, _ in session.ask((SQL["view_kept"], (follower,)))[0].fetchall()]
    own = [f"kept.{key}" for key in kept if key == follower or key.startswith(f"{follower}.")]
    session.ask((SQL["delete_kept"], (texts(own),)))


def revise(session: Session, changed: Sequence[Delivery], gone: Sequence[Delivery]) -> None:
    """Write deliveries as they are now, and forget those that are gone."""
    for statement, which in (("update_deliveries", changed), ("delete_deliveries", gone)):
        if which:
            session.ask((SQL[statement], (json([_row(one) for one in which]),)))


def delivery_of(row: Sequence[Any]) -> Delivery:
    """A delivery as it was kept."""
    sink, id_, target, xid, number, part, *rest = row
    return Delivery(sink, id_, target, (xid, number, part), *rest)


def _row(one: Delivery) -> dict[str, object]:
    xid, number, part = one.place
    return {
        "sink": one.sink,
        "xid": xid,
        "number": number,
        "part": part,
        "id": one.id,
        "target": one.target,
        "at": one.at,
        "body": one.body,
        "tries": one.tries,
        "next_at": one.next_at,
        "failing_since": one.failing_since,
        "given_up": one.given_up,
        "reason": one.reason,
    }


T = TypeVar("T")
Table = list[tuple[Any, ...]]
_JOURNAL_ROWS = 100
_EVENT_BYTES = 300
"""What an event takes in the journal, about."""
_STANDING = (State.HELD.value, State.WAITING.value, State.READY.value, State.DELAYED.value)
"""States that follow from other rows than the task's own."""


class PostgresViews(Views):
    """The reading half of the store."""

    _clock: ServerClock

    async def _look(self, *statements: Statement) -> list[Table]:
        """The rows of each statement, all seen at one moment."""
        raise NotImplementedError

    async def _rows(self, name: str, *values: object) -> Table:
        (rows,) = await self._look((SQL[name], values))
        return rows

    async def view(self, query: Query[T]) -> T:
        """The answer to a query."""
        answer: T = await self._views[type(query)](self, query)
        return answer

    async def _agenda(self, _: ViewAgenda) -> SweepAgenda:
        ((moment, due, spread),) = await self._rows("view_agenda")
        return SweepAgenda(self._clock.see(moment), due, spread is not None, spread=spread or "")

    async def _tasks(self, query: ViewTasks) -> list[TaskRow]:
        which = query.which
        alone = which.states[0] if len(which.states) == 1 and which.states[0] in _STANDING else None
        states = texts(which.states) if which.states and alone is None else None
        ids = None if which.ids is None else texts(which.ids)
        # Of a million open tasks few are ready in one role: these are found by their own rows.
        in_line = which.states == (State.READY.value,) and which.role is not None
        text = folded(which.text)
        beyond, order = ("<", "DESC") if which.newest else (">", "ASC")
        stands = "" if alone is None else SQL[f"stands_{alone}"].format(beyond=beyond)
        page = SQL["of_page"].format(beyond=beyond, order=order, stands=stands)
        values = (
            *(which.after or (LAST if which.newest else ""), which.open, which.run, which.name, states, which.limit),
            *(which.role, ids, in_line, text, which.below),
        )
        (rows,) = await self._look((f"{SQL['task_row']} {page}", values))
        return [task_row_of(row) for row in rows]

    async def _task(self, query: ViewTask) -> TaskRow | None:
        (rows,) = await self._look((f"{SQL['task_row']} {SQL['of_one_id']}", (query.task,)))
        return task_row_of(rows[0]) if rows else None

    async def _payload(self, query: ViewPayload) -> tuple[str | None, str | None]:
        rows = await self._rows("view_payload", query.task)
        return (rows[0][0], rows[0][1]) if rows else (None, None)

    async def _results(self, query: ViewResults) -> list[tuple[TaskId, str]]:
        return [
            (row[0], row[1])
            for row in await self._rows("view_results", query.run, query.role, query.after, query.limit)
        ]

    async def _attempts(self, query: ViewAttempts) -> list[Attempt]:
        kept, rows = await self._look(
            (SQL["read_first_attempts"], (texts([query.task]),)), (SQL["view_attempts"], (query.task,))
        )
        found = {attempt.token: attempt for attempt in map(first_attempt_of, kept)} | {
            row[1]: Attempt(*row) for row in rows
        }
        return list(found.values())

    async def _expenses(self, query: ViewExpenses) -> list[ExpenseRow]:
        return [ExpenseRow(*row) for row in await self._rows("read_expenses", texts([query.task]))]

    async def _spent(self, query: ViewSpent) -> dict[str, Spent]:
        rows = await self._rows(f"spent_by_{query.by}", texts(list(query.keys)), query.since)
        return {row[0]: Spent(*row[1:]) for row in rows}

    async def _questions(self, query: ViewQuestions) -> list[Question]:
        rows = await self._rows("view_open_questions" if query.open_only else "view_questions", query.limit)
        return [question_of(row) for row in rows]

    async def _question(self, query: ViewQuestion) -> Question | None:
        rows = await self._rows("read_questions", texts([query.question]))
        return question_of(rows[0]) if rows else None

    async def _runs(self, query: ViewRuns) -> list[Run]:
        return [Run(*row) for row in await self._rows("view_runs", query.limit)]

    async def _run(self, query: ViewRun) -> Run | None:
        rows = await self._rows("read_runs", texts([query.run]))
        return Run(*rows[0]) if rows else None

    async def _health(self, _: ViewHealth) -> dict[str, AgentRecord]:
        return health_of(await self._rows("view_health"))

    async def _agents(self, _: ViewAgents) -> list[Agent]:
        return [Agent(*row) for row in await self._rows("view_agents")]

    async def _services(self, _: ViewServices) -> dict[str, ServiceRow]:
        return {service.id: service for service in map(service_of, await self._rows("services"))}

    async def _counts(self, _: ViewCounts) -> dict[str, int]:
        ((unended, held, waiting, ready),), ended = await self._look(
            (SQL["view_open_counts"], ()), (SQL["view_ended_counts"], ())
        )
        delayed = unended - held - waiting - ready
        standing = {State.HELD: held, State.WAITING: waiting, State.READY: ready, State.DELAYED: delayed}
        return {state.value: count for state, count in standing.items() if count} | dict(ended)

    async def _orphans(self, query: ViewOrphans) -> list[TaskId]:
        """Open tasks that would hang silently; they are looked at one by one only where the sums leave a doubt."""
        ((in_doubt,),) = await self._rows("view_in_doubt")
        if not in_doubt:
            return []
        return [row[0] for row in await self._rows("view_unaccounted", query.limit)]

    async def _journal(self, query: ViewJournal) -> list[Entry]:
        """Events after a position; only those that no transaction under way could still precede."""
        found: list[Entry] = []
        seen = query.after
        while len(found) < query.limit:
            # Rows hold one event or many: some are fetched at a time, until there are enough.
            bytes_ = (query.limit - len(found)) * _EVENT_BYTES
            rows = await self._rows("journal", str(seen.xid), seen.id // EVENTS_MOST, _JOURNAL_ROWS, bytes_)
            entries = [entry for row in rows for entry in entries_of(row[:4]) if entry.position > seen]
            found += entries
            if not entries or len(rows) == rows[0][4] < _JOURNAL_ROWS:
                break
            seen = found[-1].position
        return found[: query.limit]

    async def _cursor(self, query: ViewCursor) -> Position:
        rows = await self._rows("select_cursor", query.follower)
        return Position(*rows[0]) if rows else Position()

    async def _cursors(self, _: ViewCursors) -> dict[str, Position]:
        return {follower: Position(xid, id_) for follower, xid, id_ in await self._rows("view_cursors")}

    async def _deliveries(self, query: ViewDeliveries) -> list[Delivery]:
        which = query.which
        asked = which.sink, which.target, which.given_up, which.limit
        return [delivery_of(row) for row in await self._rows("view_deliveries", *asked)]

    async def _kept(self, query: ViewKept) -> dict[str, str]:
        return dict(await self._rows("view_kept", query.prefix))

    async def _value(self, query: ViewValue) -> str | None:
        rows = await self._rows("read_kept", query.key)
        return rows[0][0] if rows else None

    _views: ClassVar[Mapping[type[Query[Any]], Callable[[Any, Any], Awaitable[Any]]]] = {
        ViewAgenda: _agenda,
        ViewTasks: _tasks,
        ViewTask: _task,
        ViewPayload: _payload,
        ViewResults: _results,
        ViewAttempts: _attempts,
        ViewExpenses: _expenses,
        ViewSpent: _spent,
        ViewQuestions: _questions,
        ViewQuestion: _question,
        ViewRuns: _runs,
        ViewRun: _run,
        ViewAgents: _agents,
        ViewHealth: _health,
        ViewServices: _services,
        ViewCounts: _counts,
        ViewOrphans: _orphans,
        ViewJournal: _journal,
        ViewCursor: _cursor,
        ViewCursors: _cursors,
        ViewDeliveries: _deliveries,
        ViewKept: _kept,
        ViewValue: _value,
    }
    """What each query does here."""
