"""What is asked of the whole watch does not look at each of its tasks: a store with 100,000 open ones answers quickly.

Time is no measure beside other work, so what is counted is the work itself: SQLite's virtual machine steps, and how
PostgreSQL goes about it.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

import allswell
from allswell.domain.rules.query import ViewCounts, ViewOrphans, ViewTasks
from allswell.domain.task.model import TaskFilter
from allswell.engine.status.verdict import look
from allswell.store.port import run_sync
from allswell.store.sqlite import views
from allswell.store.sqlite.views import SqliteReader

MANY = 100_000
STEPS = 1_000
"""How often SQLite tells that it has gone on: every so many steps of its virtual machine."""


async def a_few(url: str) -> None:
    """One task of each kind that there is."""
    async with allswell.open(url) as watch:
        first = await watch.submit("held")
        lease = await watch.claim(agent="bob")
        assert lease is not None
        await watch.submit("waits", needs=[first])
        await watch.submit("later", not_before=4_000_000_000_000)
        await lease.delegate("expert", "a request")
        await watch.submit("ready")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with very many tasks that are ready, and a few others; nobody changes it."""
    path = tmp_path_factory.mktemp("size") / "x.db"
    asyncio.run(a_few(f"sqlite:///{path}"))
    connection = sqlite3.connect(path)
    with connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(task)")]
        made = {"id": "'t_x' || number", "rank": "rank + number"}
        connection.execute(
            f"WITH RECURSIVE numbers(number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers LIMIT {MANY}) "  # noqa: S608
            f"INSERT INTO task ({', '.join(columns)}) SELECT {', '.join(made.get(name, name) for name in columns)} "
            "FROM (SELECT * FROM task WHERE name = 'ready'), numbers"
        )
        connection.execute("INSERT INTO ready (lane, rank, task) SELECT lane, rank, id FROM task WHERE id LIKE 't_x%'")
    connection.close()
    return path


def steps(path: Path, ask: Callable[[sqlite3.Connection], object]) -> int:
    """About how many steps a question takes for each task that there is."""
    connection = sqlite3.connect(path)
    told: list[None] = []
    connection.set_progress_handler(lambda: told.append(None), STEPS)
    ask(connection)
    connection.close()
    return len(told) * STEPS // MANY


def test_on_sqlite_nothing_looks_at_each_task(filled: Path) -> None:
    """A count by an index takes a step or two for each row; a look at where each one stands took 40."""
    assert steps(filled, lambda connection: views.counts(connection, ViewCounts())) < 12
    assert steps(filled, lambda connection: views.orphans(connection, ViewOrphans(100))) < 12
    for which in (TaskFilter(states=("held",)), TaskFilter(open=True, role="run", states=("ready",))):
        asked = ViewTasks(which)
        assert steps(filled, lambda connection, asked=asked: views.tasks(connection, asked)) == 0  # type: ignore[misc]


def test_and_what_it_says_is_so(filled: Path) -> None:
    with SqliteReader(filled) as reader:
        seen = run_sync(look(reader))
        held = run_sync(reader.view_tasks(TaskFilter(states=("held",))))
    assert seen.well
    assert seen.counts == {"held": 1, "waiting": 1, "delayed": 1, "ready": MANY + 2}
    assert [row.task.name for row in held] == ["held"]


@pytest.mark.parametrize(
    "harm, found",
    [
        ("DELETE FROM ready WHERE task = 't_x77'", "t_x77"),
        ("DELETE FROM timer WHERE owner IN (SELECT id FROM task WHERE name = 'later')", "later"),
        ("UPDATE lease SET due_at = NULL", "held"),
        ("UPDATE task SET ended_at = 1, state = 'done' WHERE name = 'held'", "waits"),
    ],
)
def test_one_that_nothing_will_move_is_found_among_them(filled: Path, tmp_path: Path, harm: str, found: str) -> None:
    shutil.copy(filled, tmp_path / "x.db")
    connection = sqlite3.connect(tmp_path / "x.db")
    with connection:
        connection.execute(harm)
    connection.close()
    with SqliteReader(tmp_path / "x.db") as reader:
        (lost,) = run_sync(reader.view_orphans())
        row = run_sync(reader.view_task(lost))
    assert row is not None
    assert found in (row.task.id, row.task.name)


def test_on_postgres_the_same(pg_url: str) -> None:
    """What is held, and what is ready in a role, is found from there; and the sums are right."""
    asyncio.run(a_few(pg_url))
    with psycopg.connect(pg_url, autocommit=True) as connection:
        columns = [
            row[0]
            for row in connection.execute(
                "SELECT column_name FROM information_schema.columns WHERE table_schema = 'allswell' "
                "AND table_name = 'task' ORDER BY ordinal_position"
            )
        ]
        made = {"id": "'t_x' || number", "rank": "rank + number"}
        connection.execute(
            f"INSERT INTO allswell.task ({', '.join(columns)}) "  # noqa: S608
            f"SELECT {', '.join(made.get(name, name) for name in columns)} "
            "FROM (SELECT * FROM allswell.task WHERE name = 'ready') AS one, generate_series(1, 5000) AS number"
        )
        connection.execute(
            "INSERT INTO allswell.ready (lane, rank, task) "
            "SELECT lane, rank, id FROM allswell.task WHERE id LIKE 't\\_x%'"
        )

    async def ask() -> None:
        async with allswell.open(pg_url) as watch:
            store = watch._engine.store
            assert await store.view_counts() == {"held": 1, "waiting": 1, "delayed": 1, "ready": 5_002}
            assert await store.view_orphans() == []
            assert [row.task.name for row in await store.view_tasks(TaskFilter(states=("held",)))] == ["held"]
            expert = TaskFilter(open=True, role="expert", states=("ready",))
            assert [row.task.name for row in await store.view_tasks(expert)] == ["a request"]
            with psycopg.connect(pg_url, autocommit=True) as connection:
                connection.execute("DELETE FROM allswell.ready WHERE task = 't_x77'")
            assert await store.view_orphans() == ["t_x77"]

    asyncio.run(ask())
