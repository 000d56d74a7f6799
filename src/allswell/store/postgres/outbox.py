"""What sinks still have to deliver, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allswell.domain.delivery import Delivery, memory_key
from allswell.domain.journal import Position
from allswell.store.postgres.session import SQL, Session
from allswell.store.postgres.values import json, texts


def enlist(
    session: Session, follower: str, after: Position, upto: Position, deliveries: Sequence[Delivery], memory: str
) -> bool:
    """Keep new deliveries and the follower's memory, if the cursor is where it believes, and move that."""
    session.ask((SQL["lock_cursor"], (follower,)))
    rows = session.ask((SQL["select_cursor"], (follower,)))[0].fetchall()
    if (Position(*rows[0]) if rows else Position()) != after:
        return False
    session.ask(
        (SQL["advance_cursor"], (follower, upto.xid, upto.id)),
        (SQL["insert_deliveries"], (json([_row(one) for one in deliveries]),)),
        *([(SQL["put_kept"], (memory_key(follower), memory))] if memory else []),
    )
    return True


def forget(session: Session, follower: str, sink: str) -> None:
    """Forget a follower with all that is kept of it."""
    session.ask(
        (SQL["lock_cursor"], (follower,)),
        (SQL["delete_cursor"], (follower,)),
        (SQL["delete_deliveries_of"], (sink,)),
    )
    kept = [key for key, _ in session.ask((SQL["view_kept"], (follower,)))[0].fetchall()]
    own = [f"kept.{key}" for key in kept if key == follower or key.startswith(f"{follower}.")]
    session.ask((SQL["delete_kept"], (texts(own),)))


def revise(session: Session, changed: Sequence[Delivery], gone: Sequence[Delivery]) -> None:
    """Write deliveries as they are now, and forget those that are gone."""
    for statement, which in (("update_deliveries", changed), ("delete_deliveries", gone)):
        if which:
            session.ask((SQL[statement], (json([_row(one) for one in which]),)))


def delivery_of(row: Sequence[Any]) -> Delivery:
    """A delivery as it was kept."""
    sink, id_, target, xid, number, part, *rest = row
    return Delivery(sink, id_, target, (xid, number, part), *rest)


def _row(one: Delivery) -> dict[str, object]:
    xid, number, part = one.place
    return {
        "sink": one.sink,
        "xid": xid,
        "number": number,
        "part": part,
        "id": one.id,
        "target": one.target,
        "at": one.at,
        "body": one.body,
        "tries": one.tries,
        "next_at": one.next_at,
        "failing_since": one.failing_since,
        "given_up": one.given_up,
        "reason": one.reason,
    }
