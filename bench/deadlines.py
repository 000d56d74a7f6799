"""A million deadlines in the store, ten thousand of which fall due in the same instant.

Every task is put in by SQL, held by a lease whose hard limit is its deadline, with its timer: what a fleet of that
size would have. The ten thousand share one millisecond; the others lie a day ahead. Measured is the time from that
millisecond until the sweeper of one open watch has handled them all: each attempt ended and recorded, the task back in
the pool, its events written. The same again for ten thousand tasks whose pause is over (`not_before`).
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import psycopg

from allswell.app import make_watch, store_for
from allswell.store.sql import load

_SQL = load(__name__, "deadlines_fill.sql")
_DAY = 86_400_000
_RUN_LIMIT = 900_000  # the policy's default: the attempts began so long before their deadline

Execute = Callable[[str], None]
Pending = Callable[[int], bool]


def fill(execute: Execute, store: str, *, first: int, last: int, due: int, held: bool) -> None:
    """Insert tasks numbered so, all due at one moment: held until then, or pausing until then."""
    pieces = {
        "schema": "allswell." if store == "postgresql" else "",
        "numbers": _SQL[f"numbers_{store}"].format(first=first, last=last),
        "id": _SQL[f"id_{store}"],
        # Never ahead of now: a store's clock does not go back behind what it has seen.
        "born": min(due, _now()) - _RUN_LIMIT,
        "due": due,
    }
    for table in ("task", "lease") if held else ("task", "timer"):
        execute(_SQL[table].format(**pieces))


async def sweep_time(url: str, *, deadlines: int, due: int) -> dict[str, float]:
    """Seconds until `due` timers that fall at once are handled, among so many others: first held, then pausing."""
    figures = {}
    store = "sqlite" if url.startswith("sqlite") else "postgresql"
    async with make_watch(store_for(url)) as watch:
        await watch.submit("x", not_before=_now() + _DAY)  # makes the tables and the lane
    execute, pending, close = _client(url)
    fill(execute, store, first=1, last=deadlines, due=_now() + _DAY, held=True)
    first = deadlines
    async with make_watch(store_for(url)) as watch:
        for held, what in ((True, "attempts past their limit"), (False, "pauses that are over")):
            # The rows must be committed before the moment comes, or inserting them would count as ours.
            moment = _now() + 3_000 + due // 4
            fill(execute, store, first=first + 1, last=first + due, due=moment, held=held)
            first += due
            assert _now() < moment, "the rows took too long to insert; nothing was measured"
            assert (await watch.counts()).get("ready", 0) in (0, due), "some were handled before their time"
            took = await _until(moment, pending)
            figures[f"{due:,} {what}, among {deadlines:,} deadlines: s until handled"] = round(took, 2)
        counts = await watch.counts()
        assert counts["ready"] == 2 * due, counts
    close()
    return figures


async def _until(moment: int, pending: Pending) -> float:
    """Seconds from a moment until nothing that fell due by then is left."""
    await asyncio.sleep((moment - _now()) / 1000)
    left = True
    while left:
        await asyncio.sleep(0.02)
        left = pending(moment)
    return (_now() - moment) / 1000


def _now() -> int:
    """Server and stores are on this machine: one clock."""
    return time.time_ns() // 1_000_000


def _client(url: str) -> tuple[Execute, Pending, Callable[[], None]]:
    if url.startswith("sqlite"):
        lite = sqlite3.connect(Path(url.removeprefix("sqlite:///")), isolation_level=None, timeout=60)
        lite.execute("PRAGMA synchronous = OFF")

        def left(moment: int) -> bool:
            query = (
                "SELECT EXISTS (SELECT 1 FROM timer WHERE due_at <= ?1)"
                " OR EXISTS (SELECT 1 FROM lease WHERE due_at <= ?1)"
            )
            return bool(lite.execute(query, (moment,)).fetchone()[0])

        return (lambda query: lite.execute(query).close()), left, lite.close
    server = psycopg.connect(url, autocommit=True)

    def still(moment: int) -> bool:
        query = (
            "SELECT EXISTS (SELECT FROM allswell.timer WHERE due_at <= %(moment)s)"
            " OR EXISTS (SELECT FROM allswell.lease WHERE due_at <= %(moment)s)"
        )
        row = server.execute(query, {"moment": moment}).fetchone()
        return row is not None and row[0]

    return (lambda query: server.execute(query.encode()).close()), still, server.close
