"""Where the time goes when Allswell drains tasks from PostgreSQL: the client's threads, and the server's statements.

    bench/where.py                  batches of 100
    bench/where.py --batch 500      others

The client is sampled from outside (py-spy, in an environment of its own); the server counts with pg_stat_statements.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psycopg
from conditions import conditions, keep, told
from processes import cpu_of_family
from race import venvs
from race.venvs import Environment

import allswell
from allswell.testing.postgres import Cluster

LOOPS = 3
"""How many claim and complete: two batches are under way at once, and one more waits."""
SWITCH = 0.0005
"""Seconds between two changes of threads, as docs/how-to.md says."""
PY_SPY = Environment("py-spy", ("py-spy",))
_TOP = 18
_STATEMENTS = """
    SELECT query, calls, total_exec_time, rows, wal_bytes FROM pg_stat_statements
    JOIN pg_database AS d ON d.oid = dbid
    WHERE d.datname = %s ORDER BY total_exec_time DESC LIMIT %s
"""


async def fill(url: str, tasks: int) -> None:
    """What is to be drained; not sampled."""
    async with allswell.open(url) as watch:
        for _ in range(0, tasks, 5_000):
            await watch.submit_many([{"name": "x"}] * 5_000)


async def work(url: str, tasks: int, batch: int) -> None:
    """Drain; what is being sampled."""
    sys.setswitchinterval(SWITCH)
    async with allswell.open(url) as watch:

        async def drain() -> None:
            while leases := await watch.claim_many(batch, agent="bench"):
                await watch.complete_many([(lease, None) for lease in leases])

        cpu, start = time.process_time(), time.perf_counter()
        await asyncio.gather(*(drain() for _ in range(LOOPS)))
        took = time.perf_counter() - start
        print(f"drained {tasks / took:,.0f}/s; this process used {(time.process_time() - cpu) / took:.0%} of a core")


def with_statistics(cluster: Cluster) -> bool:
    """Whether the server can count statements; it is restarted for that."""
    with psycopg.connect(cluster.admin_url(), autocommit=True) as admin:
        known = admin.execute("SELECT FROM pg_available_extensions WHERE name = 'pg_stat_statements'").fetchone()
        if known is None:
            return False
        admin.execute("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
    cluster.restart()
    with psycopg.connect(cluster.admin_url(), autocommit=True) as admin:
        admin.execute("CREATE EXTENSION pg_stat_statements")
    return True


def folded(path: Path) -> tuple[Counter[str], Counter[str]]:
    """Samples by the function at the top, and by every function of ours that was under way."""
    own: Counter[str] = Counter()
    within: Counter[str] = Counter()
    for line in path.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        if "importlib" in stack or not stack:
            continue  # starting up
        frames = [re.sub(r":\d+\)$", ")", frame) for frame in stack.split(";")]
        own[frames[-1]] += int(count)
        for frame in dict.fromkeys(frames):
            if "allswell" in frame:
                within[frame] += int(count)
    return own, within


def shares(title: str, found: Counter[str], whole: int) -> list[str]:
    """The largest of them, in percent of all samples."""
    lines = [f"{count / whole:6.1%}  {frame}" for frame, count in found.most_common(_TOP)]
    return ["", title, *lines]


def main() -> None:
    """Sample, print, keep."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--batch", type=int, default=100)
    options.add_argument("--tasks", type=int, default=30_000)
    options.add_argument("--url", help=argparse.SUPPRESS)
    options.add_argument("--venvs", type=Path, default=venvs.WHERE, help="where the environments are kept")
    chosen = options.parse_args()
    if chosen.url:
        asyncio.run(work(chosen.url, chosen.tasks, chosen.batch))
        return
    python = PY_SPY.python(chosen.venvs)
    if python is None:
        sys.exit("py-spy cannot be installed")
    lines = [told(conditions()), f"batches of {chosen.batch}, {LOOPS} loops, {chosen.tasks:,} tasks"]
    with tempfile.TemporaryDirectory() as folder, Cluster() as cluster:
        counted = with_statistics(cluster)
        url = cluster.create_database()
        samples = Path(folder, "samples")
        spy = [python.parent / "py-spy", "record", "--rate", "300", "--format", "raw", "--output", samples, "--gil"]
        mine = [sys.executable, __file__, "--url", url, "--batch", chosen.batch, "--tasks", chosen.tasks]
        asyncio.run(fill(url, chosen.tasks))
        if counted:
            with psycopg.connect(cluster.admin_url()) as admin:
                admin.execute("SELECT pg_stat_statements_reset()")
        before, start = cpu_of_family(cluster.pid), time.perf_counter()
        done = subprocess.run([*spy, "--", *map(str, mine)], capture_output=True, text=True, check=False)
        if not samples.exists():
            sys.exit(f"py-spy took no samples:\n{done.stderr}")
        server = (cpu_of_family(cluster.pid) - before) / (time.perf_counter() - start)
        lines += [line for line in done.stdout.splitlines() if line.startswith("drained")]
        lines += [f"the server used {server:.0%} of a core over the whole of the client's life"]
        own, within = folded(samples)
        whole = sum(own.values())
        lines += shares("the client while it held the interpreter, by the function that ran", own, whole)
        lines += shares("the same, by what was under way in our own code", within, whole)
        if counted:
            with psycopg.connect(cluster.admin_url()) as admin:
                rows = admin.execute(_STATEMENTS, (url.rpartition("/")[2], _TOP)).fetchall()
            total = sum(row[2] for row in rows)
            lines += ["", "the server, by statement: share of execution, ms a call, rows a call, WAL bytes a row"]
            for query, calls, took, count, wal in rows:
                text = re.sub(r"\s+", " ", query)[:90]
                lines.append(
                    f"{took / total:6.1%} {took / calls:8.3f} {count / calls:7.0f} {wal / max(1, count):7.0f}  {text}"
                )
    print("\n".join(lines))
    print(keep(f"where-{chosen.batch}", lines))


if __name__ == "__main__":
    main()
