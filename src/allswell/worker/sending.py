"""Sending messages inside the caller's own transaction: they are there when it commits, and never were if it does not.

with psycopg.connect(…) as connection:
    connection.execute("INSERT INTO orders …")
    send(connection, "orders", "order.paid", {"order": 7})
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg.rows import scalar_row

from allswell.domain.layers import whole
from allswell.domain.message import BATCH, is_type
from allswell.domain.plain_data import to_json
from allswell.errors import Bug, Refused
from allswell.worker.queue import Queue, statement


def send(
    connection: Connection[Any],
    queue: str,
    type_: str,
    payload: object = None,
    *,
    headers: Mapping[str, object] | None = None,
    delay: int = 0,
) -> int:
    """Put a message into a queue, visible after `delay` seconds; returns its id."""
    cursor = connection.cursor(row_factory=scalar_row)
    return _id(cursor.execute(statement("send"), _one(queue, type_, payload, headers, delay)).fetchone())


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
    cursor = connection.cursor(row_factory=scalar_row)
    await cursor.execute(statement("send"), _one(queue, type_, payload, headers, delay))
    return _id(await cursor.fetchone())


def send_batch(
    connection: Connection[Any], queue: str, messages: Iterable[tuple[str, object]], *, then: tuple[str, object]
) -> int:
    """Put messages into a queue, each (type, payload), and `then` one more when all of them have ended.

    A message has ended when it was handled, when it failed for good, or when an operator has cancelled or completed
    it. All of it is sent or nothing, also on a connection that commits by itself. Returns the batch's id.
    """
    bodies = [_body(type_, payload) for type_, payload in messages]
    if not bodies:
        raise Refused("empty_batch", "a batch of no messages would never end: give it one at least", where="messages")
    name, last = Queue(queue).name, _body(*then)
    with connection.transaction():
        cursor = connection.cursor(row_factory=scalar_row)
        batch = _id(cursor.execute(statement("begin_batch"), (name, len(bodies), last)).fetchone())
        headers = [to_json({BATCH: batch}, "headers")] * len(bodies)
        cursor.execute(statement("send_many"), (name, bodies, headers, 0))
    return batch


def _one(
    queue: str, type_: str, payload: object, headers: Mapping[str, object] | None, delay: int
) -> tuple[str, str, str | None, int]:
    if not whole(delay) or delay < 0:
        raise Refused("bad_delay", f"delay ({delay!r}) must be a whole number of seconds, 0 or more", where="delay")
    return Queue(queue).name, _body(type_, payload), None if headers is None else to_json(headers, "headers"), delay


def _body(type_: str, payload: object) -> str:
    if not is_type(type_):
        raise Refused("bad_type", f"{type_!r} is no type of message: a type is text", where="type")
    return to_json({"type": type_, "payload": payload}, "payload")


def _id(found: object) -> int:
    if not isinstance(found, int):
        raise Bug(f"PGMQ gave {found!r} for the id of what was sent")
    return found
