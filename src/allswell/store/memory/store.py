"""The memory store: what `memory:` opens, and the model of a database that the simulator runs on.

One `MemoryStore` is one connection to a `Database`; `another()` opens a second to the same rows, with weather of its
own, as another process would. In strict mode every rule of `store/port.py` is enforced and every statement gives way
to others; without it the same code runs straight through, for tests and embedded use that want speed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from heapq import nlargest, nsmallest
from typing import Protocol, TypeVar

from allswell.domain.agents.cost import ExpenseRow, Spent, SpentBy, together
from allswell.domain.ids import QuestionId, RunId, TaskId
from allswell.domain.lease.model import Agent
from allswell.domain.notify.delivery import Delivery, DeliveryFilter, memory_key
from allswell.domain.question import Question
from allswell.domain.rules.event import Entry, Position
from allswell.domain.run.run import Run
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.model import LAST, OPEN, Attempt, Lane, State, Task, TaskFilter, TaskRow, folded
from allswell.errors import Bug, Unavailable
from allswell.store.memory.locks import Turn, a_turn
from allswell.store.memory.tables import Database, OnCommit
from allswell.store.memory.transaction import MemoryTransaction
from allswell.store.port import LOOK_AGAIN, CommitUnknown, Hearer, Transaction, Wakeup
from allswell.store.views import Agenda
from allswell.timing.clock import Clock, SystemClock

# What can be looked at without a transaction: committed rows only, and nobody is waited for.


class MemoryViews:
    """The reading half of the memory store, with the journal and its followers' cursors."""

    database: Database

    async def give_way(self, statement: str) -> None:
        """What every statement begins with."""
        raise NotImplementedError

    async def view_agenda(self) -> Agenda:
        """What a sweeper has to do, and when."""
        await self.give_way("view_agenda")
        tables = self.database.tables
        first = tables.timer_order[0][0] if tables.timer_order else None
        now, stands = self.database.see()
        return Agenda(now, first, bool(tables.spreads), stands, next(iter(tables.spreads), ""))

    async def view_tasks(self, which: TaskFilter) -> list[TaskRow]:
        """Tasks by id, a page at a time."""
        await self.give_way("view_tasks")
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

    async def view_task(self, task: TaskId) -> TaskRow | None:
        """One task."""
        await self.give_way("view_task")
        return self._row(task) if task in self.database.tables.tasks else None

    async def view_payload(self, task: TaskId) -> tuple[str | None, str | None]:
        """A task's payload and result."""
        await self.give_way("view_payload")
        tables = self.database.tables
        return tables.payloads.get(task), tables.results.get(task)

    async def view_results(self, run: RunId, role: str, after: str, limit: int) -> list[tuple[TaskId, str]]:
        """The results of a run's tasks of one role that are done."""
        await self.give_way("view_results")
        tables = self.database.tables
        done = (
            task.id
            for task in tables.tasks.values()
            if task.run == run and task.role == role and task.state == State.DONE and task.id > after
        )
        return [(id_, tables.results.get(id_, "null")) for id_ in nsmallest(limit, done)]

    async def view_attempts(self, task: TaskId) -> list[Attempt]:
        """A task's ended attempts, the oldest first."""
        await self.give_way("view_attempts")
        tables = self.database.tables
        return [tables.attempts[(task, token)] for token in tables.attempts_of.get(task, ())]

    async def view_expenses(self, task: TaskId) -> list[ExpenseRow]:
        """What the attempts at a task have cost."""
        await self.give_way("view_expenses")
        return list(self.database.tables.expenses.get(task, ()))

    async def view_spent(self, by: SpentBy, keys: Sequence[str] = (), since: int = 0) -> dict[str, Spent]:
        """The sums of what attempts have cost."""
        await self.give_way("view_spent")
        found: dict[str, list[ExpenseRow]] = {}
        for row in (row for told in self.database.tables.expenses.values() for row in told):
            key = "" if by == "all" else getattr(row, by)
            if key is not None and row.told_at >= since and (not keys or key in keys):
                found.setdefault(key, []).append(row)
        return {key: together(rows) for key, rows in found.items()}

    async def view_questions(self, *, open_only: bool = True, limit: int = 1_000) -> list[Question]:
        """Questions, the oldest first."""
        await self.give_way("view_questions")
        questions = self.database.tables.questions.values()
        found = [question for question in questions if not open_only or question.closed_at is None]
        return nsmallest(limit, found, key=lambda question: (question.asked_at, question.id))

    async def view_question(self, question: QuestionId) -> Question | None:
        """One question."""
        await self.give_way("view_question")
        return self.database.tables.questions.get(question)

    async def view_runs(self, limit: int = 1_000) -> list[Run]:
        """Runs, the newest first."""
        await self.give_way("view_runs")
        runs = self.database.tables.runs.values()
        return sorted(runs, key=lambda run: (run.created_at, run.id), reverse=True)[:limit]

    async def view_run(self, run: RunId) -> Run | None:
        """One run."""
        await self.give_way("view_run")
        return self.database.tables.runs.get(run)

    async def view_agents(self) -> list[Agent]:
        """Agents that something is held against."""
        await self.give_way("view_agents")
        return sorted(self.database.tables.agents.values(), key=lambda agent: agent.id)

    async def view_services(self) -> dict[str, ServiceRow]:
        """The services that something is or was held against."""
        await self.give_way("view_services")
        return dict(self.database.tables.services)

    async def view_counts(self) -> dict[str, int]:
        """How many tasks stand in each derived state."""
        await self.give_way("view_counts")
        counts: dict[str, int] = {}
        for id_ in self.database.tables.tasks:
            stands = str(self.database.tables.stands(id_))
            counts[stands] = counts.get(stands, 0) + 1
        return counts

    async def view_unaccounted(self, limit: int = 100) -> list[TaskId]:
        """Open tasks that would hang silently; kept up to date with every commit, so this costs nothing."""
        await self.give_way("view_unaccounted")
        return self.unaccounted(limit)

    def unaccounted(self, limit: int = 100) -> list[TaskId]:
        """The same at once, for a hook that cannot wait."""
        return nsmallest(limit, self.database.tables.unaccounted)

    async def journal(self, after: Position, limit: int) -> list[Entry]:
        """Events after a position in the journal's order; never skips one that commits late."""
        await self.give_way("journal")
        return self.database.journal(after, limit)

    async def cursor(self, follower: str) -> Position:
        """Where a follower has got to."""
        await self.give_way("cursor")
        return self.database.cursors.get(follower, Position())

    async def view_cursors(self) -> dict[str, Position]:
        """Where every follower has got to."""
        await self.give_way("view_cursors")
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

    async def view_deliveries(self, which: DeliveryFilter) -> list[Delivery]:
        """What is still to be delivered or was given up, in its order."""
        await self.give_way("view_deliveries")
        kept = self.database.deliveries
        found = [
            kept[key]
            for key in sorted(kept)
            if which.sink in (None, key[0])
            and which.target in (None, kept[key].target)
            and which.given_up in (None, kept[key].given_up)
        ]
        return found[: which.limit]

    async def view_kept(self, prefix: str) -> dict[str, str]:
        """What the watch keeps about itself under keys that begin so."""
        await self.give_way("view_kept")
        return {key: value for key, value in sorted(self.database.kept.items()) if key.startswith(prefix)}

    async def swap(self, key: str, before: str | None, after: str) -> bool:
        """Keep something in the place of what was kept there, if that is still so."""
        await self.give_way("swap")
        if self.database.kept.get(key) != before:
            return False
        self.database.kept[key] = after
        return True

    async def recall(self, key: str) -> str | None:
        """What the watch keeps about itself."""
        await self.give_way("recall")
        return self.database.kept.get(key)

    async def remember(self, key: str, value: str) -> None:
        """Keep something about the watch itself."""
        await self.give_way("remember")
        self.database.kept[key] = value


T = TypeVar("T")


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

    async def transact(self, work: Callable[[Transaction], Awaitable[T]], *, durable: bool = True) -> T:
        """Run `work` in one transaction and commit; roll back if it raises."""
        del durable  # memory survives no power failure either way
        if not self._is_open:
            raise Unavailable("the store is not open")
        tx = MemoryTransaction(self)
        try:
            result = await (_Watched(tx, work(tx)) if self.strict else work(tx))
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


class _Watched(Awaitable[T]):
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
