"""Durable Python steps, one after another: beside the raw driver's commits and beside DBOS, on the same store.

    bench/steps.py                  SQLite and PostgreSQL, about a minute
    bench/steps.py --quick          fewer rounds
    bench/steps.py --no-peers       without DBOS

Raw is one small row inserted and committed (SQLite in WAL mode with synchronous=FULL, PostgreSQL with
synchronous_commit on), by the same driver in the same process, and nothing else: a commit alone. Rows is the same with
what a step leaves behind: its task and its event, as plain SQL into tables and indexes like ours, nothing checked. DBOS
runs in a process and an environment of its own, timed inside its workflow. All take turns, a few commits each, so that
a busy moment of the machine meets all of them; ratios are the medians over the turns.

Everybody is warmed up until SQLite has made its first checkpoint: a commit at the end of a WAL that still grows has the
file's new length to flush too, and takes up to half as long again. Raw, with the fewest pages, would be the last there.
Later checkpoints fall into one turn of several, of raw as of us, and so into nobody's median.

Then a fan-out: 10,000 steps that do nothing, all at once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextvars
import itertools
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import msgspec
import psycopg
from conditions import conditions, keep, told
from race import venvs

import allswell
from allswell.testing.postgres import Cluster

CHUNK = 25
WARM_UP = 700
"""Commits of two pages each, and a thousand pages are a checkpoint."""
FAN_OUT = 10_000
_TABLE = "CREATE TABLE step (id TEXT PRIMARY KEY, run TEXT, name TEXT, result TEXT, at BIGINT)"
_COLUMNS = (
    "id, name, run, role, lane, priority, state, created_at, ended_at, spec, record, rank, payload, result, attempt"
)
_RECORD = '{"token":1,"reason":"completed","ended_by":"0123456789abcdef.1"}'
_PAYLOAD = '{"args":[12345]}'
_ATTEMPT = '["machine:12345.1234567.0123abcd",1700000000000,1700000000000,"done","0123456789abcdef.1","completed"]'
_EVENTS = (
    '[{"kind":"step_recorded","task":"t_0123456789abcdef","run":"r_1","agent":"machine:12345.1234567.0123abcd",'
    '"token":1,"data":{"name":"noop","elapsed_ms":0}}]'
)
_numbers = itertools.count()


class Size(msgspec.Struct, frozen=True):
    """How much of everything."""

    turns: int
    dbos: int
    """Steps of DBOS in a turn: it is slower."""


FULL = Size(100, 10)
QUICK = Size(28, 5)


@allswell.step("noop")
async def noop(number: int) -> None:
    """Nothing."""


@allswell.step("noop", on="here")
def noop_sync(number: int) -> None:
    """Nothing, in the caller's thread."""


def raw_sqlite(folder: Path) -> Callable[[int], None]:
    """One row and one commit at a time."""
    db = sqlite3.connect(folder / "raw.db", isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute(_TABLE)

    def insert(count: int) -> None:
        for _ in range(count):
            number = next(_numbers)
            db.execute("INSERT INTO step VALUES (?, 'r', 'noop', 'null', ?)", (f"t_{number:016}", number))

    return insert


def rows_sqlite(folder: Path) -> Callable[[int], None]:
    """What a step leaves behind, one commit at a time."""
    path = folder / "rows.db"
    with allswell.open(f"sqlite:///{path}"):
        pass  # its tables
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA synchronous = FULL")

    def insert(count: int) -> None:
        for _ in range(count):
            number = next(_numbers)
            db.execute("BEGIN IMMEDIATE")
            db.execute(
                f"INSERT INTO task ({_COLUMNS})"  # noqa: S608 - names of our own
                " VALUES (?, 'noop', 'r', 'step', 1, 0, 'done', ?, ?, '{}', ?, 0, ?, 'null', ?)",
                (f"t_{number:016}", number, number, _RECORD, _PAYLOAD, _ATTEMPT),
            )
            db.execute("INSERT INTO journal (last, at, events) VALUES (?, ?, ?)", (number + 1, number, _EVENTS))
            db.execute("COMMIT")

    return insert


def rows_postgres(url: str) -> Callable[[int], None]:
    """What a step leaves behind, in one statement that commits by itself."""
    with allswell.open(url):
        pass  # its tables
    db = psycopg.connect(url, autocommit=True, prepare_threshold=0)

    def insert(count: int) -> None:
        for _ in range(count):
            number = next(_numbers)
            db.execute(
                "WITH told AS (INSERT INTO allswell.journal (at, events) VALUES (%s, %s))"  # noqa: S608 - our own names
                f" INSERT INTO allswell.task ({_COLUMNS})"
                " VALUES (%s, 'noop', 'r', 'step', 1, 0, 'done', %s, %s, '{}', %s, 0, %s, 'null', %s)",
                (number, _EVENTS, f"t_{number:016}", number, number, _RECORD, _PAYLOAD, _ATTEMPT),
            )

    return insert


def raw_postgres(url: str) -> Callable[[int], None]:
    """One row and one commit at a time."""
    db = psycopg.connect(url, autocommit=True, prepare_threshold=0)
    db.execute(_TABLE)

    def insert(count: int) -> None:
        for _ in range(count):
            number = next(_numbers)
            db.execute("INSERT INTO step VALUES (%s, 'r', 'noop', 'null', %s)", (f"t_{number:016}", number))

    return insert


class Dbos:
    """The process of the peer."""

    def __init__(self, python: Path, url: str) -> None:
        command = [python, Path(__file__).with_name("steps_dbos.py"), url]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        if self._answer() != "ready":
            raise RuntimeError("DBOS did not start")

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def steps(self, count: int) -> float:
        """Seconds for so many steps."""
        assert self._process.stdin is not None
        print(count, file=self._process.stdin, flush=True)
        return float(self._answer())

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


class Turn(msgspec.Struct, frozen=True):
    """Seconds a step, of everybody in one turn."""

    raw: float
    rows: float
    ours: float
    sync: float
    dbos: float | None


async def turns(
    url: str, raw: Callable[[int], None], rows: Callable[[int], None], dbos: Dbos | None, size: Size
) -> list[Turn]:
    """All turns: async steps run in this loop, sync ones in a thread with a flow and a watch of its own."""
    found = []
    async with allswell.flow("bench", run_id="async", store=url):
        with SyncFlow(url) as sync:
            raw(WARM_UP)
            rows(WARM_UP)
            for _ in range(WARM_UP):
                await noop(next(_numbers))
            await asyncio.to_thread(sync.steps, WARM_UP)
            for _ in range(size.turns):
                start = time.perf_counter()
                raw(CHUNK)
                raw_took = (time.perf_counter() - start) / CHUNK
                start = time.perf_counter()
                rows(CHUNK)
                rows_took = (time.perf_counter() - start) / CHUNK
                numbers = [next(_numbers) for _ in range(CHUNK)]
                start = time.perf_counter()
                for number in numbers:
                    await noop(number)
                took = (time.perf_counter() - start) / CHUNK
                sync_took = await asyncio.to_thread(sync.steps, CHUNK) / CHUNK
                peer = None if dbos is None else await asyncio.to_thread(dbos.steps, size.dbos) / size.dbos
                found.append(Turn(raw_took, rows_took, took, sync_took, peer))
    return found


class SyncFlow:
    """A sync flow that stays open between the turns; its steps are called from the thread of the turn."""

    def __init__(self, url: str) -> None:
        self._flow = allswell.flow("bench sync", run_id="sync", store=url)

    def __enter__(self) -> Self:
        self._context = contextvars.copy_context()
        self._context.run(self._flow.__enter__)
        self._context.run(noop_sync, -1)
        return self

    def __exit__(self, *_: object) -> None:
        self._context.run(self._flow.__exit__, None, None, None)

    def steps(self, count: int) -> float:
        """Seconds for so many steps."""
        return self._context.run(self._steps, count)

    @staticmethod
    def _steps(count: int) -> float:
        numbers = [next(_numbers) for _ in range(count)]
        start = time.perf_counter()
        for number in numbers:
            noop_sync(number)
        return time.perf_counter() - start


async def fan_out(url: str) -> float:
    """Steps per second, all begun at once."""
    async with allswell.flow("fan out", run_id="fan", store=url, timeout="10m"):
        start = time.perf_counter()
        await asyncio.gather(*(noop(number) for number in range(FAN_OUT)))
        return FAN_OUT / (time.perf_counter() - start)


def told_turns(name: str, found: list[Turn], fanned: float) -> dict[str, object]:
    """The figures of one store, printed and returned."""
    rates = {part: 1 / statistics.median(getattr(turn, part) for turn in found) for part in Turn.__struct_fields__[:4]}
    figures: dict[str, object] = {
        "raw commits/s": round(rates["raw"]),
        "rows commits/s": round(rates["rows"]),
        "async steps/s": round(rates["ours"]),
        "sync steps/s": round(rates["sync"]),
        "async of raw": round(statistics.median(turn.raw / turn.ours for turn in found), 2),
        "sync of raw": round(statistics.median(turn.raw / turn.sync for turn in found), 2),
        "async of rows": round(statistics.median(turn.rows / turn.ours for turn in found), 2),
        "sync of rows": round(statistics.median(turn.rows / turn.sync for turn in found), 2),
        "fan-out steps/s": round(fanned),
    }
    peers = [(turn.dbos, turn.ours, turn.sync) for turn in found if turn.dbos is not None]
    if peers:
        figures["DBOS steps/s"] = round(1 / statistics.median(peer for peer, _, _ in peers))
        figures["async, times DBOS"] = round(statistics.median(peer / ours for peer, ours, _ in peers), 1)
        figures["sync, times DBOS"] = round(statistics.median(peer / sync for peer, _, sync in peers), 1)
    print(f"{name:<11}" + "   ".join(f"{what} {value:,}" for what, value in figures.items()), flush=True)
    return figures


def main() -> None:
    """Measure, print, keep."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="fewer rounds")
    options.add_argument("--no-peers", action="store_true", help="without DBOS")
    options.add_argument("--keep", action="store_true", help="write bench/results/steps.json")
    options.add_argument("--venvs", type=Path, default=venvs.WHERE, help="where the environments are kept")
    chosen = options.parse_args()
    size = QUICK if chosen.quick else FULL
    python = None if chosen.no_peers else venvs.DBOS.python(chosen.venvs)
    under = conditions()
    print(told(under), flush=True)
    results: dict[str, object] = {"conditions": under}
    if python is not None:
        results["versions"] = venvs.DBOS.versions(chosen.venvs)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="allswell-steps-")))
        cluster = stack.enter_context(Cluster())
        url, peers_url = cluster.create_database(), cluster.create_database()
        places = {
            "SQLite": (
                f"sqlite:///{folder}/ours.db",
                f"sqlite:///{folder}/dbos.db",
                raw_sqlite(folder),
                rows_sqlite(folder),
            ),
            "PostgreSQL": (url, peers_url, raw_postgres(url), rows_postgres(cluster.create_database())),
        }
        for name, (place, peers_place, raw, rows) in places.items():
            dbos = None if python is None else Dbos(python, peers_place)
            try:
                found = asyncio.run(turns(place, raw, rows, dbos, size))
            finally:
                if dbos is not None:
                    dbos.close()
            results[name] = told_turns(name, found, asyncio.run(fan_out(place)))
    if chosen.keep:
        print(keep("steps", results))


if __name__ == "__main__":
    sys.exit(main())
