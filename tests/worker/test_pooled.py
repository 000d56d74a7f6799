"""Behind a pooler in transaction mode: every way that a message ends, and nothing of ours stays in a session."""

from __future__ import annotations

import logging
import threading
from typing import Any

import psycopg
import pytest

from allswell.domain.worker.message import Message
from allswell.worker import Permanent, setup
from tests.store.postgres.pooler import POOLERS, behind, left_behind
from tests.worker.stage import Stage, until

Connection = psycopg.Connection[Any]


@pytest.mark.row("W1", "W4", "W5", "W7")
@pytest.mark.parametrize("pooler", POOLERS)
def test_it_works_behind_a_pooler_in_transaction_mode(
    stage: Stage, pooler: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "allswell.worker")
    with behind(pooler, stage.url) as url:
        setup(url, stage.queue)
        limits = {"visibility_timeout": 2, "statement_timeout": 1_200, "stuck_grace": 0.3}
        worker = stage.worker(url, concurrency=4, retry_pauses=(0.1, 0.1, 0.1), **limits)
        caps: list[str] = []
        wake = threading.Event()

        @worker.handler("work")
        def work(message: Message, connection: Connection) -> None:
            caps.extend(connection.execute("SELECT current_setting('statement_timeout')").fetchone() or ())
            stage.write(connection, message.id, "work")

        @worker.handler("async")
        async def not_sync(message: Message, connection: psycopg.AsyncConnection[Any]) -> None:
            await connection.execute(f"INSERT INTO {stage.table} VALUES (%s, 'async')".encode(), (message.id,))

        @worker.handler("long", long=True)
        def long(message: Message, connection: Connection) -> None:
            for _ in range(4):
                connection.execute("SELECT pg_sleep(0.7)")
            stage.write(connection, message.id, f"long, reading {message.read_count}")

        @worker.handler("slow")
        def slow(message: Message, connection: Connection) -> None:
            if message.read_count == 1:
                connection.execute("SELECT pg_sleep(60)")
            stage.write(connection, message.id, "slow")

        @worker.handler("stuck")
        def stuck(message: Message, connection: Connection) -> None:
            if message.read_count == 1:
                stage.write(connection, message.id, "by the one that was stuck")
                wake.wait(60)
            stage.write(connection, message.id, "stuck")

        @worker.handler("bad")
        def bad(_message: Message, _connection: Connection) -> None:
            raise Permanent("NO")

        kinds = ("work",) * 10 + ("async",) * 5 + ("long", "slow", "stuck", "bad")
        ids = [stage.send(kind) for kind in kinds]
        with worker:
            until(lambda: worker.counts()["handled"] == 18, "all but one are handled")
            until(lambda: worker.counts()["quarantined"] == 1, "the bad one is quarantined")
            wake.set()
        told = {"long": "long, reading 1"}
        assert stage.written() == [(id_, told.get(kind, kind)) for id_, kind in zip(ids, kinds, strict=True)][:-1]
        assert caps == ["1200ms"] * 10
        assert worker.counts()["stuck"] == 1
        assert "Query cancelled due to timeout" in caplog.text
        assert "the worker polls for messages" in caplog.text
        assert left_behind(url) == []
