"""Calls by LISTEN and NOTIFY, on a connection of their own.

A transaction that notifies takes a lock of the whole cluster from before its commit record until it is flushed: two
such commits never overlap, so a deciding transaction must not notify. Here the notification is a transaction by
itself, and with `synchronous_commit = off` it holds that lock for microseconds instead of a disk's flush.

Every wait is bounded from this side, by polling the socket: a server that has stopped still acknowledges packets, and
the driver would wait for its answer for ever. Silence is told from death by a round trip: a notification that this
session sends to itself, on a channel that nobody else hears, must come back.

Behind a pooler in transaction mode LISTEN would bind whichever session of the server happens to serve us, for whoever
uses it next. So there nobody listens, and polling does all the work; telling those who listen directly still works.
"""

from __future__ import annotations

import logging
import secrets
import select
import time
from collections.abc import Callable

import psycopg
from psycopg import pq

from allswell.errors import AllswellError
from allswell.store.notifier import TransportLost
from allswell.store.port import NOTHING, Wakeup, decode, encode
from allswell.store.postgres.connection import PostgresSettings, ServerAddress
from allswell.store.postgres.connection_thread import SQL
from allswell.store.postgres.pipeline import Connection

log = logging.getLogger(__name__)

CHANNEL = "allswell"
_CHANNEL = CHANNEL.encode()
_NOTIFY = SQL["notify"].encode()
_GOOD = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)


class NotifyTransport:
    """A connection that tells and, if need be, listens."""

    def __init__(self, address: ServerAddress, settings: PostgresSettings, *, is_own: Callable[[int], bool]) -> None:
        """`is_own` says whether a session is another one of this process's."""
        self.check_every = settings.listen_check
        self._address = address
        self._is_own = is_own
        self._timeout = settings.listen_timeout
        self._connection: Connection | None = None
        self._listening = False
        self._own_channel = b""
        self._echo = b""
        """What was last heard on our own channel."""
        self._heard = NOTHING

    def alone(self) -> bool:
        """Only the server knows who listens."""
        return False

    def open(self, *, hearing: bool) -> None:
        """Connect and, unless a pooler is in between, listen."""
        try:
            self._connection = self._address.connect()
        except AllswellError as error:
            raise TransportLost(str(error)) from None
        self._heard = NOTHING
        if hearing:
            self._listening = not self._address.pooled
            if self._listening:
                self._own_channel = _CHANNEL + b"_" + secrets.token_hex(8).encode()
                self._ask(b"LISTEN " + _CHANNEL)
                self._ask(b"LISTEN " + self._own_channel)
                self.check()
            else:
                log.info("a pooler stands before %s: no wake-up calls, only polling", self._address.place)

    def fileno(self) -> int | None:
        """The connection's socket."""
        return self._line.socket if self._listening else None

    def send(self, call: Wakeup) -> None:
        """Notify all who listen."""
        self._ask(_NOTIFY, _CHANNEL, encode(call))

    def send_here(self, call: Wakeup) -> bool:
        """Never: it would wait for the server."""
        del call
        return False

    def receive(self) -> Wakeup:
        """What has been notified by others."""
        self._consume(self._line)
        heard, self._heard = self._heard, NOTHING
        return heard

    def check(self) -> None:
        """Notify ourselves, and hear it."""
        echo = secrets.token_hex(8).encode()
        until = time.monotonic() + self._timeout
        self._ask(_NOTIFY, self._own_channel, echo)
        while echo != self._echo:
            self._await(select.POLLIN, until)
            self._consume(self._line)

    def close(self) -> None:
        """Hang up."""
        connection, self._connection = self._connection, None
        self._listening = False
        if connection is not None:
            connection.close()

    # --- bounded talk -------------------------------------------------------------------------------------------------

    @property
    def _line(self) -> pq.abc.PGconn:
        if self._connection is None:
            raise TransportLost("not connected")
        return self._connection.pgconn

    def _ask(self, query: bytes, *values: bytes) -> pq.abc.PGresult:
        """One statement and its answer, within `listen_timeout`."""
        line = self._line
        until = time.monotonic() + self._timeout
        answer: pq.abc.PGresult | None = None
        try:
            line.send_query_params(query, values)
            while line.flush():
                self._await(select.POLLOUT, until)
            while True:
                while line.is_busy():
                    self._await(select.POLLIN, until)
                    self._consume(line)
                result = line.get_result()
                if result is None:
                    break
                answer = result
            self._collect(line)
        except psycopg.Error as error:
            raise TransportLost(str(error)) from None
        if answer is None or answer.status not in _GOOD:
            raise TransportLost("no answer" if answer is None else answer.error_message.decode(errors="replace"))
        return answer

    def _await(self, event: int, until: float) -> None:
        poll = select.poll()
        poll.register(self._line.socket, event)
        if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
            raise TransportLost("the server did not answer within listen_timeout")

    def _consume(self, line: pq.abc.PGconn) -> None:
        try:
            line.consume_input()
            self._collect(line)
        except psycopg.Error as error:
            raise TransportLost(str(error)) from None

    def _collect(self, line: pq.abc.PGconn) -> None:
        while (told := line.notifies()) is not None:
            if told.relname == self._own_channel:
                self._echo = told.extra
            elif told.be_pid != line.backend_pid and not self._is_own(told.be_pid):
                self._heard = self._heard.merged(decode(told.extra))
