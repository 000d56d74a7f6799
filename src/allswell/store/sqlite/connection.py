"""How a connection is set up; the only place that opens the database."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from allswell.errors import AllswellError, Bug, Refused, Unavailable
from allswell.store import sql
from allswell.store.sqlite.paths import check

_STATEMENTS = 512
"""Every statement of ours stays prepared."""
_CACHE_KIB = 64 * 1024
_CHECKPOINT_PAGES = 4_000
"""About 16 MB of WAL between checkpoints."""
_WAL_KEPT = 64 * 1024 * 1024
"""A WAL that a long reader made grow is cut back to this many bytes afterwards."""
_WARY_BYTES = 1 << 20
_WARY_STEPS = 10_000, 100
"""How large a value may be, and how often so many steps may be taken, in a database that may be another's."""


def connect(
    database: Path, busy_timeout: int, *, one_thread: bool = True, immutable: bool = False, wary: bool = False
) -> sqlite3.Connection:
    """A connection for one thread, or for one at a time; transactions are begun and ended by hand.

    A `wary` one gives up on a database that was made to fill the memory, or to be read for ever.
    """
    check(database)
    connection = sqlite3.connect(
        f"{database.absolute().as_uri()}?mode=ro&immutable=1" if immutable else database,
        uri=immutable,
        timeout=busy_timeout / 1_000,
        isolation_level=None,
        cached_statements=_STATEMENTS,
        check_same_thread=one_thread,
    )
    if wary:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _WARY_BYTES)
        connection.set_progress_handler(_give_up_after(_WARY_STEPS[1]), _WARY_STEPS[0])
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


def _give_up_after(often: int) -> Callable[[], int]:
    left = iter(range(often))
    return lambda: next(left, None) is None


def connect_writer(database: Path, busy_timeout: int) -> sqlite3.Connection:
    """The connection that writes; the database is made, and put into WAL mode, if need be."""
    connection = connect(database, busy_timeout)
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


def connect_reader(database: Path, busy_timeout: int, *, wary: bool = False) -> sqlite3.Connection:
    """A connection that only reads.

    On a full disk the first process that opens a database in WAL mode cannot make the index of its log. Where there is
    nothing in that log, all is in the file itself, and no other process can write to it either.
    """
    try:
        connection = connect(database, busy_timeout, wary=wary)
    except sqlite3.OperationalError as error:
        log = database.with_name(f"{database.name}-wal")
        if not error.sqlite_errorname.startswith("SQLITE_IOERR_SHM") or (log.exists() and log.stat().st_size):
            raise
        connection = connect(database, busy_timeout, immutable=True, wary=wary)
    connection.execute("PRAGMA query_only = ON")
    return connection


# What SQLite's errors mean to whoever called: a raw `sqlite3.Error` never leaves the store.

_PRIMARY = 0xFF
"""The low byte of an extended result code."""


@contextmanager
def translated(database: Path, busy_timeout: int) -> Iterator[None]:
    """Turn SQLite's errors into ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, database, busy_timeout) from error


def translate(error: sqlite3.Error, database: Path, busy_timeout: int) -> AllswellError:
    """What an error of SQLite's means, whose move it is, and what to do."""
    code = getattr(error, "sqlite_errorcode", None)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    if code == sqlite3.SQLITE_IOERR_SHMSIZE:  # the index of its log finds no room
        code = sqlite3.SQLITE_FULL
    match None if code is None else code & _PRIMARY:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return Unavailable(
                f"{database} stayed locked longer than busy_timeout ({busy_timeout} ms)",
                hint="another program writes to it outside Allswell; `fuser` shows which",
            )
        case sqlite3.SQLITE_FULL:
            return Unavailable(
                f"no room left to write {database}; nothing of this batch was kept",
                hint="free space on its disk; what was acknowledged before is safe",
            )
        case sqlite3.SQLITE_READONLY:
            return Unavailable(
                f"{database} cannot be written: it is read-only",
                hint="look at the owner and mode of the file and its folder, and whether it is mounted read-only",
            )
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return Unavailable(
                f"{database} cannot be opened",
                hint="look at the owner and mode of the file and its folder",
            )
        case sqlite3.SQLITE_IOERR:
            return Unavailable(
                f"the disk failed under {database} ({name}); nothing of this batch was kept",
                hint="look for a full disk, a quota, a limit on file sizes, or errors in the kernel's log",
            )
        case sqlite3.SQLITE_NOTADB:
            return Refused("not_a_database", f"{database} is not an SQLite database", where="store")
        case sqlite3.SQLITE_CORRUPT:
            return Unavailable(
                f"{database} is damaged ({error})", hint="move it away with its -wal file, and restore a backup"
            )
        case _:
            return Bug(f"SQLite would not do what Allswell asked: {name}: {error}")


# Bringing a database up to the schema of this version, or refusing it.
#
# Runs inside one `BEGIN IMMEDIATE` behind the turnstile, so of two processes that open a new store at once one makes
# the tables and the other finds them.

_PACKAGE = "allswell.store.sqlite"
SQL = sql.load(_PACKAGE, "statements.sql")
_MOMENT = 1_000
"""Milliseconds for a look at the id of a store that is being written to."""
_ID = re.compile("[0-9a-f]{32}")
NEWEST = 13
"""The number of the last migration; known without a look at the folder, and held to it by whoever opens a store."""


def upgrade(connection: sqlite3.Connection, database: Path) -> bool:
    """Run the migrations that are missing, and whether the store is new; the caller holds the lock and commits."""
    known = sql.migrations(_PACKAGE)
    newest = len(known)
    if newest != NEWEST:
        raise Bug(f"there are {newest} migrations, but NEWEST is {NEWEST}")
    version = _version(connection, database)
    if version > newest:
        check_writer(connection)
    for number, text in known[version:]:
        for statement in statements(text):
            connection.execute(statement)
        connection.execute(SQL["put_version"], (str(number),))
        connection.execute(SQL["put_oldest_writer"], (str(sql.oldest_writer(known[:number])),))
    if connection.execute(SQL["read_store_id"]).fetchone() is None:
        connection.execute(SQL["put_store_id"], (os.urandom(16).hex(),))
    return version == 0


def check_writer(connection: sqlite3.Connection) -> None:
    """Refuse a store that takes only later versions of Allswell."""
    version, oldest = connection.execute(SQL["read_version"]).fetchone()
    if oldest > NEWEST:
        _, _, database = connection.execute("PRAGMA database_list").fetchone()
        raise sql.newer_schema(database, version, oldest, NEWEST)


def read_store_id(database: Path) -> str | None:
    """The id of the store in a file, which may be another's; None where it has none that we could have given it."""
    try:
        with contextlib.closing(connect_reader(database, _MOMENT, wary=True)) as connection:
            if connection.execute(SQL["find_meta"]).fetchone() != (1,):
                return None
            row = connection.execute(SQL["read_store_id"]).fetchone()
    except (sqlite3.Error, Refused):
        return None
    return None if row is None or _ID.fullmatch(str(row[0])) is None else str(row[0])


def _version(connection: sqlite3.Connection, database: Path) -> int:
    if connection.execute(SQL["find_meta"]).fetchone() == (1,):
        found = connection.execute(SQL["read_version"]).fetchone()
        if found is not None:
            return int(found[0])
    elif connection.execute(SQL["count_tables"]).fetchone() == (0,):
        connection.execute(SQL["create_meta"])
        return 0
    raise Refused("not_a_store", f"{database} is an SQLite database, but not a store of Allswell's", where="store")


def statements(script: str) -> list[str]:
    """A script's statements one by one: `executescript` would commit before it begins."""
    found: list[str] = []
    current = ""
    for line in script.splitlines(keepends=True):
        if not current and (not line.strip() or line.lstrip().startswith("--")):
            continue
        current += line
        if sqlite3.complete_statement(current):
            found.append(current.strip())
            current = ""
    if current:
        raise sqlite3.ProgrammingError(f"a migration ends in the middle of a statement: {current[:60]!r}")
    return found
