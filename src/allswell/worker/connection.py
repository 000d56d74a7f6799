"""The connection that a handler is given: every statement is limited, and only the worker commits.

**Limited.** Before a statement, `statement_timeout` is set for the transaction, if it is not set yet or if less than
that is left of the message's visibility. The setting travels with the statement, in one round trip (a pipeline). Only
what cannot stand in a pipeline (several statements in one text, COPY, a stream) costs one more.

**The worker commits.** A handler's writes and the end of its message are one transaction, whose last statement checks
the message's token. So `commit`, `rollback` and autocommit are refused inside a handler; a
`with connection.transaction()` is a savepoint there.

An async handler is given an async view of the same connection (`async_connection`).
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self, cast

import psycopg
from psycopg.abc import Params, Query
from psycopg.copy import Writer
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGconn
from psycopg.rows import RowFactory, tuple_row
from psycopg.sql import Composable

from allswell.worker.limit import Limit

if TYPE_CHECKING:
    from psycopg.abc import QueryNoTemplate

CHECK_SECONDS = 5.0
"""How long a connection may take to show that it lives."""
TRUST_SECONDS = 1.0
"""A connection that was used so recently is taken to live."""
SET_CAP = b"SELECT pg_catalog.set_config('statement_timeout', %s, true)"
NOT_YOURS = "{} is not for handlers: the worker ends a handler's transaction, together with its message"


class HandlerConnection(psycopg.Connection[Any]):
    """A connection of the worker's pool; while `limit` is set, a handler has it."""

    def __init__(self, pgconn: PGconn, row_factory: RowFactory[Any] = tuple_row) -> None:
        super().__init__(pgconn, row_factory)
        self.cursor_factory = LimitedCursor
        self.server_cursor_factory = LimitedServerCursor
        self.limit: Limit | None = None
        self.used = time.monotonic()
        """When it last was known to live."""
        self.taken = self.used
        """When it was last taken from the pool."""

    # --- what a handler does with it ----------------------------------------------------------------------------------

    def next_cap(self) -> int | None:
        """What the next statement's limit must be set to; None: nothing is to be set."""
        return None if self.limit is None else self.limit.next_cap()

    def set_cap(self, cap: int) -> None:
        """Set the limit, for this transaction."""
        psycopg.Cursor(self).execute(SET_CAP, (str(cap),))

    def limit_next(self) -> None:
        """Set the limit by a statement of its own, if it must be."""
        cap = self.next_cap()
        if cap is not None:
            self.set_cap(cap)

    @contextmanager
    def transaction(
        self,
        savepoint_name: str | None = None,
        force_rollback: bool = False,  # noqa: FBT001, FBT002 - psycopg's signature
    ) -> Iterator[psycopg.Transaction]:
        """A savepoint inside a handler: the transaction around it is the worker's."""
        self.limit_next()
        with super().transaction(savepoint_name, force_rollback) as transaction:
            yield transaction

    def commit(self) -> None:
        """Commit; not for handlers."""
        self._refuse("commit()")
        super().commit()

    def rollback(self) -> None:
        """Roll back; not for handlers."""
        self._refuse("rollback()")
        super().rollback()

    def set_autocommit(self, value: bool) -> None:  # noqa: FBT001 - psycopg's signature
        """Commit by itself, or not; not for handlers."""
        self._refuse("autocommit")
        super().set_autocommit(value)

    def _refuse(self, what: str) -> None:
        if self.limit is not None:
            raise psycopg.ProgrammingError(NOT_YOURS.format(what))

    # --- what the worker does with it ---------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether no transaction is open."""
        return self.pgconn.transaction_status == TransactionStatus.IDLE

    def clean(self) -> None:
        """Take back what a handler may have set on it; what it left open is rolled back."""
        self.limit = None
        self.row_factory = tuple_row
        self.cursor_factory, self.server_cursor_factory = LimitedCursor, LimitedServerCursor
        if self.closed:
            return
        if not self.idle:
            super().rollback()
        for setting in ("isolation_level", "read_only", "deferrable"):
            if getattr(self, setting) is not None:
                setattr(self, setting, None)
        self.used = time.monotonic()

    def cut(self) -> None:
        """End it under the hands of whoever uses it, from any thread; the server rolls back and frees its locks.

        Only the socket is shut. Closing the connection here would free memory that the other thread works with.
        """
        with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(self.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)


def check(connection: HandlerConnection) -> None:
    """Whether a connection lives, answered within `CHECK_SECONDS`: what the pool asks before it gives one out."""
    if time.monotonic() - connection.used < TRUST_SECONDS:
        return
    line = connection.pgconn
    line.send_query(b"")
    give_up = time.monotonic() + CHECK_SECONDS
    while True:
        line.flush()
        line.consume_input()
        if not line.is_busy():
            if line.get_result() is None:
                break
            continue
        poll = select.poll()
        poll.register(line.socket, select.POLLIN)
        if not poll.poll(max(give_up - time.monotonic(), 0.0) * 1_000):
            connection.cut()
            connection.close()
            raise psycopg.OperationalError(f"the connection gave no sign of life within {CHECK_SECONDS:g} s")
    connection.used = time.monotonic()


class LimitedCursor(psycopg.Cursor[Any]):
    """A cursor whose statements end before the message shows again."""

    def execute(
        self, query: Query, params: Params | None = None, *, prepare: bool | None = None, binary: bool | None = None
    ) -> Self:
        """Run a statement within its limit."""
        connection = _of(self)
        cap = connection.next_cap()
        if cap is None:
            return super().execute(cast("QueryNoTemplate", query), params, prepare=prepare, binary=binary)
        if not alone(query, params) or connection.pgconn.pipeline_status != PipelineStatus.OFF:
            connection.set_cap(cap)
            return super().execute(cast("QueryNoTemplate", query), params, prepare=prepare, binary=binary)
        with connection.pipeline():
            connection.set_cap(cap)
            super().execute(cast("QueryNoTemplate", query), params, prepare=prepare, binary=binary)
        return self

    def executemany(self, query: Query, params_seq: Iterable[Params], *, returning: bool = False) -> None:
        """Run a statement for each set of parameters; the limit is for each."""
        _of(self).limit_next()
        super().executemany(query, params_seq, returning=returning)

    def stream(
        self, query: Query, params: Params | None = None, *, binary: bool | None = None, size: int = 1
    ) -> Iterator[Any]:
        """Run a statement and give its rows as they come."""
        _of(self).limit_next()
        return super().stream(query, params, binary=binary, size=size)

    @contextmanager
    def copy(
        self, statement: Query, params: Params | None = None, *, writer: Writer | None = None
    ) -> Iterator[psycopg.Copy]:
        """Copy within the limit."""
        _of(self).limit_next()
        with super().copy(statement, params, writer=writer) as copy:
            yield copy


class LimitedServerCursor(psycopg.ServerCursor[Any]):
    """A cursor on the server: each portion that is fetched is a statement with its limit."""

    def execute(self, query: Query, params: Params | None = None, *, binary: bool | None = None, **_: object) -> Self:
        """Declare it."""
        _of(self).limit_next()
        return super().execute(query, params, binary=binary)

    def fetchone(self) -> Any:  # noqa: ANN401 - whatever the row factory makes
        """One row."""
        _of(self).limit_next()
        return super().fetchone()

    def fetchmany(self, size: int = 0) -> list[Any]:
        """Some rows."""
        _of(self).limit_next()
        return super().fetchmany(size)

    def fetchall(self) -> list[Any]:
        """The rest of the rows."""
        _of(self).limit_next()
        return super().fetchall()

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        """All rows, a portion at a time."""
        while rows := self.fetchmany(self.itersize):
            yield from rows

    def scroll(self, value: int, mode: str = "relative") -> None:
        """Move on without rows."""
        _of(self).limit_next()
        super().scroll(value, mode)


def alone(query: Query, params: Params | None) -> bool:
    """Whether a text is certainly one statement: only that can stand in a pipeline."""
    if params is not None or not isinstance(query, str | bytes | Composable):
        return True
    text = query.as_bytes() if isinstance(query, Composable) else query.encode() if isinstance(query, str) else query
    return b";" not in text.rstrip(b"; \t\r\n")


def _of(cursor: psycopg.Cursor[Any]) -> HandlerConnection:
    return cast("HandlerConnection", cursor.connection)
