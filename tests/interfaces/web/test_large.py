"""A large store stays quick to look at: ten thousand tasks in every run of the tests, or as many as are asked for.

ALLSWELL_PAGE_TASKS=100000 pytest tests/interfaces/web/test_large.py
"""

import asyncio
import os
import time
from pathlib import Path
from statistics import median

import psycopg
import pytest

from allswell.app import make_watch, store_for
from tests.interfaces.http.served import serving
from tests.interfaces.web.visit import logged_in

ASKED = os.environ.get("ALLSWELL_PAGE_TASKS")
TASKS = int(ASKED or "10000")
STORES = ("sqlite", "postgresql") if ASKED else ("sqlite",)
"""PostgreSQL too where a large store is asked for."""
AGENTS = 1_000
LIMIT = 0.3
"""Seconds for the whole page: on the clock where a large store is asked for, else of the server's processor."""
LISTS = (
    "/tasks",
    "/tasks?state=waiting",
    "/tasks?state=held",
    "/tasks?text=task+99",
    "/agents?from=500",
    "/agents/agent.5",
    "/journal?text=nothing",
    "/runs/bulk",
)


async def fill(store: str) -> None:
    """Tasks in a run and outside, a thousand agents, and a tenth done."""
    async with make_watch(store_for(store), sweeping=False) as watch:
        run = await watch.open_run("bulk")
        for first in range(0, TASKS, 5_000):
            part = range(first, min(first + 5_000, TASKS))
            await watch.submit_many([{"name": f"task {one}", "run": run if one % 3 else None} for one in part])
        (needed,) = await watch.submit_many([{"name": "what others need"}])
        await watch.submit_many([{"name": f"behind it {one}", "needs": [needed]} for one in range(200)])
        await asyncio.gather(*(watch.claim(agent=f"agent.{number}") for number in range(AGENTS)))
        for _ in range(TASKS // 10 // 500):
            leases = await watch.claim_many(500, agent="worker")
            await watch.complete_many([(lease, None) for lease in leases])


@pytest.mark.realtime
@pytest.mark.alone
@pytest.mark.parametrize("kind", STORES)
def test_the_page_of_a_large_store_is_there_at_once(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    (tmp_path / ".allswell").mkdir(0o700)
    files = f"sqlite:///{tmp_path}/.allswell/allswell.db"
    store = files if kind == "sqlite" else str(request.getfixturevalue("pg_url"))
    asyncio.run(fill(store))
    if kind == "postgresql":
        with psycopg.connect(store, autocommit=True) as connection:
            connection.execute("ANALYZE")  # the server does so by itself within a minute
    with serving(tmp_path, store=store) as served:
        visit = logged_in(served)
        clock = time.perf_counter if ASKED else lambda: served.processor_time
        took = []
        for number in range(5):
            begun = clock()
            shown = visit.get(f"/?agents={number * 200}")
            took.append(clock() - begun)
            assert shown.status == 200
            assert shown.body.count(b'<tr id="a-') == 50
            assert len(shown.body) < 200_000
        assert median(took) < LIMIT, took
        for path in LISTS:
            took = []
            for _ in range(3):
                begun = clock()
                shown = visit.get(path)
                took.append(clock() - begun)
                assert shown.status == 200
                assert len(shown.body) < 200_000
            assert median(took) < LIMIT, (path, took)
