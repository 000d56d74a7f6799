"""One queue of PGMQ: what is said to it, on whatever connection the caller has.

Nothing here begins or ends a transaction. (message id, count of readings) is a message's token: whoever ends it or
hides it again names both, and changes nothing if somebody has read it since.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from psycopg import Connection, sql

from allswell.domain.handling import FailedForGood, MessageHistory, Retried
from allswell.errors import Refused
from allswell.store.sql import load

STATEMENTS = load("allswell.worker", "statements.sql")
_NAME = re.compile(r"[a-z0-9_]{1,47}")


class Token(msgspec.Struct, frozen=True):
    """The right to end one message: gone as soon as somebody reads it again."""

    id: int
    read_count: int


class Taken(msgspec.Struct, frozen=True):
    """A message that was read, as it lies in the queue."""

    token: Token
    body: Any
    headers: Mapping[str, Any]
    history: MessageHistory


def statement(name: str) -> bytes:
    """A statement that names no queue's table."""
    return STATEMENTS[name].encode()


def can_name(name: object) -> bool:
    """Whether a queue of ours can be called so."""
    return _NAME.fullmatch(str(name)) is not None


class Queue:
    """A queue by its name."""

    def __init__(self, name: str) -> None:
        if not can_name(name):
            text = f"queue {name!r}: a queue's name is up to 47 small letters, digits and underscores"
            raise Refused("bad_queue", text, where="queue")
        self.name = name
        self.table = f"q_{name}"
        self.channel = f"pgmq.{self.table}.INSERT"
        """What PGMQ notifies when a message arrives."""
        table = sql.Identifier("pgmq", self.table)
        self._sql = {
            key: sql.SQL(STATEMENTS[key]).format(queue=table).as_string().encode()
            for key in ("hold", "finish", "finish_free", "current", "hide", "came_back", "depth", "troubled")
        }

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    def finish_and_read(
        self, connection: Connection[Any], tokens: Sequence[Token], *, hide: int, most: int
    ) -> tuple[set[int], set[int], list[Taken]]:
        """End messages that were handled, and take up to so many others and hide them for so long, in one round trip.

        Gives the ids of those that ended, of those that are locked (which is not waited for), and what was taken.
        Whose id is in neither, its token did not hold any more.
        """
        with connection.pipeline():
            finishing = connection.execute(self._sql["finish_free"], self._named(tokens)) if tokens else None
            reading = connection.execute(statement("read"), (self.name, hide, most)) if most else None
        ended = {id_ for (id_,) in finishing.fetchall()} if finishing is not None else set()
        rest = [token for token in tokens if token.id not in ended]
        locked = self._current(connection, rest) if rest else set()
        return ended, locked, self._taken(connection, reading.fetchall()) if reading is not None else []

    def _taken(self, connection: Connection[Any], rows: list[Any]) -> list[Taken]:
        """Messages with what is known of each."""
        again = [id_ for id_, read_count, _, _ in rows if read_count > 1]
        known = self.histories(connection, again) if again else {}
        return [
            Taken(Token(id_, read_count), body, _object(headers), known.get(id_, MessageHistory()))
            for id_, read_count, body, headers in rows
        ]

    def histories(self, connection: Connection[Any], ids: Sequence[int]) -> dict[int, MessageHistory]:
        """What is known of messages that were read before."""
        rows = connection.execute(statement("histories"), (self.name, list(ids))).fetchall()
        return {id_: MessageHistory(recorded, retries, late) for id_, recorded, retries, late in rows}

    def finish(self, connection: Connection[Any], token: Token) -> bool:
        """End a message that was handled, if its token still holds; whether it does. Waits for a lock on it."""
        return bool(connection.execute(self._sql["finish"], self._named([token])).fetchall())

    def hide(self, connection: Connection[Any], tokens: Sequence[Token], seconds: float) -> tuple[set[int], set[int]]:
        """Hide messages for so long from now, without waiting: the ids of those hidden, and of those that are locked.

        Neither: the token did not hold any more.
        """
        parameters = {**self._named(tokens), "seconds": seconds}
        hidden = {id_ for (id_,) in connection.execute(self._sql["hide"], parameters)}
        rest = [token for token in tokens if token.id not in hidden]
        return hidden, self._current(connection, rest) if rest else set()

    def record(
        self, connection: Connection[Any], token: Token, how: Retried | FailedForGood, was: MessageHistory
    ) -> bool:
        """Write down how a reading ended without success, if its token still holds; whether it does."""
        if connection.execute(self._sql["hold"], (token.id, token.read_count)).fetchone() is None:
            return False
        match how:
            case Retried(delay, history, code, reason):
                connection.execute(statement("set_vt"), (self.name, token.id, -(-delay // 1_000)))
                self.note(connection, token, "retrying", history, code=code, reason=reason)
            case FailedForGood(code, reason):
                connection.execute(statement("archive"), (self.name, token.id))
                ended = MessageHistory(was.recorded + 1, was.retries)
                self.note(connection, token, "failed", ended, code=code, reason=reason)
        return True

    def came_back(self, connection: Connection[Any], tokens: Sequence[Token]) -> None:
        """Note that these readings have ended, though their tokens did not hold any more: nobody hung or died there."""
        if tokens:
            connection.execute(self._sql["came_back"], self._named(tokens))

    def note(
        self, connection: Connection[Any], token: Token, state: str, history: MessageHistory, *, code: str, reason: str
    ) -> None:
        """Write down what is known of a message."""
        parameters = {
            "queue": self.name,
            "id": token.id,
            "count": token.read_count,
            "state": state,
            "recorded": history.recorded,
            "retries": history.retries,
            "code": code,
            "reason": reason,
        }
        connection.execute(statement("note"), parameters)

    def _current(self, connection: Connection[Any], tokens: Sequence[Token]) -> set[int]:
        """Of these, the ids of those whose token is the current one."""
        return {id_ for (id_,) in connection.execute(self._sql["current"], self._named(tokens))}

    def _named(self, tokens: Sequence[Token]) -> dict[str, object]:
        ids, counts = [token.id for token in tokens], [token.read_count for token in tokens]
        return {"ids": ids, "counts": counts, "name": self.name}

    def depth(self, connection: Connection[Any]) -> tuple[int, int, float]:
        """Messages in the queue, those that may be read now, and the age of the oldest of these in seconds."""
        row = connection.execute(self._sql["depth"]).fetchone()
        assert row is not None  # noqa: S101 - an aggregate always has a row
        return row[0], row[1], row[2]

    def troubles(self, connection: Connection[Any]) -> dict[str, int]:
        """How many messages are in which kind of trouble."""
        return dict(connection.execute(statement("troubles"), (self.name,)).fetchall())

    def troubled(self, connection: Connection[Any], most: int) -> list[Any]:
        """Messages that are in trouble, as rows of `troubled.py`."""
        return connection.execute(self._sql["troubled"], {"name": self.name, "most": most}).fetchall()


def _object(headers: object) -> Mapping[str, Any]:
    """Headers as they should be: what another program put there may be no object at all."""
    return headers if isinstance(headers, Mapping) else {}
