"""What a case of the suite is given, and the few moves that all cases are made of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec

from allswell.domain.ids import TaskId
from allswell.domain.rules.event import Entry, Position
from allswell.store.port import LOCK_ORDER, LockKind, RowChanges, RowRequest, Rows, Store, Transaction

T = TypeVar("T")
AT = 1_700_000_000_000
"""The moment that is stamped on the events of the cases."""
PATIENCE = 20_000
"""How many statements a case spends on waiting for another transaction."""


class Skip(Exception):
    """This store cannot have what the case is about; the message is the reason."""


class Place(msgspec.Struct, frozen=True):
    """An empty place for rows; each call of `connect` makes one more store on it, not yet open."""

    connect: Callable[[], Store]
    concurrent: bool = True
    """Whether two transactions can be under way at the same time."""
    calls: bool = True
    """Whether wake-up calls reach other stores on this place at all; a store need not have any."""

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        """An open store, closed at the end."""
        store = self.connect()
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    @asynccontextmanager
    async def two_stores(self) -> AsyncIterator[tuple[Store, Store]]:
        """Two open stores on this place, as two processes have them."""
        async with self.store() as first, self.store() as second:
            yield first, second

    def needs_concurrency(self) -> None:
        """Skip the case where transactions run one after the other."""
        if not self.concurrent:
            raise Skip("this store runs one transaction at a time")

    def needs_calls(self) -> None:
        """Skip the case where nobody can be told anything."""
        if not self.calls:
            raise Skip("this store has no wake-up calls: everybody polls")


Case = Callable[[Place], Coroutine[object, object, None]]
Locks = Mapping[LockKind, Sequence[str]]


async def take(tx: Transaction, locks: Locks, *, shared: bool = False) -> dict[LockKind, Sequence[str]]:
    """Lock in the one order; what was there."""
    found = {}
    for kind in LOCK_ORDER:
        if locks.get(kind):
            found[kind] = await tx.lock(kind, locks[kind], shared=shared)
    return found


async def write(store: Store, changes: RowChanges, locks: Locks | None = None) -> None:
    """Commit these changes in a transaction of their own."""

    async def work(tx: Transaction) -> None:
        await take(tx, locks or {})
        changes.at = changes.at or await tx.now()
        await tx.write(changes)

    await store.transact(work)


def locks_for(wanted: RowRequest) -> dict[LockKind, list[str]]:
    """The locks under which this may be read."""
    tasks: list[str] = [*wanted.tasks, *wanted.awaited, *wanted.payloads, *wanted.bars]
    tasks += [task for task, _ in wanted.attempts]
    return {
        LockKind.SPREAD: sorted(wanted.spreads),
        LockKind.RUN: sorted(wanted.runs),
        LockKind.SERVICE: sorted(wanted.services),
        LockKind.AGENT: sorted(wanted.agents),
        LockKind.HEALTH: sorted(wanted.health),
        LockKind.QUESTION: sorted(wanted.questions),
        LockKind.TASK: sorted(set(tasks)),
        LockKind.LEASE: sorted(wanted.leases),
    }


async def read(store: Store, wanted: RowRequest) -> Rows:
    """Read rows under their locks."""

    async def work(tx: Transaction) -> Rows:
        await take(tx, locks_for(wanted))
        return await tx.read(wanted)

    return await store.transact(work)


async def look(store: Store, question: Callable[[Transaction], Awaitable[T]]) -> T:
    """One statement in a transaction of its own."""

    async def work(tx: Transaction) -> T:
        return await question(tx)

    return await store.transact(work)


async def whole_journal(store: Store, expected: int) -> list[Entry]:
    """The journal once it has so many entries; it may hang back while any transaction of the server runs."""
    for _ in range(PATIENCE):
        entries = await store.journal(Position(), expected + 1)
        if len(entries) >= expected:
            return entries
    raise AssertionError(f"the journal never showed {expected} events")


async def linger(tx: Transaction, done: Callable[[], bool]) -> None:
    """Keep this transaction under way until something has happened elsewhere."""
    for _ in range(PATIENCE):
        if done():
            return
        await tx.lanes()
    raise AssertionError("the other transaction did not come to its end")


async def until(store: Store, happened: Callable[[], bool], running: asyncio.Future[None]) -> None:
    """Wait for something that a running unit of work does; if it fails instead, its error is raised.

    Units of work may run in a thread of the store's own, so they tell by flags that threads may set.
    """
    for _ in range(PATIENCE):
        if happened():
            return
        if running.done():
            await running
        await store.view_agenda()
    raise AssertionError("the unit of work did not get so far")


def ids(*names: str) -> list[TaskId]:
    """Task ids."""
    return [TaskId(name) for name in names]
