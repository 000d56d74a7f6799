"""The writing side of a store: what happens in the writer's thread.

    enter the turnstile - BEGIN IMMEDIATE - the work - COMMIT - leave the turnstile

A caller that has waited too long gives up. Whether it may say "nothing was committed" depends on how far the thread has
got, so each unit of work has a `Unit`: giving up and starting to commit exclude each other.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from enum import Enum, auto
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from pathlib import Path
from typing import Any, TypeVar

from allswell.domain.ids import TaskId
from allswell.domain.lease.model import LeaseRow
from allswell.errors import AllswellError, Unavailable
from allswell.store import files
from allswell.store.clock import StoreClock
from allswell.store.port import NOTHING, Decide, Recorded, Wakeup, run_sync
from allswell.store.sqlite import rows, transaction
from allswell.store.sqlite.cache import RowCache
from allswell.store.sqlite.connection import SQL, connect_recorder, connect_writer, translate, translated, upgrade
from allswell.store.sqlite.transaction import KnownLanes, SqliteTransaction, last_of
from allswell.store.trusted import trust_store

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
        announce: Callable[[Wakeup], None],
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
                    is_new = upgrade(connection, self._database)
                    connection.execute("COMMIT")
                    if is_new and self._database.parts[-2:] == (files.NAME, files.DATABASE):
                        (store_id,) = connection.execute(SQL["read_store_id"]).fetchone()
                        with suppress(AllswellError):  # no place to remember it: its user is asked the next time
                            trust_store(self._database.parent, store_id)
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

    def run(self, unit: Unit, work: Callable[[SqliteTransaction], Coroutine[Any, Any, T]], *, durable: bool) -> T:
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
        self, unit: Unit, work: Callable[[SqliteTransaction], Coroutine[Any, Any, T]], *, durable: bool
    ) -> tuple[T, Wakeup]:
        connection = self._connection
        if connection is None:
            raise Unavailable("the store is not open")
        if self._full is not durable:  # only possible outside a transaction
            connection.execute("PRAGMA synchronous = FULL" if durable else "PRAGMA synchronous = NORMAL")
            self._full = durable
        connection.execute("BEGIN IMMEDIATE")
        try:
            transaction = SqliteTransaction(connection, self._clock, self._lanes, self._cache)
            result = run_sync(work(transaction))
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


# The short way to record a step in SQLite: a small unit of work, by whichever thread wants it recorded.
#
# It is one like any other: with the write lock held it reads the flow's lease and the clock, has the core decide on
# them, and writes the two rows that this comes to. It has a connection of its own, for one caller at a time. To hand a
# unit of work to the writer's thread and to be woken again costs as much as the commit, so a thread that has no event
# loop writes here itself. A loop never does: nothing can call it back from a disk that hangs.
#
# It makes no checkpoints, which take as long as many commits. The writer's thread is asked for one when enough was
# written, and makes it in a turn of its own: beside a connection that goes on writing, none would ever get to the end
# of the WAL, which would grow for ever. It is asked early: a commit at the end of a growing file takes half as long
# again as one that writes over what is there.

_LEASE, _TASK, _EVENTS = SQL["read_lease"], SQL["insert_recorded"], SQL["insert_events"]
_PAGES, _PAGE = 5, 4_096
"""About what a step changes, and how many bytes of it another page can take."""
_CHECKPOINT_PAGES = 1_000


class SqliteStepWriter:
    """A connection that records steps."""

    def __init__(
        self,
        database: Path,
        clock: StoreClock,
        *,
        turn_timeout: int,
        checkpoint: Callable[[], object],
    ) -> None:
        self._database = database
        self._clock = clock
        self._turnstile = Turnstile(database, turn_timeout)
        self._connection: sqlite3.Connection | None = None
        self._alone = threading.Lock()
        self._pages = 0
        """About what was written since a checkpoint was asked for."""
        self._checkpoint = checkpoint

    def record(self, believed: LeaseRow, decide: Decide, patience: float) -> bool:
        """Whether it is committed; waits so many seconds for other threads and, unless that is none, for a turn."""
        if not self._alone.acquire(timeout=patience):
            return False
        try:
            connection = self._connection or self._connect()
            if not (self._turnstile.enter_at_once() or self._waited_for_turn(patience)):
                return False
            try:
                decided = self._transact(connection, believed.task, decide)
            except sqlite3.Error as error:
                raise translate(error, self._database, 0) from error
            finally:
                self._turnstile.leave()
            if decided is None:
                return False
            self._pages += _PAGES + len(decided.made.result) // _PAGE
            if self._pages >= _CHECKPOINT_PAGES:
                self._pages = 0
                self._checkpoint()
            return True
        finally:
            self._alone.release()

    def _transact(self, connection: sqlite3.Connection, flow: TaskId, decide: Decide) -> Recorded | None:
        """What was committed; None where the core has not plainly said so, and then nothing was."""
        connection.execute("BEGIN IMMEDIATE")
        try:
            at, last, word = transaction.last_of(connection)
            lease = connection.execute(_LEASE, (rows.text((flow,)),)).fetchone()
            decided = None if lease is None else decide(LeaseRow(*lease), self._clock.now(at, word))
            if decided is not None:
                connection.execute(_TASK, rows.recorded(decided.made))
                connection.execute(_EVENTS, (last + 1, decided.at, rows.text((decided.event,))))
                connection.execute("COMMIT")
            return decided
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _waited_for_turn(self, patience: float) -> bool:
        if patience:
            self._turnstile.enter()
        return patience > 0

    def close(self, seconds: float) -> None:
        """Let the connection go; whoever is there has so long to leave, else its disk hangs, and so does it."""
        if self._alone.acquire(timeout=seconds):
            try:
                if self._connection is not None:
                    with translated(self._database, 0):
                        self._connection.close()
            finally:
                self._connection = None
                self._turnstile.close()
                self._alone.release()

    def _connect(self) -> sqlite3.Connection:
        """Connect to a database that is open already, for whichever thread it is that calls."""
        with translated(self._database, 0):
            connection = connect_recorder(self._database)
        try:
            self._turnstile.open()
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection


# Turns for writing processes, by two flock files beside the database.
#
# SQLite's own write lock is taken by whoever asks at the right moment, and a writer that commits and begins again at
# once always asks first: others sleep in the busy handler and starve. Here who wants to write takes `next`, waits for
# `turn` while holding it, then gives `next` back. So exactly one waits for the running turn, and the process that
# ends its turn finds `next` taken and queues behind the waiter.
#
# The turnstile is for fairness alone. What keeps writers apart is `BEGIN IMMEDIATE`, so a deleted lock file harms
# nobody.
#
# flock has no time limit, and a thread asleep in it could not be called back: so both waits ask again and again, at a
# fixed pace. Nobody's pace slows down with waiting, or those who came last would be served first.

_TAKE = LOCK_EX | LOCK_NB
_PACE_NEXT = 0.0005
_PACE_TURN = 0.0001
"""Seconds. Only one process at a time waits for `turn`, so it may ask more often."""


class Turnstile:
    """One process's place at the turnstile of one database; used by one thread."""

    def __init__(self, database: Path, timeout_ms: int) -> None:
        self._paths = (Path(f"{database}.next"), Path(f"{database}.turn"))
        self._timeout = timeout_ms / 1_000
        self._files: tuple[int, int] | None = None
        _inheritable.add(self)

    def open(self) -> None:
        """Open the two lock files, making them if need be."""
        following = _open(self._paths[0])
        try:
            self._files = (following, _open(self._paths[1]))
        except BaseException:
            os.close(following)
            raise

    def close(self) -> None:
        """Close the lock files, which also gives back what is held; safe to call twice."""
        files, self._files = self._files, None
        for file in files or ():
            os.close(file)

    def enter(self) -> None:
        """Wait for a turn, at most `turn_timeout`."""
        if not self.enter_at_once():
            following, turn = self._open_files()
            self._wait(following, _PACE_NEXT, (until := time.monotonic() + self._timeout))
            self._wait_for_turn(following, turn, until)

    def enter_at_once(self) -> bool:
        """Take a turn if nobody has it and nobody waits for it."""
        following, turn = self._open_files()
        try:
            flock(following, _TAKE)
        except BlockingIOError:
            return False
        try:
            flock(turn, _TAKE)
        except BlockingIOError:
            return False
        else:
            return True
        finally:
            flock(following, LOCK_UN)

    def leave(self) -> None:
        """End the turn."""
        flock(self._open_files()[1], LOCK_UN)

    def _wait_for_turn(self, following: int, turn: int, until: float) -> None:
        try:
            self._wait(turn, _PACE_TURN, until)
        finally:
            flock(following, LOCK_UN)

    def _wait(self, file: int, pace: float, until: float) -> None:
        while not _try(file):
            if time.monotonic() >= until:
                raise Unavailable(
                    f"no turn to write within turn_timeout ({self._timeout:g} s)",
                    hint=f"another process holds {self._paths[1]} for too long; `fuser` shows which",
                )
            time.sleep(pace)

    def _open_files(self) -> tuple[int, int]:
        if self._files is None:
            raise Unavailable("the store is not open")
        return self._files


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unavailable(
            f"cannot open the lock file {path}: {error.strerror}",
            hint="the store writes in its folder; look at its owner and mode, and whether it is mounted read-only",
        ) from error


def _try(file: int) -> bool:
    try:
        flock(file, _TAKE)
    except BlockingIOError:
        return False
    return True


_inheritable: weakref.WeakSet[Turnstile] = weakref.WeakSet()


def _let_go_in_child() -> None:
    # A flock belongs to the open file, which a fork shares: if the parent dies in its turn, a child that still had the
    # file open would keep the turn for ever (test_processes.py).
    for turnstile in list(_inheritable):
        turnstile.close()


os.register_at_fork(after_in_child=_let_go_in_child)
