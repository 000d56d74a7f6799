"""The short way to record a step in PostgreSQL: one statement that commits by itself, sent by whoever wants it.

A thread that has no event loop sends the statement itself and waits, bounded as every unit of work is. For that there
is a connection of its own, for one caller at a time. An event loop has a desk do it (`record_on`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
from psycopg import pq

from allswell.domain.lease import Lease
from allswell.errors import Unavailable
from allswell.store.postgres.connection import ServerLine
from allswell.store.postgres.failure import explain
from allswell.store.postgres.session import SQL
from allswell.store.postgres.talk import Connection
from allswell.store.postgres.transaction import ServerClock
from allswell.store.postgres.write import short_record
from allswell.store.shortcut import Decide

_RECORD = SQL["record"].encode()


class Recorder:
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

    def record_on(self, line: ServerLine, believed: Lease, decide: Decide) -> bool:
        """Whether it is committed; on a connection that its caller has for itself."""
        values = self._decided(believed, decide)
        if values is None:
            return False
        self._send(line, values)
        return self._awaited(line)

    def record_here(self, believed: Lease, decide: Decide, patience: float) -> bool:
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

    def _decided(self, believed: Lease, decide: Decide) -> list[bytes | None] | None:
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
