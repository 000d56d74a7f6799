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

from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, TypeVar, cast

from allswell.domain.notify.delivery import Delivery
from allswell.domain.rules.event import Position
from allswell.domain.rules.query import Query
from allswell.errors import Unavailable
from allswell.store.port import CommitUnknown, Hearer, RowChanges, Store, Transaction, Wakeup
from allswell.store.views import Views

T = TypeVar("T")


class _LostInCommit(Exception):
    """Rolls the work back on behalf of the connection that is to break during its commit."""


class _EventWatch:
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
    return cast("Transaction", _EventWatch(tx, kind, lambda: lost.append(committed)))


class FaultyStore(Views):
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

    async def transact(self, work: Callable[[Transaction], Coroutine[Any, Any, T]], *, durable: bool = True) -> T:
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

    async def view(self, query: Query[T]) -> T:
        """The answer to a query."""
        return await self._reach().view(query)

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

    async def compare_and_set(self, key: str, before: str | None, after: str) -> bool:
        """Keep something in the place of what was kept there, if that is still so."""
        return await self._reach().compare_and_set(key, before, after)

    async def put(self, key: str, value: str) -> None:
        """Keep something about the watch itself."""
        await self._reach().put(key, value)
