"""A store that fails when it is told to, around any other: for tests of what must survive a bad connection.

Units of work are counted from 1. What shall happen to which of them is said beforehand:

    store = FaultyStore(MemoryStore(), fail_before={3}, lose_answer={5})

`fail_before`  the work runs, then the connection breaks: nothing is committed, and the caller knows (`Unavailable`).
`lose_commit`  it breaks during the commit, which does not take place; the caller cannot know (`CommitUnknown`).
`lose_answer`  it breaks after the commit, which did take place; the caller cannot know (`CommitUnknown`).

While `down` is set, everything is `Unavailable`. Whoever asks for the outcome of a lost commit is told the truth.
`lose_event` names a kind of event instead of a number: the unit of work that writes one is lost (`lose_commit` or
`lose_answer`), and from then on the connection is down.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar, cast

from allswell.domain.agents.cost import ExpenseRow, Spent, SpentBy
from allswell.domain.ids import QuestionId, RunId, TaskId
from allswell.domain.lease.model import Agent
from allswell.domain.notify.delivery import Delivery, DeliveryFilter
from allswell.domain.question import Question
from allswell.domain.rules.event import Entry, Position
from allswell.domain.run.run import Run
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.model import Attempt, TaskFilter, TaskRow
from allswell.errors import Unavailable
from allswell.store.port import CommitUnknown, Hearer, RowChanges, Store, Transaction, Wakeup
from allswell.store.views import Agenda

T = TypeVar("T")


class _LostInCommit(Exception):
    """Rolls the work back on behalf of the connection that is to break during its commit."""


class _Witnessed:
    """A transaction that notices whether it writes an event of a kind; all else is the transaction's own."""

    def __init__(self, tx: Transaction, kind: str, lost: Callable[[], None]) -> None:
        self._tx = tx
        self._kind = kind
        self._lost = lost

    def __getattr__(self, name: str) -> object:
        return getattr(self._tx, name)

    async def write(self, changes: RowChanges) -> None:
        """Write, and notice."""
        if any(event.kind == self._kind for event in changes.events):
            self._lost()
        await self._tx.write(changes)


def _witnessed(tx: Transaction, kind: str, committed: bool, lost: list[bool]) -> Transaction:  # noqa: FBT001
    return cast("Transaction", _Witnessed(tx, kind, lambda: lost.append(committed)))


class FaultyStore:
    """A store with a connection that breaks on demand; `calls` counts the units of work so far."""

    def __init__(
        self,
        store: Store,
        *,
        fail_before: Collection[int] = (),
        lose_commit: Collection[int] = (),
        lose_answer: Collection[int] = (),
    ) -> None:
        self.url = store.url
        self.shared_clock = store.shared_clock
        self.max_parallel = store.max_parallel
        self.calls = 0
        self.down = False
        self._store = store
        self._fail_before = frozenset(fail_before)
        self._lose_commit = frozenset(lose_commit)
        self._lose_answer = frozenset(lose_answer)
        self._outcomes: dict[str, bool] = {}
        self._lose_event: tuple[str, bool] | None = None

    def lose_event(self, kind: str, *, committed: bool) -> None:
        """Lose the next unit of work that tells the journal of this, committed or not, and be down from then on."""
        self._lose_event = (kind, committed)

    def _reach(self) -> Store:
        if self.down:
            raise Unavailable("the connection is down, as the test wants it")
        return self._store

    def _lost(self, call: int, *, committed: bool) -> CommitUnknown:
        ticket = f"faulty:{call}"
        self._outcomes[ticket] = committed
        return CommitUnknown(ticket)

    async def open(self) -> None:
        """Open the store behind."""
        await self._reach().open()

    async def close(self) -> None:
        """Close the store behind; that works even when the connection is down."""
        await self._store.close()

    async def transact(self, work: Callable[[Transaction], Awaitable[T]], *, durable: bool = True) -> T:
        """Run one unit of work, with what is to happen to it."""
        self.calls += 1
        call = self.calls

        lost: list[bool] = []

        async def broken(tx: Transaction) -> T:
            result = await work(tx if self._lose_event is None else _witnessed(tx, *self._lose_event, lost))
            if lost and not lost[0]:
                raise _LostInCommit
            if call in self._fail_before:
                raise Unavailable(f"the connection broke in unit of work {call}, as the test wants it")
            if call in self._lose_commit:
                raise _LostInCommit
            return result

        try:
            result = await self._reach().transact(broken, durable=durable)
        except _LostInCommit:
            self._go_down(lost)
            raise self._lost(call, committed=False) from None
        if lost:
            self._go_down(lost)
            raise self._lost(call, committed=True)
        if call in self._lose_answer:
            raise self._lost(call, committed=True)
        return result

    def _go_down(self, lost: list[bool]) -> None:
        if lost:
            self.down, self._lose_event = True, None

    async def outcome(self, ticket: str) -> bool:
        """Whether the transaction of a lost commit answer took place."""
        store = self._reach()
        return self._outcomes[ticket] if ticket in self._outcomes else await store.outcome(ticket)

    def announce(self, call: Wakeup) -> None:
        """Tell other processes; while the connection is down, nobody hears it."""
        if not self.down:
            self._store.announce(call)

    def hear(self, hearer: Hearer) -> None:
        """Hear other processes; while the connection is down, nobody is heard."""

        def listen(call: Wakeup) -> None:
            if not self.down:
                hearer(call)

        self._store.hear(listen)

    async def intern_lanes(self, wanted: Sequence[tuple[str, tuple[str, ...]]]) -> list[int]:
        """The lane of each (role, services), made if it is new."""
        return await self._reach().intern_lanes(wanted)

    async def view_agenda(self) -> Agenda:
        """What a sweeper has to do, and when."""
        return await self._reach().view_agenda()

    async def view_tasks(self, which: TaskFilter) -> list[TaskRow]:
        """Tasks by id, a page at a time."""
        return await self._reach().view_tasks(which)

    async def view_task(self, task: TaskId) -> TaskRow | None:
        """One task."""
        return await self._reach().view_task(task)

    async def view_results(self, run: RunId, role: str, after: str, limit: int) -> list[tuple[TaskId, str]]:
        """The results of a run's tasks of one role that are done."""
        return await self._reach().view_results(run, role, after, limit)

    async def view_payload(self, task: TaskId) -> tuple[str | None, str | None]:
        """A task's payload and result."""
        return await self._reach().view_payload(task)

    async def view_attempts(self, task: TaskId) -> list[Attempt]:
        """A task's ended attempts, the oldest first."""
        return await self._reach().view_attempts(task)

    async def view_expenses(self, task: TaskId) -> list[ExpenseRow]:
        """What the attempts at a task have cost."""
        return await self._reach().view_expenses(task)

    async def view_spent(self, by: SpentBy, keys: Sequence[str] = (), since: int = 0) -> dict[str, Spent]:
        """The sums of what attempts have cost."""
        return await self._reach().view_spent(by, keys, since)

    async def view_questions(self, *, open_only: bool = True, limit: int = 1_000) -> list[Question]:
        """Questions, the oldest first."""
        return await self._reach().view_questions(open_only=open_only, limit=limit)

    async def view_question(self, question: QuestionId) -> Question | None:
        """One question."""
        return await self._reach().view_question(question)

    async def view_runs(self, limit: int = 1_000) -> list[Run]:
        """Runs, the newest first."""
        return await self._reach().view_runs(limit)

    async def view_run(self, run: RunId) -> Run | None:
        """One run."""
        return await self._reach().view_run(run)

    async def view_agents(self) -> list[Agent]:
        """Agents that something is held against."""
        return await self._reach().view_agents()

    async def view_services(self) -> dict[str, ServiceRow]:
        """The services that something is or was held against."""
        return await self._reach().view_services()

    async def view_counts(self) -> dict[str, int]:
        """How many tasks stand in each derived state."""
        return await self._reach().view_counts()

    async def view_unaccounted(self, limit: int = 100) -> list[TaskId]:
        """Open tasks that would hang silently."""
        return await self._reach().view_unaccounted(limit)

    async def journal(self, after: Position, limit: int) -> list[Entry]:
        """Events after a position in the journal's order."""
        return await self._reach().journal(after, limit)

    async def cursor(self, follower: str) -> Position:
        """Where a follower has got to."""
        return await self._reach().cursor(follower)

    async def view_cursors(self) -> dict[str, Position]:
        """Where every follower has got to."""
        return await self._reach().view_cursors()

    async def advance(self, follower: str, position: Position) -> None:
        """Note durably where a follower has got to; never backwards."""
        await self._reach().advance(follower, position)

    async def enlist(
        self, follower: str, after: Position, upto: Position, deliveries: Sequence[Delivery], memory: str = ""
    ) -> bool:
        """Keep new deliveries, move a follower's cursor and keep its memory: all of it or nothing."""
        return await self._reach().enlist(follower, after, upto, deliveries, memory)

    async def forget(self, follower: str, sink: str) -> None:
        """Forget a follower with all that is kept of it."""
        await self._reach().forget(follower, sink)

    async def revise(self, changed: Sequence[Delivery], gone: Sequence[Delivery] = ()) -> None:
        """Write deliveries as they are now, and forget those that are gone."""
        await self._reach().revise(changed, gone)

    async def view_deliveries(self, which: DeliveryFilter) -> list[Delivery]:
        """What is still to be delivered or was given up, in its order."""
        return await self._reach().view_deliveries(which)

    async def view_kept(self, prefix: str) -> dict[str, str]:
        """What the watch keeps about itself under keys that begin so."""
        return await self._reach().view_kept(prefix)

    async def swap(self, key: str, before: str | None, after: str) -> bool:
        """Keep something in the place of what was kept there, if that is still so."""
        return await self._reach().swap(key, before, after)

    async def recall(self, key: str) -> str | None:
        """What the watch keeps about itself."""
        return await self._reach().recall(key)

    async def remember(self, key: str, value: str) -> None:
        """Keep something about the watch itself."""
        await self._reach().remember(key, value)
