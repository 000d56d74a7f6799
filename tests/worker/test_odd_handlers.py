"""Handlers and senders that do what nobody expects: nothing is lost by it, and no other message waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from allswell.domain.message import Message
from allswell.errors import Refused
from allswell.worker import Handlers, Permanent, Transient
from tests.worker.stage import Stage, until

Connection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]


@pytest.mark.row("W5")
def test_what_is_written_through_any_cursor_is_kept_with_the_messages_end(stage: Stage) -> None:
    worker = stage.worker(concurrency=1)

    @worker.handler("client")
    def client(message: Message, connection: Connection) -> None:
        psycopg.ClientCursor(connection).execute(
            f"INSERT INTO {stage.table} VALUES (%s, 'client')".encode(), (message.id,)
        )

    @worker.handler("async client")
    async def async_client(message: Message, connection: AsyncConnection) -> None:
        cursor = psycopg.AsyncClientCursor(connection)
        await cursor.execute(f"INSERT INTO {stage.table} VALUES (%s, 'async')".encode(), (message.id,))

    @worker.handler("late")
    def late(message: Message, connection: Connection) -> None:
        psycopg.ClientCursor(connection).execute(
            f"INSERT INTO {stage.table} VALUES (%s, 'late')".encode(), (message.id,)
        )
        stage.take_elsewhere()

    with worker:
        ids = [stage.send("client"), stage.send("async client")]
        until(lambda: worker.counts()["handled"] == 2, "both are handled")
        assert stage.written() == [(ids[0], "client"), (ids[1], "async")]
        stage.send("late")
        until(lambda: worker.counts()["late"] == 1, "its end is refused")
    assert len(stage.written()) == 2


def test_a_handler_that_only_made_a_coroutine_has_not_handled_its_message(stage: Stage) -> None:
    worker = stage.worker()

    async def work(_message: Message, _connection: Connection) -> None:
        raise AssertionError

    class Callable:
        async def __call__(self, message: Message, connection: AsyncConnection) -> None:
            await connection.execute(f"INSERT INTO {stage.table} VALUES (%s, 'called')".encode(), (message.id,))

    def wrapped_work(message: Message, connection: Connection) -> object:
        return work(message, connection)

    worker.handler("wrapped")(wrapped_work)
    worker.handler("callable")(Callable())
    with worker:
        wrapped, callable_ = stage.send("wrapped"), stage.send("callable")
        until(lambda: worker.counts()["quarantined"] == 1 == worker.counts()["handled"], "both have ended")
    assert stage.trouble(wrapped) == ("quarantined", "TypeError", 0)
    assert "never awaited" in stage.reason(wrapped)
    assert stage.written() == [(callable_, "called")]

    def generator(_message: Message, _connection: Connection) -> Iterator[int]:
        yield 1

    with pytest.raises(Refused, match="yields"):
        Handlers().handler("generator")(generator)


ODD: list[Exception] = [
    Transient("A\0B", "nul \0"),
    Permanent("A\0B", "nul \0"),
    Transient("A\ud800B", "half a character \ud800"),
    Permanent("A\ud800B", "half a character \ud800"),
    Transient(404, ValueError("no text")),  # type: ignore[arg-type]
    Permanent(None, 7),  # type: ignore[arg-type]
    Transient("FAR", retry_after=1e15),
    Transient("NOT_A_NUMBER", retry_after=float("nan")),
    Transient("FOR_EVER", retry_after=float("inf")),
    Transient("TEXT", retry_after="soon"),  # type: ignore[arg-type]
    Transient("LONG", "x" * 3_000_000),
    FileNotFoundError(2, "no such file", "caf\udce9"),
]


@pytest.mark.row("W5")
def test_whatever_is_raised_can_be_written_down(stage: Stage) -> None:
    worker = stage.worker(concurrency=1)

    def work(message: Message, _connection: Connection) -> None:
        raise ODD[message.payload]

    worker.handler("odd")(work)
    worker.handler("good")(lambda _message, _connection: None)
    ids = [stage.send("odd", place) for place in range(len(ODD))]
    stage.send("good")
    with worker:
        until(lambda: all(stage.trouble(id_) for id_ in ids), "each end is written")
        until(lambda: worker.counts()["handled"] == 1, "the good one is handled")
    assert all(len(stage.reason(id_)) < 10_000 for id_ in ids)
    assert stage.trouble(ids[4]) == ("retrying", "404", 1)


def test_headers_that_nobody_expects(stage: Stage) -> None:
    worker = stage.worker()
    seen: list[object] = []

    @worker.handler("fail")
    def fail(_message: Message, _connection: Connection) -> None:
        raise Permanent("NO")

    worker.handler("work")(lambda message, _connection: seen.append(message.headers))
    for headers in ("[1]", '"text"', '{"allswell_batch": "x"}', '{"allswell_batch": true}', '{"allswell_batch": 1e30}'):
        for kind in ("work", "fail"):
            body = f'{{"type": "{kind}"}}'
            stage.execute("SELECT * FROM pgmq.send(%s, %s::jsonb, %s::jsonb, 0)", stage.queue, body, headers)
    with worker:
        until(lambda: worker.counts()["handled"] == 5 == worker.counts()["quarantined"], "all have ended")
        stage.execute(
            "UPDATE allswell.question SET closed_at = 1, choice = 'cancel' WHERE id LIKE %s", f"q_:{stage.queue}.%"
        )
        ended = "SELECT count(*) FROM allswell_worker.trouble WHERE queue = %s AND state = 'cancelled'"
        until(lambda: stage.execute(ended, stage.queue) == [(5,)], "every answer is carried out")
