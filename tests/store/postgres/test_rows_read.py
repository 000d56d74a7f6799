"""With 50,000 rows of everything, claim, check-in, finish, sweep and list read only what they need.

The server itself counts the rows that each table gave up, by scan and by index, so this holds for the plans that the
real statements really got, whatever `EXPLAIN` would say of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import psycopg
import pytest

from allswell.app import make_watch, store_for
from allswell.domain.ids import RunId
from allswell.domain.task.model import TaskFilter
from allswell.engine.watch import Watch
from allswell.testing.sim.process import engine_of
from tests.store.postgres.scene import await_alone, opened

MANY = 50_000
SOME = 100
BIG = ("task", "ready", "timer", "lease", "attempt", "journal")
SPARE = 30
"""How many rows of a table one task may cost: locked, read, written, and looked up again in each of its tables."""

_FILL = """
    INSERT INTO allswell.task
    SELECT 't_' || lpad(n::text, 9, '0'), 'name' || n / 10, 'r_' || n / 10, '', 1, 0,
           CASE WHEN n % 10 < 3 THEN 'open' ELSE 'done' END, {now}, CASE WHEN n % 10 < 3 THEN NULL ELSE {now} END,
           '{{}}', '{{}}', 'null', 'null', 5000000 + n, NULL
    FROM generate_series(1, {many}) n;
    INSERT INTO allswell.ready SELECT id, 1, rank FROM allswell.task WHERE id LIKE '%0';
    INSERT INTO allswell.lease
    SELECT id, 1, 'agent', {now}, {far}, NULL, NULL, 300000, 30000, 10000, '', 0, NULL, {now}, NULL, '', {far}
    FROM allswell.task WHERE id LIKE '%1';
    INSERT INTO allswell.timer SELECT id, {far} FROM allswell.task WHERE id LIKE '%2';
    INSERT INTO allswell.attempt
    SELECT id, 1, 'agent', {now}, {now}, 'done', '', '', NULL FROM allswell.task WHERE ended_at IS NOT NULL;
    INSERT INTO allswell.journal (at, events)
    SELECT {now}, json_build_array(json_build_object('kind', 'task_submitted', 'task', id))::text FROM allswell.task;
"""
"""A tenth each is ready, held and pausing; the rest is finished."""
_FALL_DUE = f"""
    UPDATE allswell.lease SET deadline = granted_at + 1, due_at = 1
    WHERE task IN (SELECT task FROM allswell.lease ORDER BY task LIMIT {SOME});
"""  # noqa: S608
_READ = (
    "SELECT relname, seq_tup_read, coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE schemaname = 'allswell'"
)


def fill(url: str, *, analyzed: bool) -> None:
    """50,000 tasks in all states; `analyzed` while empty is the worst that statistics can say of them."""
    now = time.time_ns() // 1_000_000
    rows = _FILL.format(many=MANY, now=now, far=now + 86_400_000)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("INSERT INTO allswell.lane (role, services) VALUES ('', '[]') ON CONFLICT DO NOTHING")
        connection.execute("ANALYZE")
        connection.execute(rows.encode())
        if analyzed:
            connection.execute("ANALYZE")


def rows_read(url: str, work: Callable[[Watch], Awaitable[None]]) -> dict[str, tuple[int, int]]:
    """Rows that each big table gave up, by scan and by index, while a watch did this and nothing else."""

    async def watching() -> None:
        async with make_watch(store_for(url), sweeping=False) as watch:
            await work(watch)

    def read() -> dict[str, tuple[int, int]]:
        with psycopg.connect(url, autocommit=True) as connection:
            return {name: (scanned, fetched) for name, scanned, fetched in connection.execute(_READ).fetchall()}

    await_alone(url)  # a session's figures are in once it is gone; the one that filled the tables may just be leaving
    before = read()
    asyncio.run(watching())
    await_alone(url)
    after = read()
    return {name: (after[name][0] - before[name][0], after[name][1] - before[name][1]) for name in BIG}


async def claim(watch: Watch) -> None:
    assert len(await watch.claim_many(SOME, agent="reader")) == SOME


async def claim_and_finish(watch: Watch) -> None:
    leases = await watch.claim_many(SOME, agent="reader")
    await watch.checkin_many(leases)
    assert await watch.complete_many([(lease, None) for lease in leases]) == [None] * SOME


async def list_open(watch: Watch) -> None:
    assert len(await watch.tasks(TaskFilter(open=True, limit=SOME))) == SOME


async def list_page(watch: Watch) -> None:
    assert len(await watch.tasks(TaskFilter(after="t_000025000", limit=SOME))) == SOME


async def list_run(watch: Watch) -> None:
    assert len(await watch.tasks(TaskFilter(run=RunId("r_2500"), open=True))) == 3


async def list_name(watch: Watch) -> None:
    assert len(await watch.tasks(TaskFilter(name="name2500"))) == 10


async def look_closely(watch: Watch) -> None:
    assert await watch.task("t_000025001") is not None
    assert len(await watch.attempts("t_000025009")) == 1


@pytest.mark.parametrize(
    "work,analyzed",
    [
        (claim, True),
        pytest.param(claim, False),
        (claim_and_finish, True),
        pytest.param(claim_and_finish, False),
        # Views may scan what the planner thinks is small, so they are asked with good statistics only.
        (list_open, True),
        pytest.param(list_page, True),
        (list_run, True),
        (list_name, True),
        (look_closely, True),
        (look_closely, False),
    ],
)
def test_only_what_is_needed_is_read(pg_url: str, work: Callable[[Watch], Awaitable[None]], analyzed: bool) -> None:
    asyncio.run(_make(pg_url))
    fill(pg_url, analyzed=analyzed)
    read = rows_read(pg_url, work)
    assert {name: scanned for name, (scanned, _) in read.items() if scanned > SOME} == {}
    assert {name: fetched for name, (_, fetched) in read.items() if fetched > SOME * SPARE} == {}


@pytest.mark.parametrize("analyzed", [True, False])
def test_a_sweep_reads_what_is_due_and_no_more(pg_url: str, analyzed: bool) -> None:
    asyncio.run(_make(pg_url))
    fill(pg_url, analyzed=analyzed)
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute(_FALL_DUE.encode())

    async def sweep(watch: Watch) -> None:
        assert await engine_of(watch).sweeper.sweep() == 0.0
        assert await engine_of(watch).sweeper.sweep() > 0.0

    read = rows_read(pg_url, sweep)
    assert {name: scanned for name, (scanned, _) in read.items() if scanned > SOME} == {}
    assert {name: fetched for name, (_, fetched) in read.items() if fetched > SOME * SPARE} == {}
    assert read["lease"][1] >= SOME  # it did sweep


async def _make(url: str) -> None:
    async with opened(url):
        pass
