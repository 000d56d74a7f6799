"""Bringing the schema up to date: numbered migrations, each applied once, by one process at a time."""

from __future__ import annotations

import psycopg

from allswell.errors import Refused
from allswell.store import sql
from allswell.store.postgres.failure import explain
from allswell.store.postgres.session import SQL
from allswell.store.postgres.settings import Settings
from allswell.store.postgres.talk import Connection

OLDEST_SERVER = 14
MIGRATIONS = sql.migrations("allswell.store.postgres")
VERSION = len(MIGRATIONS)


def bring_up_to_date(connection: Connection, settings: Settings, place: str) -> None:
    """Make or update the tables; a role that may not do so can still open a schema that is up to date."""
    try:
        if _check(connection, place) < VERSION:
            _migrate(connection, settings, place)
        connection.execute(SQL["forget_marks"])
    except psycopg.errors.InsufficientPrivilege as error:
        connection.close()
        said = error.diag.message_primary
        raise Refused(
            "no_permission",
            f"the schema `allswell` cannot be made or used in {place}: {said}; "
            "GRANT CREATE ON DATABASE … TO this role, or let its owner open the store once",
            where="store",
        ) from None
    except psycopg.Error as error:
        connection.close()
        raise explain(error, place) from error


def _check(connection: Connection, place: str) -> int:
    """The schema's version, after a look at the server."""
    number, encoding, made = connection.execute(SQL["about_server"]).fetchall()[0]
    if number // 10_000 < OLDEST_SERVER:
        raise Refused(
            "old_server",
            f"PostgreSQL at {place} is version {number // 10_000}; Allswell needs {OLDEST_SERVER} or newer",
            where="store",
        )
    if encoding != "UTF8":
        raise Refused("bad_encoding", f"the database {place} is encoded in {encoding}; it must be UTF8", where="store")
    version = _version(connection) if made else 0
    if version > VERSION:
        raise Refused(
            "newer_schema",
            f"the watch in {place} has schema version {version}, this Allswell knows {VERSION}: upgrade Allswell",
            where="store",
        )
    return version


def _version(connection: Connection) -> int:
    rows = connection.execute(SQL["schema_version"]).fetchall()
    return int(rows[0][0]) if rows else 0


def _migrate(connection: Connection, settings: Settings, place: str) -> None:
    bound = str(round(settings.migrate_timeout * 1000))
    with connection.transaction():
        # No lock_timeout: the other migrator is waited for, as long as this whole thing may take.
        connection.execute(SQL["set_up_view"], (bound, "0", bound))
        connection.execute(SQL["lock_schema"])
        before = _check(connection, place)  # again, now that nobody else can change it
        if before == 0:
            connection.execute(SQL["create_schema"])
            connection.execute(SQL["create_meta"])
        for number, text in MIGRATIONS[before:]:
            connection.execute(text, prepare=False)  # a file holds many statements
            connection.execute(SQL["set_schema_version"], (str(number),))
