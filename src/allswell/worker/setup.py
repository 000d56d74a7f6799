"""Setting up a database for the worker: PGMQ, the worker's own tables, and a queue.

It looks first. PGMQ's SQL cannot be run twice, and a database may have PGMQ as an extension (Supabase has 1.5.1). What
is there is used, if it is 1.5 or newer; otherwise the extension is made where the server offers one, else PGMQ comes as
SQL from PyPI's `pgmq`. Every step may be repeated, and says what it did.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row

from allswell.errors import Refused, Unavailable
from allswell.worker.errors import sentence
from allswell.worker.escalation import make_store
from allswell.worker.handlers import WorkerPlan, refuse_unreadable
from allswell.worker.queue import STATEMENTS, Queue, can_name, statement

OLDEST = (1, 5)
"""The oldest PGMQ that messages have headers in."""


class PgmqFound(msgspec.Struct, frozen=True):
    """What a database has."""

    has_functions: bool
    has_schema: bool
    extension: str | None
    available: str | None
    has_notify: bool
    has_tables: bool
    has_store: bool
    database: str


def setup(conninfo: str, queue: str, *, say: Callable[[str], None] = lambda _line: None, notify: bool = True) -> None:
    """Make what a worker of this queue needs, as far as it is not there; without `notify`, PGMQ tells of no message."""
    named = Queue(queue)
    refuse_unreadable(conninfo)
    try:
        connection = psycopg.connect(conninfo, connect_timeout=10, prepare_threshold=None)
    except psycopg.Error as error:
        raise _unreachable(error) from error
    with connection:
        try:
            before = look(connection).has_store
            asyncio.run(make_store(conninfo))
            say("the store is there" if before else "made the store (allswell), for the questions about messages")
            _make(connection, named, say, notify=notify)
        except psycopg.errors.InsufficientPrivilege as error:
            text = f"role {role_of(conninfo)} may not set up queue {queue}: {sentence(error)}"
            hint = "have the database's owner run `allswell worker setup` once, then its output with --print-grants"
            raise Refused("not_allowed", text, where="store", hint=hint) from error


def not_allowed(error: psycopg.Error, conninfo: str, queue: str) -> Refused:
    """What a role is told that lacks a right."""
    text = f"role {role_of(conninfo)} may not use queue {queue}: {sentence(error)}"
    hint = f"`allswell worker setup {queue} --print-grants` prints what the database's owner has to run"
    return Refused("no_permission", text, where="store", hint=hint)


def role_of(conninfo: str) -> str:
    """The role that a connection string names; else that of the operating system."""
    return str(conninfo_to_dict(conninfo).get("user") or os.environ.get("PGUSER") or getpass.getuser())


def grants(queue: str, role: str) -> str:
    """What the owner of a database runs, once, so that a role may handle the messages of a queue and send to it."""
    named = Queue(queue)
    who = sql.Identifier(role).as_string()
    if re.fullmatch(r"[a-z_][a-z0-9_]*", role):
        who = role
    tables = f'pgmq."{named.table}", pgmq."a_{named.name}"'
    return "\n".join(
        (
            f"GRANT USAGE ON SCHEMA pgmq, allswell, allswell_worker TO {who};",
            f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pgmq TO {who};",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {who};",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA allswell, allswell_worker TO {who};",
            f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA pgmq, allswell, allswell_worker TO {who};",
            f"GRANT SELECT ON pgmq.meta TO {who};",
            "DO $$ BEGIN",
            "    IF to_regclass('pgmq.notify_insert_throttle') IS NOT NULL THEN",
            f"        GRANT SELECT, UPDATE ON pgmq.notify_insert_throttle TO {who};",
            "    END IF;",
            "END $$;",
        )
    )


def look(connection: psycopg.Connection[Any]) -> PgmqFound:
    """What there is of PGMQ in a database."""
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(statement("look")).fetchone()
    return msgspec.convert(row, PgmqFound)


def refuse_unless_ready(plan: WorkerPlan) -> None:
    """What a worker says at its start where something is missing."""
    try:
        with psycopg.connect(plan.conninfo, autocommit=True, **plan.connecting()) as connection:
            _refuse_unless_ready(connection, Queue(plan.queue))
    except psycopg.OperationalError as error:
        raise _unreachable(error) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise not_allowed(error, plan.conninfo, plan.queue) from error


def _refuse_unless_ready(connection: psycopg.Connection[Any], queue: Queue) -> None:
    found = look(connection)
    remedy = f"run `allswell worker setup {queue.name}` first"
    if not found.has_functions:
        raise Refused("no_pgmq", f"database {found.database!r} has no PGMQ: {remedy}", where="store")
    if not (found.has_tables and found.has_store):
        raise Refused(
            "no_tables", f"database {found.database!r} lacks tables or columns of the worker's: {remedy}", where="store"
        )
    if not _answer(connection, "queue_exists", queue.name):
        text = f"database {found.database!r} has no queue {queue.name!r}: {remedy}, or fix the name"
        raise Refused("no_queue", text, where="queue")


def _make(connection: psycopg.Connection[Any], queue: Queue, say: Callable[[str], None], *, notify: bool) -> None:
    connection.execute(statement("one_at_a_time"))
    found = look(connection)
    _pgmq(connection, found, say)
    connection.execute((Path(__file__).parent / "tables.sql").read_bytes())
    if not found.has_tables:
        for (name,) in connection.execute(statement("queues")).fetchall():
            if can_name(name):
                Queue(name).date_troubles(connection)
    say("the worker's own tables are there" if found.has_tables else "made the worker's own tables (allswell_worker)")
    if _answer(connection, "queue_exists", queue.name):
        say(f"queue {queue.name} is there")
    else:
        connection.execute(statement("create_queue"), (queue.name,))
        say(f"made queue {queue.name}")
    if not notify:
        say("no notification of new messages: the worker polls")
    elif not look(connection).has_notify:
        say("this PGMQ cannot notify of new messages: the worker polls")
    elif _answer(connection, "notifies", f'pgmq."{queue.table}"'):
        say("notification of new messages is on already")
    else:
        connection.execute(statement("notify_on"), (queue.name,))
        say("notification of new messages is on (LISTEN), beside polling")


def _pgmq(connection: psycopg.Connection[Any], found: PgmqFound, say: Callable[[str], None]) -> None:
    if found.has_functions:
        if not _answer(connection, "has_headers"):
            version = found.extension or "older than 1.5"
            raise Refused("old_pgmq", f"PGMQ is {version}, and 1.5 or newer is needed: upgrade it", where="store")
        say(f"PGMQ is there (extension {found.extension})" if found.extension else "PGMQ is there (as SQL)")
        return
    if found.has_schema:
        text = "the schema pgmq is there, and PGMQ's functions are not: another program's, or an incomplete setup"
        raise Refused("foreign_schema", text, where="store")
    if found.available is not None and _version(found.available) >= OLDEST:
        try:
            with connection.transaction():
                connection.execute("CREATE EXTENSION pgmq")
        except psycopg.errors.InsufficientPrivilege:
            say(f"the extension (PGMQ {found.available}) is offered, and this role may not make it: taking the SQL")
        else:
            say(f"made the extension (PGMQ {found.available})")
            return
    from pgmq.install import get_embedded_install_sql, get_embedded_sql_version

    with connection.transaction():
        connection.execute(get_embedded_install_sql().encode())
    say(f"installed PGMQ {get_embedded_sql_version()} from its SQL")


def _answer(connection: psycopg.Connection[Any], name: str, *parameters: object) -> bool:
    row = connection.execute(STATEMENTS[name].encode(), parameters).fetchone()
    return bool(row and row[0])


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


def _unreachable(error: psycopg.Error) -> Unavailable:
    return Unavailable(f"the queue's database cannot be reached: {sentence(error)}")
