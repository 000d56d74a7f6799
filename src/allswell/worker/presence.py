"""What workers say of themselves in the database, and how their queues stand: what `allswell worker status` shows."""

from __future__ import annotations

from typing import Any

import msgspec
from psycopg import Connection

from allswell.worker.queue import Queue, can_name, statement
from allswell.worker.setup import look
from allswell.worker.status import WorkerStatus

SILENT_SECONDS = 15.0
"""A process that has said nothing for so long is gone, or cannot reach the database: it has a word every 5 s."""


class WorkerSeen(msgspec.Struct, frozen=True):
    """A process of a worker, as the database knows it."""

    worker: str
    silent: float
    """For how many seconds it has said nothing."""
    status: WorkerStatus

    @property
    def gone(self) -> bool:
        """Whether it has been silent for too long."""
        return self.silent > SILENT_SECONDS


class QueueSeen(msgspec.Struct, frozen=True):
    """A queue: what waits in it, what is in trouble, who works on it."""

    queue: str
    messages: int
    visible: int
    """Those that could be read now."""
    oldest: float
    """For how many seconds the oldest of these has been there."""
    troubles: dict[str, int]
    """Messages that did not go through, by state."""
    workers: list[WorkerSeen]


def be_present(connection: Connection[Any], worker: str, status: WorkerStatus) -> None:
    """Say how a process is."""
    told = msgspec.json.encode(status).decode()
    connection.execute(statement("be_present"), {"worker": worker, "queue": status.queue, "status": told})


def be_gone(connection: Connection[Any], worker: str) -> None:
    """Say that a process has stopped."""
    connection.execute(statement("be_gone"), (worker,))


def queues_seen(connection: Connection[Any]) -> list[QueueSeen]:
    """Every queue of a database; none where it was not set up for a worker."""
    found = look(connection)
    if not (found.has_functions and found.has_tables and found.has_store):
        return []
    workers: dict[str, list[WorkerSeen]] = {}
    for worker, queue, status, silent in connection.execute(statement("present")).fetchall():
        workers.setdefault(queue, []).append(WorkerSeen(worker, silent, msgspec.convert(status, WorkerStatus)))
    seen = []
    for (name,) in connection.execute(statement("queues")).fetchall():
        if not can_name(name):
            continue  # made by somebody else, with letters that a worker's queue cannot have
        queue = Queue(name)
        messages, visible, oldest = queue.depth(connection)
        seen.append(QueueSeen(name, messages, visible, oldest, queue.troubles(connection), workers.get(name, [])))
    return seen
