"""The writing side of a store: what happens in the writer's thread.

    enter the turnstile - BEGIN IMMEDIATE - the work - COMMIT - leave the turnstile

A caller that has waited too long gives up. Whether it may say "nothing was committed" depends on how far the thread has
got, so each unit of work has a `Unit`: giving up and starting to commit exclude each other.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from enum import Enum, auto
from pathlib import Path
from typing import TypeVar

from allswell.errors import Unavailable
from allswell.store.call import NOTHING, Call
from allswell.store.own_clock import StoreClock
from allswell.store.port import drive
from allswell.store.sqlite import schema
from allswell.store.sqlite.cache import RowCache
from allswell.store.sqlite.connection import connect_writer
from allswell.store.sqlite.faults import translate, translated
from allswell.store.sqlite.lanes import KnownLanes
from allswell.store.sqlite.schema import SQL
from allswell.store.sqlite.settling import last_of
from allswell.store.sqlite.transaction import SqliteTransaction
from allswell.store.sqlite.turnstile import Turnstile

T = TypeVar("T")


class Stage(Enum):
    """How far a unit of work has got."""

    OPEN = auto()
    COMMITTING = auto()
    GIVEN_UP = auto()
    """Before it began to commit: it never will."""


_OPEN, _COMMITTING, _GIVEN_UP = Stage


class Unit:
    """One unit of work, as seen by its caller and by the thread."""

    __slots__ = ("_committed", "_guard", "_settled", "_stage", "call")

    def __init__(self) -> None:
        self._stage = _OPEN
        self._guard = threading.Lock()
        self._committed: bool | None = None
        """Known when the thread is done with it."""
        self._settled: Future[bool] | None = None
        """For whoever waits until it is known; hardly anybody ever does."""
        self.call = NOTHING
        """What others are still to be told of, by the caller."""

    def give_up(self) -> bool:
        """Whether it is certain that nothing was or will be committed, now that nobody waits any more."""
        with self._guard:
            if self._stage is _OPEN:
                self._stage = _GIVEN_UP
            return self._stage is _GIVEN_UP or self._committed is False

    def go_on(self, stage: Stage) -> None:
        """Enter a stage, unless the caller has given up."""
        with self._guard:
            if self._stage is _GIVEN_UP:
                raise Unavailable("its caller has given up")
            self._stage = stage

    def end(self, *, committed: bool) -> None:
        """The thread is done with it."""
        with self._guard:
            self._committed = committed
            if self._settled is not None:
                self._settled.set_result(committed)

    def settled(self) -> Future[bool]:
        """Whether it was committed, once the thread knows."""
        with self._guard:
            if self._settled is None:
                self._settled = Future()
                if self._committed is not None:
                    self._settled.set_result(self._committed)
            return self._settled


class Writer:
    """The writer connection and its turnstile; used in one thread only."""

    def __init__(
        self,
        database: Path,
        clock: StoreClock,
        *,
        turn_timeout: int,
        busy_timeout: int,
        announce: Callable[[Call], None],
    ) -> None:
        self._announce = announce
        self._database = database
        self._clock = clock
        self._busy_timeout = busy_timeout
        self._turnstile = Turnstile(database, turn_timeout)
        self._connection: sqlite3.Connection | None = None
        self._lanes = KnownLanes()
        self._cache = RowCache()
        self._full: bool | None = None
        """What `synchronous` is set to."""

    def open(self) -> None:
        """Connect, bring the schema up to date, and see what time it was."""
        self._turnstile.open()
        self._turnstile.enter()
        try:
            with translated(self._database, self._busy_timeout):
                connection = connect_writer(self._database, self._busy_timeout)
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    schema.upgrade(connection, self._database)
                    connection.execute("COMMIT")
                    renewed = connection.execute(SQL["read_last_renewal"]).fetchone()[0] or 0
                    at, _, word = last_of(connection)
                    self._clock.begin(max(at, renewed), word)
                except BaseException:
                    connection.close()
                    raise
            self._connection = connection
        finally:
            self._turnstile.leave()

    def close(self) -> None:
        """Close the connection and the lock files."""
        try:
            if self._connection is not None:
                with translated(self._database, self._busy_timeout):
                    self._connection.close()
        finally:
            self._connection = None
            self._turnstile.close()

    def checkpoint(self) -> None:
        """Write what the WAL holds into the database; in a turn of its own, so that nothing is added meanwhile."""
        if self._connection is not None:
            self._turnstile.enter()
            try:
                with translated(self._database, self._busy_timeout):
                    self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            finally:
                self._turnstile.leave()

    def run(self, unit: Unit, work: Callable[[SqliteTransaction], Awaitable[T]], *, durable: bool) -> T:
        """One unit of work, from its turn to its commit."""
        committed = False
        try:
            unit.go_on(_OPEN)
            self._turnstile.enter()
            try:
                result, call = self._transact(unit, work, durable=durable)
            except sqlite3.Error as error:
                raise translate(error, self._database, self._busy_timeout) from error
            finally:
                self._turnstile.leave()
            committed = True
            if call.urgent:
                self._announce(call)  # from here: whoever waits elsewhere need not wait for our loop too
            else:
                unit.call = call
            return result
        finally:
            unit.end(committed=committed)

    def _transact(
        self, unit: Unit, work: Callable[[SqliteTransaction], Awaitable[T]], *, durable: bool
    ) -> tuple[T, Call]:
        connection = self._connection
        if connection is None:
            raise Unavailable("the store is not open")
        if self._full is not durable:  # only possible outside a transaction
            connection.execute("PRAGMA synchronous = FULL" if durable else "PRAGMA synchronous = NORMAL")
            self._full = durable
        connection.execute("BEGIN IMMEDIATE")
        try:
            transaction = SqliteTransaction(connection, self._clock, self._lanes, self._cache)
            result = drive(_await(work, transaction))
            transaction.check()
            unit.go_on(_COMMITTING)
            connection.execute("COMMIT")
        except BaseException:
            # A failed COMMIT leaves the transaction open or has rolled it back; either way nothing of it stays.
            self._cache.clear()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result, transaction.call


async def _await(work: Callable[[SqliteTransaction], Awaitable[T]], transaction: SqliteTransaction) -> T:
    return await work(transaction)
