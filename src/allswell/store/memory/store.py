"""The memory store: what `memory:` opens, and the model of a database that the simulator runs on.

One `MemoryStore` is one connection to a `Database`; `another()` opens a second to the same rows, with weather of its
own, as another process would. In strict mode every rule of `store/port.py` is enforced and every statement gives way
to others; without it the same code runs straight through, for tests and embedded use that want speed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Protocol, TypeVar

from allswell.domain.task import Lane
from allswell.errors import Bug, Unavailable
from allswell.store.call import LOOK_AGAIN, Call, Hearer
from allswell.store.memory.database import Database, OnCommit
from allswell.store.memory.transaction import MemoryTransaction
from allswell.store.memory.turn import Turn, a_turn
from allswell.store.memory.views import MemoryViews
from allswell.store.port import CommitUnknown, Transaction
from allswell.timing.clock import Clock, SystemClock

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
    abreast = 2  # for the simulator: nothing is gained by it here

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

    def announce(self, call: Call) -> None:
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

    def _arrive(self, connection: object, call: Call) -> None:
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
