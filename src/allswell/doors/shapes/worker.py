"""Workers and their queues: what a set-up did, how queues stand, and which processes work on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.doors.shapes.moment import Moment, moment

if TYPE_CHECKING:
    from allswell.worker.presence import QueueSeen, WorkerSeen


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

    @classmethod
    def of(cls, seen: WorkerSeen) -> ProcessShape:
        """One of them."""
        status = seen.status
        return cls(
            process=seen.worker,
            pid=status.pid,
            running=status.running,
            condition=status.condition,
            why=status.why,
            counts=dict(status.counts),
            started_at=moment(round(status.since * 1_000)),
            silent_ms=round(seen.silent * 1_000),
            gone=seen.gone,
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

    @classmethod
    def of(cls, seen: list[QueueSeen]) -> QueuesShape:
        """All of them."""
        return cls([QueueShape.of(one) for one in seen])
