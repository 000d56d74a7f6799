"""What SQLite's errors mean to whoever called: a raw `sqlite3.Error` never leaves the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from allswell.errors import AllswellError, Bug, Refused, Unavailable

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
