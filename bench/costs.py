"""What the small things cost, each beside the figure it must hold.

    bench/costs.py                      everything, about six minutes
    bench/costs.py --quick              smaller sizes, about one minute
    bench/costs.py --only raw,beats     some of it

wal        bytes of WAL for a check-in (PostgreSQL)                              under 150
beats      10,000 live leases renewed every 10 s: share of one core              under 10 %
deadlines  10,000 of a million deadlines fall due at once: s until handled       under 2 s
raw        ours beside hand-written SQL that writes the same rows: draining
           PostgreSQL at our best setting                                        at least 0.6 of it
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path

from beats import share_of_a_core, wal_per_checkin
from conditions import conditions, keep, told
from deadlines import sweep_time
from race import measures
from race.entries import ENTRIES
from writer import PostgresWriter, SqliteWriter, Writer

from allswell.app import make_watch, store_for
from allswell.engine.watch import Watch
from allswell.testing.postgres import Cluster

SECTIONS = ("wal", "beats", "deadlines", "raw")
ROUNDS = 7
CALLERS = {"PostgreSQL": 3, "SQLite": 2}
"""How many share what is in flight: as many batches as are under way at once, and one more that waits meanwhile."""
BEST = "Allswell 500 x2"
"""The race's entry that drains fastest from PostgreSQL."""
SWITCH = 0.0005
"""Seconds between two changes of threads, as docs/how-to.md says for PostgreSQL."""
_AIMS: dict[str, Callable[[float], bool]] = {
    "WAL bytes of a check-in, batches of 100": lambda value: value < 150,
    "both, % of a core": lambda value: value < 10,
    "s until handled": lambda value: value < 2,
    "our best setting: share of raw": lambda value: value >= 0.6,
}


async def our_lifecycles(watch: Watch, lifecycles: int, batch: int, callers: int) -> float:
    """Lifecycles per second; so many are in flight, shared by a few callers, each in a loop of its own."""
    each = batch // callers

    async def work(tasks: int) -> None:
        for first in range(0, tasks, each):
            count = min(each, tasks - first)
            await watch.submit_many([{"name": "x"}] * count)
            leases = await watch.claim_many(count, agent="bench")
            await watch.checkin_many(leases)
            await watch.complete_many([(lease, None) for lease in leases])

    start = time.perf_counter()
    await asyncio.gather(*(work(lifecycles // callers) for _ in range(callers)))
    return lifecycles // callers * callers / (time.perf_counter() - start)


async def our_drain(watch: Watch, tasks: int, batch: int, callers: int) -> float:
    """Tasks claimed and completed per second, by the same callers; what they drain was submitted before."""
    await watch.submit_many([{"name": "x"}] * tasks)

    async def work() -> int:
        done = 0
        while leases := await watch.claim_many(batch // callers, agent="bench"):
            await watch.complete_many([(lease, None) for lease in leases])
            done += len(leases)
        return done

    start = time.perf_counter()
    done = await asyncio.gather(*(work() for _ in range(callers)))
    assert sum(done) == tasks
    return tasks / (time.perf_counter() - start)


def raw_lifecycles(writer: Writer, lifecycles: int, batch: int, numbers: Iterator[int]) -> float:
    """Lifecycles per second of the raw writer: one stream, which is what it is at its best in."""
    start = time.perf_counter()
    for _ in range(0, lifecycles, batch):
        writer.submit([f"t_{next(numbers):016d}" for _ in range(batch)])
        ids = writer.claim(batch)
        writer.beat(ids)
        writer.complete(ids)
        assert len(ids) == batch
    return lifecycles / (time.perf_counter() - start)


def raw_drain(writer: Writer, tasks: int, batch: int, numbers: Iterator[int]) -> float:
    """Tasks claimed and completed per second by the raw writer."""
    for _ in range(0, tasks, 500):
        writer.submit([f"t_{next(numbers):016d}" for _ in range(500)])
    start = time.perf_counter()
    for _ in range(0, tasks, batch):
        ids = writer.claim(batch)
        writer.complete(ids)
        assert len(ids) == batch
    return tasks / (time.perf_counter() - start)


async def share_of_raw(
    name: str, url: str, raw_url: str, make: Callable[[str], Writer], lifecycles: int
) -> dict[str, float]:
    """Ours and the raw writer in turns, each in a store of its own, with 100 and with 500 tasks in flight."""
    figures: dict[str, float] = {}
    numbers = count()
    callers = CALLERS[name]
    if name == "PostgreSQL":
        sys.setswitchinterval(SWITCH)
    await _make_tables(raw_url)
    writer = make(raw_url)
    async with make_watch(store_for(url)) as watch:
        for batch in (100, 500):
            for what, ours, raw in (
                ("lifecycles", our_lifecycles, raw_lifecycles),
                ("claim + complete", our_drain, raw_drain),
            ):
                rounds = [
                    (await ours(watch, lifecycles, batch, callers), raw(writer, lifecycles, batch, numbers))
                    for _ in range(ROUNDS + 1)
                ][1:]  # the first one warms up
                title = f"{name}, {what}, {batch} in flight"
                figures[f"{title}: ours, {callers} callers, /s"] = round(statistics.median(mine for mine, _ in rounds))
                figures[f"{title}: raw, /s"] = round(statistics.median(limit for _, limit in rounds))
                figures[f"{title}: share of raw"] = round(statistics.median(mine / limit for mine, limit in rounds), 2)
        assert not await watch.unaccounted()
    writer.close()
    return figures


async def best_of_raw(cluster: Cluster, tasks: int) -> dict[str, float]:
    """Draining at our best setting, as the race does it, beside the raw writer in turns."""
    entry = next(one for one in ENTRIES if one.name == BEST)
    numbers = count()
    raw_url = cluster.create_database()
    await _make_tables(raw_url)
    writer = PostgresWriter(raw_url)
    rounds = []
    for _ in range(ROUNDS):
        _, mine = measures.race(entry, Path(sys.executable), cluster.create_database(), tasks)
        rounds.append((mine, raw_drain(writer, tasks, 500, numbers)))
    writer.close()
    title = "PostgreSQL, claim + complete, our best setting"
    return {
        f"{title}: {entry.name}, /s": round(statistics.median(mine for mine, _ in rounds)),
        f"{title}: raw in batches of 500, /s": round(statistics.median(limit for _, limit in rounds)),
        f"{title}: share of raw": round(statistics.median(mine / limit for mine, limit in rounds), 2),
    }


async def _make_tables(url: str) -> None:
    async with make_watch(store_for(url)):
        pass


async def measure(chosen: argparse.Namespace, place: Path, cluster: Cluster) -> AsyncIterator[dict[str, float]]:
    """The figures of each section that was asked for, as they come."""
    wanted = SECTIONS if chosen.only is None else tuple(chosen.only.split(","))
    quick = chosen.quick
    if "wal" in wanted:
        yield await wal_per_checkin(cluster)
    if "beats" in wanted:
        window = 20.0 if quick else 60.0
        lite = f"sqlite:///{place / 'beats.db'}"
        found = await share_of_a_core(cluster.create_database(), server=cluster.pid, window=window)
        yield {f"PostgreSQL, {what}": value for what, value in found.items()}
        found = await share_of_a_core(lite, server=None, window=window)
        yield {f"SQLite, {what}": value for what, value in found.items()}
    if "deadlines" in wanted:
        many = 100_000 if quick else 1_000_000
        for name, url in (("PostgreSQL", cluster.create_database()), ("SQLite", f"sqlite:///{place / 'due.db'}")):
            found = await sweep_time(url, deadlines=many, due=10_000)
            yield {f"{name}, {what}": value for what, value in found.items()}
    if "raw" in wanted:
        lifecycles = 2_000 if quick else 5_000
        yield await share_of_raw(
            "SQLite",
            f"sqlite:///{place / 'ours.db'}",
            f"sqlite:///{place / 'raw.db'}",
            lambda url: SqliteWriter(url.removeprefix("sqlite:///")),
            lifecycles,
        )
        yield await share_of_raw(
            "PostgreSQL", cluster.create_database(), cluster.create_database(), PostgresWriter, lifecycles
        )
        yield await best_of_raw(cluster, 10_000)


def verdict(what: str, value: float) -> str:
    """Whether a figure holds what it must; nothing where nothing was promised."""
    for ending, holds in _AIMS.items():
        if what.endswith(ending):
            return "ok" if holds(value) else "MISSED"
    return ""


async def main() -> None:
    """Measure, print, and keep the figures."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="smaller sizes")
    options.add_argument("--only", help=f"some of {','.join(SECTIONS)}")
    chosen = options.parse_args()
    unknown = set((chosen.only or "wal").split(",")) - set(SECTIONS)
    if unknown:
        sys.exit(f"--only knows {', '.join(SECTIONS)}, not {', '.join(sorted(unknown))}")
    under = {**conditions(), "postgresql": "fsync on, synchronous_commit on", "quick": chosen.quick}
    print(told(under))
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="allswell-costs-") as folder, Cluster() as cluster:
        async for found in measure(chosen, Path(folder), cluster):
            figures.update(found)
            for what, value in found.items():
                print(f"  {what:<95} {value:>10,} {verdict(what, value)}", flush=True)
    if chosen.only is None:
        print(keep("costs-quick" if chosen.quick else "costs", {"conditions": under, "figures": figures}))


if __name__ == "__main__":
    asyncio.run(main())
