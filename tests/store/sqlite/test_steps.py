"""With 50,000 other rows of everything, claim, check-in, finish, sweep and list take no more steps than with none.

SQLite counts the steps of its virtual machine, so this needs no clock and holds on any machine.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from allswell.app import make_watch
from allswell.domain.ids import RunId
from allswell.domain.task.model import TaskFilter
from allswell.engine.watch import Watch
from allswell.store.sqlite import SqliteStore
from allswell.store.sqlite import connection as connections
from allswell.testing.sim.process import engine_of
from tests.store.sqlite.scene import HandClock

MANY = 50_000
SOME = 100
EVERY = 100
"""SQLite reports after so many steps."""
DAY = 86_400_000

_FILL = """
    CREATE TEMP TABLE n AS WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {many})
    SELECT n, 't_0' || printf('%09d', n) AS id FROM s;
    INSERT INTO task
    SELECT id, 'name' || n / 10, 'r_' || n / 10, '', 1, 0, CASE WHEN n % 10 < 3 THEN 'open' ELSE 'done' END, {now},
           CASE WHEN n % 10 < 3 THEN NULL ELSE {now} END, '{{}}', '{{}}', 'null', 'null', 9000000000000000000 + n,
           NULL FROM n;
    INSERT INTO ready SELECT 1, 9000000000000000000 + n, id FROM n WHERE n % 10 = 0;
    INSERT INTO lease
    SELECT id, 1, 'agent', {now}, {far}, NULL, NULL, 300000, 30000, 10000, '', 0, NULL, {now}, NULL, NULL, '', {far},
           NULL FROM n WHERE n % 10 = 1;
    INSERT INTO timer SELECT id, {far} FROM n WHERE n % 10 = 2;
    INSERT INTO attempt SELECT id, 1, 'agent', {now}, {now}, 'done', '', '', NULL, NULL FROM n WHERE n % 10 > 2;
    INSERT INTO journal (at, events)
    SELECT {now}, json_array(json_object('kind', 'task_submitted', 'task', id)) FROM n;
"""
"""A tenth each is ready, held and pausing; the rest is finished. What the test itself submits ranks before them."""


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many steps all connections of this process have taken, in hundreds."""
    taken = [0]
    plain = connections.connect

    def count() -> int:
        taken[0] += 1
        return 0

    def connect(database: Path, busy_timeout: int, **how: bool) -> sqlite3.Connection:
        made = plain(database, busy_timeout, **how)
        made.set_progress_handler(count, EVERY)
        return made

    monkeypatch.setattr(connections, "connect", connect)
    return taken


async def claim_and_finish(watch: Watch, clock: HandClock) -> None:
    leases = await watch.claim_many(SOME, agent="reader")
    assert len(leases) == SOME
    await watch.checkin_many(leases)
    assert await watch.complete_many([(lease, None) for lease in leases]) == [None] * SOME


async def let_time_pass(watch: Watch, clock: HandClock) -> None:
    """A hundred leases reach their limit in the same moment."""
    leases = await watch.claim_many(SOME, agent="reader")
    assert len(leases) == SOME
    clock.at += 900_000
    assert await engine_of(watch).sweeper.sweep() == 0.0
    assert len(await watch.attempts(leases[0].task)) == 1


async def list_open(watch: Watch, clock: HandClock) -> None:
    assert len(await watch.tasks(TaskFilter(open=True, after="t_1", limit=SOME))) == SOME


async def list_run(watch: Watch, clock: HandClock) -> None:
    assert await watch.tasks(TaskFilter(run=RunId("r_none"), open=True)) == []


async def list_name(watch: Watch, clock: HandClock) -> None:
    assert len(await watch.tasks(TaskFilter(name="mine"))) == SOME


@pytest.mark.parametrize(
    "work", [claim_and_finish, let_time_pass, list_open, list_run, list_name], ids=lambda work: work.__name__
)
def test_other_rows_cost_no_steps(
    tmp_path: Path, steps: list[int], work: Callable[[Watch, HandClock], Awaitable[None]]
) -> None:
    async def taken(path: Path, many: int) -> int:
        clock = HandClock(1_790_000_000_000)
        async with make_watch(SqliteStore(path, clock=clock), clock=clock, sweeping=False) as watch:
            # The lane, the statements and the caches are there before anything is counted.
            await watch.submit_many([{"name": "mine"}] * SOME)
            await watch.tasks(TaskFilter(limit=1))
            connection = sqlite3.connect(path)
            connection.executescript(_FILL.format(many=many, now=clock.at, far=clock.at + DAY))
            connection.close()
            before = steps[0]
            await work(watch, clock)
            return steps[0] - before

    alone = asyncio.run(taken(tmp_path / "alone.db", 1))
    crowded = asyncio.run(taken(tmp_path / "crowded.db", MANY))
    assert alone > 0 or work is list_run
    assert crowded <= alone * 1.2 + 10, f"{crowded * EVERY} steps beside {MANY:,} others, {alone * EVERY} alone"
