"""Making connections: what of a URL is accepted, and what every connection carries so that a dead peer is noticed."""

from __future__ import annotations

import re
import secrets
import select
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress

import msgspec
import psycopg
from psycopg import conninfo, errors, pq
from psycopg.rows import tuple_row

from allswell.domain.values import hide
from allswell.errors import AllswellError, Bug, Refused, Unavailable
from allswell.store.port import RowConflict
from allswell.store.postgres.pipeline import Connection, Pipeline, ServerAnswer, Statement

# Every bound of the PostgreSQL store, by name, so that an error can say which one passed; times are seconds.


class PostgresSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long the store waits for what; none of these waits is endless."""

    connect_timeout: float = 5
    """For a connection to each of the URL's hosts."""
    network_timeout: float = 15
    """After which a peer that acknowledges nothing counts as dead (TCP keepalive and user timeout)."""
    statement_timeout: float = 15
    """For one statement of a unit of work; the server ends it."""
    lock_timeout: float = 5
    """For a row that another transaction holds; the server ends the wait."""
    idle_timeout: float = 10
    """For a process that has gone quiet inside a transaction: the server ends its session and frees its locks."""
    transact_timeout: float = 30
    """For a whole unit of work, its time in the queue included; then its connection is given up."""
    view_timeout: float = 15
    """For a view, a page of the journal or a cursor."""
    settle_timeout: float = 60
    """For the server to say how a transaction ended whose commit answer was lost."""
    migrate_timeout: float = 120
    """For bringing the schema up to date, the wait for another process that does so included."""
    close_timeout: float = 5
    """For work under way when the store is closed."""
    listen_check: float = 20
    """How long a listener may hear nothing before it proves by a round trip that it still would."""
    listen_timeout: float = 5
    """For that round trip, and for every notification; beyond it the listener is replaced."""
    vacuum_every: int = 20_000
    """After how many tasks claimed or withdrawn by this process the tables that turn over are vacuumed."""
    vacuum_timeout: float = 10
    """For that vacuum; the server ends it."""
    prepare_threshold: int | msgspec.UnsetType | None = msgspec.UNSET
    """After how many uses a statement is prepared; None: never.

    Left out, it is at once, or never where a pooler stands in between. One that carries prepared statements in
    transaction mode (PgBouncer 1.21 with `max_prepared_statements`) can be given 0 by hand.
    """


# What the driver and the server say, in our own words: whose fault it is, what to do, and never a password.

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


_NEEDED = re.compile(r"schema ([0-9]+) is needed")
"""What the statement `set_up` fails with where this version may not write any more."""


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
        case errors.UniqueViolation() if error.diag.table_name in ("task", "run", "service", "agent", "health"):
            return RowConflict(
                f"a {error.diag.table_name} with this id exists already: another transaction made it first"
            )
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
            return _not_accepted(error, place)
        case _:
            return Unavailable(f"the connection to PostgreSQL at {place} failed: {_said(error)}")


def _not_accepted(error: psycopg.Error, place: str) -> AllswellError:
    needed = _NEEDED.search(_said(error))
    if needed is None:
        return Bug(f"PostgreSQL did not accept a statement of ours: {_said(error)}")
    return Refused(
        "newer_schema",
        f"the watch in {place} was upgraded and takes only versions of Allswell that know schema {needed[1]} or later: "
        "upgrade Allswell here",
        where="store",
    )


def _said(error: psycopg.Error) -> str:
    """The server's own words: its primary message only, for the detail may hold what users wrote."""
    if error.diag.message_primary:
        return error.diag.message_primary
    said = str(error).strip()
    return said.splitlines()[0] if said else type(error).__name__


_GOOD = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)


class ServerAddress:
    """Where the database is; `place` names it in messages, without the password."""

    def __init__(self, url: str, settings: PostgresSettings) -> None:
        if not url.startswith(("postgresql://", "postgres://")):
            raise _bad_url("it must begin with postgresql://")
        try:
            parts = conninfo.conninfo_to_dict(url)
        except psycopg.Error:
            # Not quoted and not chained: what libpq could not read may be a piece of the password.
            raise _bad_url("it cannot be read") from None
        hosts, ports = str(parts.get("host") or ""), str(parts.get("port") or "")
        database = str(parts.get("dbname") or parts.get("user") or "")
        # A password with a bare @ or / in it ends up in these parts.
        if "@" in hosts + database or not all(port.isdigit() for port in ports.split(",") if port):
            raise _bad_url("host or port cannot be read")
        self.place = hide(f"{hosts or 'localhost'}:{ports or '5432'}/{database}")
        self._chosen = settings.prepare_threshold
        self.pooled = False
        """Whether a pooler was found between us and the server; looked for when the store is opened."""
        self._parts = {
            "application_name": "allswell",
            "connect_timeout": max(2, round(settings.connect_timeout)),
            "keepalives": 1,
            "keepalives_idle": max(1, round(settings.network_timeout / 2)),
            "keepalives_interval": max(1, round(settings.network_timeout / 6)),
            "keepalives_count": 3,
            "tcp_user_timeout": round(settings.network_timeout * 1000),
            **parts,
            "client_encoding": "utf8",
        }

    @property
    def prepare_threshold(self) -> int | None:
        """After how many uses a statement is prepared, if ever."""
        if self._chosen is msgspec.UNSET:
            return None if self.pooled else 0
        return self._chosen

    def connect(self, *, prepared: bool = True) -> Connection:
        """A new connection that starts no transaction by itself."""
        try:
            connection = psycopg.Connection.connect(
                conninfo.make_conninfo("", **self._parts),
                autocommit=True,
                prepare_threshold=self.prepare_threshold if prepared else None,
                cursor_factory=psycopg.RawCursor,
                row_factory=tuple_row,
            )
        except psycopg.Error as error:
            raise explain_login(error, self.place) from None
        return connection


def is_pooled(connection: Connection, place: str) -> bool:
    """Whether a pooler is in between: it gives out keys of its own, so the id at login is not the session's.

    What is left in a session then belongs to whoever gets it next, and what was left there may be gone.
    """
    try:
        rows = connection.execute("SELECT pg_backend_pid()").fetchall()
    except psycopg.Error as error:
        raise explain(error, place) from error
    return bool(rows[0][0] != connection.pgconn.backend_pid)


class ServerLine:
    """A connection in pipeline mode, with a second handle on its socket by which another thread can cut it.

    Pipeline mode is entered once and kept. The driver leaves it with a flush after the last sync, and a server that
    has got a flush no longer counts the session as idle: `idle_timeout` would never bite (PostgreSQL 15, seen).
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.id = secrets.token_hex(8)
        """Of this very connection: nothing is done on it after a commit whose answer was lost."""
        self.session = connection.pgconn.backend_pid
        """The server's number of it."""
        self._talk = Pipeline(connection)
        self._mode = ExitStack()
        self._pipeline: psycopg.Pipeline | None = None
        self._prepared: dict[bytes, bytes] = {}
        # A handle of our own: the number of the driver's may belong to something else by the time we cut.
        self._socket = socket.socket(fileno=socket.dup(connection.fileno()))
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._sent = True
        self._answer: pq.abc.PGresult | None = None
        """The last one so far to what was sent."""

    def ask(
        self, statements: Sequence[Statement], *, prepare: bool = True, afterthought: Statement | None = None
    ) -> list[ServerAnswer]:
        """Run statements in one round trip; a failure closes the connection. An afterthought is not waited for."""
        try:
            if self._pipeline is None:
                self._pipeline = self._mode.enter_context(self.connection.pipeline())
            return self._talk.ask(statements, prepare=prepare, afterthought=afterthought)
        except BaseException:
            self.connection.close()
            raise

    def send_once(self, query: bytes, values: Sequence[bytes | None]) -> None:
        """Send one statement that commits by itself, all in text, with as little around it as there can be.

        For what is done once for every step: the driver's own way takes as long as a fast disk takes for the commit.
        Its answer is to be asked for until it has come. A failure closes the connection.
        """
        try:
            if self._pipeline is None:
                self._pipeline = self._mode.enter_context(self.connection.pipeline())
            line = self.connection.pgconn
            if self.connection.prepare_threshold is None:  # a pooler is in between: the next session may not know it
                line.send_query_params(query, values)
            else:
                name = self._prepared.get(query)
                if name is None:
                    name = self._prepared[query] = b"allswell_%d" % len(self._prepared)
                    line.send_prepare(name, query)
                line.send_query_prepared(name, values)
            line.pipeline_sync()
            self._sent = not line.flush()
        except BaseException:
            self.connection.close()
            raise

    def answered(self, seconds: float) -> pq.abc.PGresult | None:
        """The last answer to what was sent, if it comes within so long; None: not yet, ask again or close."""
        line = self.connection.pgconn
        until = time.monotonic() + seconds
        try:
            while True:
                while line.is_busy():
                    events = select.POLLIN if self._sent else select.POLLIN | select.POLLOUT
                    self._poll.modify(self._socket, events)
                    if not self._poll.poll(max(0.0, until - time.monotonic()) * 1_000):
                        return None
                    line.consume_input()
                    self._sent = self._sent or not line.flush()
                found = line.get_result()
                if found is None:
                    continue  # the end of one statement's answers
                if found.status == pq.ExecStatus.PIPELINE_SYNC:
                    answer, self._answer = self._answer, None
                    return answer
                self._answer = _good(found)
        except BaseException:  # also one that interrupts the wait: what the server still says would be taken for more
            self.connection.close()
            raise

    def roll_back(self) -> None:
        """Undo the transaction under way, if there is one; a failure closes the connection."""
        if self.connection.closed:
            return
        if self._talk.owed:
            self.connection.close()  # a commit that was none: nobody knows what is still to come
            return
        try:
            # Not as a statement of the driver's, which forgets all it has prepared when it sees a rollback.
            self._mode.close()
            self._pipeline = None
            if self.connection.pgconn.exec_(b"ROLLBACK").status != pq.ExecStatus.COMMAND_OK:
                self.connection.close()
        except psycopg.Error:
            self.connection.close()

    def usable(self) -> bool:
        """Whether it is open and the server has said nothing unasked (such as that it shuts down)."""
        if self.connection.closed:
            return False
        try:
            self._talk.catch_up()
        except psycopg.Error:
            return False
        self._poll.modify(self._socket, select.POLLIN)
        return bool(self._talk.owed) or not self._poll.poll(0)

    def cut(self) -> None:
        """Make every call on it fail now; safe from any thread."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let both handles go; waits for nobody."""
        with suppress(psycopg.Error):
            self.connection.close()
        with suppress(psycopg.Error):
            self._mode.close()
        with suppress(OSError):
            self._socket.close()


def _good(answer: pq.abc.PGresult) -> pq.abc.PGresult:
    if answer.status not in _GOOD:
        raise psycopg.errors.error_from_result(answer)
    return answer


def _bad_url(why: str) -> Refused:
    hint = "special characters in user and password must be percent-encoded (@ is %40, / is %2F)"
    return Refused("bad_url", f"the store's URL is wrong: {why}; {hint}", where="store")
