"""The store itself: two threads, one that writes and one that reads, and the port's methods on top of them."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from allswell.domain.lease.model import LeaseRow
from allswell.domain.notify.delivery import Delivery
from allswell.domain.rules.event import Position
from allswell.domain.rules.query import Query
from allswell.errors import Bug, Refused, Unavailable
from allswell.store.clock import StoreClock
from allswell.store.notifier import Notifier
from allswell.store.port import CommitUnknown, Decide, Hearer, Transaction, Wakeup
from allswell.store.sqlite import paths, views
from allswell.store.sqlite.connection import connect, connect_reader, translated
from allswell.store.sqlite.paths import make_empty
from allswell.store.sqlite.transaction import SqliteTransaction, compare_and_set
from allswell.store.sqlite.transport import DatagramTransport
from allswell.store.sqlite.writer import SqliteStepWriter, Unit, Writer
from allswell.store.thread import WorkThread
from allswell.store.views import Views
from allswell.timing.clock import Clock, SystemClock

# Copies of a store, made by SQLite itself: never by opening its files.


def copy(database: Path, target: Path, busy_timeout: int) -> None:
    """Copy a database into a file that appears whole or not at all.

    In one step: a copy in several would begin anew whenever somebody writes in between.
    """
    target = target.absolute()
    if target.exists() and target.samefile(database):
        raise Refused("bad_backup", f"{target} is the store itself", where="target")
    part = target.with_name(f"{target.name}.part")
    try:
        part.unlink(missing_ok=True)
        make_empty(part)
        with translated(part, busy_timeout), closing(connect(part, busy_timeout)) as there:
            with translated(database, busy_timeout), closing(connect_reader(database, busy_timeout)) as here:
                here.backup(there, pages=-1)
            # The copy is one file, whoever opens it next: no WAL beside it.
            there.execute("PRAGMA journal_mode = DELETE").fetchall()
        part.replace(target)
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise Unavailable(f"cannot write the backup {target}: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)


T = TypeVar("T")
_SYSTEM_CLOCK = SystemClock()
_LAST_CALL = 0.5
"""How long closing waits for a call that is still to be told, in seconds; it is only a hint."""


class SqliteStore(Views):
    """A watch in one SQLite file.

    `turn_timeout`    how long to wait for other writing processes;
    `busy_timeout`    how long to wait for a program that holds SQLite's own lock outside the turnstile;
    `answer_timeout`  how long a caller waits for the thread at all: beyond it the disk itself hangs;
    `backup_timeout`  how long a backup may take. All in milliseconds.
    """

    shared_clock = False
    max_parallel = 1  # there is one writer

    def __init__(
        self,
        location: str | Path,
        *,
        clock: Clock = _SYSTEM_CLOCK,
        turn_timeout: int = 10_000,
        busy_timeout: int = 5_000,
        answer_timeout: int = 60_000,
        backup_timeout: int = 600_000,
    ) -> None:
        if min(turn_timeout, busy_timeout) < 1 or turn_timeout + busy_timeout >= answer_timeout:
            raise Refused(
                "bad_setting",
                f"turn_timeout ({turn_timeout} ms) and busy_timeout ({busy_timeout} ms) must be positive and together "
                f"less than answer_timeout ({answer_timeout} ms), or a wait for a turn would look like a hung disk",
                where="answer_timeout",
            )
        self.path = paths.locate(location)
        self.url = f"sqlite:///{self.path}"
        self._clock = StoreClock(clock)
        self._busy_timeout = busy_timeout
        self._answer_timeout = answer_timeout / 1_000
        self._backup_timeout = backup_timeout / 1_000
        self._writer = Writer(
            self.path,
            self._clock,
            turn_timeout=turn_timeout,
            busy_timeout=busy_timeout,
            announce=self.announce,
        )
        self._recorder = SqliteStepWriter(
            self.path, self._clock, turn_timeout=turn_timeout, checkpoint=self._checkpoint
        )
        self._folder: paths.HeldFolder | None = None
        self._reader: sqlite3.Connection | None = None
        self._threads: tuple[WorkThread, WorkThread] | None = None
        self._process = os.getpid()
        self._unknown: dict[str, Unit] = {}
        self._herald: Notifier | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Make the folder and the database if they are missing, and bring the schema up to date or refuse."""
        self._check_process()
        if self._threads is not None:
            return
        self._threads = (
            WorkThread("allswell-sqlite-writer", trusted_again=True),
            WorkThread("allswell-sqlite-reader", trusted_again=True),
        )
        try:
            await self._call(self._threads[0], self._open_writer, "opening the store")
            await self._call(self._threads[1], self._open_reader, "opening the store")
        except BaseException:
            await self.close()
            raise
        inside = None if self._folder is None else self._folder.fileno()
        self._herald = Notifier(DatagramTransport(self.path, inside), "allswell-sqlite-herald")

    async def close(self) -> None:
        """Close both connections; the last process to do so leaves no WAL behind."""
        self._check_process()
        herald, self._herald = self._herald, None
        threads, self._threads = self._threads, None
        if threads is None:
            return
        writing, reading = threads
        self._recorder.close(self._answer_timeout)
        try:
            if herald is not None:
                await herald.close(_LAST_CALL)
            await self._call(reading, self._close_reader, "closing the store")
            await self._call(writing, self._writer.close, "closing the store")
        finally:
            if self._folder is not None:
                self._folder.let_go()
            writing.close()
            reading.close()

    def _open_writer(self) -> None:
        self._folder = paths.prepare(self.path)
        self._folder.close_files()
        self._writer.open()
        self._folder.check()

    def _open_reader(self) -> None:
        with translated(self.path, self._busy_timeout):
            self._reader = connect_reader(self.path, self._busy_timeout)

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    # --- wake-up calls ------------------------------------------------------------------------------------------------

    def announce(self, call: Wakeup) -> None:
        """Tell the other processes on this machine, from a thread of its own."""
        herald = self._herald
        if herald is not None:
            herald.announce(call)

    def hear(self, hearer: Hearer) -> None:
        """Hear the other processes on this machine."""
        self._check_process()
        if self._herald is not None:
            self._herald.hear(hearer)

    # --- writing ------------------------------------------------------------------------------------------------------

    async def transact(self, work: Callable[[Transaction], Coroutine[Any, Any, T]], *, durable: bool = True) -> T:
        """Run `work` in one transaction, whole, in the writer's thread."""
        return await self._write(work, durable=durable)

    async def _write(self, work: Callable[[SqliteTransaction], Coroutine[Any, Any, T]], *, durable: bool) -> T:
        thread = self._running()[0]
        unit = Unit()
        try:
            result = await self._call(thread, lambda: self._writer.run(unit, work, durable=durable), "a transaction")
        except asyncio.CancelledError:
            unit.give_up()  # nobody waits any more: what has not begun to commit never will
            raise
        except Unavailable:
            if unit.give_up():
                raise
            ticket = os.urandom(16).hex()
            self._unknown[ticket] = unit
            raise CommitUnknown(ticket) from None
        self.announce(unit.call)
        return result

    async def record(self, believed: LeaseRow, decide: Decide) -> bool:
        """The short way for an event loop, in the writer's thread."""
        return await self._call(self._running()[0], lambda: self._recorder.record(believed, decide, 0.0), "a step")

    def record_here(self, believed: LeaseRow, decide: Decide, patience: float) -> bool:
        """The short way for a thread that has no loop: it does the writing itself. A disk that hangs, hangs it."""
        self._running()
        return self._recorder.record(believed, decide, patience)

    def _checkpoint(self) -> None:
        if self._threads is not None:
            self._threads[0].post(self._writer.checkpoint)

    async def outcome(self, ticket: str) -> bool:
        """Whether a transaction took place whose commit hung; waits until the disk has answered.

        A commit that fails is rolled back and raises `Unavailable` at once, so this is asked only after a hang.
        """
        self._check_process()
        unit = self._unknown.get(ticket)
        if unit is None:
            raise Bug(f"no commit is in doubt under {ticket}")
        settled = asyncio.wrap_future(unit.settled())
        try:
            # Shielded: the thread must be able to say how it ended, whoever still listens.
            committed = await asyncio.wait_for(asyncio.shield(settled), self._answer_timeout)
        except TimeoutError:
            raise Unavailable("the disk still has not answered to a commit (answer_timeout)") from None
        self._unknown.pop(ticket, None)
        # The thread is back, though it may not have got around to saying so (seen under load).
        self._running()[0].abandoned = False
        return committed

    async def intern_lanes(self, wanted: Sequence[tuple[str, tuple[str, ...]]]) -> list[int]:
        """The lane of each (role, services), made if it is new."""
        return await self._write_again(lambda tx: [tx.intern_lane(role, services) for role, services in wanted])

    async def advance(self, follower: str, position: Position) -> None:
        """Note durably where a follower has got to; never backwards."""
        await self._write_again(lambda tx: tx.advance(follower, position.xid, position.id))

    async def enlist(
        self, follower: str, after: Position, upto: Position, deliveries: Sequence[Delivery], memory: str = ""
    ) -> bool:
        """Keep new deliveries, move a follower's cursor and keep its memory: all of it or nothing."""
        return await self._write_again(
            lambda tx: views.enlist(tx.connection, follower, after, upto, deliveries, memory)
        )

    async def revise(self, changed: Sequence[Delivery], gone: Sequence[Delivery] = ()) -> None:
        """Write deliveries as they are now, and forget those that are gone."""
        await self._write_again(lambda tx: views.revise(tx.connection, changed, gone))

    async def forget(self, follower: str, sink: str) -> None:
        """Forget a follower with all that is kept of it."""
        await self._write_again(lambda tx: views.forget(tx.connection, follower, sink))

    async def compare_and_set(self, key: str, before: str | None, after: str) -> bool:
        """Keep something in the place of what was kept there, if that is still so."""
        return await self._write_again(lambda tx: compare_and_set(tx.connection, key, before, after))

    async def put(self, key: str, value: str) -> None:
        """Keep something about the watch itself, for every process on this store."""
        await self._write_again(lambda tx: tx.put(key, value))

    async def _write_again(self, work: Callable[[SqliteTransaction], T]) -> T:
        """Write what may be written twice: whether a lost commit took place does not matter."""

        async def unit(tx: SqliteTransaction) -> T:
            return work(tx)

        try:
            return await self._write(unit, durable=True)
        except CommitUnknown:
            raise Unavailable("the disk did not answer to a commit (answer_timeout)") from None

    # --- reading ------------------------------------------------------------------------------------------------------

    async def view(self, query: Query[T]) -> T:
        """The answer to a query, from the reader's thread."""

        def look() -> T:
            if self._reader is None:
                raise Unavailable("the store is not open")
            with translated(self.path, self._busy_timeout):
                return views.view(self._reader, self._clock, query)

        return await self._call(self._running()[1], look, "a view")

    async def backup(self, target: str | Path) -> None:
        """Copy the store as it is at one moment into a new file, by SQLite's backup API; writers go on meanwhile."""
        self._running()
        thread = WorkThread("allswell-sqlite-backup")
        try:
            await thread.call(
                lambda: copy(self.path, Path(target), self._busy_timeout),
                timeout=self._backup_timeout,
                what="a backup",
            )
        finally:
            thread.close()

    # --- threads ------------------------------------------------------------------------------------------------------

    def _running(self) -> tuple[WorkThread, WorkThread]:
        self._check_process()
        if self._threads is None:
            raise Unavailable(f"the store {self.url} is not open")
        return self._threads

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise Refused(
                "forked",
                "this store was opened before a fork, and SQLite's connections do not survive one; "
                "open a store of your own in the child process",
                where="store",
            )

    def _call(self, thread: WorkThread, function: Callable[[], T], what: str) -> Coroutine[Any, Any, T]:
        return thread.call(function, timeout=self._answer_timeout, what=f"{what} (answer_timeout)")
