"""What claimed tasks leave in the index is swept out while the work goes on, so that no pick has to walk through it."""

from __future__ import annotations

import asyncio
import json

import psycopg

from allswell.app import make_watch
from allswell.errors import Unavailable
from allswell.store.postgres import PostgresStore
from allswell.store.postgres.store import Vacuum

_TASKS, _BATCH = 10_000, 1_000
_PICK = "SELECT task, rank FROM allswell.ready WHERE lane = 1 ORDER BY rank, task LIMIT 20"


async def churn(store: PostgresStore) -> None:
    async with make_watch(store) as watch:
        for _ in range(0, _TASKS, _BATCH):
            await watch.submit_many([{"name": "x"}] * _BATCH)
            leases = await watch.claim_many(_BATCH, agent="alice")
            await watch.complete_many([(lease, None) for lease in leases])


def pages_walked(url: str) -> int:
    with psycopg.connect(url) as connection:
        connection.execute("SET enable_bitmapscan = off; SET enable_seqscan = off")
        connection.execute(_PICK)  # what is found dead is marked so by the first who meets it
        row = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {_PICK}").fetchone()
    assert row is not None
    plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
    return int(plan[0]["Plan"]["Shared Hit Blocks"]) + int(plan[0]["Plan"]["Shared Read Blocks"])


def without_the_servers_own(url: str) -> None:
    async def make() -> None:
        store = PostgresStore(url)
        await store.open()
        await store.close()

    asyncio.run(make())
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER TABLE allswell.ready SET (autovacuum_enabled = false)")


def test_a_pick_walks_few_pages_however_many_tasks_went_before(pg_url: str) -> None:
    without_the_servers_own(pg_url)
    asyncio.run(churn(PostgresStore(pg_url, vacuum_every=2 * _BATCH)))
    swept = pages_walked(pg_url)
    asyncio.run(churn(PostgresStore(pg_url, vacuum_every=10**9)))
    left = pages_walked(pg_url)
    assert left > 50, "this test shows nothing: nothing is left behind without a broom either"
    assert swept < left / 3


def test_one_sweep_at_a_time_and_one_that_fails_is_left_to_the_next() -> None:
    async def test() -> None:
        began: list[asyncio.Event] = []

        async def sweep() -> None:
            began.append(asyncio.Event())
            await began[-1].wait()
            raise Unavailable("no server")

        broom = Vacuum(sweep, every=10)
        broom.count(9)
        await asyncio.sleep(0)
        assert not began
        broom.count(1)
        await asyncio.sleep(0)
        broom.count(50)
        await asyncio.sleep(0)
        assert len(began) == 1
        began[0].set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        broom.count(0)
        await asyncio.sleep(0)
        assert len(began) == 2
        await broom.close(0)

    asyncio.run(test())
