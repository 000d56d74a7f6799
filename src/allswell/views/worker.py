"""Workers and their queues: how queues stand, which processes work on them, and reading that from a database."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, field

from allswell.errors import Unavailable
from allswell.timing.moment import Moment
from allswell.views.fields import as_shape

if TYPE_CHECKING:
    from psycopg import Connection

    from allswell.worker.queue import TroubledMessage
    from allswell.worker.status import QueueSeen, WorkerSeen


class WorkerSetupShape(Struct, frozen=True):
    """What was done to have a queue, in words, step by step."""

    queue: str
    done: list[str]


class ProcessShape(Struct, frozen=True):
    """A process of a worker, as it last said; `gone` where that was too long ago."""

    process: str
    pid: int
    running: bool
    condition: str
    why: str
    counts: dict[str, int]
    started_at: Moment
    silent_ms: int
    gone: bool
    reads: bool = True
    """Whether messages can be read."""
    oldest_ms: int = 0
    """For how long the handler has run that has run longest, and the type of its message."""
    oldest_type: str = ""
    too_slow: dict[str, str] = field(default_factory=dict)
    """Types of messages whose handlers took longer than their messages are hidden."""

    @classmethod
    def of(cls, seen: WorkerSeen) -> ProcessShape:
        """One of them."""
        status = seen.status
        return as_shape(
            status,
            cls,
            process=seen.worker,
            started_at=round(status.since * 1_000),
            silent_ms=round(seen.silent * 1_000),
            gone=seen.gone,
            oldest_ms=round(status.oldest * 1_000),
        )


class QueueShape(Struct, frozen=True):
    """A queue: `visible` messages could be read now, the oldest of them for so long; `troubles` by their state."""

    queue: str
    messages: int
    visible: int
    oldest_ms: int
    troubles: dict[str, int]
    processes: list[ProcessShape]

    @classmethod
    def of(cls, seen: QueueSeen) -> QueueShape:
        """One of them."""
        processes = [ProcessShape.of(one) for one in seen.workers]
        return cls(seen.queue, seen.messages, seen.visible, round(seen.oldest * 1_000), dict(seen.troubles), processes)


class QueuesShape(Struct, frozen=True):
    """Every queue of the store's database."""

    queues: list[QueueShape]


# The queues of messages in a store's database, as the command line and the server show them.

T = TypeVar("T")
TROUBLES = {
    "retrying": "retrying",
    "quarantined": "quarantined",
    "answered": "answered, not yet applied",
    "failed": "failed",
}
"""How messages that did not go through stand, in words."""
UNASKED = ("answered", "retrying", "failed")
"""Those that need no human now; a quarantined message is put before a human as a question."""


def queues_at(url: str) -> list[QueueSeen]:
    """Every queue of a database; none where it is no PostgreSQL, or was not set up for a worker."""
    return [seen for seen, _ in _look(url, lambda _connection, _queue: None)]


def look_at_queues(url: str) -> list[tuple[QueueSeen, list[TroubledMessage]]]:
    """Every queue of a database with its messages in trouble, not too many of them."""

    def troubled(connection: Connection[Any], queue: str) -> list[TroubledMessage]:
        from allswell.worker.queue import troubled_in

        return troubled_in(connection, queue)

    return _look(url, troubled)


def _look(url: str, more: Callable[[Connection[Any], str], T]) -> list[tuple[QueueSeen, T]]:
    """Every queue, and what else is looked up about each on the same connection."""
    if not url.startswith("postgresql:"):
        return []
    try:
        import psycopg

        from allswell.worker.errors import sentence
        from allswell.worker.handlers import refuse_unreadable
        from allswell.worker.setup import not_allowed
        from allswell.worker.status import queues_seen
    except ImportError:
        return []
    refuse_unreadable(url)
    try:
        with psycopg.connect(url, connect_timeout=10, prepare_threshold=None, autocommit=True) as connection:
            return [(seen, more(connection, seen.queue)) for seen in queues_seen(connection)]
    except psycopg.errors.InsufficientPrivilege as error:
        raise not_allowed(error, url, "NAME") from error
    except psycopg.OperationalError as error:
        raise Unavailable(f"the store cannot be reached: {sentence(error)}") from error
