"""The short way to record a step in SQLite: a small unit of work, by whichever thread wants it recorded.

It is one like any other: with the write lock held it reads the flow's lease and the clock, has the core decide on them,
and writes the two rows that this comes to. It has a connection of its own, for one caller at a time. To hand a unit of
work to the writer's thread and to be woken again costs as much as the commit, so a thread that has no event loop
writes here itself. A loop never does: nothing can call it back from a disk that hangs.

It makes no checkpoints, which take as long as many commits. The writer's thread is asked for one when enough was
written, and makes it in a turn of its own: beside a connection that goes on writing, none would ever get to the end of
the WAL, which would grow for ever. It is asked early: a commit at the end of a growing file takes half as long again as
one that writes over what is there.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from allswell.domain.lease import Lease
from allswell.domain.names import TaskId
from allswell.store.own_clock import StoreClock
from allswell.store.shortcut import Decide, Recorded
from allswell.store.sqlite import rows, settling
from allswell.store.sqlite.connection import connect_recorder
from allswell.store.sqlite.faults import translate, translated
from allswell.store.sqlite.schema import SQL
from allswell.store.sqlite.turnstile import Turnstile

_LEASE, _TASK, _EVENTS = SQL["read_lease"], SQL["insert_recorded"], SQL["insert_events"]
_PAGES, _PAGE = 5, 4_096
"""About what a step changes, and how many bytes of it another page can take."""
_CHECKPOINT_PAGES = 1_000


class Recorder:
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

    def record(self, believed: Lease, decide: Decide, patience: float) -> bool:
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
            at, last, word = settling.last_of(connection)
            lease = connection.execute(_LEASE, (rows.text((flow,)),)).fetchone()
            decided = None if lease is None else decide(Lease(*lease), self._clock.now(at, word))
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
