"""The same commands get the same answers on every store, and leave the same rows and the same journal behind.

Memory and SQLite share a clock that the test moves, so times are compared too; PostgreSQL has its own clock, so there
time stands still, as far as the rules can see, and moments are left out. ALLSWELL_SEQUENCES sets how many are tried.
"""

import asyncio
import os
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from allswell.engine.engine import Engine
from allswell.errors import Refused
from allswell.store.memory import MemoryStore
from allswell.store.port import Store
from allswell.store.postgres import PostgresStore
from allswell.store.sqlite import SqliteStore
from tests.engine.script import Author, Line, Sweep, perform, plain, stands

SEQUENCES = int(os.environ.get("ALLSWELL_SEQUENCES", "100"))
LINES = 25
TABLES = (
    "lane",
    "task",
    "ready",
    "timer",
    "waits",
    "bar",
    "lease",
    "attempt",
    "question",
    "run",
    "service",
    "agent",
    "expense",
)
PARTS = 4
"""So many tests share the sequences, that processes may share the tests."""


class StoppedClock:
    """Moves when it is told."""

    def __init__(self) -> None:
        self.passed = 0

    def wall(self) -> int:
        return 1_700_000_000_000 + self.passed

    def monotonic(self) -> int:
        return self.passed

    def boottime(self) -> int:
        return self.passed


def engine_on(store: Store, clock: StoppedClock | None = None) -> Engine:
    return Engine(store, rng=lambda: 0.25, clock=clock, sweeping=False)


async def write_script(seed: int, *, timed: bool) -> tuple[list[Line], list[object]]:
    """A script, and what it came to on the memory store with all its rules enforced."""
    clock, author = StoppedClock(), Author(seed, timed=timed)
    lines: list[Line] = []
    answers: list[object] = []
    async with engine_on(MemoryStore(clock=clock), clock) as engine:
        for _ in range(LINES):
            line = author.line()
            lines.append(line)
            clock.passed += line.passed if isinstance(line, Sweep) else 0
            got = await perform(engine, line)
            answers.append(plain(got, timed=timed))
            author.heard(line, got, await engine.store.view_questions())
        seen = await stands(engine)
        assert seen["unaccounted"] == []
    return lines, [*answers, plain(seen, timed=timed)]


async def follow_script(lines: list[Line], engine: Engine, clock: StoppedClock | None = None) -> list[object]:
    timed = clock is not None
    answers: list[object] = []
    for line in lines:
        if clock is not None and isinstance(line, Sweep):
            clock.passed += line.passed
        answers.append(plain(await perform(engine, line), timed=timed))
    return [*answers, plain(await stands(engine), timed=timed)]


def compare(seed: int, lines: list[Line], wanted: list[object], got: list[object]) -> None:
    for number, (line, one, other) in enumerate(zip([*lines, "the end"], wanted, got, strict=True)):
        assert other == one, f"seed {seed}, line {number}: {line}"


def test_what_a_refusal_says_of_the_time_left_is_compared_only_where_the_clock_is_shared() -> None:
    """A second may pass between two stores with clocks of their own, and a loaded machine lets it."""
    soon, later = (Refused("flow_running", f"ann loses it {left} s from now") for left in (899, 900))
    assert plain(soon, timed=False) == plain(later, timed=False)
    assert plain(soon, timed=True) != plain(later, timed=True)


@pytest.mark.parametrize("part", range(PARTS))
def test_sqlite_answers_as_memory_does(part: int, tmp_path: Path) -> None:
    async def scene() -> None:
        for seed in range(part, SEQUENCES, PARTS):
            lines, wanted = await write_script(seed, timed=True)
            clock = StoppedClock()
            async with engine_on(SqliteStore(tmp_path / f"{seed}.db", clock=clock), clock) as engine:
                compare(seed, lines, wanted, await follow_script(lines, engine, clock))

    asyncio.run(scene())


@pytest.mark.parametrize("part", range(PARTS))
def test_postgresql_answers_as_memory_does(part: int, pg_url: str) -> None:
    async def scene() -> None:
        for seed in range(part, SEQUENCES, PARTS):
            lines, wanted = await write_script(seed, timed=False)
            async with engine_on(PostgresStore(pg_url)) as engine:
                compare(seed, lines, wanted, await follow_script(lines, engine))
            empty(pg_url)

    asyncio.run(scene())


def empty(url: str) -> None:
    """A database of its own for every sequence would take longer than the sequence; so would truncating its tables."""
    with psycopg.connect(url) as connection, connection.pipeline():
        for table in (*TABLES, "spread", "journal"):
            connection.execute(sql.SQL("DELETE FROM allswell.{}").format(sql.Identifier(table)))
