"""The schema: made once however many begin at once, never touched when it is newer than we are."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import psycopg
import pytest

from allswell.domain.ids import Millis
from allswell.domain.service.breaker import Service
from allswell.domain.service.service import ServiceRow
from allswell.errors import Refused
from allswell.store.postgres import PostgresStore
from allswell.store.postgres.connection_thread import MIGRATIONS, SQL, VERSION
from allswell.store.sql import oldest_writer
from tests.store.postgres.scene import await_waiter, client, opened, put_tasks, run

OPEN_ONE = """
import asyncio, sys
from allswell.store.postgres import PostgresStore
store = PostgresStore(sys.stdin.readline().strip())
print("ready", flush=True)
sys.stdin.readline()
asyncio.run(store.open())
"""


def test_processes_that_open_an_empty_database_at_once_agree(pg_url: str) -> None:
    starters = [
        subprocess.Popen([sys.executable, "-c", OPEN_ONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for starter in starters:
        assert starter.stdin is not None
        assert starter.stdout is not None
        print(pg_url, file=starter.stdin, flush=True)
        assert starter.stdout.readline() == "ready\n"
    for starter in starters:
        starter.communicate("go\n", timeout=60)
    assert [starter.returncode for starter in starters] == [0, 0, 0]
    with psycopg.connect(pg_url) as connection:
        kept: dict[str, str] = dict(connection.execute("SELECT key, value FROM allswell.meta").fetchall())
        assert kept == {"schema": str(VERSION), "oldest_writer": str(oldest_writer(MIGRATIONS))}


def test_whoever_waited_for_another_migrator_sees_what_it_made(pg_url: str) -> None:
    """All have looked and found nothing before the first of them begins."""

    async def main() -> None:
        stores = [PostgresStore(pg_url) for _ in range(4)]
        with client(pg_url) as holder:
            holder.execute(SQL["lock_schema"])
            opening = asyncio.gather(*(store.open() for store in stores))
            await asyncio.to_thread(await_waiter, pg_url, 4)
            holder.commit()
        await opening

    asyncio.run(main())


def test_opening_again_keeps_what_is_there(pg_url: str) -> None:
    async def main() -> None:
        async with opened(pg_url) as store:
            await put_tasks(store, ["t_a"])
        async with opened(pg_url) as one, opened(pg_url) as two:
            assert await one.view_counts() == await two.view_counts() == {"delayed": 1}

    asyncio.run(main())


def test_a_service_that_was_parked_before_breakers_were_kept_is_parked_still(pg_url: str) -> None:
    with psycopg.connect(pg_url, cursor_factory=psycopg.RawCursor) as connection:
        connection.execute(SQL["create_schema"])
        connection.execute(SQL["create_meta"])
        for number, text in MIGRATIONS[:2]:
            connection.execute(text, prepare=False)
            connection.execute(SQL["set_schema_version"], (str(number),))
        connection.execute("INSERT INTO allswell.service VALUES ('a “β”', 9007199254740993)")

    async def services(store: PostgresStore) -> object:
        return await store.view_services()

    parked = ServiceRow("a “β”", Service(parked_until=Millis(9007199254740993)))
    assert run(pg_url, services) == {parked.id: parked}


def test_a_newer_schema_is_refused_and_both_versions_are_named(pg_url: str) -> None:
    async def nothing(store: PostgresStore) -> None:
        pass

    run(pg_url, nothing)
    with psycopg.connect(pg_url) as connection:
        connection.execute("UPDATE allswell.meta SET value = '999'")
    with pytest.raises(Refused) as caught:
        run(pg_url, nothing)
    assert caught.value.code == "newer_schema"
    assert "999" in str(caught.value)
    assert f"knows schemas up to {VERSION}" in str(caught.value)
