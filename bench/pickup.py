"""`python bench/pickup.py`: how long an idle fleet takes to notice work, from insert to durable claim elsewhere.

One process waits in `claim(wait=…)`; this one submits a task, after a random pause so that everything is idle. What
is measured, on the machine's monotonic clock: from just before `submit` is called, and from when it has returned (the
insert is durable), to when the other process has its claim back, which then is durable too. In the same run:

    polling only    the same with the waiting process deaf to wake-up calls: what a lost call costs
    the disk        one raw commit of one row, durable: an insert and a claim cannot take less than two of these
    idle            the share of one core that a process needs which waits for work that does not come
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg

from allswell.app import make_watch, store_for
from allswell.store.port import Hearer, Store
from allswell.testing.postgres import Cluster


def deaf(store: Store) -> Store:
    """The same store, which hears no calls."""

    def ignore(hearer: Hearer) -> None:
        del hearer

    store.hear = ignore  # type: ignore[method-assign]
    return store


# --- the process that waits -------------------------------------------------------------------------------------------


async def wait_for_work(url: str, *, calls: bool) -> None:
    """Claim and complete one by one; say for each when its claim came back."""
    store = store_for(url)
    async with make_watch(store if calls else deaf(store)) as watch:
        print("open", flush=True)
        while True:
            lease = await watch.claim(agent="waiting", wait="1h")
            now = time.monotonic_ns()
            assert lease is not None
            await lease.complete()
            print(lease.task, now, flush=True)


async def idle(url: str, seconds: float) -> None:
    """Wait for work that does not come, and say what that cost."""
    async with make_watch(store_for(url)) as watch:
        await watch.claim(agent="idle", wait="2s")
        before = resource.getrusage(resource.RUSAGE_SELF)
        await watch.claim(agent="idle", wait=round(seconds * 1_000))
        after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(used / seconds, flush=True)


# --- this process -----------------------------------------------------------------------------------------------------


async def pick_ups(url: str, count: int, chance: random.Random, *, calls: bool) -> tuple[list[float], list[float]]:
    """Milliseconds from before and from after each insert to its durable claim in another process."""
    arguments = [sys.executable, __file__, "--wait-on", url, *([] if calls else ["--deaf"])]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as other:  # noqa: ASYNC220 - nothing else runs
        assert other.stdout is not None
        other.stdout.readline()
        loop = asyncio.get_running_loop()
        whole, after = [], []
        try:
            async with make_watch(store_for(url)) as watch:
                for number in range(count + 5):
                    await asyncio.sleep(chance.uniform(0.05, 0.15))
                    begun = time.monotonic_ns()
                    task = await watch.submit("x")
                    inserted = time.monotonic_ns()
                    told, claimed = (await loop.run_in_executor(None, other.stdout.readline)).split()
                    assert told == task
                    if number >= 5:  # the first ones prepare statements and warm caches
                        whole.append((int(claimed) - begun) / 1e6)
                        after.append((int(claimed) - inserted) / 1e6)
        finally:
            other.kill()
    return whole, after


def commit_times(commit: Callable[[int], object], count: int, chance: random.Random) -> list[float]:
    """Milliseconds of raw commits, as far apart as the submits."""
    took = []
    for number in range(count):
        time.sleep(chance.uniform(0.005, 0.02))
        begun = time.monotonic_ns()
        commit(number)
        took.append((time.monotonic_ns() - begun) / 1e6)
    return took


def raw_sqlite(folder: Path, count: int, chance: random.Random) -> list[float]:
    """Raw commits of one row on SQLite."""
    with closing(sqlite3.connect(folder / "raw.db", isolation_level=None)) as db, db:
        db.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (n INT);")
        return commit_times(lambda number: db.execute("INSERT INTO t VALUES (?)", (number,)), count, chance)


def raw_postgres(url: str, count: int, chance: random.Random) -> list[float]:
    """Raw commits of one row on PostgreSQL."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE TABLE public.t (n int)")
        return commit_times(lambda number: db.execute("INSERT INTO public.t VALUES (%s)", (number,)), count, chance)


def spread(times: list[float]) -> dict[str, float]:
    """The middle, and what one in a hundred exceeds."""
    ordered = sorted(times)
    return {"p50": round(statistics.median(ordered), 2), "p99": round(ordered[int(len(ordered) * 0.99)], 2)}


def idle_share(url: str, seconds: float) -> float:
    """The share of a core that a process uses which waits in vain, in percent."""
    arguments = [sys.executable, __file__, "--idle-on", url, "--seconds", str(seconds)]
    return round(float(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout) * 100, 2)


async def measure(chosen: argparse.Namespace) -> dict[str, dict[str, object]]:
    """Both stores, each figure beside the disk's."""
    chance = random.Random(7)
    figures: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory(prefix="allswell-pickup-") as name, Cluster() as cluster:
        folder = Path(name)
        places = {"SQLite": f"sqlite:///{folder / 'watch.db'}", "PostgreSQL": cluster.create_database()}
        for store, url in places.items():
            whole, after = await pick_ups(url, chosen.count, chance, calls=True)
            polled, _ = await pick_ups(url, max(20, chosen.count // 5), chance, calls=False)
            raw = raw_sqlite(folder, 200, chance) if store == "SQLite" else raw_postgres(url, 200, chance)
            figures[store] = {
                "insert begun to durable claim elsewhere, ms": spread(whole),
                "insert durable to durable claim elsewhere, ms": spread(after),
                "polling only, insert begun to durable claim, ms": spread(polled),
                "the disk: one raw commit, ms": spread(raw),
                "idle, % of one core": idle_share(url, chosen.seconds),
            }
            print(store)
            for what, value in figures[store].items():
                print(f"  {what:<52} {value}", flush=True)
    return figures


def main() -> None:
    """Measure, print, and keep the figures as JSON."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=300, help="tasks per store")
    options.add_argument("--seconds", type=float, default=10.0, help="how long to be idle")
    options.add_argument("--json", type=Path, help="write the figures here")
    options.add_argument("--wait-on", help=argparse.SUPPRESS)
    options.add_argument("--idle-on", help=argparse.SUPPRESS)
    options.add_argument("--deaf", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.wait_on:
        asyncio.run(wait_for_work(chosen.wait_on, calls=not chosen.deaf))
    elif chosen.idle_on:
        asyncio.run(idle(chosen.idle_on, chosen.seconds))
    else:
        figures = asyncio.run(measure(chosen))
        if chosen.json:
            chosen.json.parent.mkdir(parents=True, exist_ok=True)
            chosen.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
