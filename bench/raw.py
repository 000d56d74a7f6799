"""The raw drivers' limit: the same work as plain SQL in batches, with nothing checked, fenced or decided.

Each lifecycle is a task inserted, claimed (lease, event), renewed, and completed (event), as hand-written multi-row
statements in four transactions per batch. It has no timers, attempts, growing tokens, idempotence or views: it is what
the database itself can do, not a rival.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Protocol


class Raw(Protocol):
    """One batch of lifecycles on a raw driver."""

    def once(self, ids: list[str]) -> None:
        """Submit, claim, renew and complete these."""
        ...

    def close(self) -> None:
        """Let the database go."""
        ...


class RawSqlite:
    """SQLite in WAL mode; decisions with synchronous=FULL, renewals with NORMAL."""

    def __init__(self, folder: Path) -> None:
        self.db = sqlite3.connect(folder / "raw.db", isolation_level=None)
        self.db.executescript(
            """
            PRAGMA journal_mode = WAL;
            PRAGMA synchronous = FULL;
            CREATE TABLE task (id TEXT PRIMARY KEY, name TEXT, state TEXT, payload TEXT, result TEXT,
                               created_at INT, ended_at INT) WITHOUT ROWID;
            CREATE TABLE ready (task TEXT PRIMARY KEY, lane INT, rank INT) WITHOUT ROWID;
            CREATE INDEX ready_order ON ready (lane, rank, task);
            CREATE TABLE lease (task TEXT PRIMARY KEY, token INT, agent TEXT, deadline INT, renewed_at INT)
                WITHOUT ROWID;
            CREATE TABLE event (id INTEGER PRIMARY KEY, at INT, kind TEXT, task TEXT, data TEXT);
            """
        )

    def once(self, ids: list[str]) -> None:
        """Submit, claim, renew and complete these."""
        db = self.db
        now = time.time_ns() // 1_000_000
        db.execute("BEGIN IMMEDIATE")
        db.executemany("INSERT INTO task VALUES (?, 'x', 'open', 'null', NULL, ?, NULL)", [(i, now) for i in ids])
        db.executemany("INSERT INTO ready VALUES (?, 1, ?)", [(i, now) for i in ids])
        db.execute("COMMIT")
        db.execute("BEGIN IMMEDIATE")
        pick = "SELECT task FROM ready WHERE lane = 1 ORDER BY rank, task LIMIT ?"
        got = [row[0] for row in db.execute(pick, (len(ids),))]
        db.executemany("DELETE FROM ready WHERE task = ?", [(i,) for i in got])
        db.executemany("INSERT INTO lease VALUES (?, 1, 'a', ?, ?)", [(i, now + 900_000, now) for i in got])
        self._events("task_claimed", got, now)
        db.execute("COMMIT")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("BEGIN IMMEDIATE")
        db.executemany("UPDATE lease SET renewed_at = ? WHERE task = ? AND token = 1", [(now, i) for i in got])
        db.execute("COMMIT")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("BEGIN IMMEDIATE")
        done = "UPDATE task SET state = 'done', result = 'null', ended_at = ? WHERE id = ?"
        db.executemany(done, [(now, i) for i in got])
        db.executemany("DELETE FROM lease WHERE task = ? AND token = 1", [(i,) for i in got])
        self._events("task_completed", got, now)
        db.execute("COMMIT")

    def _events(self, kind: str, tasks: list[str], now: int) -> None:
        rows = [(now, kind, task) for task in tasks]
        self.db.executemany("INSERT INTO event (at, kind, task, data) VALUES (?, ?, ?, '{}')", rows)

    def close(self) -> None:
        """Let the file go."""
        self.db.close()


class RawPostgres:
    """PostgreSQL through psycopg, arrays unnested, prepared; renewals without waiting for the disk."""

    def __init__(self, url: str) -> None:
        import psycopg

        self.db = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        # Without statistics the planner would scan the whole task table; raw gets its best plan.
        self.db.execute("SET enable_seqscan = off")
        self.db.execute(
            """
            CREATE SCHEMA raw;
            CREATE TABLE raw.task (id text PRIMARY KEY, name text, state text, payload text, result text,
                                   created_at bigint, ended_at bigint);
            CREATE TABLE raw.ready (task text PRIMARY KEY, lane int, rank bigint);
            CREATE INDEX ready_order ON raw.ready (lane, rank, task);
            CREATE TABLE raw.lease (task text PRIMARY KEY, token bigint, agent text, deadline bigint,
                                    renewed_at bigint) WITH (fillfactor = 50);
            CREATE TABLE raw.event (id bigserial PRIMARY KEY, at bigint, kind text, task text, data text);
            """,
            prepare=False,
        )

    def once(self, ids: list[str]) -> None:
        """Submit, claim, renew and complete these."""
        db = self.db
        now = time.time_ns() // 1_000_000
        with db.transaction():
            db.execute(
                "INSERT INTO raw.task SELECT i, 'x', 'open', 'null', NULL, %s, NULL FROM unnest(%s::text[]) i",
                (now, ids),
            )
            db.execute("INSERT INTO raw.ready SELECT i, 1, %s FROM unnest(%s::text[]) i", (now, ids))
        with db.transaction():
            pick = "SELECT task FROM raw.ready WHERE lane = 1 ORDER BY rank, task LIMIT %s FOR UPDATE SKIP LOCKED"
            got = [row[0] for row in db.execute(pick, (len(ids),))]
            db.execute("DELETE FROM raw.ready WHERE task = ANY(%s)", (got,))
            db.execute(
                "INSERT INTO raw.lease SELECT i, 1, 'a', %s, %s FROM unnest(%s::text[]) i", (now + 900_000, now, got)
            )
            self._events("task_claimed", got, now)
        with db.transaction():
            db.execute("SET LOCAL synchronous_commit = off")
            db.execute("UPDATE raw.lease SET renewed_at = %s WHERE task = ANY(%s) AND token = 1", (now, got))
        with db.transaction():
            db.execute(
                "UPDATE raw.task SET state = 'done', result = 'null', ended_at = %s WHERE id = ANY(%s)", (now, got)
            )
            db.execute("DELETE FROM raw.lease WHERE task = ANY(%s) AND token = 1", (got,))
            self._events("task_completed", got, now)

    def _events(self, kind: str, tasks: list[str], now: int) -> None:
        self.db.execute(
            "INSERT INTO raw.event (at, kind, task, data) SELECT %s, %s, i, '{}' FROM unnest(%s::text[]) i",
            (now, kind, tasks),
        )

    def close(self) -> None:
        """Let the connection go."""
        self.db.close()
