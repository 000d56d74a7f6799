"""Who cancelled a statement: PostgreSQL, because its time was up, or somebody.

Both come as SQLSTATE 57014, and the message is in the server's language (`lc_messages`, which an ordinary role cannot
set). But every error also names the place in the server's source that raised it, and the two are raised at different
places. So the first time it matters, a statement is made to time out, and the place that the server then names is kept.
(A lock timeout has a code of its own, 55P03.) A server that names no places is judged by the clock: a statement that
was cancelled before its time was up was cancelled by somebody.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg

from allswell.worker.limit import Limit

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
