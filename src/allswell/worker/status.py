"""How a worker is, as it is told to others: its supervising process, the health port, the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from allswell.domain.health import WorkerCondition


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

    @property
    def ready(self) -> bool:
        """Whether messages should be given to it."""
        return self.running and self.alive and self.condition is not WorkerCondition.CRITICAL


HELP = {
    "handled": "Messages that were handled.",
    "retried": "Messages that failed and are tried again.",
    "failed": "Messages that ended as failed, by a business rule.",
    "quarantined": "Messages that wait for an operator.",
    "late": "Ends that were refused: the message was somebody else's by then.",
    "given_back": "Messages that were given back at a stop.",
    "stuck": "Handlers that did not come back in time.",
    "exhausted": "Waits in vain for a connection.",
    "restarts": "Restarts in the process, because it was critical.",
    "running": "Messages that are being handled now.",
}
"""What each figure counts."""
_GAUGES = frozenset({"running"})


def prometheus(statuses: Sequence[WorkerStatus]) -> str:
    """The figures of all processes, as Prometheus reads them."""
    lines: list[str] = []
    for name, text in HELP.items():
        gauge = name in _GAUGES
        metric = f"allswell_worker_{name}" + ("" if gauge else "_total")
        lines += [f"# HELP {metric} {text}", f"# TYPE {metric} {'gauge' if gauge else 'counter'}"]
        lines += [f"{metric}{_labels(one)} {one.counts.get(name, 0)}" for one in statuses]
    lines += ["# HELP allswell_worker_condition 1 for the condition that a process is in."]
    lines += ["# TYPE allswell_worker_condition gauge"]
    for one in statuses:
        for condition in WorkerCondition:
            labels = _labels(one)[:-1] + f',condition="{condition}"}}'
            lines.append(f"allswell_worker_condition{labels} {int(one.condition is condition)}")
    return "\n".join(lines) + "\n"


def _labels(status: WorkerStatus) -> str:
    return f'{{queue="{status.queue}",process="{status.pid}"}}'
