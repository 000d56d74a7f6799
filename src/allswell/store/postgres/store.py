"""The PostgreSQL store: its desks, and how a lost answer to a commit is settled.

There are two desks for decisions, two for looking and one for check-ins, each made when it is first needed. A beat
never queues behind a batch that waits for a lock or the disk. A desk whose call has passed its bound is given up and
replaced; one whose connection broke gets a new one with the next call. So the same store object works again as soon
as the server does.

A commit whose answer was lost is settled by asking the server for the transaction's status until it is over. That
alone is not proof: after a crash the server may give the number of a transaction that it lost to another one (seen).
So each deciding connection keeps a row with the number of its last unit of work, written in the same transaction.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec
import psycopg

from allswell.domain.delivery import Delivery
from allswell.domain.journal import Position
from allswell.domain.lease import Lease
from allswell.errors import Refused, Unavailable
from allswell.store.call import NOTHING, Call, Hearer, encode
from allswell.store.herald import Herald
from allswell.store.port import CommitUnknown, Transaction, drive
from allswell.store.postgres import outbox
from allswell.store.postgres.broom import Broom
from allswell.store.postgres.carrier import CHANNEL, NotifyCarrier
from allswell.store.postgres.connection import Address, ServerLine, is_pooled
from allswell.store.postgres.desk import Guard, PostgresDesk
from allswell.store.postgres.failure import explain
from allswell.store.postgres.recorder import Recorder
from allswell.store.postgres.schema import bring_up_to_date
from allswell.store.postgres.session import SQL, Session, opening_of_view, opening_of_work
from allswell.store.postgres.settings import Settings
from allswell.store.postgres.talk import Connection, Statement
from allswell.store.postgres.transaction import PostgresTransaction, ServerClock
from allswell.store.postgres.values import json
from allswell.store.postgres.views import PostgresViews, Table
from allswell.store.shortcut import Decide
from allswell.store.thread import WorkThread

T = TypeVar("T")

_DECISIONS, _CHECKINS, _LOOKING = (
    ("decisions 1", "decisions 2", "decisions 3"),
    ("check-ins",),
    ("looking 1", "looking 2"),
)
_SETTLE_FIRST, _SETTLE_MOST = 0.01, 0.5
"""Pauses between two questions about a commit, in seconds."""
_LAST_CALL = 1.0
"""How long closing waits for a call that is still to be told, in seconds; it is only a hint."""


class PostgresStore(PostgresViews):
    """A watch in a PostgreSQL database, shared by any number of processes."""

    shared_clock = True
    abreast = 2

    def __init__(self, url: str, **settings: float | None) -> None:
        """Name the database; `settings` are the fields of `Settings`."""
        try:
            self._settings = msgspec.convert(settings, Settings)
        except msgspec.ValidationError as error:
            raise Refused("bad_setting", f"a setting of the PostgreSQL store is wrong: {error}") from None
        self.url = url
        self._address = Address(url, self._settings)
        self._clock = ServerClock()
        self._desks: dict[str, PostgresDesk] = {}
        self._numbers = itertools.count(1)
        self._lanes: dict[tuple[str, tuple[str, ...]], int] = {}
        self._closed = False
        self._recorder = Recorder(
            self._connect, self._clock, place=self._address.place, timeout=self._settings.transact_timeout
        )
        self._process = os.getpid()
        self._herald = self._new_herald()
        self._broom = Broom(self._vacuum, self._settings.vacuum_every)

    def __repr__(self) -> str:
        return f"<PostgresStore {self._address.place}>"

    # Its life.

    async def open(self) -> None:
        """Connect, and bring the schema up to date or refuse."""
        settings, place = self._settings, self._address.place

        def prepare() -> None:
            # What is done once need not be prepared, and must not be where a pooler may be in between.
            connection = self._address.connect(prepared=False)
            with connection:
                bring_up_to_date(connection, settings, place)
                self._address.pooled = is_pooled(connection, place)

        if self._closed:
            self._herald = self._new_herald()
        self._closed = False
        self._recorder.open()
        await self._outside(prepare, settings.migrate_timeout + settings.connect_timeout, "opening the store")

    async def close(self) -> None:
        """Let everything go; work under way gets `close_timeout` to finish."""
        self._closed = True
        self._recorder.close()
        desks, self._desks = list(self._desks.values()), {}
        timeout = self._settings.close_timeout
        await asyncio.gather(
            self._herald.close(min(timeout, _LAST_CALL)),
            self._broom.close(timeout),
            *(desk.close(timeout) for desk in desks),
            return_exceptions=True,
        )

    # Wake-up calls.

    def _new_herald(self) -> Herald:
        carrier = NotifyCarrier(self._address, self._settings, is_own=self._is_own)
        return Herald(carrier, "allswell-postgres-herald")

    def _is_own(self, session: int) -> bool:
        return any(desk.session == session for desk in list(self._desks.values()))

    def announce(self, call: Call) -> None:
        """Notify other processes, from a thread and a connection of their own."""
        self._herald.announce(call)

    def hear(self, hearer: Hearer) -> None:
        """Listen to other processes."""
        self._herald.hear(hearer)

    # Units of work.

    async def transact(self, work: Callable[[Transaction], Awaitable[T]], *, durable: bool = True) -> T:
        """Run `work` in one transaction, in a desk's thread, and commit."""
        desk = self._quiet_desk(_DECISIONS if durable else _CHECKINS)
        guard = Guard()

        def job(line: ServerLine) -> tuple[T, PostgresTransaction]:
            number = next(self._numbers)
            opening = opening_of_work(self._settings, durable=durable)
            session = Session(line, self._address.place, opening, guard)
            transaction = PostgresTransaction(session, self._clock)
            try:
                result = drive(_coroutine(work, transaction))
                ticket = None
                last = transaction.unsent
                if transaction.wrote and not (transaction.repeatable and transaction.xid is None):
                    xid = transaction.xid if transaction.xid is not None else transaction.number()
                    ticket = f"{xid} {line.id} {number}" if durable else str(xid)
                    last = [*last, (SQL["mark"], (line.id, number))] if durable else last
                session.commit(ticket, last, self._afterthought(transaction))
            except BaseException:
                session.roll_back()
                raise
            return result, transaction

        try:
            result, done = await desk.call(
                job, timeout=self._settings.transact_timeout, what="a unit of work (transact_timeout)"
            )
        except Unavailable:
            if desk.stuck and (ticket := guard.give_up()) is not None:
                raise CommitUnknown(ticket) from None
            raise
        except asyncio.CancelledError:
            guard.give_up()
            raise
        self._broom.count(done.left)
        self._herald.announce(done.call)
        return result

    def _afterthought(self, transaction: PostgresTransaction) -> Statement | None:
        """What others are told of a unit of work, to be sent along with its commit where that can be.

        Not behind a pooler, to which it is a transaction of its own for whichever session is free.
        """
        if self._address.pooled or not transaction.wrote:
            return None
        call = self._herald.take_along(transaction.call)
        if not call:
            return None
        transaction.call = NOTHING
        return SQL["notify"], (CHANNEL, encode(call).decode())

    async def record(self, believed: Lease, decide: Decide) -> bool:
        """The short way for an event loop, on the connection and in the thread of a desk."""
        desk = self._quiet_desk(_DECISIONS)
        return await desk.call(
            lambda line: self._recorder.record_on(line, believed, decide),
            timeout=self._settings.transact_timeout,
            what="a step (transact_timeout)",
        )

    def record_here(self, believed: Lease, decide: Decide, patience: float) -> bool:
        """The short way for a thread that has no loop: it does the sending itself."""
        return self._own() and self._recorder.record_here(believed, decide, patience)

    def _own(self) -> bool:
        """Whether this is the process that opened it."""
        return os.getpid() == self._process

    async def outcome(self, ticket: str) -> bool:
        """Whether a transaction took place, asked on a new connection until the server knows."""
        deadline = time.monotonic() + self._settings.settle_timeout
        pause = _SETTLE_FIRST
        while True:
            try:
                answer = await self._outside(
                    lambda: self._ask_outcome(ticket),
                    self._settings.connect_timeout + self._settings.statement_timeout,
                    "the outcome of a commit",
                )
            except Unavailable:
                if time.monotonic() + pause > deadline:
                    raise
                answer = None
            if answer is not None:
                return answer
            if time.monotonic() + pause > deadline:
                raise Unavailable("a commit was not settled within settle_timeout; ask again")
            await asyncio.sleep(pause)
            pause = min(pause * 2, _SETTLE_MOST)

    def _ask_outcome(self, ticket: str) -> bool | None:
        xid, *mark = ticket.split()
        place = self._address.place
        with self._connect() as connection:
            try:
                status = connection.execute(SQL["xact_status"], (xid,)).fetchall()[0][0]
            except psycopg.errors.InvalidParameterValue:
                status = None  # the server has never seen that number: it crashed, or another one took its place
            except psycopg.Error as error:
                raise explain(error, place) from error
            try:
                if status == "in progress":
                    connection.execute(SQL["end_orphan"], (xid,))
                    return None
                if not mark:
                    return bool(status == "committed")
                return bool(connection.execute(SQL["marked"], mark).fetchall()[0][0])
            except psycopg.Error as error:
                raise explain(error, place) from error

    # Small writes that are no unit of work.

    async def intern_lanes(self, wanted: Sequence[tuple[str, tuple[str, ...]]]) -> list[int]:
        """The lane of each (role, services); lanes never go, so what is known need not be asked again."""
        new = sorted({lane for lane in wanted if lane not in self._lanes})
        if new:

            def intern(session: Session) -> dict[tuple[str, tuple[str, ...]], int]:
                pairs = [(role, json(services)) for role, services in new]
                session.ask(*((SQL["insert_lane"], pair) for pair in pairs))
                found = session.ask(*((SQL["select_lane"], pair) for pair in pairs))
                return {lane: answer.fetchall()[0][0] for lane, answer in zip(new, found, strict=True)}

            self._lanes |= await self._write(intern, "a lane (view_timeout)")
        return [self._lanes[lane] for lane in wanted]

    async def advance(self, follower: str, position: Position) -> None:
        """Note durably where a follower has got to; never backwards."""

        def note(session: Session) -> None:
            session.ask((SQL["advance_cursor"], (follower, position.xid, position.id)))

        await self._write(note, "a follower's cursor (view_timeout)")

    async def enlist(
        self, follower: str, after: Position, upto: Position, deliveries: Sequence[Delivery], memory: str = ""
    ) -> bool:
        """Keep new deliveries, move a follower's cursor and keep its memory: all of it or nothing."""
        told = "what a sink has to deliver (view_timeout)"
        return await self._write(lambda one: outbox.enlist(one, follower, after, upto, deliveries, memory), told)

    async def forget(self, follower: str, sink: str) -> None:
        """Forget a follower with all that is kept of it."""
        await self._write(lambda session: outbox.forget(session, follower, sink), "a sink (view_timeout)")

    async def revise(self, changed: Sequence[Delivery], gone: Sequence[Delivery] = ()) -> None:
        """Write deliveries as they are now, and forget those that are gone."""
        await self._write(lambda session: outbox.revise(session, changed, gone), "a delivery (view_timeout)")

    async def swap(self, key: str, before: str | None, after: str) -> bool:
        """Keep something in the place of what was kept there, if that is still so."""

        def keep(session: Session) -> bool:
            asked = (SQL["add_kept"], (key, after)) if before is None else (SQL["swap_kept"], (key, before, after))
            return bool(session.ask(asked)[0].fetchall())

        return await self._write(keep, "what the watch keeps about itself (view_timeout)")

    async def remember(self, key: str, value: str) -> None:
        """Keep something about the watch itself, for every process on this store."""

        def keep(session: Session) -> None:
            session.ask((SQL["put_kept"], (key, value)))

        await self._write(keep, "what the watch keeps about itself (view_timeout)")

    async def _vacuum(self) -> None:
        bound = self._settings.vacuum_timeout

        def vacuum() -> None:
            with self._connect() as connection:
                try:
                    if not self._address.pooled:  # what is set there would stay for whoever gets the session next
                        connection.execute(SQL["set_up_vacuum"], (str(round(bound * 1000)),))
                    for table in ("ready", "lease"):
                        connection.execute(SQL[f"vacuum_{table}"], prepare=False)
                except psycopg.Error as error:
                    raise explain(error, self._address.place) from error

        await self._outside(vacuum, bound + self._settings.connect_timeout, "a vacuum (vacuum_timeout)")

    async def _write(self, job: Callable[[Session], T], what: str) -> T:
        def write(line: ServerLine) -> T:
            session = Session(line, self._address.place, opening_of_work(self._settings, durable=True))
            try:
                result = job(session)
                session.commit()
            except BaseException:
                session.roll_back()
                raise
            return result

        return await self._quiet_desk(_LOOKING).call(write, timeout=self._settings.view_timeout, what=what)

    # Looking.

    async def _look(self, *statements: Statement) -> list[Table]:
        def look(line: ServerLine) -> list[Table]:
            session = Session(line, self._address.place, opening_of_view(self._settings))
            # Not prepared: the planner then sees the values, and views differ much by theirs. The commit rides along.
            *answers, _ = session.ask(*statements, (SQL["commit"], ()), prepare=False)
            return [answer.fetchall() for answer in answers]

        return await self._quiet_desk(_LOOKING).call(
            look, timeout=self._settings.view_timeout + self._settings.connect_timeout, what="a view (view_timeout)"
        )

    # Desks.

    def _desk(self, name: str) -> PostgresDesk:
        if self._closed:
            raise Unavailable("the store is closed")
        desk = self._desks.get(name)
        if desk is not None and desk.stuck:
            desk.retire()
            desk = None
        if desk is None:
            desk = self._desks[name] = PostgresDesk(name, self._address)
        return desk

    def _quiet_desk(self, names: tuple[str, ...]) -> PostgresDesk:
        """The least busy of these; a further one is made only while those before it are busy."""
        best = self._desk(names[0])
        for name in names[1:]:
            if best.queued == 0:
                break
            best = min(best, self._desk(name), key=lambda desk: desk.queued)
        return best

    def _connect(self) -> Connection:
        try:
            return self._address.connect()
        except Refused as error:
            raise Unavailable(error.message) from None

    async def _outside(self, function: Callable[[], T], timeout: float, what: str) -> T:
        """Do something rare in a thread of its own."""
        thread = WorkThread(what)
        try:
            return await thread.call(function, timeout=timeout, what=what)
        finally:
            thread.close()


async def _coroutine(work: Callable[[Transaction], Awaitable[T]], transaction: Transaction) -> T:
    return await work(transaction)
