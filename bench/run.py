"""`make bench`: durable lifecycles per second, beside the raw driver's limit in the same run.

A lifecycle is submit, claim, check-in, complete, with all events, leases, timers and attempts. What is in flight is
shared by four callers, whose commands the watch puts into common batches while the store works: that is what it is
for. Raw is one connection with one batch at a time. Ours and raw take turns (interleaved rounds), and the ratio is the
median over the rounds. Nothing is compared with figures of another day or machine.

    make bench                      the usual figures
    make bench ARGS="--full"        with a million finished tasks and 100,000 open ones
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from raw import Raw, RawPostgres, RawSqlite

import allswell
from allswell.app import make_watch, store_for
from allswell.testing.postgres import Cluster

BATCHES = (100, 500)
CALLERS = 4
ROUNDS = 7


async def batched(watch: allswell.Watch, lifecycles: int, batch: int, callers: int = CALLERS) -> float:
    """Seconds for so many lifecycles, `batch` in flight at a time, shared by the callers."""

    async def caller(own: int) -> None:
        for _ in range(0, lifecycles // callers, own):
            await watch.submit_many([{"name": "x"}] * own)
            leases = await watch.claim_many(own, agent="bench")
            await watch.checkin_many(leases)
            await watch.complete_many([(lease, None) for lease in leases])

    start = time.perf_counter()
    await asyncio.gather(*(caller(batch // callers) for _ in range(callers)))
    return time.perf_counter() - start


async def one_by_one(watch: allswell.Watch, lifecycles: int) -> list[float]:
    """The seconds of each lifecycle, each step awaited before the next."""
    took = []
    for _ in range(lifecycles):
        start = time.perf_counter()
        await watch.submit("x")
        lease = await watch.claim(agent="bench")
        assert lease is not None
        await lease.checkin()
        await lease.complete()
        took.append(time.perf_counter() - start)
    return took


def raw_batched(raw: Raw, lifecycles: int, batch: int, seen: list[int]) -> float:
    """Seconds for so many lifecycles on the raw driver."""
    start = time.perf_counter()
    for _ in range(0, lifecycles, batch):
        raw.once([f"t_{seen[0] + number:016d}" for number in range(batch)])
        seen[0] += batch
    return time.perf_counter() - start


async def against_raw(name: str, url: str, raw: Raw, lifecycles: int) -> dict[str, float]:
    """Ours and raw in turns, in batches; then ours one by one, alone."""
    figures: dict[str, float] = {}
    seen = [0]
    async with make_watch(store_for(url)) as watch:
        for batch in BATCHES:
            figures |= await _in_batches(name, watch, raw, lifecycles, batch, seen)
        alone = await one_by_one(watch, 200)
        assert not await watch.unaccounted()
    return figures | {
        f"{name}: one lifecycle alone, p50 ms": round(statistics.median(alone) * 1000, 2),
        f"{name}: one lifecycle alone, p99 ms": round(sorted(alone)[int(len(alone) * 0.99)] * 1000, 2),
    }


async def _in_batches(
    name: str, watch: allswell.Watch, raw: Raw, lifecycles: int, batch: int, seen: list[int]
) -> dict[str, float]:
    await batched(watch, 5 * batch, batch)
    raw_batched(raw, 5 * batch, batch, seen)
    ratios, ours, limits = [], [], []
    for _ in range(ROUNDS):
        mine = lifecycles / await batched(watch, lifecycles, batch)
        limit = lifecycles / raw_batched(raw, lifecycles, batch, seen)
        ours.append(mine)
        limits.append(limit)
        ratios.append(mine / limit)
    return {
        f"{name}: lifecycles/s in batches of {batch}": round(statistics.median(ours)),
        f"{name}: raw driver, lifecycles/s in batches of {batch}": round(statistics.median(limits)),
        f"{name}: share of raw in batches of {batch}": round(statistics.median(ratios), 3),
    }


async def claim_time(watch: allswell.Watch, rounds: int = 60) -> float:
    """The median seconds of a claim of ten tasks."""
    took = []
    for _ in range(rounds):
        await watch.submit_many([{"name": "x"}] * 10)
        start = time.perf_counter()
        leases = await watch.claim_many(10, agent="bench")
        took.append(time.perf_counter() - start)
        await asyncio.gather(*(lease.complete() for lease in leases))
    return statistics.median(took)


async def flatness(name: str, url: str, finished: int) -> dict[str, float]:
    """Claim time with so many finished tasks in the store, as a ratio to that with none."""
    async with make_watch(store_for(url)) as watch:
        before = await claim_time(watch)
        for _ in range(0, finished, 5_000):
            await watch.submit_many([{"name": "x"}] * 5_000)
            leases = await watch.claim_many(5_000, agent="bench")
            await watch.complete_many([(lease, None) for lease in leases])
        after = await claim_time(watch)
    return {f"{name}: claim time with {finished:,} finished tasks, times that with none": round(after / before, 2)}


WATCHING = """
import asyncio, resource, sys
import allswell

async def main(url, count):
    async with allswell.open(url) as watch:
        for _ in range(0, count, 5_000):
            await watch.submit_many([{"name": "x"}] * 5_000)
        while await watch.claim_many(5_000, agent="bench"):
            pass
        await asyncio.sleep(2)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def memory_watching(url: str, count: int) -> dict[str, float]:
    """The peak memory of a process that holds and watches so many open tasks."""
    said = subprocess.run([sys.executable, "-c", WATCHING, url, str(count)], check=True, capture_output=True, text=True)
    return {f"a process watching {count:,} open tasks, MB at its peak": int(said.stdout)}


async def main() -> None:
    """Measure, print, and keep the figures as JSON."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--full", action="store_true", help="a million finished tasks, 100,000 open ones")
    options.add_argument("--lifecycles", type=int, default=4_000, help="per round")
    options.add_argument("--json", type=Path, help="write the figures here")
    chosen = options.parse_args()
    finished = 1_000_000 if chosen.full else 50_000
    figures: dict[str, float] = {}

    def show(found: dict[str, float]) -> None:
        figures.update(found)
        for what, value in found.items():
            print(f"  {what:<70} {value:>10,}", flush=True)

    with tempfile.TemporaryDirectory(prefix="allswell-bench-") as folder, Cluster() as cluster:
        place = Path(folder)
        print(f"Python {sys.version.split()[0]}, {ROUNDS} interleaved rounds of {chosen.lifecycles:,} lifecycles")
        sqlite = RawSqlite(place)
        show(await against_raw("SQLite", f"sqlite:///{place / 'ours.db'}", sqlite, chosen.lifecycles))
        sqlite.close()
        postgres = RawPostgres(cluster.create_database())
        show(await against_raw("PostgreSQL", cluster.create_database(), postgres, chosen.lifecycles))
        postgres.close()
        show(await flatness("SQLite", f"sqlite:///{place / 'flat.db'}", finished))
        show(await flatness("PostgreSQL", cluster.create_database(), finished))
        show(memory_watching(f"sqlite:///{place / 'many.db'}", 100_000 if chosen.full else 20_000))
    print(f"  {'this process, MB at its peak':<70} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024:>10,}")
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
