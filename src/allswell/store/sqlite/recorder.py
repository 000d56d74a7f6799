"""The short way to record a step in SQLite: one statement, by whichever thread wants it recorded.

It has a connection of its own, for one caller at a time. To hand a statement to the writer's thread and to be woken
again costs as much as the commit, and twice where Python's threads get in each other's way. So threads that have no
loop write here themselves, and so does an event loop that has nothing else to do, as long as it may expect to be back
at once (docs/adr/0027):

-   **It waits for nobody.** Where another process has its turn, or another thread is here, or a program outside holds
    SQLite's lock, the short way is declined.
-   **It makes no checkpoints**, which take as long as many commits. The writer's thread is asked for one when enough
    was written, and makes it in a turn of its own: beside a connection that goes on writing, none would ever get to
    the end of the WAL, which would grow for ever. It is asked early: a commit at the end of a growing file takes half
    as long again as one that writes over what is there.
-   **The disk was quick lately** (`brisk`): nearly all of the last commits took less than what an idle loop spends on
    waiting anyway. After several that took longer, or one that took very long, a thread does it until the disk has
    been quick again for a while.

What no rule can exclude is a disk that was quick and stops: then the loop stands still until it answers, once, as it
does wherever else a process meets that disk.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

from allswell.domain.lease import Lease
from allswell.store.shortcut import Decide
from allswell.store.sqlite import rows
from allswell.store.sqlite.connection import connect_recorder
from allswell.store.sqlite.faults import translate, translated
from allswell.store.sqlite.now import StoreClock
from allswell.store.sqlite.schema import SQL
from allswell.store.sqlite.turnstile import Turnstile
from allswell.store.thread import AT_ONCE

_RECORD = SQL["record"]
_TRUSTED, _TRUST_MOST = 32, 96
"""Each quick commit earns a point; with so many, the next one is expected to be quick. More are not kept than these."""
_SLOW_COSTS = 16
"""Points. Hiccups are forgiven where they are rare."""
_STALL = 10 * AT_ONCE
"""Seconds; who has been kept so long trusts the disk no more."""
_PAGES, _PAGE = 5, 4_096
"""About what a step changes, and how many bytes of it another page can take."""
_CHECKPOINT_PAGES = 1_000


class Recorder:
    """A connection that records steps, and what is known of how long that takes."""

    def __init__(
        self,
        database: Path,
        clock: StoreClock,
        *,
        turn_timeout: int,
        checkpoint: Callable[[], object],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._clock = clock
        self._turnstile = Turnstile(database, turn_timeout)
        self._connection: sqlite3.Connection | None = None
        self._alone = threading.Lock()
        self._trust = 0
        """Points for quick commits."""
        self._pages = 0
        """About what was written since a checkpoint was asked for."""
        self._checkpoint = checkpoint
        self._monotonic = monotonic

    @property
    def brisk(self) -> bool:
        """Whether a commit can be expected to take next to no time."""
        return self._trust >= _TRUSTED

    def record(self, believed: Lease, decide: Decide, patience: float) -> bool:
        """Whether it is committed; waits so many seconds for other threads and, unless that is none, for a turn."""
        if not self._alone.acquire(timeout=patience):
            return False
        try:
            connection = self._connection or self._connect()
            decided = decide(believed, self._clock.now(0))
            if decided is None or not (self._turnstile.enter_at_once() or self._waited_for_turn(patience)):
                return False
            began = self._monotonic()
            try:
                before = connection.total_changes
                connection.execute(_RECORD, rows.recording(believed, decided))
                done = connection.total_changes != before
            except sqlite3.Error as error:
                raise translate(error, self._database, 0) from error
            finally:
                self._turnstile.leave()
                self._judge(self._monotonic() - began)
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

    def _judge(self, took: float) -> None:
        if took < AT_ONCE:
            if self._trust < _TRUST_MOST:
                self._trust += 1
        else:
            self._trust = 0 if took >= _STALL else max(self._trust - _SLOW_COSTS, 0)

    def close(self, seconds: float) -> None:
        """Let the connection go; whoever is there has so long to leave, else its disk hangs, and so does it."""
        if self._alone.acquire(timeout=seconds):
            try:
                if self._connection is not None:
                    with translated(self._database, 0):
                        self._connection.close()
            finally:
                self._connection = None
                self._trust = 0
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
