"""The worker for messages: handlers that do nothing, of 200 ms, of one INSERT; raw PGMQ and a plain loop beside them.

    bench/worker.py
    bench/worker.py --pgmq-sql pgmq--1.5.1.sql     with `reliable-cmd` beside it, which needs a PGMQ before 1.10

Rounds are interleaved, and each figure is the median of them. Raw PGMQ reads and deletes 100 at a time and handles
nothing: what the worker is measured against where the peer cannot be run. The plain loop (`worker_loop.py`) has as many
threads as the worker has slots, and the same handler. Last, the server is restarted under an idle worker and an idle
loop: how long until the next message is handled.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
from conditions import conditions, keep, told
from race import venvs
from race.venvs import Environment
from worker_loop import PlainLoop

from allswell.testing.postgres import Cluster
from allswell.worker import Worker, setup

PEER = Environment("reliable-cmd", ("reliable-cmd==0.2.2", "psycopg[binary]"))
PEER_SETTINGS = (("async", 10), ("async", 50), ("sync", 10), ("sync", 50))
"""Its worker at several settings: the best one counts."""
SLOTS = 100
QUEUE = "bench"
SLOW, SLOW_SLOTS, SLOW_ROUNDS = 0.2, 20, 20
INSERT_SLOTS = 10
INSERT = "INSERT INTO effect VALUES (%s)"
IDLE_SECONDS = 3.0
"""How long the worker has had nothing to do when its server is restarted."""


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


def our_inserts(url: str, messages: int) -> float:
    """Our worker with handlers that write one row."""
    fill(url, messages)
    worker = Worker(url, QUEUE, concurrency=INSERT_SLOTS)
    worker.handler("work")(lambda message, connection: connection.execute(INSERT, (message.id,)))
    with worker:
        return _rate(lambda: worker.counts()["handled"], messages)


def plain_inserts(url: str, messages: int) -> float:
    """The plain loop with the same."""
    fill(url, messages)
    with PlainLoop(url, QUEUE, lambda id_, _, connection: connection.execute(INSERT, (id_,)), INSERT_SLOTS) as loop:
        return _rate(lambda: loop.handled, messages)


def _rate(handled: Callable[[], int], messages: int) -> float:
    """Messages in a second, without the first tenth and the last."""
    tenth = messages // 10
    (began, before), (ended, after) = _passed(handled, tenth), _passed(handled, messages - tenth)
    _passed(handled, messages)
    return (after - before) / (ended - began)


def _passed(handled: Callable[[], int], number: int) -> tuple[float, int]:
    while (now := handled()) < number:
        time.sleep(0.002)
    return time.monotonic(), now


def blind_after_a_restart(cluster: Cluster, url: str) -> tuple[float, float]:
    """For how many seconds after a restart of the server the next message is not handled: the worker, and the loop."""
    found = []
    worker = Worker(url, QUEUE, concurrency=INSERT_SLOTS)
    worker.handler("work")(lambda message, connection: connection.execute(INSERT, (message.id,)))
    loop = PlainLoop(url, QUEUE, lambda id_, _, connection: connection.execute(INSERT, (id_,)), INSERT_SLOTS)
    for idle, handled in ((worker, lambda: worker.counts()["handled"]), (loop, lambda: loop.handled)):
        with idle:
            fill(url, 1)
            _passed(handled, 1)
            time.sleep(IDLE_SECONDS)
            cluster.restart()
            back = time.monotonic()
            fill(url, 1)
            found.append(_passed(handled, 2)[0] - back)
    return found[0], found[1]


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
    names = ("raw", "no-op", "200 ms", "insert", "plain insert", "reliable-cmd")
    found: dict[str, list[float]] = {name: [] for name in names}
    blind: dict[str, list[float]] = {"worker": [], "plain loop": []}
    beside = conditions()
    python = PEER.python(venvs.WHERE) if options.pgmq_sql else None
    with Cluster() as cluster:
        url = cluster.create_database()
        setup(url, QUEUE)
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE effect (message bigint)")
        for _ in range(options.rounds):
            found["insert"].append(our_inserts(url, options.messages // 4))
            found["plain insert"].append(plain_inserts(url, options.messages // 4))
            found["plain insert"].append(plain_inserts(url, options.messages // 4))
            found["insert"].append(our_inserts(url, options.messages // 4))
            found["raw"].append(raw(url, options.messages))
            found["no-op"].append(ours(url, options.messages, SLOTS, 0.0))
            found["200 ms"].append(ours(url, SLOW_SLOTS * SLOW_ROUNDS, SLOW_SLOTS, SLOW))
            if python is not None:
                sql = options.pgmq_sql.read_text()
                found["reliable-cmd"].append(peer(cluster, python, sql, options.messages // 20))
        for _ in range(options.rounds):
            for name, seconds in zip(blind, blind_after_a_restart(cluster, url), strict=True):
                blind[name].append(seconds)
    medians = {name: statistics.median(rates) for name, rates in found.items() if rates}
    print(told(beside))
    for name, rate in medians.items():
        print(f"  {name:<14} {rate:>10,.0f} messages/s")
    print(f"  no-op / raw    {medians['no-op'] / medians['raw']:>10.2f}   (at least 0.25)")
    print(f"  200 ms         {medians['200 ms'] / (SLOW_SLOTS / SLOW):>10.1%}   of concurrency / 0.2 s (at least 95 %)")
    print(f"  insert / plain {medians['insert'] / medians['plain insert']:>10.2f}   (at least 0.9)")
    for name, seconds in blind.items():
        print(f"  {name:<14} {max(seconds):>10.1f} s without messages after a restart, at most (worker: under 3)")
    if medians.get("reliable-cmd"):
        print(f"  no-op / peer   {medians['no-op'] / medians['reliable-cmd']:>10.1f}   (at least 5)")
    else:
        print("  reliable-cmd   not run: it needs PGMQ before 1.10, given by --pgmq-sql FILE")
    kept = {"conditions": beside, "messages_per_s": medians, "rounds": found, "blind_after_a_restart_s": blind}
    keep("worker", kept)


if __name__ == "__main__":
    main()
