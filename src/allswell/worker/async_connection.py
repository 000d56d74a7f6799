"""The connection that an async handler is given: an async view of one that the worker holds.

Two psycopg objects stand over one connection of libpq, and only one of them is used at a time: the async one while the
handler runs, the other before and after. So there is one pool, one reader and one way to end a message for both kinds
of handlers. The rules are those of `connection`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, cast

import psycopg
from psycopg.abc import Params, Query
from psycopg.copy import AsyncWriter
from psycopg.pq import PipelineStatus

from allswell.worker.connection import NOT_YOURS, SET_CAP, HandlerConnection, alone
from allswell.worker.limit import Limit

if TYPE_CHECKING:
    from psycopg.abc import QueryNoTemplate


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
        await psycopg.AsyncCursor(self).execute(SET_CAP, (str(cap),))

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
