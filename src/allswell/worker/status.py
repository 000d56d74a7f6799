"""How a worker is, as it is told to others: its supervising process, the health port, the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from psycopg import Connection

from allswell.domain.worker.limits import WorkerCondition
from allswell.worker.queue import Queue, can_name, statement
from allswell.worker.setup import look


class WorkerStatus(msgspec.Struct, frozen=True):
    """One process of a worker."""

    pid: int
    queue: str
    running: bool
    """Whether it reads messages."""
    alive: bool
    """Whether it still does its work; what is not alive is restarted."""
    condition: WorkerCondition
    why: str
    """Why it is not healthy."""
    counts: Mapping[str, int]
    since: float
    """When it was started, in seconds since 1970."""
    reads: bool = True
    """Whether messages can be read: the server is there, answers, and has the queue."""
    oldest: float = 0.0
    """For how many seconds the handler has run that has run longest."""
    oldest_type: str = ""
    depth: tuple[int, int, float] = (0, 0, 0.0)
    """Messages in the queue, those that could be read, and for how many seconds the oldest of these has been there."""
    too_slow: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Types of messages whose handlers took longer than their messages are hidden, with the figures."""

    @property
    def ready(self) -> bool:
        """Whether messages should be given to it."""
        return self.running and self.alive and self.reads and self.condition is not WorkerCondition.CRITICAL


HELP = {
    "handled": "Messages that were handled.",
    "retried": "Messages that failed and are tried again.",
    "failed": "Messages that ended as failed, by a business rule.",
    "quarantined": "Messages that wait for an operator.",
    "late": "Ends that were refused: the message was another worker's by then.",
    "given_back": "Messages that were given back at a stop.",
    "stuck": "Handlers that did not come back in time.",
    "exhausted": "Waits in vain for a connection.",
    "restarts": "Restarts in the process, because it was critical.",
    "running": "Messages that are being handled now.",
}
"""What each figure counts."""
DEPTH = {
    "queue_messages": "Messages in the queue, at most 100,000 of them counted.",
    "queue_visible": "Messages that could be read now, at most 100,000 of them counted.",
    "queue_oldest_seconds": "For how long the oldest message that could be read has been there.",
}
_GAUGES = frozenset({"running"})


def prometheus(statuses: Sequence[WorkerStatus]) -> str:
    """The figures of all processes, as Prometheus reads them."""
    lines: list[str] = []
    for name, text in HELP.items():
        gauge = name in _GAUGES
        metric = f"allswell_worker_{name}" + ("" if gauge else "_total")
        lines += [f"# HELP {metric} {text}", f"# TYPE {metric} {'gauge' if gauge else 'counter'}"]
        lines += [f"{metric}{_labels(one)} {one.counts.get(name, 0)}" for one in statuses]
    deepest = {one.queue: one.depth for one in sorted(statuses, key=lambda one: one.depth)}
    for place, (name, text) in enumerate(DEPTH.items()):
        lines += [f"# HELP allswell_worker_{name} {text}", f"# TYPE allswell_worker_{name} gauge"]
        lines += [f'allswell_worker_{name}{{queue="{queue}"}} {depth[place]}' for queue, depth in deepest.items()]
    lines += ["# HELP allswell_worker_condition 1 for the condition that a process is in."]
    lines += ["# TYPE allswell_worker_condition gauge"]
    for one in statuses:
        for condition in WorkerCondition:
            labels = _labels(one)[:-1] + f',condition="{condition}"}}'
            lines.append(f"allswell_worker_condition{labels} {int(one.condition is condition)}")
    return "\n".join(lines) + "\n"


def _labels(status: WorkerStatus) -> str:
    return f'{{queue="{status.queue}",process="{status.pid}"}}'


# What workers say of themselves in the database, and how their queues stand: what `allswell worker status` shows.

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
    too_late: dict[str, int] = msgspec.field(default_factory=dict)
    """Why handlers were too late whose messages are retried or wait for a human, and how often; the most frequent."""

    @property
    def too_slow(self) -> dict[str, str]:
        """Types of messages whose handlers take longer than their messages are hidden, with the figures."""
        return {type_: says for one in self.workers if not one.gone for type_, says in one.status.too_slow.items()}


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
        late = dict(connection.execute(statement("too_late"), (name,)).fetchall())
        troubles = queue.troubles(connection)
        seen.append(QueueSeen(name, messages, visible, oldest, troubles, workers.get(name, []), late))
    return seen
