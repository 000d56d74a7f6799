"""The worker for messages: handlers that do nothing, handlers of 200 ms, and raw PGMQ beside them in the same run.

    bench/worker.py
    bench/worker.py --pgmq-sql pgmq--1.5.1.sql     with `reliable-cmd` beside it, which needs a PGMQ before 1.10

Rounds are interleaved, and each figure is the median of them. Raw PGMQ reads and deletes 100 at a time and handles
nothing: what the worker is measured against where the peer cannot be run.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psycopg
from conditions import conditions, keep, told
from race import venvs
from race.venvs import Environment

from allswell.testing.postgres import Cluster
from allswell.worker import Worker, setup

PEER = Environment("reliable-cmd", ("reliable-cmd==0.2.2", "psycopg[binary]"))
PEER_SETTINGS = (("async", 10), ("async", 50), ("sync", 10), ("sync", 50))
"""Its worker at several settings: the best one counts."""
SLOTS = 100
QUEUE = "bench"
SLOW, SLOW_SLOTS, SLOW_ROUNDS = 0.2, 20, 20


def fill(url: str, messages: int) -> None:
    """Put messages into the queue, all at once."""
    with psycopg.connect(url) as connection:
        made = """SELECT pgmq.send_batch(%s, array(SELECT '{"type": "work"}'::jsonb FROM generate_series(1, %s)))"""
        connection.execute(made, (QUEUE, messages))


def raw(url: str, messages: int) -> float:
    """Read 100 and delete 100, again and again."""
    fill(url, messages)
    with psycopg.connect(url) as connection:
        began, left = time.monotonic(), messages
        while left:
            rows = connection.execute("SELECT msg_id FROM pgmq.read(%s, 30, 100)", (QUEUE,)).fetchall()
            connection.commit()
            connection.execute("SELECT pgmq.delete(%s, %s::bigint[])", (QUEUE, [row[0] for row in rows]))
            connection.commit()
            left -= len(rows)
        return messages / (time.monotonic() - began)


def ours(url: str, messages: int, slots: int, pause: float) -> float:
    """Our worker with every slot at work: without its first message in each, and without its last."""
    fill(url, messages)
    worker = Worker(url, QUEUE, concurrency=slots)

    @worker.handler("work")
    def work(_message: object, _connection: object) -> None:
        if pause:
            time.sleep(pause)

    with worker:
        began, before = _reached(worker, slots)
        ended, after = _reached(worker, messages - slots)
        _reached(worker, messages)
        return (after - before) / (ended - began)


def _reached(worker: Worker, handled: int) -> tuple[float, int]:
    """When so many were handled, and how many it were by then."""
    while (now := worker.counts()["handled"]) < handled:
        time.sleep(0.002)
    return time.monotonic(), now


def peer(cluster: Cluster, python: Path, sql: str, messages: int) -> float:
    """The peer at its best setting, each in a database of its own."""
    best = 0.0
    for kind, slots in PEER_SETTINGS:
        url = cluster.create_database()
        with psycopg.connect(url) as connection:
            connection.execute(sql.encode())
        script = str(Path(__file__).parent / "worker_peer.py")
        command = [str(python), script, url, str(messages), str(slots), kind]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode:
            print(f"  reliable-cmd {kind} {slots}: failed: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        else:
            best = max(best, float(done.stdout))
        cluster.drop_database(url)
    return best


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pgmq-sql", type=Path, help="PGMQ before 1.10 as SQL, for the peer")
    options = parser.parse_args()
    found: dict[str, list[float]] = {"raw": [], "no-op": [], "200 ms": [], "reliable-cmd": []}
    beside = conditions()
    python = PEER.python(venvs.WHERE) if options.pgmq_sql else None
    with Cluster() as cluster:
        url = cluster.create_database()
        setup(url, QUEUE)
        for _ in range(options.rounds):
            found["raw"].append(raw(url, options.messages))
            found["no-op"].append(ours(url, options.messages, SLOTS, 0.0))
            found["200 ms"].append(ours(url, SLOW_SLOTS * SLOW_ROUNDS, SLOW_SLOTS, SLOW))
            if python is not None:
                sql = options.pgmq_sql.read_text()
                found["reliable-cmd"].append(peer(cluster, python, sql, options.messages // 20))
    medians = {name: statistics.median(rates) for name, rates in found.items() if rates}
    print(told(beside))
    for name, rate in medians.items():
        print(f"  {name:<14} {rate:>10,.0f} messages/s")
    print(f"  no-op / raw    {medians['no-op'] / medians['raw']:>10.2f}   (at least 0.25)")
    print(f"  200 ms         {medians['200 ms'] / (SLOW_SLOTS / SLOW):>10.1%}   of concurrency / 0.2 s (at least 95 %)")
    if medians.get("reliable-cmd"):
        print(f"  no-op / peer   {medians['no-op'] / medians['reliable-cmd']:>10.1f}   (at least 5)")
    else:
        print("  reliable-cmd   not run: it needs PGMQ before 1.10, given by --pgmq-sql FILE")
    keep("worker", {"conditions": beside, "messages_per_s": medians, "rounds": found})


if __name__ == "__main__":
    main()
