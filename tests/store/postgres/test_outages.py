"""When the server is gone or refuses: a clear error without a password, and the same store works again afterwards."""

from __future__ import annotations

import asyncio
import os
import traceback
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from allswell.domain.ids import TaskId
from allswell.errors import AllswellError, Refused, Unavailable
from allswell.store.port import LockKind, Transaction
from allswell.store.postgres import PostgresStore
from allswell.testing.postgres import Cluster
from tests.store.postgres.scene import await_alone, client, opened, put_tasks, run, wire

SECRET = "hunter2"


def refusal(url: str, **settings: float | None) -> AllswellError:
    """What opening a store says."""

    async def main() -> None:
        async with opened(url, **settings):
            pass

    with pytest.raises(AllswellError) as caught:
        asyncio.run(main())
    assert not isinstance(caught.value, psycopg.Error)
    said = "".join(traceback.format_exception(caught.value))
    assert SECRET not in said
    return caught.value


def dbname(url: str) -> str:
    return urlsplit(url).path[1:]


def test_a_restarted_server_is_found_again_by_the_same_store() -> None:
    with Cluster() as cluster:

        async def test(store: PostgresStore) -> None:
            await put_tasks(store, ["t_a"])
            await store.view_counts()
            cluster.restart()
            await put_tasks(store, ["t_b"])  # its idle connections were closed meanwhile: that is noticed at once
            cluster.kill()
            for _ in range(2):
                with pytest.raises(Unavailable, match="is the server running"):
                    await put_tasks(store, ["t_c"])
                with pytest.raises(Unavailable):
                    await store.view_counts()
            cluster.start()
            await put_tasks(store, ["t_c"])
            assert await store.view_counts() == {"delayed": 3}

        run(cluster.create_database(), test)


def test_a_server_that_goes_in_the_middle_of_the_work() -> None:
    with Cluster() as cluster:

        async def work(tx: Transaction) -> None:
            await tx.lock(LockKind.TASK, ["t_a"])
            cluster.kill()
            await tx.now()
            await tx.lanes()

        async def test(store: PostgresStore) -> None:
            await put_tasks(store, ["t_a"])
            with pytest.raises(Unavailable):
                await store.transact(work)
            cluster.start()
            await put_tasks(store, ["t_b"])

        run(cluster.create_database(), test)


def test_no_server() -> None:
    error = refusal(f"postgresql://me:{SECRET}@127.0.0.1:1/db")
    assert isinstance(error, Unavailable)
    assert "127.0.0.1:1/db" in str(error)


def test_a_wrong_password(pg_url: str) -> None:
    parts = urlsplit(pg_url)
    error = refusal(parts._replace(netloc=f"allswell:{SECRET}@{parts.hostname}:{parts.port}").geturl())
    assert isinstance(error, Refused)
    assert error.code == "wrong_password"


def test_a_missing_database(pg_cluster: Cluster) -> None:
    error = refusal(pg_cluster.url("nowhere"))
    assert isinstance(error, Refused)
    assert error.code == "no_database"


def test_a_role_that_may_not_make_the_schema_can_use_one_that_is_there(pg_cluster: Cluster, pg_url: str) -> None:
    admin = pg_cluster.admin_url(dbname(pg_url))
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS guest")
        connection.execute(sql.SQL("CREATE ROLE guest LOGIN PASSWORD {}").format(sql.Literal(SECRET)))
    parts = urlsplit(pg_url)
    guest = parts._replace(netloc=f"guest:{SECRET}@{parts.hostname}:{parts.port}").geturl()
    error = refusal(guest)
    assert isinstance(error, Refused)
    assert error.code == "no_permission"

    async def nothing(store: PostgresStore) -> None:
        pass

    run(pg_url, nothing)
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute("GRANT USAGE ON SCHEMA allswell TO guest")
        connection.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA allswell TO guest")

    async def use(store: PostgresStore) -> None:
        await put_tasks(store, ["t_a"])

    run(guest, use)


def test_no_connection_left(pg_cluster: Cluster, pg_url: str) -> None:
    def limit(count: int) -> None:
        with psycopg.connect(pg_cluster.admin_url(), autocommit=True) as connection:
            name = sql.Identifier(dbname(pg_url))
            connection.execute(sql.SQL("ALTER DATABASE {} CONNECTION LIMIT {}").format(name, sql.Literal(count)))

    limit(0)
    error = refusal(pg_url)
    assert isinstance(error, Unavailable)
    assert "takes no more connections" in str(error)
    limit(-1)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql+psycopg://me:{SECRET}@localhost/db",
        f"postgresql://me:p@{SECRET}@localhost/db",
        f"postgresql://me:p/{SECRET}@localhost/db",
        f"postgresql://me:1/{SECRET}@localhost/db",
        f"postgresql://me:p#/{SECRET}@localhost/db",
        f"postgresql://me:{SECRET}%zz@localhost/db",
        f"postgresql://me:{SECRET}@localhost/db?nonsense=1",
        f"postgresql://me:{SECRET}@localhost:port/db",
    ],
)
def test_a_bad_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(Refused) as caught:
        PostgresStore(url)
    assert caught.value.code == "bad_url"
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_an_unknown_or_senseless_setting_is_refused(pg_url: str) -> None:
    for settings in ({"lock_timout": 1.0}, {"lock_timeout": None}):
        with pytest.raises(Refused, match="setting"):
            PostgresStore(pg_url, **settings)


def test_closing_twice_and_using_a_closed_store(pg_url: str) -> None:
    async def main() -> None:
        store = PostgresStore(pg_url)
        await store.close()
        await store.open()
        await put_tasks(store, ["t_a"])
        await store.close()
        await store.close()
        with pytest.raises(Unavailable, match="closed"):
            await store.view_counts()
        await store.open()  # and it can be opened again
        assert await store.view_task(TaskId("t_a")) is not None
        await store.close()
        await_alone(pg_url)

    asyncio.run(main())


@pytest.mark.realtime
def test_closing_does_not_wait_for_a_dead_network(pg_url: str) -> None:
    with wire(pg_url) as line:

        async def main() -> None:
            store = PostgresStore(line.url, close_timeout=0.3)
            await store.open()
            await put_tasks(store, ["t_a"])
            line.next = "swallow"
            looking = asyncio.create_task(put_tasks(store, ["t_b"]))
            await asyncio.to_thread(line.tripped.wait)
            await store.close()
            with pytest.raises(Unavailable):
                await looking

        asyncio.run(main())


def test_a_store_does_not_survive_a_fork(pg_url: str) -> None:
    async def test(store: PostgresStore) -> None:
        await put_tasks(store, ["t_a"])
        store._desks["decisions 1"]._process = os.getpid() + 1
        with pytest.raises(Refused, match="fork"):
            await put_tasks(store, ["t_b"])

    run(pg_url, test)


def test_it_works_without_prepared_statements(pg_url: str) -> None:
    async def test(store: PostgresStore) -> None:
        for number in range(3):
            await put_tasks(store, [f"t_{number}"])
        with client(pg_url) as other:
            assert other.execute("SELECT count(*) FROM allswell.task").fetchone() == (3,)

    run(pg_url, test, prepare_threshold=None)
