"""The connection that a handler is given: every statement is limited, and only the worker commits.

**Limited.** Before a statement, `statement_timeout` is set for the transaction, if it is not set yet or if less than
that is left of the message's visibility. The first time it travels with the BEGIN; later with the statement, in one
round trip (a pipeline). Only what cannot stand in a pipeline (several statements in one text, COPY, a stream) costs one
more.

**The worker commits.** A handler's writes and the end of its message are one transaction, whose last statement checks
the message's token. So `commit`, `rollback` and autocommit are refused inside a handler; a
`with connection.transaction()` is a savepoint there.

An async handler is given an async view of the same connection (`AsyncHandlerConnection`).
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Self, cast

import psycopg
from psycopg.abc import Params, Query, QueryNoTemplate
from psycopg.copy import AsyncWriter, Writer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGconn
from psycopg.rows import RowFactory, tuple_row
from psycopg.sql import Composable

from allswell.domain.worker.limits import Layers, statement_cap
from allswell.domain.worker.message import too_slow
from allswell.worker.errors import OutOfTime, sentence

# How long the next statement of a handler may take: its own limit, or what is left of the message's visibility.


class Limit:
    """The limit on the statements of one handling of one message."""

    def __init__(self, layers: Layers, ends: float) -> None:
        self._layers = layers
        self._began = time.monotonic()
        self.ends = ends
        """When the message becomes visible to others, on the monotonic clock; moves when it is hidden for longer."""
        self.in_force: int | None = None
        """What `statement_timeout` was last set to in this transaction; None: no statement was made yet."""
        self.asked = 0.0
        """When the last statement was begun."""

    def begin_anew(self) -> None:
        """A whole visibility more, for the worker's own last statement: there the token is the fence, not the clock."""
        self.ends = time.monotonic() + self._layers.visibility_timeout
        if self.in_force is not None and self.in_force < self._layers.statement_timeout:
            self.in_force = None

    def next_cap(self) -> int | None:
        """What `statement_timeout` must be set to before the next statement; None: what is set still holds."""
        now = time.monotonic()
        cap = statement_cap(self._layers, self.ends - now)
        if cap < 1:  # never 0, which PostgreSQL takes for "no limit"
            raise OutOfTime(too_slow(now - self._began, self._layers.visibility_timeout))
        self.asked = now
        if self.in_force is not None and cap >= self.in_force:
            return None
        self.in_force = cap
        return cap


CHECK_SECONDS = 5.0
"""How long a connection may take to show that it lives."""
TRUST_SECONDS = 1.0
"""A connection that was used so recently is taken to live."""
RETRY_SECONDS = 0.5
"""How soon after an attempt to connect that failed the next one is made."""
SET_CAP = b"SELECT pg_catalog.set_config('statement_timeout', %s, true)"
NOT_YOURS = "{} is not for handlers: the worker ends a handler's transaction, together with its message"


class ServerReachability:
    """Whether a server can be reached, as the attempts to connect to it tell."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._failing_since: float | None = None
        self.error = ""
        """Why the last attempt failed; empty where it did not."""
        self.over = threading.Event()
        """Set when no connection is wanted any more."""

    def again(self, error: psycopg.OperationalError) -> bool:
        """An attempt failed: wait, and say whether to make another. The pool's own pauses grow to half a minute."""
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        self.error = sentence(error)
        if now - self._failing_since < self._seconds:
            return not self.over.wait(RETRY_SECONDS)
        self._failing_since = None  # the pool hears of it, and tries anew
        return False

    def reached(self) -> None:
        """An attempt succeeded."""
        self._failing_since, self.error = None, ""


class HandlerConnection(psycopg.Connection[Any]):
    """A connection of the worker's pool; while `limit` is set, a handler has it."""

    def __init__(self, pgconn: PGconn, row_factory: RowFactory[Any] = tuple_row) -> None:
        super().__init__(pgconn, row_factory)
        self.cursor_factory = LimitedCursor
        self.server_cursor_factory = LimitedServerCursor
        self.limit: Limit | None = None
        self.made = time.monotonic()
        self.used = self.made
        """When it last was known to live."""
        self.taken = self.made
        """When it was last taken from the pool."""

    @classmethod
    def connect(  # type: ignore[override]  # what the pool calls it with
        cls,
        conninfo: str = "",
        *,
        reaching: ServerReachability | None = None,
        **options: Any,  # noqa: ANN401 - psycopg's
    ) -> Self:
        """Connect; where the server is away, again and again, so that the worker is back as soon as it is."""
        while True:
            try:
                connection = super().connect(conninfo, **options)
            except psycopg.OperationalError as error:
                if reaching is None or not reaching.again(error):
                    raise
            else:
                if reaching is not None:
                    reaching.reached()
                return connection

    # --- what a handler does with it ----------------------------------------------------------------------------------

    def next_cap(self) -> int | None:
        """What the next statement's limit must be set to; None: nothing is to be set."""
        return None if self.limit is None else self.limit.next_cap()

    def set_cap(self, cap: int) -> None:
        """Set the limit, for this transaction."""
        if not self.begin_with(cap):
            psycopg.Cursor(self).execute(b"SET LOCAL statement_timeout = %d" % cap)

    def begin_with(self, cap: int) -> bool:
        """Begin a transaction together with its limit, in one message to the server; whether it was to be begun.

        A pipeline does that and the first statement in one, and takes psycopg longer than all else that a small
        handler does (bench/worker.py).
        """
        with self.lock:
            if not self.idle or self.pgconn.pipeline_status != PipelineStatus.OFF:
                return False
            if any(one is not None for one in (self.isolation_level, self.read_only, self.deferrable)):
                return False  # psycopg words what it is to begin with
            self.send(b"BEGIN; SET LOCAL statement_timeout = %d" % cap)
        return True

    def send(self, text: bytes) -> None:
        """Have the server do these statements, whatever transaction is open; the caller has the lock."""
        done = self.pgconn.exec_(text)
        if done.status == ExecStatus.COMMAND_OK:
            return
        if self.pgconn.status == ConnStatus.BAD:
            raise psycopg.OperationalError(done.get_error_message() or self.pgconn.get_error_message())
        raise error_from_result(done)

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
        if connection.begin_with(cap):
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


# The connection that an async handler is given: an async view of one that the worker holds.
#
# Two psycopg objects stand over one connection of libpq, and only one of them is used at a time: the async one while
# the handler runs, the other before and after. So there is one pool, one reader and one way to end a message for both
# kinds of handlers. The rules are those of `connection`.


class AsyncHandlerConnection(psycopg.AsyncConnection[Any]):
    """What an async handler speaks to the database with."""

    def __init__(self, held: HandlerConnection, limit: Limit) -> None:
        super().__init__(held.pgconn)
        self.limit: Limit | None = limit
        """None once its handler has ended: then the connection is somebody else's."""
        self.prepare_threshold = held.prepare_threshold
        self.cursor_factory = AsyncLimitedCursor
        self.server_cursor_factory = AsyncLimitedServerCursor

    def __del__(self, *_: object) -> None:
        """Complain of nothing: the connection behind this view is closed by whoever holds it."""

    def next_cap(self) -> int | None:
        """What the next statement's limit must be set to; None: what is set still holds."""
        if self.limit is None:
            raise psycopg.InterfaceError(TOO_LATE)
        return self.limit.next_cap()

    async def set_cap(self, cap: int) -> None:
        """Set the limit, for this transaction."""
        await psycopg.AsyncCursor(self).execute(b"SET LOCAL statement_timeout = %d" % cap)

    async def limit_next(self) -> None:
        """Set the limit by a statement of its own, if it must be."""
        cap = self.next_cap()
        if cap is not None:
            await self.set_cap(cap)

    @asynccontextmanager
    async def transaction(
        self,
        savepoint_name: str | None = None,
        force_rollback: bool = False,  # noqa: FBT001, FBT002 - psycopg's signature
    ) -> AsyncIterator[psycopg.AsyncTransaction]:
        """A savepoint: the transaction around it is the worker's."""
        await self.limit_next()
        async with super().transaction(savepoint_name, force_rollback) as transaction:
            yield transaction

    async def commit(self) -> None:
        """Not for handlers."""
        raise psycopg.ProgrammingError(NOT_YOURS.format("commit()"))

    async def rollback(self) -> None:
        """Not for handlers."""
        raise psycopg.ProgrammingError(NOT_YOURS.format("rollback()"))

    async def set_autocommit(self, value: bool) -> None:  # noqa: ARG002, FBT001 - psycopg's signature
        """Not for handlers."""
        raise psycopg.ProgrammingError(NOT_YOURS.format("autocommit"))


TOO_LATE = "the handler has ended, and its connection with it: a handler waits for the tasks that it starts"


class AsyncLimitedCursor(psycopg.AsyncCursor[Any]):
    """A cursor whose statements end before the message shows again."""

    async def execute(
        self, query: Query, params: Params | None = None, *, prepare: bool | None = None, binary: bool | None = None
    ) -> Self:
        """Run a statement within its limit."""
        connection = cast("AsyncHandlerConnection", self.connection)
        cap = connection.next_cap()
        if cap is None:
            return await super().execute(cast("QueryNoTemplate", query), params, prepare=prepare, binary=binary)
        if not alone(query, params) or connection.pgconn.pipeline_status != PipelineStatus.OFF:
            await connection.set_cap(cap)
            return await super().execute(cast("QueryNoTemplate", query), params, prepare=prepare, binary=binary)
        async with connection.pipeline():
            await connection.set_cap(cap)
            await super().execute(cast("QueryNoTemplate", query), params, prepare=prepare, binary=binary)
        return self

    async def executemany(self, query: Query, params_seq: Iterable[Params], *, returning: bool = False) -> None:
        """Run a statement for each set of parameters; the limit is for each."""
        await cast("AsyncHandlerConnection", self.connection).limit_next()
        await super().executemany(query, params_seq, returning=returning)

    async def stream(
        self, query: Query, params: Params | None = None, *, binary: bool | None = None, size: int = 1
    ) -> AsyncIterator[Any]:
        """Run a statement and give its rows as they come."""
        await cast("AsyncHandlerConnection", self.connection).limit_next()
        async for row in super().stream(query, params, binary=binary, size=size):
            yield row

    @asynccontextmanager
    async def copy(
        self, statement: Query, params: Params | None = None, *, writer: AsyncWriter | None = None
    ) -> AsyncIterator[psycopg.AsyncCopy]:
        """Copy within the limit."""
        await cast("AsyncHandlerConnection", self.connection).limit_next()
        async with super().copy(statement, params, writer=writer) as copy:
            yield copy


class AsyncLimitedServerCursor(psycopg.AsyncServerCursor[Any]):
    """A cursor on the server: each portion that is fetched is a statement with its limit."""

    async def execute(
        self, query: Query, params: Params | None = None, *, binary: bool | None = None, **_: object
    ) -> Self:
        """Declare it."""
        await self._limit_next()
        return await super().execute(query, params, binary=binary)

    async def fetchone(self) -> Any:  # noqa: ANN401 - whatever the row factory makes
        """One row."""
        await self._limit_next()
        return await super().fetchone()

    async def fetchmany(self, size: int = 0) -> list[Any]:
        """Some rows."""
        await self._limit_next()
        return await super().fetchmany(size)

    async def fetchall(self) -> list[Any]:
        """The rest of the rows."""
        await self._limit_next()
        return await super().fetchall()

    async def __aiter__(self) -> AsyncIterator[Any]:  # type: ignore[override]
        """All rows, a portion at a time."""
        while rows := await self.fetchmany(self.itersize):
            for row in rows:
                yield row

    async def scroll(self, value: int, mode: str = "relative") -> None:
        """Move on without rows."""
        await self._limit_next()
        await super().scroll(value, mode)

    async def _limit_next(self) -> None:
        await cast("AsyncHandlerConnection", self.connection).limit_next()


# Who cancelled a statement: PostgreSQL, because its time was up, or somebody.
#
# Both come as SQLSTATE 57014, and the message is in the server's language (`lc_messages`, which an ordinary role cannot
# set). But every error also names the place in the server's source that raised it, and the two are raised at different
# places. So the first time it matters, a statement is made to time out, and the place that the server then names is
# kept.
# (A lock timeout has a code of its own, 55P03.) A server that names no places is judged by the clock: a statement that
# was cancelled before its time was up was cancelled by somebody.

Place = tuple[str | None, str | None]
_PROBE = (
    b"SELECT pg_catalog.set_config('statement_timeout', '1', true)",
    b"SELECT pg_catalog.pg_sleep(5)",
)


class Cancellations:
    """What this process knows of where servers say that a statement timed out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[int, Place] = {}

    def by_timeout(
        self, error: psycopg.errors.QueryCanceled, connection: psycopg.Connection[Any], limit: Limit
    ) -> bool:
        """Whether it was the limit on the statement; the connection is idle, and is used to find out."""
        place = _place(error)
        waited = time.monotonic() - limit.asked
        if place[1] is None or connection.closed:
            return limit.in_force is not None and waited * 1_000 >= limit.in_force
        version = connection.info.server_version
        with self._lock:
            known = self._places.get(version)
            if known is None:
                known = self._places[version] = _timed_out(connection)
        return place == known


def _timed_out(connection: psycopg.Connection[Any]) -> Place:
    try:
        for statement in _PROBE:
            psycopg.Cursor(connection).execute(statement)
    except psycopg.errors.QueryCanceled as error:
        return _place(error)
    finally:
        connection.rollback()
    return (None, None)


def _place(error: psycopg.Error) -> Place:
    return (error.diag.source_function, error.diag.source_line)
