"""The memory store: what `memory:` opens, and the model of a database that the simulator runs on.

One `MemoryStore` is one connection to a `Database`; `another()` opens a second to the same rows, with weather of its
own, as another process would. In strict mode every rule of `store/port.py` is enforced and every statement gives way
to others; without it the same code runs straight through, for tests and embedded use that want speed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Mapping, Sequence
from heapq import nlargest, nsmallest
from typing import Any, ClassVar, Protocol, TypeVar

from allswell.domain.agents.cost import ExpenseRow, Spent, together
from allswell.domain.ids import TaskId
from allswell.domain.lease.model import Agent, AgentRecord
from allswell.domain.notify.delivery import Delivery, memory_key
from allswell.domain.question import Question
from allswell.domain.rules.event import Entry, Position
from allswell.domain.rules.query import (
    NAME_OF,
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
from allswell.domain.task.model import LAST, OPEN, Attempt, Lane, State, Task, TaskFilter, TaskRow, folded
from allswell.errors import Bug, Unavailable
from allswell.store.memory.locks import Turn, a_turn
from allswell.store.memory.tables import Database, OnCommit
from allswell.store.memory.transaction import MemoryTransaction
from allswell.store.port import LOOK_AGAIN, CommitUnknown, Hearer, Transaction, Wakeup
from allswell.store.views import Views
from allswell.timing.clock import Clock, SystemClock

T = TypeVar("T")

# What can be looked at without a transaction: committed rows only, and no writer is waited for. What each view tells,
# `store/views.py` says.


class MemoryViews(Views):
    """The reading half of the memory store, with the journal and its followers' cursors."""

    database: Database

    async def give_way(self, statement: str) -> None:
        """What every statement begins with."""
        raise NotImplementedError

    async def view(self, query: Query[T]) -> T:
        """The answer to a query, once others had their turn."""
        await self.give_way(NAME_OF[type(query)])
        answer: T = self._views[type(query)](self, query)
        return answer

    def _agenda(self, _: ViewAgenda) -> SweepAgenda:
        tables = self.database.tables
        first = tables.timer_order[0][0] if tables.timer_order else None
        now, stands = self.database.see()
        return SweepAgenda(now, first, bool(tables.spreads), stands, next(iter(tables.spreads), ""))

    def _tasks(self, query: ViewTasks) -> list[TaskRow]:
        which = query.which
        tables = self.database.tables
        among: Collection[TaskId] = tables.open_tasks if which.open else tables.tasks
        if which.states == ("held",):
            among = tables.leases  # few, however many tasks there are
        elif which.open and which.run is not None:
            among = tables.open_by_run.get(which.run, {})
        if which.ids is not None:
            among = dict.fromkeys(id_ for id_ in which.ids if id_ in among)
        if which.newest:
            older = (id_ for id_ in among if id_ < (which.after or LAST) and self._fits(id_, which))
            return [self._row(id_) for id_ in nlargest(which.limit, older)]
        fitting = (id_ for id_ in among if id_ > which.after and self._fits(id_, which))
        return [self._row(id_) for id_ in nsmallest(which.limit, fitting)]

    def _fits(self, id_: TaskId, which: TaskFilter) -> bool:
        tables = self.database.tables
        task = tables.tasks[id_]
        return (
            (which.open is None or which.open == (task.state == OPEN))
            and (which.run is None or which.run == task.run)
            and (which.name is None or which.name == task.name)
            and (which.role is None or which.role == task.role)
            and (not which.below or id_ < which.below)
            and (not which.states or tables.stands(id_) in which.states)
            and (not which.text or folded(which.text) in folded(self._called(task)))
        )

    def _called(self, task: Task) -> str:
        """What a task is known by, for finding it by a text."""
        lease = self.database.tables.leases.get(task.id)
        return "\n".join((task.name, task.id, task.role, "" if lease is None else lease.agent))

    def _row(self, id_: TaskId) -> TaskRow:
        tables = self.database.tables
        return TaskRow(
            tables.tasks[id_],
            tables.leases.get(id_),
            id_ in tables.ready,
            tables.timers.get(id_),
            tables.waits.get(id_, ()),
        )

    def _task(self, query: ViewTask) -> TaskRow | None:
        return self._row(query.task) if query.task in self.database.tables.tasks else None

    def _payload(self, query: ViewPayload) -> tuple[str | None, str | None]:
        tables = self.database.tables
        return tables.payloads.get(query.task), tables.results.get(query.task)

    def _results(self, query: ViewResults) -> list[tuple[TaskId, str]]:
        tables = self.database.tables
        done = (
            task.id
            for task in tables.tasks.values()
            if task.run == query.run and task.role == query.role and task.state == State.DONE and task.id > query.after
        )
        return [(id_, tables.results.get(id_, "null")) for id_ in nsmallest(query.limit, done)]

    def _attempts(self, query: ViewAttempts) -> list[Attempt]:
        tables = self.database.tables
        return [tables.attempts[(query.task, token)] for token in tables.attempts_of.get(query.task, ())]

    def _expenses(self, query: ViewExpenses) -> list[ExpenseRow]:
        return list(self.database.tables.expenses.get(query.task, ()))

    def _spent(self, query: ViewSpent) -> dict[str, Spent]:
        found: dict[str, list[ExpenseRow]] = {}
        for row in (row for told in self.database.tables.expenses.values() for row in told):
            key = "" if query.by == "all" else getattr(row, query.by)
            if key is not None and row.told_at >= query.since and (not query.keys or key in query.keys):
                found.setdefault(key, []).append(row)
        return {key: together(rows) for key, rows in found.items()}

    def _questions(self, query: ViewQuestions) -> list[Question]:
        questions = self.database.tables.questions.values()
        found = [question for question in questions if not query.open_only or question.closed_at is None]
        return nsmallest(query.limit, found, key=lambda question: (question.asked_at, question.id))

    def _question(self, query: ViewQuestion) -> Question | None:
        return self.database.tables.questions.get(query.question)

    def _runs(self, query: ViewRuns) -> list[Run]:
        runs = self.database.tables.runs.values()
        return sorted(runs, key=lambda run: (run.created_at, run.id), reverse=True)[: query.limit]

    def _run(self, query: ViewRun) -> Run | None:
        return self.database.tables.runs.get(query.run)

    def _agents(self, _: ViewAgents) -> list[Agent]:
        return sorted(self.database.tables.agents.values(), key=lambda agent: agent.id)

    def _health(self, _: ViewHealth) -> dict[str, AgentRecord]:
        return dict(self.database.tables.health)

    def _services(self, _: ViewServices) -> dict[str, ServiceRow]:
        return dict(self.database.tables.services)

    def _counts(self, _: ViewCounts) -> dict[str, int]:
        counts: dict[str, int] = {}
        for id_ in self.database.tables.tasks:
            stands = str(self.database.tables.stands(id_))
            counts[stands] = counts.get(stands, 0) + 1
        return counts

    def _orphans(self, query: ViewOrphans) -> list[TaskId]:
        """Open tasks that would hang silently; kept up to date with every commit, so this costs nothing."""
        return self.unaccounted(query.limit)

    def unaccounted(self, limit: int = 100) -> list[TaskId]:
        """The same at once, for a hook that cannot wait."""
        return nsmallest(limit, self.database.tables.unaccounted)

    def _journal(self, query: ViewJournal) -> list[Entry]:
        """Events after a position in the journal's order; never skips one that commits late."""
        return self.database.journal(query.after, query.limit)

    def _cursor(self, query: ViewCursor) -> Position:
        return self.database.cursors.get(query.follower, Position())

    def _cursors(self, _: ViewCursors) -> dict[str, Position]:
        return dict(self.database.cursors)

    async def advance(self, follower: str, position: Position) -> None:
        """Note where a follower has got to; never backwards."""
        await self.give_way("advance")
        self.database.cursors[follower] = max(position, self.database.cursors.get(follower, Position()))

    async def enlist(
        self, follower: str, after: Position, upto: Position, deliveries: Sequence[Delivery], memory: str = ""
    ) -> bool:
        """Keep new deliveries, move a follower's cursor and keep its memory: all of it or nothing."""
        await self.give_way("enlist")
        base = self.database
        if base.cursors.get(follower, Position()) != after:
            return False
        base.cursors[follower] = max(upto, after)
        base.deliveries |= {(one.sink, one.place): one for one in deliveries}
        if memory:
            base.kept[memory_key(follower)] = memory
        return True

    async def forget(self, follower: str, sink: str) -> None:
        """Forget a follower with all that is kept of it."""
        await self.give_way("forget")
        base = self.database
        base.cursors.pop(follower, None)
        base.deliveries = {key: one for key, one in base.deliveries.items() if one.sink != sink}
        for key in [key for key in base.kept if key == follower or key.startswith(f"{follower}.")]:
            del base.kept[key]

    async def revise(self, changed: Sequence[Delivery], gone: Sequence[Delivery] = ()) -> None:
        """Write deliveries as they are now, and forget those that are gone."""
        await self.give_way("revise")
        kept = self.database.deliveries
        kept |= {(one.sink, one.place): one for one in changed if (one.sink, one.place) in kept}
        for one in gone:
            kept.pop((one.sink, one.place), None)

    def _deliveries(self, query: ViewDeliveries) -> list[Delivery]:
        which = query.which
        kept = self.database.deliveries
        found = [
            kept[key]
            for key in sorted(kept)
            if which.sink in (None, key[0])
            and which.target in (None, kept[key].target)
            and which.given_up in (None, kept[key].given_up)
        ]
        return found[: which.limit]

    def _kept(self, query: ViewKept) -> dict[str, str]:
        return {key: value for key, value in sorted(self.database.kept.items()) if key.startswith(query.prefix)}

    async def compare_and_set(self, key: str, before: str | None, after: str) -> bool:
        """Keep something in the place of what was kept there, if that is still so."""
        await self.give_way("compare_and_set")
        if self.database.kept.get(key) != before:
            return False
        self.database.kept[key] = after
        return True

    def _value(self, query: ViewValue) -> str | None:
        return self.database.kept.get(query.key)

    async def put(self, key: str, value: str) -> None:
        """Keep something about the watch itself."""
        await self.give_way("put")
        self.database.kept[key] = value

    _views: ClassVar[Mapping[type[Query[Any]], Callable[[Any, Any], Any]]] = {
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


Carry = Callable[[], Sequence[float]]
"""How a wake-up call travels: after how many seconds it arrives; never, once, or several times."""


class AnswerLost(Exception):
    """Raised by a hook around a commit: the connection broke, and the caller cannot know what became of it."""


class Faults(Protocol):
    """The weather of one connection: each hook may wait, or raise `Unavailable` to break the connection."""

    def before(self, statement: str) -> Awaitable[None] | None:
        """Before a statement or a view, by its name in the port; what it raises rolls the transaction back."""
        ...

    async def before_commit(self) -> None:
        """The commit is on its way; what is raised prevents it. `AnswerLost` hides that from the caller."""
        ...

    async def after_commit(self) -> None:
        """It has taken place; what is raised loses the answer, and the caller gets `CommitUnknown`."""
        ...


class MemoryStore(MemoryViews):
    """A store in this process's memory."""

    url = "memory:"
    max_parallel = 2  # for the simulator: nothing is gained by it here

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        strict: bool = True,
        faults: Faults | None = None,
        shared_clock: bool = False,
        database: Database | None = None,
        carry: Carry | None = None,
        turn: Turn = a_turn,
    ) -> None:
        self.database = database or Database(clock or SystemClock(), turn, of_server=shared_clock)
        self.strict = strict
        self.faults = faults
        self.shared_clock = shared_clock
        self._carry = carry
        self._is_open = False

    def another(self, *, faults: Faults | None = None) -> MemoryStore:
        """A second connection to the same rows and the same clock."""
        return MemoryStore(strict=self.strict, faults=faults, shared_clock=self.shared_clock, database=self.database)

    @property
    def on_commit(self) -> OnCommit | None:
        """Called right after each commit of any connection, with what it wrote; for invariants."""
        return self.database.on_commit

    @on_commit.setter
    def on_commit(self, hook: OnCommit | None) -> None:
        self.database.on_commit = hook

    async def open(self) -> None:
        """Connect; there is no schema to bring up to date."""
        self._is_open = True

    async def close(self) -> None:
        """Let the connection go. The rows stay as long as any connection to them is kept."""
        self._is_open = False
        self.database.hearers.pop(self, None)

    def announce(self, call: Wakeup) -> None:
        """Tell the other connections, as the weather allows."""
        others = [connection for connection in self.database.hearers if connection is not self]
        if not others or not call:
            return
        loop = asyncio.get_running_loop()
        for delay in (0.0,) if self._carry is None else self._carry():
            for connection in others:
                loop.call_later(delay, self._arrive, connection, call)

    def hear(self, hearer: Hearer) -> None:
        """Hear the other connections."""
        if self._is_open:
            self.database.hearers[self] = hearer
            asyncio.get_running_loop().call_soon(self._arrive, self, LOOK_AGAIN)

    def _arrive(self, connection: object, call: Wakeup) -> None:
        hearer = self.database.hearers.get(connection)  # it may have been closed while the call was under way
        if hearer is not None:
            hearer(call)

    async def give_way(self, statement: str) -> None:
        """What every statement begins with: others get their turn, and the weather may strike."""
        if not self._is_open:
            raise Unavailable("the store is not open")
        if self.strict:
            turn = self.database.turn()
            if turn is not None:
                await turn
        if self.faults is not None:
            weather = self.faults.before(statement)
            if weather is not None:
                await weather

    async def transact(self, work: Callable[[Transaction], Coroutine[Any, Any, T]], *, durable: bool = True) -> T:
        """Run `work` in one transaction and commit; roll back if it raises."""
        del durable  # memory survives no power failure either way
        if not self._is_open:
            raise Unavailable("the store is not open")
        tx = MemoryTransaction(self)
        try:
            result = await (_StrictUnit(tx, work(tx)) if self.strict else work(tx))
            await self._commit(tx)
        finally:
            self._end(tx)
        self.announce(tx.call)
        return result

    async def _commit(self, tx: MemoryTransaction) -> None:
        if tx.spoiled is not None:
            raise tx.spoiled
        base = self.database
        ticket = str(tx.number)
        if self.strict:
            turn = self.database.turn()
            if turn is not None:
                await turn
        if self.faults is not None:
            try:
                await self.faults.before_commit()
            except AnswerLost:
                base.outcomes[ticket] = False
                raise CommitUnknown(ticket) from None
        for changes in tx.written:
            if changes.moved is not None:
                base.keep(changes.moved)
        if tx.written:
            base.apply(tx.draft, tx.entries)
        self._end(tx)
        if base.on_commit is not None:
            base.on_commit(tx.written)
        if self.faults is not None:
            try:
                await self.faults.after_commit()
            except (AnswerLost, Unavailable):
                base.outcomes[ticket] = True
                raise CommitUnknown(ticket) from None

    def _end(self, tx: MemoryTransaction) -> None:
        """Nothing is left of a transaction that has ended, however it did; safe to call twice."""
        if tx.spoiled is None:
            tx.spoiled = Bug("a transaction was used after its end")
        self.database.locks.release_all(tx.owner)
        if tx.xid is not None:
            self.database.end(tx.xid)

    async def outcome(self, ticket: str) -> bool:
        """Whether the transaction of a lost commit answer took place."""
        await self.give_way("outcome")
        if ticket not in self.database.outcomes:
            raise Bug(f"no commit's answer was lost under the ticket {ticket!r}")
        return self.database.outcomes[ticket]

    async def intern_lanes(self, wanted: Sequence[tuple[str, tuple[str, ...]]]) -> list[int]:
        """The lane of each (role, services), made if it is new."""
        await self.give_way("intern_lanes")
        lanes = self.database.lanes
        for role, services in wanted:
            if (role, services) not in lanes:
                lanes[(role, services)] = Lane(len(lanes) + 1, role, services)
        return [lanes[key].id for key in wanted]


class _StrictUnit(Awaitable[T]):
    """A unit of work that is held to awaiting nothing but its transaction: elsewhere there may be no event loop."""

    def __init__(self, tx: MemoryTransaction, work: Awaitable[T]) -> None:
        self._tx = tx
        self._work = work

    def __await__(self) -> Generator[object, object, T]:
        steps = self._work.__await__()
        try:
            awaited = next(steps)
            while True:
                if not self._tx.inside:
                    raise Bug("a unit of work awaited something other than its transaction")
                try:
                    sent = yield awaited
                except BaseException as error:  # noqa: BLE001 - it belongs to the work
                    awaited = steps.throw(error)
                else:
                    awaited = steps.send(sent)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()
