"""Handlers that do not come back: found, logged once, counted once, replaced, fenced off."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from allswell.domain.worker.message import Message
from allswell.worker import reader
from allswell.worker import worker as watcher
from allswell.worker.connection import HandlerConnection
from allswell.worker.session import Pending, WorkerSession
from tests import patience
from tests.interfaces.cli.upkeep import run
from tests.worker.stage import Stage, until

Connection = psycopg.Connection[Any]
QUICK: dict[str, Any] = {"visibility_timeout": 1, "statement_timeout": 900, "stuck_grace": 0.2}
"""Stuck after 1.2 s."""


@pytest.mark.row("W4")
@pytest.mark.realtime
def test_the_reference_failure(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Two handlers sleep in two slots: a quick message is handled within 8 s, and the shutdown does not wait."""
    worker = stage.worker(concurrency=2, visibility_timeout=2, statement_timeout=1_000, poll_interval=1.0)
    began: list[float] = []
    quick: list[float] = []
    late: list[BaseException | None] = []

    @worker.handler("slow")
    def slow(message: Message, connection: Connection) -> None:
        stage.write(connection, message.id, f"reading {message.read_count}")
        if message.read_count == 1:
            began.append(time.monotonic())
            time.sleep(14)
            try:
                stage.write(connection, message.id, "late")
            except Exception as error:
                late.append(error)
                raise
            late.append(None)

    worker.handler("quick")(lambda _message, _connection: quick.append(time.monotonic()))
    slow_ids = [stage.send("slow"), stage.send("slow")]
    worker.start()
    until(lambda: len(began) == 2, "both sleep")
    stage.send("quick")
    until(lambda: quick, "the quick one is handled")
    assert quick[0] - min(began) < 8
    until(lambda: worker.counts()["handled"] == 3, "all are handled")
    until(lambda: worker.counts()["stuck"] == 2, "both sleepers are found, whichever began first")
    stopping = time.monotonic()
    worker.stop()
    assert time.monotonic() - stopping < 5
    until(lambda: len(late) == 2, "the sleepers wake up")
    assert None not in late, "their writes are refused"
    assert stage.written() == [(id_, "reading 2") for id_ in slow_ids]
    told = [record.getMessage() for record in caplog.records if "Thread stuck" in record.getMessage()]
    assert len(told) == 2
    assert all("abandoning" in line and "time.sleep(14)" in line for line in told)
    assert worker.counts()["stuck"] == 2


@pytest.mark.row("W4")
def test_a_stuck_statement_is_cancelled_on_the_server_and_its_locks_are_freed(stage: Stage) -> None:
    worker = stage.worker(**{**QUICK, "visibility_timeout": 3})
    stage.execute(f"INSERT INTO {stage.table} VALUES (0, 'locked')")

    @worker.handler("work")
    def work(message: Message, connection: Connection) -> None:
        if message.read_count == 1:
            connection.execute(f"SELECT * FROM {stage.table} FOR UPDATE".encode())
            connection.execute("SET LOCAL statement_timeout = 0; SELECT 'stuck here', pg_sleep(600)")

    running = "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%%stuck here%%' AND pid <> pg_backend_pid()"
    with worker:
        stage.send()
        until(lambda: stage.execute(running), "it runs on the server")
        until(lambda: worker.counts()["handled"] == 1, "its second reading is handled")
        until(lambda: not stage.execute(running + " AND state = 'active'"), "it is gone from the server")
        stage.execute("SET lock_timeout = '5s'")
        stage.execute(f"SELECT * FROM {stage.table} FOR UPDATE")
        assert worker.counts()["stuck"] == 1


@pytest.mark.row("W4")
def test_async_handlers_are_cancelled_until_they_end_and_a_blocked_loop_is_left_behind(stage: Stage) -> None:
    worker = stage.worker(concurrency=3, **QUICK)
    cancels: list[str] = []
    wake = threading.Event()

    @worker.handler("stubborn")
    async def stubborn(message: Message, _connection: psycopg.AsyncConnection[Any]) -> None:
        if message.read_count == 1:
            for _ in range(2):
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancels.append("swallowed")
            await asyncio.Event().wait()

    @worker.handler("blocking")
    async def blocking(message: Message, connection: psycopg.AsyncConnection[Any]) -> None:
        if message.read_count == 1:
            wake.wait(60)
        await connection.execute(f"INSERT INTO {stage.table} VALUES (%s, 'blocking')".encode(), (message.id,))

    with worker:
        stage.send("stubborn")
        until(lambda: len(cancels) == 2, "it swallows its cancels")
        until(lambda: worker.counts()["handled"] == 1, "its second reading is handled")
        id_ = stage.send("blocking")
        until(lambda: worker.counts()["handled"] == 2, "the second reading has a loop that turns")
        assert stage.written() == [(id_, "blocking")]
        assert worker.counts()["stuck"] == 2
        wake.set()


@pytest.mark.row("W7")
def test_a_long_handler_keeps_its_message_and_its_statements_have_time_again(stage: Stage) -> None:
    worker = stage.worker(concurrency=1, visibility_timeout=2, statement_timeout=1_900, stuck_grace=0.2)

    @worker.handler("long", long=True)
    def long(message: Message, connection: Connection) -> None:
        for _ in range(4):
            connection.execute("SELECT pg_sleep(0.9)")
        stage.write(connection, message.id, f"reading {message.read_count}")

    with worker:
        id_ = stage.send("long")
        until(lambda: worker.counts()["handled"] == 1, "it is handled")
    assert stage.written() == [(id_, "reading 1")]
    assert worker.counts()["stuck"] == 0


@pytest.mark.row("W4", "W6")
def test_three_stuck_handlers_restart_the_worker_in_its_process(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "allswell.worker")
    worker = stage.worker(concurrency=3, **QUICK)
    wake = threading.Event()

    @worker.handler("work")
    def work(message: Message, connection: Connection) -> None:
        if message.read_count == 1:
            wake.wait(60)
        stage.write(connection, message.id)

    with worker:
        ids = [stage.send() for _ in range(3)]
        until(lambda: worker.counts()["restarts"] == 1, "it is restarted")
        until(lambda: worker.counts()["handled"] == 3, "all are handled after it")
        assert worker.condition()[0] == "healthy"
        wake.set()
        until(lambda: not [t for t in threading.enumerate() if t.name == "allswell-retiring"], "the old one has gone")
    assert [id_ for id_, _ in stage.written()] == ids
    assert "3 stuck handlers within 300 s" in caplog.text


def test_a_stop_gives_back_what_has_not_ended_at_once_and_without_blame(stage: Stage) -> None:
    worker = stage.worker(visibility_timeout=600)
    wake, began = threading.Event(), threading.Event()

    @worker.handler("work")
    def work(message: Message, connection: Connection) -> None:
        stage.write(connection, message.id, "begun")
        began.set()
        wake.wait(60)

    id_ = stage.send()
    worker.start()
    assert began.wait(60)
    worker.stop(timeout=0)
    assert stage.shows_in(id_) <= 0
    assert stage.trouble(id_) == ("retrying", "", 0)
    assert stage.execute("SELECT recorded FROM allswell_worker.trouble WHERE queue = %s", stage.queue) == [(1,)]
    wake.set()
    until(lambda: stage.written() == [], "nothing of it stays")


def test_a_stop_does_not_wait_for_a_lock_on_the_queue(stage: Stage) -> None:
    worker = stage.worker(visibility_timeout=600)
    wake, began = threading.Event(), threading.Event()

    @worker.handler("work")
    def work(_message: Message, _connection: Connection) -> None:
        began.set()
        wake.wait(60)

    stage.send()
    worker.start()
    assert began.wait(60)
    with psycopg.connect(stage.url) as other:
        other.execute(f"LOCK TABLE pgmq.q_{stage.queue} IN ACCESS EXCLUSIVE MODE".encode())
        stopping = time.monotonic()
        stopper = threading.Thread(target=worker.stop, kwargs={"timeout": 0}, daemon=True)
        stopper.start()
        stopper.join(20)
        assert time.monotonic() - stopping < 15
    wake.set()
    stopper.join(60)


@pytest.mark.row("W5")
def test_a_handler_that_ends_after_its_visibility_keeps_what_it_did_if_nobody_else_has_the_message(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    worker = stage.worker(concurrency=1, visibility_timeout=1, statement_timeout=900, stuck_grace=30)

    @worker.handler("work")
    def work(message: Message, connection: Connection) -> None:
        stage.write(connection, message.id, f"reading {message.read_count}")
        time.sleep(1.3)

    with worker:
        id_ = stage.send()
        until(lambda: worker.counts()["handled"] == 1, "it is handled")
    assert stage.written() == [(id_, "reading 1")]
    assert "could not be written" not in caplog.text


def test_what_is_read_while_the_worker_stops_is_given_back(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = stage.worker(concurrency=1, visibility_timeout=600)
    begun, go, wake = threading.Event(), threading.Event(), threading.Event()
    exchange = reader._exchange

    def held(shift: WorkerSession, connection: HandlerConnection, pending: list[Pending], most: int) -> Any:
        if most:
            begun.set()
            assert go.wait(patience.SECONDS)
        return exchange(shift, connection, pending, most)

    @worker.handler("work")
    def work(message: Message, connection: Connection) -> None:
        wake.wait(60)

    monkeypatch.setattr(reader, "_exchange", held)
    worker.start()
    assert begun.wait(patience.SECONDS)
    id_, shift = stage.send(), worker._parts.shift  # type: ignore[union-attr]
    stopping = threading.Thread(target=worker.stop, args=(0,))
    stopping.start()
    until(lambda: shift.stopping, "it stops")
    go.set()
    stopping.join()
    assert stage.shows_in(id_) <= 0
    wake.set()


def test_a_restarted_worker_that_is_stopped_lets_go_of_its_old_shift_too(stage: Stage) -> None:
    worker = stage.worker(concurrency=2, visibility_timeout=600)
    wake = threading.Event()

    @worker.handler("work")
    def work(message: Message, connection: Connection) -> None:
        stage.write(connection, message.id)
        wake.wait(60)

    ids = [stage.send(), stage.send()]
    worker.start()
    until(lambda: len(worker.running()) == 2, "both run")
    worker.restart("for a test")
    until(lambda: worker.running() == [], "they run in the old shift")
    worker.stop(timeout=0)
    assert [stage.shows_in(id_) <= 0 for id_ in ids] == [True, True], "both were given back"
    wake.set()
    until(lambda: not [t for t in threading.enumerate() if t.name == "allswell-retiring"], "the old one has gone")
    assert stage.written() == []


@pytest.mark.row("W4")
def test_a_lock_on_one_message_holds_up_neither_the_reader_nor_the_keeper(stage: Stage) -> None:
    worker = stage.worker(concurrency=2, visibility_timeout=3, statement_timeout=2_500)
    wake, began = threading.Event(), threading.Event()

    @worker.handler("quiet")
    def quiet(message: Message, _connection: Connection) -> None:
        if message.payload:
            began.set()
            wake.wait(60)

    @worker.handler("long", long=True)
    def long(message: Message, connection: Connection) -> None:
        time.sleep(4)
        stage.write(connection, message.id, f"reading {message.read_count}")

    with worker:
        locked = stage.send("quiet", "wait")
        assert began.wait(60)
        with psycopg.connect(stage.url) as other:
            other.execute(f"SELECT FROM pgmq.q_{stage.queue} WHERE msg_id = %s FOR UPDATE".encode(), (locked,))
            other.execute("LOCK TABLE allswell_worker.presence IN ACCESS EXCLUSIVE MODE")
            wake.set()
            id_ = stage.send("long")
            stage.send("quiet")
            until(lambda: worker.counts()["handled"] == 2, "the others are handled")
            assert stage.written() == [(id_, "reading 1")]
        until(lambda: not stage.messages(), "it ends when the lock is gone")


@pytest.mark.row("W4")
def test_a_pause_of_the_whole_process_is_no_handlers_fault(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "LOOK_SECONDS", 3_600.0)  # of the worker's own, so that only ours looks
    worker = stage.worker(concurrency=1, **QUICK)
    wake, clock = threading.Event(), [0.0]
    worker.handler("work")(lambda _message, _connection: wake.wait(60))
    with worker:
        stage.send()
        until(worker.running, "it runs")
        parts = worker._parts
        assert parts is not None
        now = time.monotonic()
        monkeypatch.setattr(watcher, "time", SimpleNamespace(monotonic=lambda: now + clock[0]))
        ours = watcher.StuckHandlerDetector(parts.shift, parts.reader, lambda _why: None)
        for clock[0] in (1_000, 1_000.3):
            parts.reader.seen = now + clock[0]
            ours._look()
            assert worker.counts()["stuck"] == 0, "it has just gone on"
        for clock[0] in (1_000.9, 1_001.5):
            ours._look()
        assert worker.counts()["stuck"] == 1, "it does not come back"
        wake.set()


@pytest.mark.row("W4", "W5")
def test_a_message_in_hand_is_not_read_again_by_its_own_worker(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    worker = stage.worker(concurrency=3, visibility_timeout=1, statement_timeout=900, stuck_grace=30)
    visits: list[int] = []
    wake = threading.Event()

    @worker.handler("work")
    def work(message: Message, connection: Connection) -> None:
        stage.write(connection, message.id, f"reading {message.read_count}")
        visits.append(message.id)
        wake.wait(60)

    with worker:
        ids = [stage.send(), stage.send()]
        until(lambda: len(visits) == 2, "both are in hand")
        until(lambda: all(2 < stage.shows_in(id_) < 31 for id_ in ids), "their visibility has ended: they are kept")
        wake.set()
        until(lambda: worker.counts()["handled"] == 2, "both are handled")
    assert sorted(visits) == ids, "each once"
    assert stage.written() == [(id_, "reading 1") for id_ in ids]
    told = [line for line in caplog.messages if "visibility is 1 s: raise visibility_timeout, or mark it long" in line]
    assert len(told) == 1, "once for each type of message"


@pytest.mark.row("W5")
def test_a_handler_that_is_too_late_for_its_statements_fails_with_what_to_do(stage: Stage) -> None:
    worker = stage.worker(visibility_timeout=1, statement_timeout=900, stuck_grace=30, retry_pauses=(0.1,))
    visits: list[int] = []

    @worker.handler("work")
    def work(message: Message, connection: Connection) -> None:
        visits.append(message.id)
        time.sleep(1.1)
        stage.write(connection, message.id)

    with worker:
        id_ = stage.send()
        until(lambda: stage.trouble(id_) == ("quarantined", "TOO_LATE", 1), "it is retried, and then asked about")
    assert len(visits) == 2
    assert re.match(r"takes \S+ s, visibility is 1 s: raise visibility_timeout, or mark it long", stage.reason(id_))
    assert re.search(rf"1 message of queue {stage.queue} was too late: takes \S+ s", _checked(stage))


def _checked(stage: Stage) -> str:
    """What `allswell check` warns of about handlers."""
    findings = json.loads(run("check", "--json", cwd=Path.cwd(), ALLSWELL_STORE=stage.url).out)["findings"]
    return " ".join(one["says"] for one in findings if one["rule"] == "handler_before_visibility")


@pytest.mark.row("W5")
def test_an_end_that_comes_too_late_counts_as_a_failed_try(stage: Stage) -> None:
    worker = stage.worker(concurrency=1, visibility_timeout=1, statement_timeout=900, retry_pauses=(0.1,))
    visits: list[int] = []

    @worker.handler("work")
    def work(message: Message, connection: Connection) -> None:
        visits.append(message.id)
        stage.write(connection, message.id)
        time.sleep(1.1)
        stage.take_elsewhere()

    with worker:
        id_ = stage.send()
        until(lambda: stage.trouble(id_) == ("retrying", "TOO_LATE", 1), "the first is too late")
        assert worker.counts()["late"] == 1
        stage.show_now()
        until(lambda: stage.trouble(id_) == ("retrying", "TOO_LATE", 2), "so is the second")
        stage.show_now()
        until(lambda: stage.trouble(id_) == ("quarantined", "TOO_LATE", 2), "there is no third")
    assert len(visits) == 2
    assert "visibility is 1 s" in stage.reason(id_)
    assert stage.written() == []


@pytest.mark.row("W6")
def test_one_message_that_hangs_again_and_again_is_poison_and_restarts_nothing(stage: Stage) -> None:
    worker = stage.worker(concurrency=4, **QUICK)
    wake = threading.Event()
    worker.handler("work")(lambda _message, _connection: wake.wait(60))
    with worker:
        id_ = stage.send()
        until(lambda: stage.trouble(id_) == ("quarantined", "POISON", 0), "it is quarantined")
        assert (worker.counts()["stuck"], worker.counts()["restarts"]) == (3, 0)
        assert worker.condition()[0] == "healthy"
        wake.set()


@pytest.mark.row("W7")
def test_a_long_handler_has_a_limit_and_its_age_is_told(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    worker = stage.worker(concurrency=1, **QUICK, long_timeout=1.5)
    wake = threading.Event()

    @worker.handler("long", long=True)
    def long(message: Message, connection: Connection) -> None:
        if message.read_count == 1:
            wake.wait(60)
        stage.write(connection, message.id, f"reading {message.read_count}")

    with worker:
        id_ = stage.send("long")
        until(lambda: worker.status().oldest > 0.5, "its age is told")
        assert worker.status().oldest_type == "long"
        until(lambda: worker.counts()["stuck"] == 1, "it has reached its limit")
        until(lambda: worker.counts()["handled"] == 1, "its second reading is handled")
        wake.set()
    assert stage.written() == [(id_, "reading 2")]
    assert "long_timeout" in caplog.text


@pytest.mark.row("W4")
def test_the_stack_of_an_async_handler_shows_where_it_waits_and_what_blocks_its_loop(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    worker = stage.worker(concurrency=3, **QUICK)
    wake = threading.Event()

    async def inner() -> None:
        await asyncio.Event().wait()  # this is where it waits

    @worker.handler("waiting")
    async def waiting(message: Message, _connection: psycopg.AsyncConnection[Any]) -> None:
        if message.read_count == 1:
            await inner()

    @worker.handler("blocking")
    async def blocking(message: Message, _connection: psycopg.AsyncConnection[Any]) -> None:
        if message.read_count == 1:
            wake.wait(60)  # this is what blocks

    with worker:
        stage.send("waiting")
        until(lambda: worker.counts()["stuck"] == 1, "it is stuck")
        assert "this is where it waits" in caplog.text
        stage.send("blocking")
        until(lambda: worker.counts()["stuck"] == 2, "the other is stuck")
        assert "this is what blocks" in caplog.text
        wake.set()
