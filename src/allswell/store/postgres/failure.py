"""What the driver and the server say, in our own words: whose fault it is, what to do, and never a password."""

from __future__ import annotations

import psycopg
from psycopg import errors

from allswell.errors import AllswellError, Bug, Refused, Unavailable
from allswell.store.port import Conflict

# What a refused login says; there is no SQLSTATE at that stage. A server that speaks another language is still
# answered with its own words, as `Unavailable`.
_REFUSALS = (
    ("password authentication failed", "wrong_password", "check user and password of the store's URL"),
    ("no password supplied", "wrong_password", "the store's URL, PGPASSWORD or ~/.pgpass must give a password"),
    ("authentication failed", "wrong_password", "check how this user may log in (pg_hba.conf)"),
    ("no pg_hba.conf entry", "login_refused", "the server's pg_hba.conf does not let this user in from here"),
    ("is not permitted to log in", "login_refused", "give the role LOGIN"),
)
_SHORTAGES = ("too many connections", "too many clients", "remaining connection slots", "no more connections allowed")


def explain_login(error: psycopg.Error, place: str) -> AllswellError:
    """Why there is no connection to `place`."""
    said = str(error)
    for words, code, hint in _REFUSALS:
        if words in said:
            return Refused(code, f"PostgreSQL at {place} refused the login: {hint}", where="store")
    if "does not exist" in said and "database" in said:
        return Refused("no_database", f"there is no such database: {place}; create it first", where="store")
    if "does not exist" in said and "role" in said:
        return Refused("wrong_password", f"PostgreSQL at {place} does not know this user", where="store")
    if any(words in said for words in _SHORTAGES):
        return Unavailable(
            f"PostgreSQL at {place} takes no more connections",
            hint="raise max_connections, or put a pooler in front of it",
        )
    last = said.strip().splitlines()[0] if said.strip() else type(error).__name__
    return Unavailable(f"no connection to PostgreSQL at {place}: {last}", hint="is the server running?")


def explain(error: psycopg.Error, place: str) -> AllswellError:
    """Why a statement failed; nothing of its transaction was committed."""
    match error:
        case errors.LockNotAvailable():
            return Unavailable(
                "another transaction held a row for longer than lock_timeout", hint="it is safe to try again"
            )
        case errors.QueryCanceled():
            return Unavailable(
                "a statement was ended: it ran longer than statement_timeout", hint="the server may be overloaded"
            )
        case errors.IdleInTransactionSessionTimeout():
            return Unavailable("this process was quiet inside a transaction for longer than idle_timeout")
        case errors.DeadlockDetected() | errors.SerializationFailure():
            return Unavailable("another transaction was in the way", hint="it is safe to try again")
        case errors.UniqueViolation() if error.diag.table_name in ("task", "run", "service", "agent"):
            return Conflict(f"a {error.diag.table_name} with this id exists already: another transaction made it first")
        case errors.UniqueViolation() | errors.CardinalityViolation():
            return Bug(f"a row was made twice: {_said(error)}")
        case errors.ReadOnlySqlTransaction():
            return Unavailable(f"PostgreSQL at {place} is read-only", hint="is it a standby? name the primary")
        case errors.DiskFull() | errors.OutOfMemory() | errors.InsufficientResources():
            return Unavailable(f"PostgreSQL at {place} has run out of room: {_said(error)}")
        case errors.InsufficientPrivilege():
            return Refused("no_permission", f"PostgreSQL at {place}: {_said(error)}", where="store")
        case errors.UndefinedTable() | errors.InvalidSchemaName():
            return Unavailable(
                f"the tables of this watch are gone from {place}",
                hint="was the database replaced? open the store again",
            )
        case errors.DataError() | errors.ProgrammingError() | errors.IntegrityError():
            return Bug(f"PostgreSQL did not accept a statement of ours: {_said(error)}")
        case _:
            return Unavailable(f"the connection to PostgreSQL at {place} failed: {_said(error)}")


def _said(error: psycopg.Error) -> str:
    """The server's own words: its primary message only, for the detail may hold what users wrote."""
    if error.diag.message_primary:
        return error.diag.message_primary
    said = str(error).strip()
    return said.splitlines()[0] if said else type(error).__name__
