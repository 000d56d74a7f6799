"""Every statement of a handler is limited, seen from inside and outside; and what a handler may not do."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from typing import Any

import psycopg
import pytest

import allswell
from allswell.domain.worker.message import Message
from allswell.testing.postgres import Cluster
from allswell.testing.proxy import Proxy
from allswell.worker.connection import HandlerConnection, check
from tests.worker.stage import Stage, until


@pytest.mark.row("W1")
def test_handlers_have_the_statement_timeout_and_the_pool_gets_connections_back_clean(stage: Stage) -> None:
    seen: dict[str, Any] = {}
    worker = stage.worker(concurrency=1)

    @worker.handler("sync")
    def sync(_message: Message, connection: psycopg.Connection[Any]) -> None:
        seen["sync"] = connection.execute("SELECT current_setting('statement_timeout'), pg_backend_pid()").fetchone()
        with connection.cursor("on_the_server") as cursor:
            assert cursor.execute("SELECT 1").fetchall() == [(1,)]
        assert connection.execute("SELECT 1; SELECT 2").nextset(), "several statements in one text"

    @worker.handler("async")
    async def not_sync(_message: Message, connection: psycopg.AsyncConnection[Any]) -> None:
        cursor = await connection.execute("SELECT current_setting('statement_timeout'), %s::int", (7,))
        seen["async"] = await cursor.fetchone()

    with worker:
        stage.send("sync")
        stage.send("async")
        until(lambda: worker.counts()["handled"] == 2, "both are handled")
        until(lambda: not worker.running(), "both are done")
        pool = worker.pool()
        with pool.connection() as connection:
            assert connection.execute("SHOW statement_timeout").fetchone() == ("0",)
            assert connection.execute("SHOW application_name").fetchone() == ("allswell-worker",)
    assert seen["sync"][0] == "25s"
    assert seen["async"] == ("25s", 7)


@pytest.mark.row("W1", "W2")
def test_a_later_statement_has_only_what_is_left_of_the_visibility(stage: Stage) -> None:
    caps: list[int] = []
    worker = stage.worker(visibility_timeout=6, statement_timeout=5_500)

    @worker.handler("work")
    def work(_message: Message, connection: psycopg.Connection[Any]) -> None:
        for _ in range(2):
            row = connection.execute(
                "SELECT setting::int, pg_sleep(0.7) FROM pg_settings WHERE name = 'statement_timeout'"
            ).fetchone()
            assert row is not None
            caps.append(row[0])

    with worker:
        stage.send()
        until(lambda: worker.counts()["handled"], "it is handled")
    assert caps[0] <= 5_500
    assert caps[1] <= min(caps[0], 5_300), "0.7 s of the 6 s are gone"


@pytest.mark.row("W1")
def test_the_limit_travels_with_the_statement_in_one_round_trip(stage: Stage, pg_cluster: Cluster) -> None:
    took: list[float] = []
    caps: list[str] = []
    asked = "SELECT current_setting('statement_timeout')"
    with Proxy(pg_cluster.host, pg_cluster.port) as proxy:
        limits = {"visibility_timeout": 10, "statement_timeout": 9_999}
        worker = stage.worker(proxy.before(stage.url), concurrency=1, listen=False, **limits)

        @worker.handler("sync")
        def sync(_message: Message, connection: psycopg.Connection[Any]) -> None:
            connection.execute("SELECT pg_sleep(0.1)")
            began, proxy.delay = time.monotonic(), 0.5
            caps.extend(connection.execute(asked).fetchone() or ())
            proxy.delay = 0.0
            took.append(time.monotonic() - began)

        @worker.handler("async")
        async def not_sync(_message: Message, connection: psycopg.AsyncConnection[Any]) -> None:
            await connection.execute("SELECT pg_sleep(0.1)")
            began, proxy.delay = time.monotonic(), 0.5
            caps.extend(await (await connection.execute(asked)).fetchone() or ())
            proxy.delay = 0.0
            took.append(time.monotonic() - began)

        with worker:
            stage.send("sync")
            stage.send("async")
            until(lambda: worker.counts()["handled"] == 2, "both are handled")
    assert [int(cap.removesuffix("ms")) <= 9_900 for cap in caps] == [True, True], "what was left was set anew"
    assert all(1.0 <= seconds < 1.9 for seconds in took), f"there and back is one second: {took}"


def test_the_worker_alone_ends_a_handlers_transaction(stage: Stage) -> None:
    refused: list[str] = []
    worker = stage.worker()

    @worker.handler("work")
    def work(message: Message, connection: psycopg.Connection[Any]) -> None:
        for forbidden in (connection.commit, connection.rollback, lambda: connection.set_autocommit(True)):
            with pytest.raises(psycopg.ProgrammingError, match="not for handlers"):
                forbidden()
        with connection.transaction():
            stage.write(connection, message.id, "kept")
        with suppress(ZeroDivisionError), connection.transaction():
            stage.write(connection, message.id, "rolled back to the savepoint")
            raise ZeroDivisionError
        assert stage.written() == [], "nothing is committed before the handler has ended"
        with connection.cursor().copy(f"COPY {stage.table} FROM STDIN".encode()) as copy:
            copy.write_row((message.id, "copied"))
        connection.cursor().executemany(
            f"INSERT INTO {stage.table} VALUES (%s, %s)".encode(), [(message.id, "many"), (message.id, "many")]
        )
        refused.append("all")

    with worker:
        id_ = stage.send()
        until(lambda: worker.counts()["handled"], "it is handled")
    assert refused == ["all"]
    assert stage.written() == [(id_, "copied"), (id_, "kept"), (id_, "many"), (id_, "many")]


@pytest.mark.row("W3")
def test_a_wait_in_vain_for_a_connection_is_counted_and_no_message_is_read_meanwhile(stage: Stage) -> None:
    worker = stage.worker(concurrency=1, pool_timeout=0.3)
    worker.handler("work")(lambda _message, _connection: None)
    assert (worker.plan.min_size, worker.plan.max_size) == (4, 8)
    with worker:
        pool = worker.pool()
        assert (pool.timeout, pool.max_lifetime, pool.max_idle, pool.reconnect_timeout) == (0.3, 3600, 600, 300)
        held = [pool.getconn(timeout=30) for _ in range(8)]
        before = worker.counts()["exhausted"]
        id_ = stage.send()
        until(lambda: worker.counts()["exhausted"] >= before + 2, "the pool is exhausted")
        assert stage.messages() == [(id_, 0)], "waiting for a connection eats no visibility"
        for connection in held:
            pool.putconn(connection)
        until(lambda: worker.counts()["handled"], "it is handled")


@pytest.mark.row("W3")
def test_a_handler_that_waits_in_vain_for_one_more_connection_is_tried_again(stage: Stage) -> None:
    worker = stage.worker(concurrency=1, pool_timeout=0.5)
    waited: list[float] = []

    @worker.handler("work")
    def work(_message: Message, _connection: psycopg.Connection[Any]) -> None:
        with ExitStack() as held:
            while True:
                began = time.monotonic()
                try:
                    held.enter_context(worker.pool().connection())
                finally:
                    waited.append(time.monotonic() - began)

    with worker:
        id_ = stage.send()
        until(lambda: stage.trouble(id_) == ("retrying", "POOL_EXHAUSTED", 1), "it is tried again")
        assert worker.counts()["exhausted"] >= 1
    assert waited[-1] >= 0.45, "PoolTimeout comes after the pool's timeout"


@pytest.mark.row("W3")
def test_a_connection_that_gives_no_sign_of_life_is_found_within_a_bound(
    stage: Stage, pg_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allswell.worker.connection.CHECK_SECONDS", 0.2)
    monkeypatch.setattr("allswell.worker.connection.TRUST_SECONDS", 0.0)
    with Proxy(pg_cluster.host, pg_cluster.port) as proxy:
        connection = HandlerConnection.connect(proxy.before(stage.url))
        check(connection)
        assert connection.execute("SELECT 1").fetchone() == (1,)
        connection.rollback()
        proxy.cut()
        with pytest.raises(psycopg.OperationalError, match="no sign of life"):
            check(connection)
        assert connection.closed


@pytest.mark.row("W3", "W4")
def test_a_network_that_falls_silent_and_comes_back_costs_no_message(stage: Stage, pg_cluster: Cluster) -> None:
    with Proxy(pg_cluster.host, pg_cluster.port) as proxy:
        limits = {"visibility_timeout": 2, "statement_timeout": 1_500, "stuck_grace": 0.5, "pool_timeout": 2.0}
        worker = stage.worker(proxy.before(stage.url), retry_pauses=(0.1, 0.1, 0.1, 0.1, 0.1), **limits)

        @worker.handler("work")
        def work(message: Message, connection: psycopg.Connection[Any]) -> None:
            if message.read_count == 1:
                proxy.cut()  # nothing comes through any more, and no error comes either
            stage.write(connection, message.id)

        with worker:
            id_ = stage.send()
            until(lambda: worker.counts()["stuck"] == 1, "the handler is seen to hang")
            proxy.mend()
            until(stage.written, "it is handled after all")
            until(lambda: not stage.messages(), "its end is written")
        assert stage.written() == [(id_, "")]


@pytest.mark.row("W2")
def test_handlers_know_how_much_time_they_have(stage: Stage) -> None:
    left: dict[str, float | None] = {}
    worker = stage.worker(visibility_timeout=20, statement_timeout=10_000, long_timeout=600)

    @worker.handler("sync")
    def sync(_message: Message, _connection: psycopg.Connection[Any]) -> None:
        left["sync"] = allswell.remaining_ms()
        with allswell.within("1h") as inner:
            left["inner"] = inner.remaining_ms()

    @worker.handler("async")
    async def not_sync(_message: Message, _connection: psycopg.AsyncConnection[Any]) -> None:
        left["async"] = allswell.remaining_ms()

    worker.handler("long", long=True)(lambda _message, _connection: left.update(long=allswell.remaining_ms()))
    with worker:
        for kind in ("sync", "async", "long"):
            stage.send(kind)
        until(lambda: worker.counts()["handled"] == 3, "all are handled")
    assert all(10_000 < (left[kind] or 0) <= 20_000 for kind in ("sync", "inner", "async")), left
    assert 500_000 < (left["long"] or 0) <= 600_000
