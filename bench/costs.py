"""What the small things cost, each beside the figure it must hold.

    bench/costs.py                      everything, about six minutes
    bench/costs.py --quick              smaller sizes, about one minute
    bench/costs.py --only raw,beats     some of it

wal        bytes of WAL for a check-in (PostgreSQL)                              under 150
beats      10,000 live leases renewed every 10 s: share of one core              under 10 %
deadlines  10,000 of a million deadlines fall due at once: s until handled       under 2 s
raw        our lifecycles beside hand-written SQL that writes the same rows      at least 0.6 of it
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
from writer import PostgresWriter, SqliteWriter, Writer

from allswell.app import make_watch, store_for
from allswell.engine.watch import Watch
from allswell.testing.postgres import Cluster

SECTIONS = ("wal", "beats", "deadlines", "raw")
ROUNDS = 7
_AIMS: dict[str, Callable[[float], bool]] = {
    "WAL bytes of a check-in, batches of 100": lambda value: value < 150,
    "both, % of a core": lambda value: value < 10,
    "s until handled": lambda value: value < 2,
    "share of raw": lambda value: value >= 0.6,
}


async def ours(watch: Watch, lifecycles: int, batch: int) -> tuple[float, float]:
    """Lifecycles per second, and of these the claims and completions alone."""
    start, drained = time.perf_counter(), 0.0
    for _ in range(0, lifecycles, batch):
        await watch.submit_many([{"name": "x"}] * batch)
        began = time.perf_counter()
        leases = await watch.claim_many(batch, agent="bench")
        claimed = time.perf_counter()
        await watch.checkin_many(leases)
        beaten = time.perf_counter()
        await watch.complete_many([(lease, None) for lease in leases])
        drained += time.perf_counter() - beaten + claimed - began
        assert len(leases) == batch
    return lifecycles / (time.perf_counter() - start), lifecycles / drained


def raw(writer: Writer, lifecycles: int, batch: int, numbers: Iterator[int]) -> tuple[float, float]:
    """The same of the raw writer."""
    start, drained = time.perf_counter(), 0.0
    for _ in range(0, lifecycles, batch):
        writer.submit([f"t_{next(numbers):016d}" for _ in range(batch)])
        began = time.perf_counter()
        ids = writer.claim(batch)
        claimed = time.perf_counter()
        writer.beat(ids)
        beaten = time.perf_counter()
        writer.complete(ids)
        drained += time.perf_counter() - beaten + claimed - began
        assert len(ids) == batch
    return lifecycles / (time.perf_counter() - start), lifecycles / drained


async def share_of_raw(
    name: str, url: str, raw_url: str, make: Callable[[str], Writer], lifecycles: int
) -> dict[str, float]:
    """Ours and the raw writer in turns, each in a store of its own, in batches of 100 and 500."""
    figures: dict[str, float] = {}
    numbers = count()
    async with make_watch(store_for(raw_url)):
        pass  # makes the tables
    writer = make(raw_url)
    async with make_watch(store_for(url)) as watch:
        for batch in (100, 500):
            await ours(watch, 4 * batch, batch)
            raw(writer, 4 * batch, batch, numbers)
            rounds = [
                (*await ours(watch, lifecycles, batch), *raw(writer, lifecycles, batch, numbers)) for _ in range(ROUNDS)
            ]
            for place, what in enumerate(("lifecycles", "claim + complete")):
                mine = [found[place] for found in rounds]
                limit = [found[place + 2] for found in rounds]
                title = f"{name}, {what}, batches of {batch}"
                figures[f"{title}: ours, /s"] = round(statistics.median(mine))
                figures[f"{title}: raw, /s"] = round(statistics.median(limit))
                ratios = [found[place] / found[place + 2] for found in rounds]
                figures[f"{title}: share of raw"] = round(statistics.median(ratios), 2)
        assert not await watch.unaccounted()
    writer.close()
    return figures


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
