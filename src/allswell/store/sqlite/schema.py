"""Bringing a database up to the schema of this version, or refusing it.

Runs inside one `BEGIN IMMEDIATE` behind the turnstile, so of two processes that open a new store at once one makes the
tables and the other finds them.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from allswell.errors import Bug, Refused
from allswell.store import sql

_PACKAGE = "allswell.store.sqlite"
SQL = sql.load(_PACKAGE, "statements.sql")
NEWEST = 8
"""The number of the last migration; known without a look at the folder, and held to it by whoever opens a store."""


def upgrade(connection: sqlite3.Connection, database: Path) -> None:
    """Run the migrations that are missing; the caller holds the write lock and commits."""
    known = sql.migrations(_PACKAGE)
    newest = len(known)
    if newest != NEWEST:
        raise Bug(f"there are {newest} migrations, but NEWEST is {NEWEST}")
    version = _version(connection, database)
    if version > newest:
        raise Refused(
            "newer_schema",
            f"{database} has schema {version}, this version of Allswell knows schemas up to {newest}; "
            "upgrade Allswell here, or open the store with the version that made it",
            where="store",
        )
    for number, text in known[version:]:
        for statement in statements(text):
            connection.execute(statement)
        connection.execute(SQL["put_version"], (str(number),))


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
