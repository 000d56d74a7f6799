"""The schema and the statements: run once, all used, and each served by an index."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from pathlib import Path

import pytest

import allswell.store.sqlite
from allswell.domain.ids import Millis, RunId
from allswell.domain.rules.query import ViewTasks
from allswell.domain.service.breaker import Service
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.model import TaskFilter
from allswell.store import sql
from allswell.store.sqlite import SqliteStore, views
from allswell.store.sqlite.connection import NEWEST, SQL, statements, upgrade
from allswell.store.sqlite.transaction import _listed
from tests.store.sqlite.scene import opened, plain, put, run

PACKAGE = Path(allswell.store.sqlite.__file__).parent


def test_every_statement_is_used() -> None:
    code = "".join(path.read_text() for path in PACKAGE.glob("*.py"))
    used = set(re.findall(r'"(\w+)"', code)) | {name for name in SQL if name.startswith("lock_")}
    assert set(SQL) - used == set()


def test_a_script_is_cut_into_its_statements() -> None:
    script = "-- a comment;\nCREATE TABLE a (\n  x TEXT, -- with a comment;\n  y TEXT\n);\n\nCREATE INDEX i ON a (x);\n"
    assert [text.split()[1] for text in statements(script)] == ["TABLE", "INDEX"]
    with pytest.raises(sqlite3.ProgrammingError, match="in the middle"):
        statements("CREATE TABLE a (x)")


def test_migrations_run_once(tmp_path: Path) -> None:
    async def version(store: SqliteStore) -> int:
        return int(store._reader.execute(SQL["read_version"]).fetchone()[0])  # type: ignore[union-attr]

    async def nothing(store: SqliteStore) -> None:
        await put(store, plain(["t_1"]) if not await store.view_counts() else plain([]))

    for _ in range(2):
        run(tmp_path / "x.db", nothing)
    raw = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    for _ in range(2):
        upgrade(raw, tmp_path / "x.db")
    assert raw.execute(SQL["read_version"]).fetchone() == (
        NEWEST,
        sql.oldest_writer(sql.migrations("allswell.store.sqlite")),
    )
    assert raw.execute("SELECT count(*) FROM task").fetchone() == (1,)
    raw.close()


def test_a_migration_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [(number, "CREATE TABLE task (id);\nCREATE TABLE task (id);\n") for number in range(1, NEWEST + 1)]
    monkeypatch.setattr("allswell.store.sql.migrations", lambda _: broken)
    with pytest.raises(Exception, match="already exists"):
        asyncio.run(SqliteStore(tmp_path / "x.db").open())
    raw = sqlite3.connect(tmp_path / "x.db")
    assert raw.execute(SQL["count_tables"]).fetchone() == (0,)
    raw.close()


def test_a_service_that_was_parked_before_breakers_were_kept_is_parked_still(tmp_path: Path) -> None:
    raw = sqlite3.connect(tmp_path / "x.db")
    raw.execute(SQL["create_meta"])
    for number, text in sql.migrations("allswell.store.sqlite")[:2]:
        for statement in statements(text):
            raw.execute(statement)
        raw.execute(SQL["put_version"], (str(number),))
    raw.execute("INSERT INTO service VALUES ('a “β”', 9007199254740993)")
    raw.commit()
    raw.close()

    async def services(store: SqliteStore) -> object:
        return await store.view_services()

    parked = ServiceRow("a “β”", Service(parked_until=Millis(9007199254740993)))
    assert run(tmp_path / "x.db", services) == {parked.id: parked}


SCANS_ALLOWED = {
    "read_services",  # dozens of them
    "read_last_renewal",  # live leases, when a store is opened
    "find_spreads",  # in the order of the rowid, with a limit
    "read_last",  # the newest row
    "view_journal",
    "view_runs",
    "view_agents",
    "view_health",
    "view_cursors",  # a handful of followers
    "view_deliveries",  # what an outage has left; none as a rule
    "view_kept",  # a few words of the watch about itself
    "view_questions",
    "view_open_questions",
    "view_agenda",
    "view_counts_bad",  # all that ended badly, by an index of their states
    "view_count_all",  # by the smallest index: the one view whose cost grows with history
    "count_tables",
    "find_meta",
    # Views that count, and meet nothing but rows of open tasks; tests/store/test_size.py holds them to few steps each.
    "view_counts_open",
    "count_timers_of_leases",
    "count_timers_of_waits",
    "count_timers_of_ready",
    "count_ready_with_timers",
    "find_in_vain",
}


def test_no_hot_statement_scans_a_table(tmp_path: Path) -> None:
    """Claims and finishes must stay flat from zero to a million finished tasks."""

    async def plans(store: SqliteStore) -> dict[str, str]:
        found = {}
        connection = sqlite3.connect(store.path)
        listed = {f"{name} of a list": _listed(name) for name in ("delete_ready", "update_lease", "delete_lease")}
        for name, statement in (SQL | listed).items():
            if "{" in statement or name in ("view_state", "view_text", "create_meta"):
                continue
            steps = connection.execute(
                f"EXPLAIN QUERY PLAN {statement}",
                [None] * (int(max(numbers)) if (numbers := re.findall(r"\?(\d)", statement)) else statement.count("?")),
            ).fetchall()
            found[name] = "; ".join(step[3] for step in steps)
        connection.close()
        return found

    plans_ = run(tmp_path / "x.db", plans)
    scans = {
        name: plan
        for name, plan in plans_.items()
        if re.search(r"SCAN (?!given|pair|json_each|CONSTANT|\(subquery)", plan) and name not in SCANS_ALLOWED
    }
    # Open tasks only, through the partial index: finished ones are never met.
    assert scans.pop("view_unaccounted").startswith("SCAN task USING INDEX task_open")
    assert scans == {}
    assert "ready USING PRIMARY KEY (lane=?)" in plans_["pick"]
    assert "ready USING PRIMARY KEY (lane=?)" in plans_["pick_for"]
    assert "timer_due (due_at<?)" in plans_["find_due"]
    assert "lease_due (due_at<?)" in plans_["find_due"]
    assert "TEMP B-TREE" not in plans_["pick"] + plans_["find_waiting"] + plans_["find_open"]
    assert "task_run (run=? AND ended_at=?)" in plans_["find_open"]
    assert "lease_command" in plans_["find_claimed"]
    assert "ready USING PRIMARY KEY (lane=? AND rank=? AND task=?)" in plans_["delete_ready of a list"]
    assert "lease USING PRIMARY KEY (task=?)" in plans_["update_lease of a list"]
    assert "lease USING PRIMARY KEY (task=?)" in plans_["delete_lease of a list"]
    assert "sqlite_autoindex_task_1 (id=?)" in plans_["update_task"]
    assert "COVERING INDEX task_ended_badly" in plans_["view_counts_bad"]
    assert "COVERING INDEX" in plans_["view_count_all"]


@pytest.mark.parametrize(
    "which,index",
    [
        (TaskFilter(), "sqlite_autoindex_task_1 (id>?)"),
        (TaskFilter(open=True), "task_open"),
        (TaskFilter(states=("ready", "held")), "task_open"),
        (TaskFilter(states=("failed",)), "task_ended_badly (state=? AND id>?)"),
        (TaskFilter(name="x"), "task_name (name=?)"),
        (TaskFilter(run=RunId("r_1")), "task_run (run=?)"),
        (TaskFilter(run=RunId("r_1"), open=True), "task_run (run=? AND ended_at=? AND id>?)"),
    ],
)
def test_a_list_of_tasks_looks_only_where_they_can_be(tmp_path: Path, which: TaskFilter, index: str) -> None:
    async def plan(store: SqliteStore) -> str:
        connection = sqlite3.connect(store.path)
        said: list[str] = []
        connection.set_trace_callback(said.append)
        views.tasks(connection, ViewTasks(which))
        steps = connection.execute(f"EXPLAIN QUERY PLAN {said[1]}").fetchall()
        connection.close()
        return str(steps[0][3])

    assert index in run(tmp_path / "x.db", plan)


def test_what_is_durable_is_synced(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "x.db") as store:
            raw = store._writer._connection
            assert raw is not None
            said: list[int] = []

            async def look(_: object) -> None:
                said.extend(row[0] for row in raw.execute("PRAGMA synchronous").fetchall())

            for durable in (True, False, False, True):
                await store.transact(look, durable=durable)
            assert said == [2, 1, 1, 2]

    asyncio.run(main())
