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
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec
import psycopg
from psycopg import pq

from allswell.domain.lease.model import LeaseRow
from allswell.domain.notify.delivery import Delivery
from allswell.domain.rules.event import Position
from allswell.errors import AllswellError, Refused, Unavailable
from allswell.store import sql
from allswell.store.notifier import Notifier
from allswell.store.port import NOTHING, CommitUnknown, Decide, Hearer, Transaction, Wakeup, encode, run_sync
from allswell.store.postgres import views
from allswell.store.postgres.connection import PostgresSettings, ServerAddress, ServerLine, explain, is_pooled
from allswell.store.postgres.connection_thread import (
    MIGRATIONS,
    SQL,
    VERSION,
    CommitGuard,
    ConnectionThread,
    Session,
    opening_of_view,
    opening_of_work,
)
from allswell.store.postgres.pipeline import Connection, Statement
from allswell.store.postgres.transaction import PostgresTransaction, ServerClock
from allswell.store.postgres.transport import CHANNEL, NotifyTransport
from allswell.store.postgres.values import json
from allswell.store.postgres.views import PostgresViews, Table
from allswell.store.postgres.write import short_record
from allswell.store.thread import WorkThread

# Bringing the schema up to date: numbered migrations, each applied once, by one process at a time.

OLDEST_SERVER = 14


def bring_up_to_date(connection: Connection, settings: PostgresSettings, place: str) -> None:
    """Make or update the tables; a role that may not do so can still open a schema that is up to date."""
    try:
        if _check(connection, place) < VERSION:
            _migrate(connection, settings, place)
        connection.execute(SQL["forget_marks"])
    except psycopg.errors.InsufficientPrivilege as error:
        connection.close()
        said = error.diag.message_primary
        raise Refused(
            "no_permission",
            f"the schema `allswell` cannot be made or used in {place}: {said}; "
            "GRANT CREATE ON DATABASE … TO this role, or let its owner open the store once",
            where="store",
        ) from None
    except psycopg.Error as error:
        connection.close()
        raise explain(error, place) from error


def _check(connection: Connection, place: str) -> int:
    """The schema's version, after a look at the server."""
    number, encoding, made = connection.execute(SQL["about_server"]).fetchall()[0]
    if number // 10_000 < OLDEST_SERVER:
        raise Refused(
            "old_server",
            f"PostgreSQL at {place} is version {number // 10_000}; Allswell needs {OLDEST_SERVER} or newer",
            where="store",
        )
    if encoding != "UTF8":
        raise Refused("bad_encoding", f"the database {place} is encoded in {encoding}; it must be UTF8", where="store")
    rows = connection.execute(SQL["schema_version"]).fetchall() if made else ()
    version, oldest_writer = rows[0] if rows else (0, 0)
    if version > VERSION and oldest_writer > VERSION:
        raise sql.newer_schema(f"the watch in {place}", version, oldest_writer, VERSION)
    return int(version)


def _migrate(connection: Connection, settings: PostgresSettings, place: str) -> None:
    bound = str(round(settings.migrate_timeout * 1000))
    with connection.transaction():
        # No lock_timeout: the other migrator is waited for, as long as this whole thing may take.
        connection.execute(SQL["set_up_view"], (bound, "0", bound))
        connection.execute(SQL["lock_schema"])
        before = _check(connection, place)  # again, now that nobody else can change it
        if before == 0:
            connection.execute(SQL["create_schema"])
            connection.execute(SQL["create_meta"])
        # Every unit of work has read this table: those under way are waited for, and later ones see the new schema.
        connection.execute(SQL["await_writers"])
        for number, text in MIGRATIONS[before:]:
            connection.execute(text, prepare=False)  # a file holds many statements
            connection.execute(SQL["set_schema_version"], (str(number),))
            connection.execute(SQL["set_oldest_writer"], (str(sql.oldest_writer(MIGRATIONS[:number])),))


# The short way to record a step in PostgreSQL: one statement that commits by itself, sent by whoever wants it.
#
# A thread that has no event loop sends the statement itself and waits, bounded as every unit of work is. For that there
# is a connection of its own, for one caller at a time. An event loop has a desk do it (`record_on`).

_RECORD = SQL["record"].encode()


class PostgresStepWriter:
    """A connection that records steps; made when it is first needed, and made anew when it broke."""

    def __init__(self, connect: Callable[[], Connection], clock: ServerClock, *, place: str, timeout: float) -> None:
        self._connect = connect
        self._clock = clock
        self._place = place
        self._timeout = timeout
        self._alone = threading.Lock()
        self._line: ServerLine | None = None
        self._closed = False

    def open(self) -> None:
        """Record from now on; what was under way when it was closed keeps nobody out."""
        self._alone = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Let the connection go; whoever waits there is woken by it."""
        self._closed = True
        line, self._line = self._line, None
        if line is not None:
            line.cut()
            line.close()

    def record_on(self, line: ServerLine, believed: LeaseRow, decide: Decide) -> bool:
        """Whether it is committed; on a connection that its caller has for itself."""
        values = self._decided(believed, decide)
        if values is None:
            return False
        self._send(line, values)
        return self._awaited(line)

    def record_here(self, believed: LeaseRow, decide: Decide, patience: float) -> bool:
        """Whether it is committed; for a thread, which waits for others here and for the server."""
        values = self._decided(believed, decide)
        alone = self._alone
        if values is None or not alone.acquire(timeout=patience):
            return False
        try:
            line = self._usable() or self._new_line()
            self._send(line, values)
            return self._awaited(line)
        finally:
            alone.release()

    def _decided(self, believed: LeaseRow, decide: Decide) -> list[bytes | None] | None:
        decided = None if self._closed else decide(believed, self._clock.guess())
        return None if decided is None else short_record(believed, decided)

    def _usable(self) -> ServerLine | None:
        line = self._line
        return line if line is not None and line.usable() else None

    def _new_line(self) -> ServerLine:
        if self._line is not None:
            self._line.close()
        line = self._line = ServerLine(self._connect())
        if self._closed:
            line.close()
            raise Unavailable("the store is not open")
        return line

    def _send(self, line: ServerLine, values: list[bytes | None]) -> None:
        try:
            line.send_once(_RECORD, values)
        except psycopg.Error as error:
            raise explain(error, self._place) from error

    def _awaited(self, line: ServerLine) -> bool:
        try:
            answer = line.answered(self._timeout)
        except psycopg.Error as error:
            raise explain(error, self._place) from error
        if answer is None:
            line.close()
            raise Unavailable("the server did not answer to a step in time (transact_timeout)")
        return self._seen(answer)

    def _seen(self, answer: pq.abc.PGresult) -> bool:
        moment = answer.get_value(0, 0) if answer.ntuples else None
        if moment is None:
            return False
        self._clock.see(int(moment))
        return True


# Sweeping out what finished tasks leave behind, as often as the work makes it necessary.
#
# A claimed task leaves a dead entry at the very front of the index that the next pick reads from. Entries are dropped
# as they are met, but the pages they stood in stay until a vacuum, and every pick walks through all of them: after
# 300,000 tasks, 2,100 empty pages and 1.7 ms for each pick (PostgreSQL 15, seen). The server's own vacuum looks in once
# a minute; a busy queue needs it sooner. So each process counts the rows it takes out of `ready`, and vacuums the two
# tables that turn over with them once that many have gone. A vacuum so early finds little to do and holds up nobody: it
# takes no lock that a reader or a writer would meet, passes over a table that is being vacuumed, and gives no space
# back.


class Vacuum:
    """Counts what has gone, and sweeps in the background when it is time; a sweep that fails is left to the next."""

    def __init__(self, sweep: Callable[[], Awaitable[None]], every: int) -> None:
        self._sweep = sweep
        self._every = every
        self._gone = 0
        self._sweeping: asyncio.Task[None] | None = None

    def count(self, gone: int) -> None:
        """So many rows have left; called on the event loop."""
        self._gone += gone
        if self._gone >= self._every and (self._sweeping is None or self._sweeping.done()):
            self._gone = 0
            self._sweeping = asyncio.get_running_loop().create_task(self._run(), name="allswell-postgres-broom")

    async def _run(self) -> None:
        try:
            await self._sweep()
        except AllswellError:
            return  # the server is away or busy: its own vacuum will do, or our next

    async def close(self, timeout: float) -> None:
        """Let a sweep under way end within this time; nothing depends on it."""
        sweeping = self._sweeping
        if sweeping is not None:
            await asyncio.wait([sweeping], timeout=timeout)
            sweeping.cancel()


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
    max_parallel = 2

    def __init__(self, url: str, **settings: float | None) -> None:
        """Name the database; `settings` are the fields of `PostgresSettings`."""
        try:
            self._settings = msgspec.convert(settings, PostgresSettings)
        except msgspec.ValidationError as error:
            raise Refused("bad_setting", f"a setting of the PostgreSQL store is wrong: {error}") from None
        self.url = url
        self._address = ServerAddress(url, self._settings)
        self._clock = ServerClock()
        self._desks: dict[str, ConnectionThread] = {}
        self._numbers = itertools.count(1)
        self._lanes: dict[tuple[str, tuple[str, ...]], int] = {}
        self._closed = False
        self._recorder = PostgresStepWriter(
            self._connect, self._clock, place=self._address.place, timeout=self._settings.transact_timeout
        )
        self._process = os.getpid()
        self._herald = self._new_herald()
        self._broom = Vacuum(self._vacuum, self._settings.vacuum_every)

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

    def _new_herald(self) -> Notifier:
        carrier = NotifyTransport(self._address, self._settings, is_own=self._is_own)
        return Notifier(carrier, "allswell-postgres-herald")

    def _is_own(self, session: int) -> bool:
        return any(desk.session == session for desk in list(self._desks.values()))

    def announce(self, call: Wakeup) -> None:
        """Notify other processes, from a thread and a connection of their own."""
        self._herald.announce(call)

    def hear(self, hearer: Hearer) -> None:
        """Listen to other processes."""
        self._herald.hear(hearer)

    # Units of work.

    async def transact(self, work: Callable[[Transaction], Coroutine[Any, Any, T]], *, durable: bool = True) -> T:
        """Run `work` in one transaction, in a desk's thread, and commit."""
        desk = self._quiet_desk(_DECISIONS if durable else _CHECKINS)
        guard = CommitGuard()

        def job(line: ServerLine) -> tuple[T, PostgresTransaction]:
            number = next(self._numbers)
            opening = opening_of_work(self._settings, durable=durable)
            session = Session(line, self._address.place, opening, guard)
            transaction = PostgresTransaction(session, self._clock)
            try:
                result = run_sync(work(transaction))
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

    async def record(self, believed: LeaseRow, decide: Decide) -> bool:
        """The short way for an event loop, on the connection and in the thread of a desk."""
        desk = self._quiet_desk(_DECISIONS)
        return await desk.call(
            lambda line: self._recorder.record_on(line, believed, decide),
            timeout=self._settings.transact_timeout,
            what="a step (transact_timeout)",
        )

    def record_here(self, believed: LeaseRow, decide: Decide, patience: float) -> bool:
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
        return await self._write(lambda one: views.enlist(one, follower, after, upto, deliveries, memory), told)

    async def forget(self, follower: str, sink: str) -> None:
        """Forget a follower with all that is kept of it."""
        await self._write(lambda session: views.forget(session, follower, sink), "a sink (view_timeout)")

    async def revise(self, changed: Sequence[Delivery], gone: Sequence[Delivery] = ()) -> None:
        """Write deliveries as they are now, and forget those that are gone."""
        await self._write(lambda session: views.revise(session, changed, gone), "a delivery (view_timeout)")

    async def compare_and_set(self, key: str, before: str | None, after: str) -> bool:
        """Keep something in the place of what was kept there, if that is still so."""

        def keep(session: Session) -> bool:
            asked = (SQL["add_kept"], (key, after)) if before is None else (SQL["swap_kept"], (key, before, after))
            return bool(session.ask(asked)[0].fetchall())

        return await self._write(keep, "what the watch keeps about itself (view_timeout)")

    async def put(self, key: str, value: str) -> None:
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

    def _desk(self, name: str) -> ConnectionThread:
        if self._closed:
            raise Unavailable("the store is closed")
        desk = self._desks.get(name)
        if desk is not None and desk.stuck:
            desk.retire()
            desk = None
        if desk is None:
            desk = self._desks[name] = ConnectionThread(name, self._address)
        return desk

    def _quiet_desk(self, names: tuple[str, ...]) -> ConnectionThread:
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
