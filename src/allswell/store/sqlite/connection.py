"""How a connection is set up; the only place that opens the database."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from allswell.store.sqlite.place import check

_STATEMENTS = 512
"""Every statement of ours stays prepared."""
_CACHE_KIB = 64 * 1024
_CHECKPOINT_PAGES = 4_000
"""About 16 MB of WAL between checkpoints."""
_WAL_KEPT = 64 * 1024 * 1024
"""A WAL that a long reader made grow is cut back to this many bytes afterwards."""


def connect(database: Path, busy_timeout: int, *, one_thread: bool = True) -> sqlite3.Connection:
    """A connection for one thread, or for one at a time; transactions are begun and ended by hand."""
    check(database)
    connection = sqlite3.connect(
        database,
        timeout=busy_timeout / 1_000,
        isolation_level=None,
        cached_statements=_STATEMENTS,
        check_same_thread=one_thread,
    )
    try:
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute("PRAGMA temp_store = MEMORY")
        # What stands in a database that somebody else has made must not call functions of ours.
        connection.execute("PRAGMA trusted_schema = OFF").fetchall()
        # Some builds overwrite what is deleted with zeros; rows come and go here all the time.
        connection.execute("PRAGMA secure_delete = OFF").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def connect_writer(database: Path, busy_timeout: int, *, one_thread: bool = True) -> sqlite3.Connection:
    """The connection that writes; the database is made, and put into WAL mode, if need be."""
    connection = connect(database, busy_timeout, one_thread=one_thread)
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}").fetchall()
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_KEPT}").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def connect_recorder(database: Path) -> sqlite3.Connection:
    """The connection that records steps, for one thread at a time: it waits for no lock and makes no checkpoints."""
    connection = connect(database, 0, one_thread=False)
    try:
        connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reader(database: Path, busy_timeout: int) -> sqlite3.Connection:
    """A connection that only reads."""
    connection = connect(database, busy_timeout)
    connection.execute("PRAGMA query_only = ON")
    return connection
