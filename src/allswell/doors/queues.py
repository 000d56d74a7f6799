"""The queues of messages in a store's database, as the command line and the server show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from allswell.errors import Unavailable

if TYPE_CHECKING:
    from psycopg import Connection

    from allswell.worker.presence import QueueSeen
    from allswell.worker.troubled import TroubledMessage

T = TypeVar("T")
TROUBLES = {
    "retrying": "retrying",
    "quarantined": "quarantined",
    "answered": "answered, not yet applied",
    "failed": "failed",
}
"""How messages that did not go through stand, in words."""
UNASKED = ("answered", "retrying", "failed")
"""Those that need nobody now; what is quarantined is put before a human as a question."""


def queues_at(url: str) -> list[QueueSeen]:
    """Every queue of a database; none where it is no PostgreSQL, or was not set up for a worker."""
    return [seen for seen, _ in _look(url, lambda _connection, _queue: None)]


def look_at_queues(url: str) -> list[tuple[QueueSeen, list[TroubledMessage]]]:
    """Every queue of a database with its messages in trouble, not too many of them."""

    def troubled(connection: Connection[Any], queue: str) -> list[TroubledMessage]:
        from allswell.worker.troubled import troubled_in

        return troubled_in(connection, queue)

    return _look(url, troubled)


def _look(url: str, more: Callable[[Connection[Any], str], T]) -> list[tuple[QueueSeen, T]]:
    """Every queue, and what else is looked up about each on the same connection."""
    if not url.startswith("postgresql:"):
        return []
    try:
        import psycopg

        from allswell.worker.failures import sentence
        from allswell.worker.plan import refuse_unreadable
        from allswell.worker.presence import queues_seen
    except ImportError:
        return []
    refuse_unreadable(url)
    try:
        with psycopg.connect(url, connect_timeout=10, prepare_threshold=None, autocommit=True) as connection:
            return [(seen, more(connection, seen.queue)) for seen in queues_seen(connection)]
    except psycopg.OperationalError as error:
        raise Unavailable(f"the store cannot be reached: {sentence(error)}") from error
