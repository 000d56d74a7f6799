"""The short way to record a step in SQLite: one statement, by whichever thread wants it recorded.

It has a connection of its own, for one caller at a time. To hand a statement to the writer's thread and to be woken
again costs as much as the commit, so a thread that has no event loop writes here itself. A loop never does: nothing can
call it back from a disk that hangs.

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
from allswell.store.now import StoreClock
from allswell.store.shortcut import Decide
from allswell.store.sqlite import rows
from allswell.store.sqlite.connection import connect_recorder
from allswell.store.sqlite.faults import translate, translated
from allswell.store.sqlite.schema import SQL
from allswell.store.sqlite.turnstile import Turnstile

_RECORD = SQL["record"]
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
            decided = decide(believed, self._clock.now(0))
            if decided is None or not (self._turnstile.enter_at_once() or self._waited_for_turn(patience)):
                return False
            try:
                before = connection.total_changes
                connection.execute(_RECORD, rows.recording(believed, decided))
                done = connection.total_changes != before
            except sqlite3.Error as error:
                raise translate(error, self._database, 0) from error
            finally:
                self._turnstile.leave()
            self._pages += _PAGES + len(decided.made.result) // _PAGE
            if self._pages >= _CHECKPOINT_PAGES:
                self._pages = 0
                self._checkpoint()
            return done
        finally:
            self._alone.release()

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
