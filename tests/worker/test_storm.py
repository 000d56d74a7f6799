"""A storm over a worker: servers restart, sessions and processes are killed or stopped, handlers hang.

Every message is handled or quarantined, its effect inside the transaction happens exactly once, and when the storm is
over no worker is stuck. `make chaos` runs it for ten minutes (ALLSWELL_WORKER_STORM_SECONDS).

One message in eight is stuck, so the slots are never enough and processes are spent again and again. Senders keep a
full queue before them and no fuller one, and what is waited for afterwards is progress: how long a queue takes to empty
says how fast this machine is, not whether anything was lost.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path

import psycopg
import pytest

from allswell.domain.worker.limits import Layers
from allswell.domain.worker.message import Message, MessagePolicy
from allswell.testing.postgres import Cluster
from allswell.worker import Permanent, Worker, send, setup
from allswell.worker.handlers import WorkerPlan
from allswell.worker.process import ProcessOrder
from allswell.worker.supervisor import ChildProcess
from tests import patience
from tests.worker.stage import until

FULL = 100
"""Messages that wait at most, for about ten seconds of work."""
SECONDS = float(os.environ.get("ALLSWELL_WORKER_STORM_SECONDS", "30"))
TYPES = ("work", "work", "work", "work", "async", "slow", "long", "stuck")


def waiting(connection: psycopg.Connection[tuple[int]]) -> int:
    """How many messages the queue holds."""
    row = connection.execute("SELECT count(*) FROM pgmq.q_storm").fetchone()
    assert row is not None
    return row[0]


class Storm:
    """The processes, the server, and what befalls them."""

    def __init__(self, cluster: Cluster, url: str, seed: int) -> None:
        self.cluster = cluster
        self.url = url
        self.draw = random.Random(seed)
        plan = WorkerPlan(
            url,
            "storm",
            Layers(900, 1, 5.0, 1.0, 4),
            MessagePolicy((200, 200, 200, 200, 200, 200), 3),
            poll_interval=0.2,
            stop_timeout=3.0,
        )
        self.order = ProcessOrder("tests.worker.jobs:handlers", str(Path(__file__).parents[2]), plan)
        self.children = [ChildProcess(self.order) for _ in range(2)]
        self.number = 0
        self.befell: list[str] = []
        self.ends: list[int] = []
        """What the processes that were replaced ended with."""

    def speak(self) -> None:
        """Send a few messages, and write down in the same transaction that they were sent."""
        with suppress(psycopg.Error), psycopg.connect(self.url, connect_timeout=5) as connection:
            if waiting(connection) >= FULL:
                return
            for _ in range(self.draw.randrange(1, 12)):
                self.number += 1
                kind = self.draw.choice(TYPES)
                if (chance := self.draw.random()) < 0.013:
                    kind = "deadly" if chance < 0.01 else "hold"
                send(connection, "storm", kind, {"number": self.number})
                connection.execute("INSERT INTO sent VALUES (%s, %s)", (self.number, kind))

    def befall(self) -> None:
        """One misfortune."""
        what = self.draw.choice(("restart", "terminate", "terminate", "stop", "kill", "nothing", "nothing"))
        self.befell.append(what)
        place = self.draw.randrange(len(self.children))
        child = self.children[place]
        match what:
            case "restart":
                self.cluster.restart(self.draw.choice(("fast", "immediate")))
            case "terminate":
                with suppress(psycopg.Error), psycopg.connect(self.url, connect_timeout=5) as connection:
                    ours = "application_name = 'allswell-worker' AND random() < 0.5"
                    connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}".encode())
            case "stop":
                child.process.send_signal(signal.SIGSTOP)
                time.sleep(self.draw.uniform(0.5, 3.0))
                child.process.send_signal(signal.SIGCONT)
            case "kill":
                child.process.kill()
            case _:
                pass

    def replace_the_dead(self) -> None:
        """As the supervising process does: also what hangs."""
        for place, child in enumerate(self.children):
            child.hear()
            if child.process.poll() is None and child.hangs():
                child.abort()
            if child.process.poll() is not None:
                child.close()
                self.ends.append(child.process.returncode)
                self.children[place] = ChildProcess(self.order)

    def memory(self) -> int:
        """Kilobytes that the processes hold now."""
        pages = sum(int(Path(f"/proc/{c.process.pid}/statm").read_text().split()[1]) for c in self.children)
        return pages * os.sysconf("SC_PAGESIZE") // 1_024

    def close(self) -> None:
        for child in self.children:
            child.process.kill()
            child.process.wait()
            child.close()


@pytest.mark.row("W4", "W5", "W6")
def test_every_message_is_handled_once_or_quarantined() -> None:
    seed = int(os.environ.get("ALLSWELL_WORKER_STORM_SEED", random.SystemRandom().randrange(10**9)))
    with Cluster() as cluster:
        url = cluster.create_database()
        setup(url, "storm")
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE sent (number int, kind text)")
            connection.execute("CREATE TABLE effect (number int, process int)")
        storm = Storm(cluster, url, seed)
        try:
            early, late = _blow(storm)
            _calm(storm, f"seed {seed}, after {storm.befell}")
            told = (
                f"{storm.number} messages, seed {seed}",
                f"most memory {early} kB in the first half, {late} kB in the second",
            )
            _tell(*told, f"befell: {Counter(storm.befell)}", f"ends of processes: {Counter(storm.ends)}")
            assert SECONDS < 300 or late < 1.3 * early + 30_000, "memory stays flat"
        finally:
            storm.close()


def _blow(storm: Storm) -> tuple[int, int]:
    """Let it rage; gives the most memory that was held in its first and in its second half."""
    began, most = time.monotonic(), [0, 0]
    while (elapsed := time.monotonic() - began) < SECONDS:
        half = int(2 * elapsed / SECONDS)
        with suppress(OSError):  # one of them is dead just now
            most[half] = max(most[half], storm.memory())
        storm.speak()
        if storm.draw.random() < 0.25:
            storm.befall()
        storm.replace_the_dead()
        time.sleep(0.05)
    return most[0], most[1]


def _calm(storm: Storm, story: str) -> None:
    """The storm is over: everything comes to its end, exactly once."""
    with psycopg.connect(storm.url, autocommit=True) as outside:
        least, give_up = inf, 0.0
        while left := waiting(outside):
            storm.replace_the_dead()  # a deadly message may still be there
            if left < least:
                least, give_up = left, time.monotonic() + patience.SECONDS
            assert time.monotonic() < give_up, f"{left} messages stand still ({story})"
            time.sleep(0.05)
        wrong = outside.execute("""
            SELECT sent.number, sent.kind, count(effect.number), bool_or(known.state = 'quarantined')
            FROM sent
            LEFT JOIN effect USING (number)
            LEFT JOIN pgmq.a_storm AS archived ON (archived.message -> 'payload' ->> 'number')::int = sent.number
            LEFT JOIN allswell_worker.trouble AS known ON known.queue = 'storm' AND known.msg_id = archived.msg_id
            GROUP BY sent.number, sent.kind
            HAVING count(effect.number) <> CASE WHEN bool_or(known.state = 'quarantined') THEN 0 ELSE 1 END
        """).fetchall()
        assert wrong == [], story
        quarantined = """
            SELECT known.code, archived.message ->> 'type', count(*)
            FROM allswell_worker.trouble AS known
            JOIN pgmq.a_storm AS archived USING (msg_id)
            WHERE known.state = 'quarantined'
            GROUP BY 1, 2
            ORDER BY 1, 2
        """
        _tell(*outside.execute(quarantined).fetchall())
    until(partial(_all_are_ready, storm), f"each process is ready ({story})")


def _tell(*figures: object) -> None:
    """For whoever runs it with `-s`."""
    sys.stdout.write("".join(f"{figure}\n" for figure in figures))


def _all_are_ready(storm: Storm) -> bool:
    storm.replace_the_dead()
    return all(child.status is not None and child.status.ready for child in storm.children)


FAILURES = int(os.environ.get("ALLSWELL_WORKER_STORM_FAILURES", "40000"))
GOOD, GOOD_SECONDS, SLOTS = 1_000, 0.2, 10


@pytest.mark.slow
@pytest.mark.row("W5", "W6")
def test_a_storm_of_permanent_failures_holds_up_nothing_else() -> None:
    with Cluster() as cluster:
        url = cluster.create_database()
        setup(url, "storm")
        alone, _ = _failing(url, 0)
        beside, grown = _failing(url, FAILURES)
        _tell(f"good messages alone {alone:.1f} s, beside {FAILURES} failures {beside:.1f} s, memory +{grown} kB")
        with psycopg.connect(url) as connection:
            kept = connection.execute("SELECT state, count(*) FROM allswell_worker.trouble GROUP BY 1").fetchall()
            asked = connection.execute("SELECT count(*) FROM allswell.question").fetchone()
        assert (kept, asked) == ([("quarantined", FAILURES)], (1,))
        assert beside <= 2 * alone
        assert grown < 50_000, "what waits is bounded"


def _failing(url: str, failures: int) -> tuple[float, int]:
    """Good messages among bad ones, evenly; how long the good ones took, and how many kB of memory were added."""
    each = failures // GOOD + 1
    query = """SELECT pgmq.send_batch('storm', array(
        SELECT jsonb_build_object('type', CASE WHEN n %% %s = 0 THEN 'good' ELSE 'bad' END, 'payload', n)
        FROM generate_series(1, %s) AS n))"""
    with psycopg.connect(url) as connection:
        connection.execute(query, (each, failures + GOOD))
    worker, calls = Worker(url, "storm", concurrency=SLOTS), Counter[int]()
    worker.handler("good")(lambda _message, _connection: time.sleep(GOOD_SECONDS))

    @worker.handler("bad")
    def bad(message: Message, _connection: object) -> None:
        calls[message.id] += 1
        raise Permanent("NO_ACCOUNT", f"there is no account {message.payload}")

    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with worker:
        _until_counted(worker, "handled", GOOD)
        took = time.monotonic() - began
        _until_counted(worker, "quarantined", failures)
    assert (len(calls), max(calls.values(), default=1)) == (failures, 1), "each is tried once"
    return took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def _until_counted(worker: Worker, what: str, number: int) -> None:
    seen, give_up = -1, 0.0
    while (now := worker.counts()[what]) < number:
        if now > seen:
            seen, give_up = now, time.monotonic() + patience.SECONDS
        assert time.monotonic() < give_up, f"{now} {what}, and no more"
        time.sleep(0.02)
