"""Handlers and senders that do what nobody expects: nothing is lost by it, and no other message waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from allswell.domain.worker.message import Message
from allswell.errors import Refused
from allswell.worker import Handlers, Permanent, Transient, Worker, send_batch, setup
from tests.interfaces.cli.upkeep import run
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


@pytest.mark.row("W1")
def test_named_cursors_of_async_handlers_are_limited_and_a_task_left_behind_reaches_nothing(stage: Stage) -> None:
    worker = stage.worker(concurrency=1)
    seen: list[object] = []
    left: list[asyncio.Task[object]] = []

    async def later(connection: AsyncConnection, go: asyncio.Event) -> None:
        await go.wait()
        await connection.execute(f"INSERT INTO {stage.table} VALUES (0, 'by a task left behind')".encode())

    @worker.handler("leave")
    async def leave(_message: Message, connection: AsyncConnection) -> None:
        async with connection.cursor("on_the_server") as cursor:
            await cursor.execute("SELECT current_setting('statement_timeout'), n FROM generate_series(1, 250) AS n")
            seen.extend([row async for row in cursor])
        go = asyncio.Event()
        asyncio.get_running_loop().call_later(0.2, go.set)
        left.append(asyncio.create_task(later(connection, go)))

    @worker.handler("next")
    async def following(message: Message, connection: AsyncConnection) -> None:
        await connection.execute(f"INSERT INTO {stage.table} VALUES (%s, 'next')".encode(), (message.id,))
        await asyncio.wait(left)

    with worker:
        stage.send("leave")
        id_ = stage.send("next")
        until(lambda: worker.counts()["handled"] == 2, "both are handled")
    assert seen == [("25s", n) for n in range(1, 251)]
    assert stage.written() == [(id_, "next")]
    assert "a handler waits for the tasks that it starts" in str(left[0].exception())


def test_a_connection_string_that_cannot_be_read_is_refused_and_never_shown(tmp_path: Path) -> None:
    unread = (
        "nonsense",
        "postgresql://eve:se%cret@host/db",
        "host=h password='se%cret",
        "postgresql://eve:se@cret@host/db",
    )
    for conninfo in unread:
        for attempt in (lambda url: Worker(url, "orders"), lambda url: setup(url, "orders")):
            with pytest.raises(Refused, match="the connection string cannot be read") as told:
                attempt(conninfo)
            assert "cret" not in str(told.value)
    assert "cret" not in repr(Worker("postgresql://eve:secret@host/db", "orders").plan)
    for words in (("worker", "setup", "orders"), ("worker", "status"), ("worker", "jobs:handlers", "-q", "orders")):
        for store in unread[1::2]:
            ran = run(*words, cwd=tmp_path, ALLSWELL_STORE=store)
            assert ran.code == 2, ran
            assert "cret" not in ran.out + ran.err
            assert "Traceback" not in ran.err


@pytest.mark.row("W2")
def test_limits_in_the_wrong_order_and_figures_that_nobody_can_wait_for_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"statement_timeout \(30000ms\) .* visibility_timeout \(30s = 30000ms\)"):
        Worker("postgresql://x", "orders", statement_timeout=30_000)
    with pytest.raises(ValueError, match=r"statement_timeout \(0ms\) must be more than 0"):
        Worker("postgresql://x", "orders", statement_timeout=0)
    for name, figure in (("poll_interval", float("inf")), ("stop_timeout", float("nan")), ("retry_pauses", [1e12])):
        with pytest.raises(ValueError, match=name):
            Worker("postgresql://x", "orders", **{name: figure})  # type: ignore[arg-type]


@pytest.mark.row("W5")
def test_what_a_handler_raises_is_logged_with_its_traceback_once_for_each_place(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    worker = stage.worker(concurrency=1)

    def deep(amount: object) -> None:
        raise ValueError(f"amount {amount} is none")  # here it is raised

    worker.handler("order.paid")(lambda message, _connection: deep(message.payload))

    @worker.handler("order.sent")
    async def sent(_message: object, _connection: object) -> None:
        raise RuntimeError("no carrier")  # and here

    with worker:
        ids = [stage.send("order.paid", n) for n in range(3)] + [stage.send("order.sent")]
        until(lambda: worker.counts()["retried"] + worker.counts()["quarantined"] == 4, "all have failed")
    traced = [record for record in caplog.records if record.exc_info]
    assert [record.getMessage() for record in traced] == [
        f"message {ids[0]} (order.paid) raised ValueError: amount 0 is none",
        f"message {ids[3]} (order.sent) raised RuntimeError: no carrier",
    ]
    assert "# here it is raised" in caplog.text
    assert "# and here" in caplog.text
    assert "shift.py" not in caplog.text.partition("here it is raised")[0].rpartition("Traceback")[2], "only theirs"


def test_what_postgresql_cannot_keep_is_refused_in_words(stage: Stage) -> None:
    for bad in ({"text": "a\0b"}, ["\0"]):
        with pytest.raises(Refused, match="has a NUL character"):
            stage.send("work", bad)
    with pytest.raises(Refused, match="has a NUL character"):
        stage.send("wo\0rk")
    with pytest.raises(Refused, match="has a NUL character"):
        send_batch(stage.outside, stage.queue, [("work", "\0")], then=("all", None))
    assert stage.send("work", "a backslash and u0000: \\u0000"), "which is no NUL"


@pytest.mark.row("W6")
def test_shared_clients_are_made_at_the_start_and_closed_at_the_stop(stage: Stage) -> None:
    story: list[str] = []
    loops: set[object] = set()
    worker = stage.worker()

    @worker.on_start
    def begin() -> None:
        story.append("begin")

    @worker.on_start
    async def begin_async() -> None:
        story.append("begin async")
        loops.add(asyncio.get_running_loop())

    @worker.on_stop
    async def end() -> None:
        story.append("end")
        loops.add(asyncio.get_running_loop())

    @worker.on_stop
    def fail() -> None:
        raise RuntimeError("is told, and hinders nothing")

    @worker.handler("work")
    async def work(_message: object, _connection: object) -> None:
        story.append("work")
        loops.add(asyncio.get_running_loop())

    stage.send()
    with worker:
        until(lambda: worker.counts()["handled"] == 1, "it is handled")
    assert story == ["begin", "begin async", "work", "end"]
    assert len(loops) == 1, "async hooks run where async handlers do"
