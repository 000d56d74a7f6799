"""Making connections: what of a URL is accepted, and what every connection carries so that a dead peer is noticed."""

from __future__ import annotations

import secrets
import select
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress

import msgspec
import psycopg
from psycopg import conninfo, pq
from psycopg.rows import tuple_row

from allswell.domain.store_url import hide
from allswell.errors import Refused
from allswell.store.postgres.failure import explain, explain_login
from allswell.store.postgres.settings import Settings
from allswell.store.postgres.talk import Connection, ServerAnswer, Statement, Talk

_GOOD = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)


class Address:
    """Where the database is; `place` names it in messages, without the password."""

    def __init__(self, url: str, settings: Settings) -> None:
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
        self._talk = Talk(connection)
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
