"""A store that a later version has upgraded: code that it still takes goes on, all other is kept from writing."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from pathlib import Path

import psycopg
import pytest

import allswell
from allswell.app import store_for
from allswell.domain.question import RETRY, SKIP
from allswell.domain.task.model import TaskFilter
from allswell.errors import Refused
from allswell.store import sql
from allswell.store.port import FastStepWriter
from allswell.store.postgres.connection_thread import VERSION
from allswell.store.sqlite.connection import NEWEST
from tests.interfaces.cli.console import Console
from tests.store.kept.restore import restore_postgres, restore_sqlite
from tests.store.kept.scene import NIGHTS

EXPANDED = "ALTER TABLE run ADD COLUMN later TEXT; CREATE TABLE later (id TEXT PRIMARY KEY)"


def known(url: str) -> int:
    """The newest schema that this version knows."""
    return NEWEST if url.startswith("sqlite") else VERSION


def execute(url: str, script: str) -> None:
    """A script, with the tables named as on SQLite."""
    if url.startswith("sqlite"):
        raw = sqlite3.connect(url.removeprefix("sqlite:///"))
        raw.executescript(script)
        raw.close()
        return
    with psycopg.connect(url) as connection:
        connection.execute(f"SET search_path = allswell; {script}".encode())


def upgrade(url: str, oldest_writer: int) -> None:
    """What the next version does to a store: it adds something, and says who may still write."""
    version = "schema_version" if url.startswith("sqlite") else "schema"
    marks = {version: known(url) + 1, "oldest_writer": oldest_writer}
    puts = "; ".join(f"UPDATE meta SET value = '{value}' WHERE key = '{key}'" for key, value in marks.items())  # noqa: S608 - our own
    execute(url, f"{EXPANDED}; {puts}")


def read_marks(url: str) -> set[str]:
    """The versions that a store names."""
    statement = "SELECT value FROM {}meta WHERE key IN ('schema', 'schema_version', 'oldest_writer')"
    if url.startswith("sqlite"):
        raw = sqlite3.connect(url.removeprefix("sqlite:///"))
        rows = raw.execute(statement.format("")).fetchall()
        raw.close()
    else:
        with psycopg.connect(url) as connection:
            rows = connection.execute(statement.format("allswell.").encode()).fetchall()
    return {value for (value,) in rows}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'x.db'}"
    return str(request.getfixturevalue("pg_url"))


async def work_through(watch: allswell.Watch) -> None:
    """Something of everything: a run, a task, an attempt, a question, a recorded end."""
    run = await watch.open_run("night", timeout="1h")
    task = await watch.submit("write", run=run, role="upgrade")
    lease = await watch.claim(agent="ada", task=task)
    assert lease is not None
    await lease.checkin("half of it")
    question = await lease.ask("Which?", [RETRY, SKIP])
    await watch.answer(question, "retry", "the first", by="cleo")
    again = await watch.claim(agent="ada", task=task)
    assert again is not None
    await again.complete({"pages": 3})
    await watch.end_run(run, "done")
    assert await watch.result(task) == {"pages": 3}
    assert await watch.unaccounted() == []


@pytest.mark.parametrize("kept", [None, max(NIGHTS)])
def test_code_of_the_schema_before_goes_on_beside_the_next(url: str, kept: str | None, tmp_path: Path) -> None:
    """Both are open at once, as in a rolling upgrade; a store that was kept from an earlier version is no different."""
    if kept is not None:
        is_sqlite = url.startswith("sqlite")
        url = restore_sqlite(tmp_path, kept) if is_sqlite else restore_postgres(url, kept)

    async def main() -> None:
        async with allswell.make_watch(store_for(url)) as before:
            await work_through(before)
            upgrade(url, known(url))
            await work_through(before)
            async with allswell.make_watch(store_for(url)) as after:
                await work_through(after)
                await work_through(before)

    asyncio.run(main())
    assert read_marks(url) == {str(known(url) + 1), str(known(url))}, "nothing was taken back"


def test_code_that_is_shut_out_writes_nothing_more_and_opens_nothing(url: str) -> None:
    async def main() -> None:
        store = store_for(url)
        async with allswell.make_watch(store, sweeping=False) as watch:
            held = await watch.submit("held")
            lease = await watch.claim(agent="ada", task=held)
            assert lease is not None
            seen = await watch.tasks(TaskFilter(limit=10))
            upgrade(url, known(url) + 1)
            with pytest.raises(Refused) as submitted:
                await watch.submit("more")
            with pytest.raises(Refused) as beaten:
                await lease.renew()
            with pytest.raises(Refused) as kept:
                await watch.swap("a word", None, "said")
            for caught in (submitted, beaten, kept):
                assert caught.value.code == "newer_schema"
                assert f"know schema {known(url) + 1} or later" in caught.value.message
            assert await watch.tasks(TaskFilter(limit=10)) == seen
        with pytest.raises(Refused) as opened:
            await store_for(url).open()
        assert opened.value.code == "newer_schema"
        assert f"has schema {known(url) + 1}" in opened.value.message

    asyncio.run(main())


def test_no_step_of_a_flow_is_recorded_by_code_that_is_shut_out(url: str) -> None:
    async def main() -> None:
        store = store_for(url)
        assert isinstance(store, FastStepWriter)
        async with allswell.make_watch(store, sweeping=False) as watch:
            hold = await watch.take_up(
                watch.new_run(), "digest", limit=60_000, length=60_000, agent="ada", is_dead=lambda _: False
            )
            first, second = [await watch.prepare([{"name": name}]) for name in ("first", "second")]
            await hold.record(hold.said(first[0].id, "first", "null", "1", 5))
            upgrade(url, known(url) + 1)
            step = hold.said(second[0].id, "second", "null", "2", 5)
            with pytest.raises(Refused, match="or later"):
                await hold.record(step)
            assert [id_ async for id_, _ in hold.results()] == [first[0].id]

    asyncio.run(main())


def test_a_command_line_looks_into_a_store_of_the_next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli = Console(tmp_path, monkeypatch)
    cli.submit("write")
    url = f"sqlite:///{cli.folder / '.allswell' / 'allswell.db'}"
    upgrade(url, NEWEST)
    assert [task["name"] for task in cli.ok("tasks", "--json").json["tasks"]] == ["write"]
    cli.submit("more")
    execute(url, f"UPDATE meta SET value = '{NEWEST + 1}' WHERE key = 'oldest_writer'")  # noqa: S608 - our own
    refused = cli("tasks", "--json")
    assert refused.json["error"]["code"] == "newer_schema"


def test_a_migration_says_who_may_go_on_writing() -> None:
    assert sql.oldest_writer([(1, "CREATE TABLE a (x);"), (2, "CREATE TABLE b (x);")]) == 2
    assert sql.oldest_writer([(1, ""), (2, ""), (3, "-- oldest writer: 2\nALTER TABLE a ADD COLUMN y;")]) == 2
    assert sql.oldest_writer([(1, ""), (2, "-- oldest writer: 1\n"), (3, "")]) == 3


_EXPANDS = re.compile(
    r"ALTER TABLE [a-z._]+ ADD COLUMN \S+ \w+( NOT NULL DEFAULT [^;]+)?|CREATE (TABLE|INDEX) .*|UPDATE .*", re.DOTALL
)


@pytest.mark.parametrize("package", ["allswell.store.sqlite", "allswell.store.postgres"])
def test_a_migration_that_shuts_nobody_out_only_adds(package: str) -> None:
    """What it adds is empty, or has a default: the code before it does not know of it."""
    for number, text in sql.migrations(package):
        if sql.oldest_writer([(number, text)]) == number:
            continue
        lines = [line for line in text.splitlines() if not line.startswith("--")]
        for statement in filter(None, map(str.strip, "\n".join(lines).split(";"))):
            assert _EXPANDS.fullmatch(statement), f"{package} {number}: {statement}"


@pytest.mark.parametrize("name", ["sqlite", "postgres"])
def test_every_statement_names_its_columns(name: str) -> None:
    """So that a column of a later version disturbs nobody."""
    for statement in sql.load(f"allswell.store.{name}", "statements.sql").values():
        assert not re.search(r"INSERT INTO [a-z._]+ (VALUES|SELECT)", statement), statement
        assert not re.search(r"SELECT \*(?! FROM \()", statement), statement
