"""One queue of PGMQ: what is said to it, on whatever connection the caller has.

Nothing here begins or ends a transaction. (message id, count of readings, when it was sent) is a message's token: who
ends it or hides it again names all three, and changes nothing if another worker has read it since, or if the queue was
dropped and made anew, and the message of that id is another one.
"""

from __future__ import annotations

import re
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import msgspec
import psycopg
from psycopg import AsyncConnection, Connection, sql
from psycopg.abc import Params
from psycopg.rows import scalar_row
from psycopg.types.json import Jsonb

from allswell.domain.values import to_json
from allswell.domain.worker.limits import whole
from allswell.domain.worker.message import BATCH, TOO_LATE, FailedForGood, MessageHistory, Retried, is_type
from allswell.errors import Bug, Refused
from allswell.store.sql import load

if TYPE_CHECKING:
    from allswell.worker.connection import HandlerConnection


STATEMENTS = load("allswell.worker", "statements.sql")
_NAME = re.compile(r"[a-z0-9_]{1,47}")


class QueueToken(msgspec.Struct, frozen=True):
    """The right to end one message: gone as soon as somebody reads it again."""

    id: int
    read_count: int
    sent: int = 0
    """When it was sent, in microseconds since 1970. A queue that is made anew counts its messages from 1 again."""


class QueueMessage(msgspec.Struct, frozen=True):
    """A message that was read, as it lies in the queue."""

    token: QueueToken
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
        tables = {"queue": sql.Identifier("pgmq", self.table), "archive": sql.Identifier("pgmq", f"a_{name}")}
        self._sql = {
            key: sql.SQL(STATEMENTS[key]).format(**tables).as_string().encode()
            for key in (
                "hold",
                "finish",
                "finish_first",
                "finish_and_commit",
                "finish_free",
                "current",
                "hide",
                "unread",
                "came_back",
                "depth",
                "depth_told",
                "troubled",
                "date_troubles",
            )
        }

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    def finish_and_read(
        self, connection: Connection[Any], tokens: Sequence[QueueToken], *, hide: int, most: int
    ) -> tuple[set[int], set[int], list[QueueMessage]]:
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

    def _taken(self, connection: Connection[Any], rows: list[Any]) -> list[QueueMessage]:
        """Messages with what is known of each."""
        tokens = [QueueToken(id_, read_count, sent) for id_, read_count, sent, _, _ in rows]
        again = [token for token in tokens if token.read_count > 1]
        known = self.histories(connection, again) if again else {}
        return [
            QueueMessage(token, body, _object(headers), known.get(token.id, MessageHistory()))
            for token, (_, _, _, body, headers) in zip(tokens, rows, strict=True)
        ]

    def histories(self, connection: Connection[Any], tokens: Sequence[QueueToken]) -> dict[int, MessageHistory]:
        """What is known of messages that were read before."""
        rows = connection.execute(statement("histories"), self._named(tokens)).fetchall()
        return {id_: MessageHistory(*known) for id_, *known in rows}

    def unread(self, connection: Connection[Any], held: Mapping[QueueToken, float]) -> None:
        """Take back the reading of messages that this worker has in hand, and hide each for so many seconds more.

        In the transaction that read them: afterwards the token of the handler that has a message holds as before.
        """
        parameters = {**self._named(list(held)), "seconds": list(held.values())}
        connection.execute(self._sql["unread"], parameters)

    def finish(self, connection: Connection[Any], token: QueueToken) -> bool:
        """End a message that was handled, if its token still holds; whether it does. Waits for a lock on it."""
        if token.read_count == 1:
            query = self._sql["finish_first"] % (token.id, token.sent)
            return bool(connection.execute(query).fetchall())
        return bool(connection.execute(self._sql["finish"], self._named([token])).fetchall())

    def finish_and_commit(self, connection: HandlerConnection, token: QueueToken) -> bool:
        """As `finish` of a first reading, and commit, in one message to the server; if its token holds no more, undo.

        The server goes no further than to the first statement that fails, and dividing by nothing does.
        """
        try:
            with connection.lock:
                connection.send(self._sql["finish_and_commit"] % (token.id, token.sent))
        except psycopg.errors.DivisionByZero:
            connection.rollback()
            return False
        return True

    def hide(
        self, connection: Connection[Any], tokens: Sequence[QueueToken], seconds: float
    ) -> tuple[set[int], set[int]]:
        """Hide messages for so long from now, without waiting: the ids of those hidden, and of those that are locked.

        Neither: the token did not hold any more.
        """
        parameters = {**self._named(tokens), "seconds": seconds}
        hidden = {id_ for (id_,) in connection.execute(self._sql["hide"], parameters)}
        rest = [token for token in tokens if token.id not in hidden]
        return hidden, self._current(connection, rest) if rest else set()

    def record(
        self, connection: Connection[Any], token: QueueToken, how: Retried | FailedForGood, was: MessageHistory
    ) -> bool:
        """Write down how a reading ended without success, if its token still holds; whether it does."""
        if connection.execute(self._sql["hold"], (token.id, token.read_count, token.sent)).fetchone() is None:
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

    def came_back(self, connection: Connection[Any], late: Mapping[QueueToken, str]) -> None:
        """Note that these readings have ended, though their tokens did not hold any more: no handler hung or died.

        Each with why it was too late, where its handler was too slow: then it counts as a failed try.
        """
        if late:
            parameters = {**self._named(list(late)), "reasons": list(late.values()), "code": TOO_LATE}
            connection.execute(self._sql["came_back"], parameters)

    def note(
        self,
        connection: Connection[Any],
        token: QueueToken,
        state: str,
        history: MessageHistory,
        *,
        code: str,
        reason: str,
    ) -> None:
        """Write down what is known of a message."""
        parameters = {
            "queue": self.name,
            "id": token.id,
            "count": token.read_count,
            "sent": token.sent,
            "state": state,
            "recorded": history.recorded,
            "retries": history.retries,
            "code": code,
            "reason": reason,
        }
        connection.execute(statement("note"), parameters)

    def _current(self, connection: Connection[Any], tokens: Sequence[QueueToken]) -> set[int]:
        """Of these, the ids of those whose token is the current one."""
        return {id_ for (id_,) in connection.execute(self._sql["current"], self._named(tokens))}

    def _named(self, tokens: Sequence[QueueToken]) -> dict[str, object]:
        ids, counts = [token.id for token in tokens], [token.read_count for token in tokens]
        return {"ids": ids, "counts": counts, "sent": [token.sent for token in tokens], "name": self.name}

    def date_troubles(self, connection: Connection[Any]) -> None:
        """Write down when the messages in trouble were sent, where an older version did not."""
        connection.execute(self._sql["date_troubles"], (self.name,))

    def depth(self, connection: Connection[Any], *, at_most: bool = False) -> tuple[int, int, float]:
        """Messages in the queue, those that may be read now, and the age of the oldest of these in seconds.

        With `at_most`, no more than 100,000 are counted.
        """
        row = connection.execute(self._sql["depth_told" if at_most else "depth"]).fetchone()
        assert row is not None  # noqa: S101 - an aggregate always has a row
        return row[0], row[1], row[2]

    def troubles(self, connection: Connection[Any]) -> dict[str, int]:
        """How many messages are in which kind of trouble."""
        return dict(connection.execute(statement("troubles"), (self.name,)).fetchall())

    def troubled(self, connection: Connection[Any], most: int) -> list[Any]:
        """Messages that are in trouble, as rows for `troubled_in`."""
        return connection.execute(self._sql["troubled"], {"name": self.name, "most": most}).fetchall()


def _object(headers: object) -> Mapping[str, Any]:
    """Headers as they should be: what another program put there may be no object at all."""
    return headers if isinstance(headers, Mapping) else {}


# Sending messages inside the caller's own transaction: they are there when it commits, and never were if it does not.
#
# `send(connection, "orders", "order.paid", {"order": 7})` inside `with psycopg.connect(…) as connection:`.


@overload
def send(
    connection: Connection[Any],
    queue: str,
    type_: str,
    payload: object = None,
    *,
    headers: Mapping[str, object] | None = None,
    delay: int = 0,
) -> int: ...
@overload
def send(
    connection: AsyncConnection[Any],
    queue: str,
    type_: str,
    payload: object = None,
    *,
    headers: Mapping[str, object] | None = None,
    delay: int = 0,
) -> Coroutine[Any, Any, int]: ...
def send(
    connection: Connection[Any] | AsyncConnection[Any],
    queue: str,
    type_: str,
    payload: object = None,
    *,
    headers: Mapping[str, object] | None = None,
    delay: int = 0,
) -> int | Coroutine[Any, Any, int]:
    """Put a message into a queue, visible after `delay` seconds; its id. On an async connection it is awaited."""
    return _execute(connection, "send", _one(queue, type_, payload, headers, delay))


async def send_async(
    connection: AsyncConnection[Any],
    queue: str,
    type_: str,
    payload: object = None,
    *,
    headers: Mapping[str, object] | None = None,
    delay: int = 0,
) -> int:
    """As `send`, on an async connection."""
    return await send(connection, queue, type_, payload, headers=headers, delay=delay)


@overload
def send_batch(
    connection: Connection[Any], queue: str, messages: Iterable[tuple[str, object]], *, then: tuple[str, object]
) -> int: ...
@overload
def send_batch(
    connection: AsyncConnection[Any], queue: str, messages: Iterable[tuple[str, object]], *, then: tuple[str, object]
) -> Coroutine[Any, Any, int]: ...
def send_batch(
    connection: Connection[Any] | AsyncConnection[Any],
    queue: str,
    messages: Iterable[tuple[str, object]],
    *,
    then: tuple[str, object],
) -> int | Coroutine[Any, Any, int]:
    """Put messages into a queue, each (type, payload), and `then` one more when all of them have ended.

    A message has ended when it was handled, when it failed for good, or when an operator has cancelled or completed
    it. All of it is sent or nothing, also on a connection that commits by itself, for it is one statement. Returns the
    batch's id; on an async connection it is awaited.
    """
    bodies = [_body(type_, payload) for type_, payload in messages]
    if not bodies:
        raise Refused("empty_batch", "a batch of no messages would never end: give it one at least", where="messages")
    parameters = {"queue": Queue(queue).name, "open": len(bodies), "then": _body(*then), "bodies": bodies}
    return _execute(connection, "send_many", parameters)


async def send_batch_async(
    connection: AsyncConnection[Any], queue: str, messages: Iterable[tuple[str, object]], *, then: tuple[str, object]
) -> int:
    """As `send_batch`, on an async connection."""
    return await send_batch(connection, queue, messages, then=then)


def _execute(
    connection: Connection[Any] | AsyncConnection[Any], name: str, parameters: Params
) -> int | Coroutine[Any, Any, int]:
    """Run one statement in the caller's transaction, which is neither begun here nor ended; the id that it gives."""
    if isinstance(connection, AsyncConnection):
        return _execute_async(connection, name, parameters)
    return _id(connection.cursor(row_factory=scalar_row).execute(statement(name), parameters).fetchone())


async def _execute_async(connection: AsyncConnection[Any], name: str, parameters: Params) -> int:
    cursor = connection.cursor(row_factory=scalar_row)
    await cursor.execute(statement(name), parameters)
    return _id(await cursor.fetchone())


_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def _one(
    queue: str, type_: str, payload: object, headers: Mapping[str, object] | None, delay: int
) -> tuple[str, str, str | None, int]:
    if not whole(delay) or delay < 0:
        raise Refused("bad_delay", f"delay ({delay!r}) must be a whole number of seconds, 0 or more", where="delay")
    name, body = Queue(queue).name, _body(type_, payload)
    return name, body, None if headers is None else _kept(to_json(headers, "headers"), "headers"), delay


def _body(type_: str, payload: object) -> str:
    if not is_type(type_):
        raise Refused("bad_type", f"{type_!r} is no type of message: a type is text", where="type")
    return _kept(to_json({"type": type_, "payload": payload}, "payload"), "payload")


def _kept(text: str, where: str) -> str:
    """JSON that PostgreSQL can keep: it has no text with a NUL character in it."""
    if "\\u0000" in text and _NUL.search(text) is not None:
        why = f"the message's {where} or type has a NUL character (\\x00), which PostgreSQL cannot keep: take it out"
        raise Refused("bad_payload", why, where=where)
    return text


def _id(found: object) -> int:
    if not isinstance(found, int):
        raise Bug(f"PGMQ gave {found!r} for the id of what was sent")
    return found


# Messages that are sent together, with one more that is sent when the last of them has ended.


def end_of_batch(connection: Connection[Any], headers: Mapping[str, Any]) -> None:
    """A message has ended for good, in this transaction; if it was the last of its batch, send what follows."""
    batch = headers.get(BATCH)
    if not whole(batch):
        return
    for queue, message in connection.execute(statement("end_of_batch"), (batch,)).fetchall():
        connection.execute(statement("send"), (queue, Jsonb(message), None, 0))
        connection.execute(statement("forget_batch"), (batch,))


# The messages of a queue that did not go through, one by one: those that no open question is about.

MOST = 50
"""Of each queue; how many there are in all is counted apart."""


class TroubledMessage(msgspec.Struct, frozen=True):
    """One of them."""

    id: int
    state: str
    """`answered` (a worker has yet to carry it out), `retrying` or `failed`."""
    code: str
    reason: str
    retries: int
    noted_at: int
    next_at: int | None
    """When it is tried again."""
    choice: str
    """What a human has decided about it."""
    answered_by: str


def troubled_in(connection: Connection[Any], queue: str) -> list[TroubledMessage]:
    """Those of a queue that are neither settled nor before a human, what was answered first."""
    return [TroubledMessage(*row) for row in Queue(queue).troubled(connection, MOST)]
