"""The queues of messages in a store's database, as the command line and the server show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allswell.errors import Unavailable

if TYPE_CHECKING:
    from allswell.worker.presence import QueueSeen


def queues_at(url: str) -> list[QueueSeen]:
    """Every queue of a database; none where it is no PostgreSQL, or was not set up for a worker."""
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
            return queues_seen(connection)
    except psycopg.OperationalError as error:
        raise Unavailable(f"the store cannot be reached: {sentence(error)}") from error
