"""The raw limit: hand-written SQL that writes the very rows that a lifecycle of ours writes, and decides nothing.

A coalescing writer: one transaction per batch and step, every table written once with many rows, into the tables of a
store that our own migrations made, under the same settings. What it leaves out is what we are for: no lock is taken,
nothing is read, checked, fenced or refused, every value is a constant. (`raw.py` is an older yardstick with smaller
tables and fewer rows; `make bench` compares with that one.)
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from typing import Protocol

import psycopg

from allswell.store.sql import load

_POSTGRES = load(__name__, "writer_postgres.sql")
_SQLITE = load(__name__, "writer_sqlite.sql")


class Writer(Protocol):
    """The four steps of a lifecycle, each for many tasks in one transaction."""

    def submit(self, ids: Sequence[str]) -> None:
        """Insert tasks that can be claimed."""
        ...

    def claim(self, count: int) -> list[str]:
        """Take the best of them: leases, timers, events."""
        ...

    def beat(self, ids: Sequence[str]) -> None:
        """Check in on their leases, without waiting for the disk."""
        ...

    def complete(self, ids: Sequence[str]) -> None:
        """End them: tasks, leases, timers, attempts, events."""
        ...

    def close(self) -> None:
        """Let the database go."""
        ...


class PostgresWriter:
    """One statement per step: the ids go in once, the server does the rest."""

    def __init__(self, url: str) -> None:
        """The store at this URL must have been made before."""
        self._db = psycopg.connect(url, autocommit=True, prepare_threshold=0, cursor_factory=psycopg.RawCursor)
        # The plans of our own units of work: by index, whatever the statistics say.
        self._db.execute("SET jit = off")
        self._db.execute("SET enable_seqscan = off")
        self._db.execute("SET enable_hashjoin = off")
        self._db.execute("SET enable_mergejoin = off")

    def submit(self, ids: Sequence[str]) -> None:
        """Insert tasks that can be claimed."""
        self._db.execute(_POSTGRES["submit"], (list(ids), _now()))

    def claim(self, count: int) -> list[str]:
        """Take the best of them: leases, timers, events."""
        return [row[0] for row in self._db.execute(_POSTGRES["claim"], (count, _now()))]

    def beat(self, ids: Sequence[str]) -> None:
        """Check in on their leases, without waiting for the disk."""
        with self._db.transaction():
            self._db.execute("SET LOCAL synchronous_commit = off")
            self._db.execute(_POSTGRES["beat"], (list(ids), _now()))

    def complete(self, ids: Sequence[str]) -> None:
        """End them: tasks, leases, timers, attempts, events."""
        self._db.execute(_POSTGRES["complete"], (list(ids), _now()))

    def close(self) -> None:
        """Let the connection go."""
        self._db.close()


class SqliteWriter:
    """Many-row statements over one JSON list of ids; decisions with synchronous=FULL, check-ins with NORMAL."""

    def __init__(self, path: str) -> None:
        """The store in this file must have been made before."""
        self._db = db = sqlite3.connect(path, isolation_level=None, cached_statements=512)
        for pragma in ("cache_size = -65536", "temp_store = MEMORY", "wal_autocheckpoint = 4000", "synchronous = FULL"):
            db.execute(f"PRAGMA {pragma}").fetchall()

    def submit(self, ids: Sequence[str]) -> None:
        """Insert tasks that can be claimed."""
        self._step("submit", ids)

    def claim(self, count: int) -> list[str]:
        """Take the best of them: leases, timers, events."""
        ids = [row[0] for row in self._db.execute(_SQLITE["pick"], (count,))]
        self._step("claim", ids)
        return ids

    def beat(self, ids: Sequence[str]) -> None:
        """Check in on their leases, without waiting for the disk."""
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._step("beat", ids)
        self._db.execute("PRAGMA synchronous = FULL")

    def complete(self, ids: Sequence[str]) -> None:
        """End them: tasks, leases, timers, attempts, events."""
        self._step("complete", ids)

    def close(self) -> None:
        """Let the file go."""
        self._db.close()

    def _step(self, name: str, ids: Sequence[str]) -> None:
        given = {"ids": json.dumps(ids), "now": _now()}
        self._db.execute("BEGIN IMMEDIATE")
        for statement, query in _SQLITE.items():
            if statement.startswith(name):
                self._db.execute(query, given)
        self._db.execute("COMMIT")


def _now() -> int:
    return time.time_ns() // 1_000_000
