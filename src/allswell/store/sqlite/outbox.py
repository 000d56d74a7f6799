"""What sinks still have to deliver, in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from allswell.domain.delivery import Delivery, DeliveryFilter, memory_key
from allswell.domain.journal import Position
from allswell.store.sqlite import views
from allswell.store.sqlite.schema import SQL


def enlist(
    connection: sqlite3.Connection,
    follower: str,
    after: Position,
    upto: Position,
    deliveries: Sequence[Delivery],
    memory: str,
) -> bool:
    """Keep new deliveries and the follower's memory, if the cursor is where it believes, and move that."""
    if views.cursor(connection, follower) != after:
        return False
    connection.execute(SQL["advance"], (follower, upto.xid, upto.id))
    connection.executemany(SQL["insert_delivery"], map(_row, deliveries))
    if memory:
        connection.execute(SQL["put_kept"], (memory_key(follower), memory))
    return True


def forget(connection: sqlite3.Connection, follower: str, sink: str) -> None:
    """Forget a follower with all that is kept of it."""
    connection.execute(SQL["delete_cursor"], (follower,))
    connection.execute(SQL["delete_deliveries_of"], (sink,))
    connection.execute(SQL["delete_kept"], (follower,))


def revise(connection: sqlite3.Connection, changed: Sequence[Delivery], gone: Sequence[Delivery]) -> None:
    """Write deliveries as they are now, and forget those that are gone."""
    connection.executemany(
        SQL["update_delivery"],
        [
            (one.tries, one.next_at, one.failing_since, one.given_up, one.reason, one.sink, *one.place)
            for one in changed
        ],
    )
    connection.executemany(SQL["delete_delivery"], [(one.sink, *one.place) for one in gone])


def deliveries_of(connection: sqlite3.Connection, which: DeliveryFilter) -> list[Delivery]:
    """What is still to be delivered or was given up, in its order."""
    asked = (which.sink, which.target, which.given_up, which.limit)
    return [_delivery(row) for row in connection.execute(SQL["view_deliveries"], asked).fetchall()]


def _row(one: Delivery) -> tuple[Any, ...]:
    return (
        *(one.sink, *one.place, one.id, one.target, one.at, one.body),
        *(one.tries, one.next_at, one.failing_since, one.given_up, one.reason),
    )


def _delivery(row: tuple[Any, ...]) -> Delivery:
    sink, xid, number, part, id_, target, at, body, tries, next_at, since, given_up, reason = row
    return Delivery(sink, id_, target, (xid, number, part), at, body, tries, next_at, since, bool(given_up), reason)
