"""Statements and their answers on a connection in pipeline mode, by libpq's own calls.

The driver's cursors take 30 to 50 µs for each statement, nearly all of it in Python: for a unit of work on one task as
much as the disk takes, and with the interpreter held. Here a statement is a few calls into C; rows are still loaded by
the driver. Every parameter travels as text (each statement says its types) and every answer is binary.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import abc, pq
from psycopg.adapt import Transformer

Connection = psycopg.Connection[tuple[Any, ...]]
Statement = tuple[str, tuple[object, ...]]
Row = tuple[Any, ...]

_GOOD = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
_SYNC = pq.ExecStatus.PIPELINE_SYNC
_BINARY = pq.Format.BINARY


class ServerAnswer:
    """What the server said to a statement."""

    __slots__ = ("_result", "_transformer")

    def __init__(self, result: pq.abc.PGresult, transformer: abc.Transformer) -> None:
        self._result = result
        self._transformer = transformer

    def fetchall(self) -> list[Row]:
        """All rows; to be read in the thread that has asked."""
        count = self._result.ntuples
        if not count:
            return []
        self._transformer.set_pgresult(self._result)
        return self._transformer.load_rows(0, count, tuple)

    @property
    def command(self) -> str:
        """What was done, in the server's words."""
        return (self._result.command_status or b"").decode()


class Pipeline:
    """The talk on one connection. After an error its state is not known: whoever talks closes it then."""

    def __init__(self, connection: Connection) -> None:
        self._line = connection.pgconn
        self._threshold = connection.prepare_threshold
        self._transformer: abc.Transformer = Transformer(connection)
        self._prepared: dict[str, bytes] = {}
        self._uses: dict[str, int] = {}
        self.owed = 0
        """Afterthoughts whose ends have not been heard yet."""

    def ask(
        self, statements: Sequence[Statement], *, prepare: bool = True, afterthought: Statement | None = None
    ) -> list[ServerAnswer]:
        """Send statements and a sync, and wait for all answers; the first error ends it.

        An afterthought is sent with them, behind the sync: a transaction by itself, whose answer nobody waits for.
        """
        places = self._send(statements, prepare=prepare)
        before = self.owed
        if afterthought is not None:
            self._send([afterthought], prepare=prepare)
            self.owed += 1
        found = self._answers(before)
        return [ServerAnswer(found[place], self._transformer) for place in places]

    def _send(self, statements: Sequence[Statement], *, prepare: bool) -> list[int]:
        """Send statements and a sync; the place of each one's answer."""
        values = [[_told(value) for value in given] for _, given in statements]
        line = self._line
        places = []
        sent = 0
        for (query, _), told in zip(statements, values, strict=True):
            name = self._prepared.get(query) if prepare else None
            if name is None and prepare and self._often(query):
                name = self._prepared[query] = b"allswell_ask_%d" % len(self._prepared)
                line.send_prepare(name, query.encode())
                sent += 1  # it has an answer of its own
            if name is None:
                line.send_query_params(query.encode(), told, result_format=_BINARY)
            else:
                line.send_query_prepared(name, told, result_format=_BINARY)
            places.append(sent)
            sent += 1
        line.pipeline_sync()
        return places

    def _often(self, query: str) -> bool:
        """Whether a statement has been used so often that it is prepared now."""
        if self._threshold is None:
            return False
        uses = self._uses[query] = self._uses.get(query, 0) + 1
        return uses > self._threshold

    def catch_up(self) -> None:
        """Hear the end of afterthoughts, as far as it has come; does not wait."""
        line = self._line
        if self.owed:
            line.consume_input()
        while self.owed and not line.is_busy():
            result = line.get_result()
            if result is not None and result.status == _SYNC:
                self.owed -= 1

    def _answers(self, before: int) -> list[pq.abc.PGresult]:
        """The answers, behind those to so many afterthoughts, which are ignored."""
        line = self._line
        poll = select.poll()
        sending = line.flush()
        poll.register(line.socket, select.POLLIN | (select.POLLOUT if sending else 0))
        found: list[pq.abc.PGresult] = []
        while True:
            while line.is_busy():
                poll.poll()  # bounded from outside: whoever waits for us cuts the line
                line.consume_input()
                if sending and not (sending := line.flush()):
                    poll.modify(line.socket, select.POLLIN)
            result = line.get_result()
            if result is None:
                continue  # the end of one statement's answer
            status = result.status
            if before:
                if status == _SYNC:
                    before -= 1
                    self.owed -= 1
                continue
            if status == _SYNC:
                return found
            if status not in _GOOD:
                raise psycopg.errors.error_from_result(result)
            found.append(result)


def _told(value: object) -> bytes | None:
    """A parameter as text."""
    if value is None:
        return None
    if isinstance(value, str):
        told = value.encode()
        if b"\0" in told:  # libpq would take it for the end
            raise psycopg.DataError("PostgreSQL text cannot hold a NUL character")
        return told
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, int):
        return b"%d" % value
    raise TypeError(f"{value!r} is no parameter")
