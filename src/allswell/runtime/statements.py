"""Deadlines inside PostgreSQL: the server itself ends a statement, or a wait for a lock, that outlasts its scope.

    with connection.transaction():
        limit_statements(connection)        # statement_timeout and lock_timeout, for this transaction only
        connection.execute(…)

What is left is handed over once; a statement that comes much later in the same transaction deserves another call.
"""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING, TypeVar

from allswell.domain.duration import Duration
from allswell.domain.scopes import positive
from allswell.errors import Refused
from allswell.store import sql
from allswell.timing.scopes import current

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

    Row = TypeVar("Row")

_SQL = sql.load("allswell.runtime", "statements.sql")["limit_statements"]


def limit_statements(connection: Connection[Row], timeout: float | Duration | None = None) -> int | None:
    """Bound what follows in this transaction by the scope in effect (and by `timeout`); returns the milliseconds."""
    limit = _limit(connection, timeout)
    if limit is not None:
        connection.execute(_SQL, (limit,))
    return limit


async def limit_statements_async(
    connection: AsyncConnection[Row], timeout: float | Duration | None = None
) -> int | None:
    """As `limit_statements`, for an async connection."""
    limit = _limit(connection, timeout)
    if limit is not None:
        await connection.execute(_SQL, (limit,))
    return limit


def _limit(connection: Connection[Row] | AsyncConnection[Row], timeout: float | Duration | None) -> int | None:
    from psycopg.pq import TransactionStatus

    scope = current()
    left = None if scope is None else scope.remaining_ms()
    own = None if timeout is None else positive(timeout, where="statement_timeout")
    if scope is not None and left is not None and left < 1:
        raise scope.timed_out()  # and never 0, which PostgreSQL reads as "no limit"
    least = min((limit for limit in (left, own) if limit is not None), default=None)
    if least is None:
        return None
    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        text = "limits hold for a transaction, and this connection commits by itself; use connection.transaction()"
        raise Refused("no_transaction", text, where="connection")
    return max(floor(least), 1)
