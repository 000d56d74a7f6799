"""What is measured of one entry: a turn of enqueue and drain, idle pick-up, heartbeats, growth.

Each turn has a fresh database, file or Redis namespace and fresh processes, and a small turn before it that warms them
up; starting and warming are not timed.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from pathlib import Path

import psycopg

from allswell.testing.postgres import Cluster
from race.entries import Entry
from race.racer import Racer

_PAUSE = (0.02, 0.12)
"""Between two stamped tasks: random, so that no poll of anybody is met in step."""


def race(entry: Entry, python: Path, place: str, tasks: int) -> tuple[float, float]:
    """Tasks enqueued per second, and drained per second, by all processes of an entry."""
    with ExitStack() as stack:
        racers = [stack.enter_context(Racer(entry, python, place, namespace="race")) for _ in range(entry.processes)]
        racers[0].ask("setup")
        for racer in racers:
            racer.ask("prepare")
        _drain(racers, max(100, tasks // 5))  # a few of everybody's largest batches
        enqueue, drain = _drain(racers, tasks)
    return tasks / enqueue, tasks / drain


def _drain(racers: list[Racer], tasks: int) -> tuple[float, float]:
    took = float(racers[0].ask("enqueue", count=tasks)["took"])
    began = time.time()
    for racer in racers:
        racer.send("drain")
    return took, max(float(racer.hear("took")["result"]) for racer in racers) - began


def pick_up(entry: Entry, python: Path, place: str, *, samples: int, seconds: float) -> list[float]:
    """Milliseconds from the enqueuing of single tasks in one process to their start in another that was idle."""
    found: list[float] = []
    chance = random.Random(1)
    watcher = Racer(entry, python, place, namespace="race")
    with Racer(entry, python, place, namespace="race") as sender:
        try:
            watcher.ask("setup")
            watcher.send("watch")
            time.sleep(3.0)  # until it is idle
            until = time.monotonic() + seconds
            while len(found) < samples + 10 and time.monotonic() < until:
                sender.ask("stamp")
                found.append(float(watcher.hear("picked", patience=20)["picked"]))
                time.sleep(chance.uniform(*_PAUSE))
        finally:
            watcher.end()
    return found[10:]  # the first ones warm up


def heartbeat(entry: Entry, python: Path, place: str, cluster: Cluster) -> tuple[float, float]:
    """Microseconds and bytes of WAL for one heartbeat."""
    with (
        psycopg.connect(cluster.admin_url(), autocommit=True) as admin,
        Racer(entry, python, place, namespace="race") as racer,
    ):

        def position() -> int:
            row = admin.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
            assert row is not None
            return int(row[0])

        racer.ask("setup")
        racer.ask("hold", count=1_000)
        admin.execute("CHECKPOINT")
        racer.ask("beat")  # the first beat after a checkpoint writes whole pages
        before, took, beats = position(), 0.0, 0
        for _ in range(5):
            said = racer.ask("beat")
            took += said["took"]
            beats += said["result"]
        return took / beats * 1_000_000, (position() - before) / beats


def growth(entry: Entry, python: Path, place: str, steps: list[int], rounds: int) -> dict[int, float]:
    """Seconds to drain a thousand tasks, with so many finished ones beside them: the median of some rounds."""
    found = {}
    tasks = min(entry.tasks, 2_000)
    filled = 0
    with ExitStack() as stack:
        racers = [stack.enter_context(Racer(entry, python, place, namespace="race")) for _ in range(entry.processes)]
        racers[0].ask("setup")
        for racer in racers:
            racer.ask("prepare")
        _drain(racers, max(100, tasks // 10))
        for step in steps:
            if step > filled:
                racers[0].ask("fill", count=step - filled)
                filled = step
                _drain(racers, max(100, tasks // 10))
            times = sorted(_drain(racers, tasks)[1] / tasks * 1_000 for _ in range(rounds))
            found[step] = times[len(times) // 2]
    return found
