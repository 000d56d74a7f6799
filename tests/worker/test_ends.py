"""How messages end: handled, tried again, quarantined, failed; and what is committed with that."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from psycopg.rows import dict_row

from allswell.domain.worker.limits import Layers
from allswell.domain.worker.message import Message
from allswell.errors import Refused
from allswell.testing.postgres import Cluster
from allswell.worker import BusinessFailure, Permanent, Transient, send, send_async, send_batch, send_batch_async
from allswell.worker.connection import Cancellations, Limit
from allswell.worker.handlers import WorkerPlan
from allswell.worker.process import ProcessOrder
from allswell.worker.supervisor import ChildProcess
from tests.worker.stage import Stage, until

Connection = psycopg.Connection[Any]


@pytest.mark.row("W5", "W7")
def test_each_kind_of_end(stage: Stage) -> None:
    worker = stage.worker(concurrency=4)
    raised: dict[str, BaseException] = {
        "transient": Transient("SOON", "try later"),
        "permanent": Permanent("NEVER", "no account"),
        "business": BusinessFailure("DECLINED", "the card was declined"),
        "bug": TypeError("unsupported operand"),
        "unknown": RuntimeError("what is this"),
        "exit": SystemExit(3),
    }

    @worker.handler("fail")
    def fail(message: Message, connection: Connection) -> None:
        stage.write(connection, message.id, "must not stay")
        raise raised[message.payload]

    @worker.handler("swallow")
    def swallow(_message: Message, connection: Connection) -> None:
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT * FROM nowhere")

    @worker.handler("close")
    def close(_message: Message, connection: Connection) -> None:
        connection.close()

    @worker.handler("commit")
    def commit(message: Message, connection: Connection) -> None:
        stage.write(connection, message.id, "committed by hand")
        connection.execute("COMMIT")

    worker.handler("good")(lambda message, connection: stage.write(connection, message.id, "good"))
    ids = {kind: stage.send("fail", kind) for kind in raised}
    ids |= {kind: stage.send(kind) for kind in ("swallow", "close", "commit", "no such type", "good")}
    ids["list"], ids["null"], ids["number"] = (
        stage.execute("SELECT * FROM pgmq.send(%s, %s::jsonb)", stage.queue, body)[0][0]
        for body in ("[1, 2]", "null", '{"type": 7}')
    )
    with worker:
        until(lambda: sum(worker.counts()[how] for how in ("handled", "retried", "quarantined", "failed")) == 14, "all")
        until(lambda: not worker.running(), "all are done")
    found = {kind: stage.trouble(id_) for kind, id_ in ids.items()}
    assert found == {
        "transient": ("retrying", "SOON", 1),
        "permanent": ("quarantined", "NEVER", 0),
        "business": ("failed", "DECLINED", 0),
        "bug": ("quarantined", "TypeError", 0),
        "unknown": ("retrying", "RuntimeError", 1),
        "exit": ("retrying", "SystemExit", 1),
        "swallow": ("retrying", "BROKEN_CONNECTION", 1),
        "close": ("retrying", "BROKEN_CONNECTION", 1),
        "commit": ("quarantined", "BROKEN_CONNECTION", 0),
        "no such type": ("retrying", "UNKNOWN_TYPE", 1),
        "good": None,
        "list": ("quarantined", "UNREADABLE", 0),
        "null": ("quarantined", "UNREADABLE", 0),
        "number": ("quarantined", "UNREADABLE", 0),
    }
    assert "there are: close, commit, fail, good, swallow" in stage.reason(ids["no such type"])
    assert "a list" in stage.reason(ids["list"])
    left = {id_ for id_, _ in stage.messages()}
    assert left == {id_ for kind, id_ in ids.items() if (found[kind] or ("",))[0] == "retrying"}
    assert set(stage.archived()) == set(ids.values()) - left - {ids["good"]}
    assert stage.shows_in(ids["transient"]) <= 10
    assert [said for _, said in stage.written()] == ["committed by hand", "good"]


@pytest.mark.row("W5")
def test_retries_come_after_10_60_and_300_seconds_and_then_an_operator_is_needed(stage: Stage) -> None:
    worker = stage.worker()
    worker.handler("work")(lambda _message, _connection: (_ for _ in ()).throw(Transient("DOWN", "it is down")))
    id_ = stage.send()
    with worker:
        for retries, pause in enumerate((10, 60, 300), start=1):
            expected = ("retrying", "DOWN", retries)
            until(partial(lambda expected: stage.trouble(id_) == expected, expected), "it is tried again")
            assert pause / 2 < stage.shows_in(id_) <= pause
            stage.show_now()
        until(lambda: stage.trouble(id_) == ("quarantined", "DOWN", 3), "it is quarantined")
    assert stage.messages() == []
    assert stage.reason(id_) == "it is down (a failure after 3 retries)"


@pytest.mark.row("W5")
def test_a_message_that_nobody_came_back_from_is_not_handled_a_fourth_time(stage: Stage) -> None:
    worker = stage.worker()
    worker.handler("work")(lambda message, connection: stage.write(connection, message.id))
    poison, unlucky = stage.send(), stage.send()
    for _ in range(3):
        assert len(stage.execute("SELECT * FROM pgmq.read(%s, 0, 1)", stage.queue)) == 1, "a process takes it and dies"
    with worker:
        until(lambda: worker.counts()["handled"] == 1 == worker.counts()["quarantined"], "both have ended")
    assert stage.trouble(poison) == ("quarantined", "POISON", 0)
    assert stage.written() == [(unlucky, "")]


@pytest.mark.row("W5")
def test_one_message_is_on_trial_at_a_time_and_the_others_go_back_without_blame(stage: Stage) -> None:
    worker, held = stage.worker(concurrency=3), threading.Event()

    @worker.handler("work")
    def work(message: Message, connection: Connection) -> None:
        stage.write(connection, message.id)
        assert held.wait(60)

    doubted, fresh = {stage.send(), stage.send()}, stage.send()
    for _ in range(2):
        assert len(stage.execute("SELECT * FROM pgmq.read(%s, 0, 2)", stage.queue)) == 2, "a process dies with two"
    with worker:
        until(lambda: worker.counts()["given_back"] >= 1, "one of the two must wait")
        until(lambda: len(worker.running()) == 2, "the other is at work, beside one that is in no doubt")
        (second,) = doubted - set(worker.running())
        assert fresh in worker.running()
        assert stage.shows_in(second) <= 1
        assert stage.trouble(second) == ("retrying", "", 0)
        stage.show_now(second)
        until(lambda: worker.counts()["given_back"] >= 2, "it must wait again")
        held.set()
        until(lambda: worker.counts()["handled"] == 2, "both have ended")
        stage.show_now(second)
        until(lambda: worker.counts()["handled"] == 3, "its turn has come")
    assert {message for message, _ in stage.written()} == {*doubted, fresh}
    assert stage.trouble(second) is None


def _over(stage: Stage, child: ChildProcess) -> bool:
    return child.process.poll() is not None or not stage.messages()


@pytest.mark.row("W5")
def test_a_message_that_kills_its_process_takes_no_other_into_quarantine(stage: Stage) -> None:
    stage.execute("CREATE TABLE IF NOT EXISTS effect (number int, process int)")
    with stage.outside.transaction():
        ids = [stage.send(kind, {"number": 0}) for kind in ("slow", "deadly", "slow", "slow")]
    plan = WorkerPlan(stage.url, stage.queue, Layers(900, 1, 5.0, 1.0, 4), poll_interval=0.1)
    order = ProcessOrder("tests.worker.jobs:handlers", str(Path(__file__).parents[2]), plan)
    deaths = 0
    while stage.messages():
        child = ChildProcess(order)
        until(partial(_over, stage, child), "it dies, or all is done")
        deaths += child.process.poll() is not None
        child.process.kill()
        child.process.wait()
        child.close()
    assert deaths == 3
    assert {id_: stage.trouble(id_) for id_ in ids} == dict.fromkeys(ids) | {ids[1]: ("quarantined", "POISON", 0)}


@pytest.mark.row("W5")
def test_a_handler_that_came_back_too_late_is_no_sign_of_poison(stage: Stage) -> None:
    worker, visits = stage.worker(concurrency=1), []

    @worker.handler("work")
    def work(message: Message, connection: Connection) -> None:
        visits.append(message.id)
        if len(visits) == 1:
            stage.write(connection, message.id)
        if len(visits) < 5:
            stage.take_elsewhere()
        if len(visits) == 3:
            raise Transient("DOWN")
        if len(visits) == 4:
            raise Permanent("NO")

    with worker:
        id_ = stage.send()
        for ended in range(1, 5):
            until(partial(lambda ended: worker.counts()["late"] == ended, ended), "it is somebody else's")
            other = "UPDATE allswell_worker.trouble SET late = late + 1 WHERE queue = %s"  # it comes back late as well
            stage.execute(other, stage.queue)
            stage.show_now()
        until(lambda: worker.counts()["handled"] == 1, "it is handled")
    assert len(visits) == 5
    assert (stage.messages(), stage.trouble(id_)) == ([], None)


@pytest.fixture(scope="module")
def german() -> Iterator[Stage]:
    """A server that speaks German, where its translations are installed; an ordinary role cannot change that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LANGUAGE", "de")
        with Cluster() as cluster:
            url = cluster.create_database()
            with psycopg.connect(cluster.admin_url(), autocommit=True) as admin:
                admin.execute(f"ALTER DATABASE {url.rpartition('/')[2]} SET lc_messages = 'C.UTF-8'".encode())
            stage = Stage(url, "german")
            yield stage
            stage.close()


@pytest.mark.row("W5")
def test_a_statement_timeout_is_told_from_a_cancel_and_from_a_lock_whatever_the_servers_language(german: Stage) -> None:
    stage = german
    worker = stage.worker(concurrency=4, statement_timeout=60_000, visibility_timeout=100)
    stage.execute(f"INSERT INTO {stage.table} VALUES (0, 'locked')")
    said = "canceling statement due to statement timeout"

    @worker.handler("slow")
    def slow(_message: Message, connection: Connection) -> None:
        connection.execute("SET LOCAL statement_timeout = 300")
        connection.execute("SELECT pg_sleep(60)")

    @worker.handler("cancelled")
    def cancelled(_message: Message, connection: Connection) -> None:
        connection.execute("SELECT pg_sleep(59)")

    @worker.handler("same words")
    def same_words(_message: Message, connection: Connection) -> None:
        connection.execute(f"DO $$BEGIN RAISE EXCEPTION '{said}' USING ERRCODE = '57014'; END$$".encode())

    @worker.handler("locked")
    def locked(_message: Message, connection: Connection) -> None:
        connection.execute("SET LOCAL lock_timeout = 50")
        connection.execute(f"SELECT * FROM {stage.table} FOR UPDATE".encode())

    cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(59)'"
    with psycopg.connect(stage.url) as holder, worker:
        holder.execute(f"SELECT * FROM {stage.table} FOR UPDATE".encode())
        ids = {kind: stage.send(kind) for kind in ("slow", "cancelled", "same words", "locked")}
        until(lambda: stage.execute(cancel + " AND wait_event = 'PgSleep'"), "the statement runs, and is cancelled")
        until(lambda: worker.counts()["retried"] == 4, "all have failed")
    assert stage.trouble(ids["slow"]) == ("retrying", "TIMEOUT", 1)
    assert stage.reason(ids["slow"]) == "Statement timeout exceeded"
    assert stage.trouble(ids["cancelled"]) == ("retrying", "CANCELLED", 1)
    assert stage.trouble(ids["same words"]) == ("retrying", "CANCELLED", 1)
    assert stage.trouble(ids["locked"]) == ("retrying", "LOCK_TIMEOUT", 1)
    told = stage.reason(ids["cancelled"])
    assert ("Benutzeraufforderung" in told) or ("user request" in told), "in German, or where there is none in English"


@pytest.mark.row("W5")
def test_a_server_that_names_no_places_is_judged_by_the_clock(stage: Stage) -> None:
    class Nameless:
        sqlstate = "57014"
        diag = type("Diagnosis", (), {"source_function": None, "source_line": None})

    error, limit = cast("psycopg.errors.QueryCanceled", Nameless()), Limit(Layers(), time.monotonic() + 30)
    assert limit.next_cap() == 25_000
    assert not Cancellations().by_timeout(error, stage.outside, limit)
    limit.asked -= 25
    assert Cancellations().by_timeout(error, stage.outside, limit)


@pytest.mark.row("W5", "W7")
def test_a_handler_that_lost_its_message_commits_nothing(stage: Stage) -> None:
    worker = stage.worker(concurrency=1)

    @worker.handler("work")
    def work(message: Message, connection: Connection) -> None:
        stage.write(connection, message.id, "late")
        stage.take_elsewhere()

    with worker:
        id_ = stage.send()
        until(lambda: worker.counts()["late"] == 1, "its end is refused")
    assert stage.written() == []
    assert stage.messages() == [(id_, 2)]


def test_messages_are_sent_in_the_callers_own_transaction(stage: Stage) -> None:
    seen: list[object] = []
    worker = stage.worker()

    @worker.handler("work")
    def work(message: Message, connection: Connection) -> None:
        send(connection, stage.queue, "next", {"after": message.id})
        if message.payload == "fail":
            raise Permanent("NO")

    @worker.handler("next")
    def following(message: Message, _connection: Connection) -> None:
        seen.append(message.payload)

    with worker:
        stage.send("work", "fail")
        good = stage.send("work")
        until(lambda: seen, "the next one came")
        until(lambda: worker.counts()["handled"] == 2, "both are handled")
    assert seen == [{"after": good}]


@pytest.mark.row("W5")
def test_a_batch_is_followed_by_its_callback_when_the_last_has_ended(stage: Stage) -> None:
    seen: list[object] = []
    worker = stage.worker()

    @worker.handler("part")
    def part(message: Message, _connection: Connection) -> None:
        if message.payload == 2:
            raise BusinessFailure("NO")
        seen.append(message.payload)

    worker.handler("all")(lambda message, _connection: seen.append(message.payload))
    with worker:
        with psycopg.connect(stage.url, autocommit=True, row_factory=dict_row) as sender:
            with pytest.raises(Refused, match="cannot be written as JSON"):
                send_batch(sender, stage.queue, [("part", 7)], then=("all", object()))
            batch = send_batch(sender, stage.queue, [("part", n) for n in range(5)], then=("all", "over"))
        until(lambda: "over" in seen, "the callback came")
        until(lambda: not stage.messages(), "all have ended")
    assert sorted(map(str, seen[:-1])) == ["0", "1", "3", "4"]
    assert seen[-1] == "over"
    assert stage.execute("SELECT FROM allswell_worker.batch WHERE id = %s", batch) == [], "it is over, and forgotten"


def test_a_batch_is_sent_whole_or_not_at_all(stage: Stage) -> None:
    stage.execute(f"ALTER TABLE pgmq.q_{stage.queue} ADD CHECK (message ->> 'type' <> 'refused')")
    before = stage.execute("SELECT count(*) FROM allswell_worker.batch")
    with pytest.raises(psycopg.errors.CheckViolation):
        send_batch(stage.outside, stage.queue, [("part", 1), ("refused", 2)], then=("all", None))
    assert stage.execute("SELECT count(*) FROM allswell_worker.batch") == before
    assert stage.messages() == []


@pytest.mark.row("W7")
def test_what_is_sent_is_never_committed_for_the_caller(stage: Stage) -> None:
    parts, last = [("part", n) for n in range(3)], ("all", None)
    before = stage.execute("SELECT count(*) FROM allswell_worker.batch")
    with psycopg.connect(stage.url) as connection:  # idle: the batch is the first statement of its transaction
        send_batch(connection, stage.queue, parts, then=last)
        connection.rollback()
        send(connection, stage.queue, "work")
        connection.rollback()

    async def asynchronously() -> list[int]:
        async with await psycopg.AsyncConnection.connect(stage.url) as connection:
            await send_batch_async(connection, stage.queue, parts, then=last)
            await connection.rollback()
            await send_batch(connection, stage.queue, parts, then=last)
            await send(connection, stage.queue, "work")
            await connection.rollback()
            kept = [await send_async(connection, stage.queue, "work"), await send(connection, stage.queue, "work")]
            await connection.commit()
            return kept

    kept = asyncio.run(asynchronously())
    assert [id_ for id_, _ in stage.messages()] == kept
    assert stage.execute("SELECT count(*) FROM allswell_worker.batch") == before


def test_a_batch_is_sent_by_async_handlers_with_their_own_transaction(stage: Stage) -> None:
    seen: list[object] = []
    worker = stage.worker()

    @worker.handler("work")
    async def work(message: Message, connection: psycopg.AsyncConnection[Any]) -> None:
        await send_batch(connection, stage.queue, [("part", 1), ("part", 2)], then=("all", message.payload))
        if message.payload == "fail":
            raise Permanent("NO")

    worker.handler("part")(lambda _message, _connection: None)
    worker.handler("all")(lambda message, _connection: seen.append(message.payload))
    with worker:
        stage.send("work", "fail")
        stage.send("work", "good")
        until(lambda: worker.counts()["handled"] == 4, "a batch and what follows it")
    assert seen == ["good"]


@pytest.mark.row("W5")
def test_an_unknown_type_waits_for_a_deploy_before_it_is_quarantined(stage: Stage) -> None:
    worker = stage.worker(unknown_type_pause=30, unknown_type_rounds=2, retry_pauses=(10,))
    worker.handler("old")(lambda _message, _connection: None)
    new, never = stage.send("new"), stage.send("never")
    with worker:
        until(lambda: stage.trouble(new) == ("retrying", "UNKNOWN_TYPE", 1), "it waits")
        assert 15 < stage.shows_in(new) <= 30
        until(lambda: stage.trouble(never) == ("retrying", "UNKNOWN_TYPE", 1), "the other as well")
        stage.show_now()
        until(lambda: stage.trouble(never) == ("retrying", "UNKNOWN_TYPE", 2), "the second round")
        until(lambda: stage.trouble(new) == ("retrying", "UNKNOWN_TYPE", 2), "of both")
        worker.handler("new")(lambda _message, _connection: (_ for _ in ()).throw(Transient("DOWN")))
        stage.show_now()
        until(lambda: stage.trouble(never) == ("quarantined", "UNKNOWN_TYPE", 2), "there is no third")
        until(lambda: stage.trouble(new) == ("retrying", "DOWN", 1), "what waited for its handler has all its retries")


@pytest.mark.row("W5")
def test_a_pause_that_a_handler_asked_for_counts_as_a_retry(stage: Stage) -> None:
    worker = stage.worker(retry_pauses=(1, 1))
    worker.handler("work")(lambda _message, _connection: (_ for _ in ()).throw(Transient("BUSY", retry_after=7200)))
    id_ = stage.send()
    with worker:
        for retries in (1, 2):
            expected = ("retrying", "BUSY", retries)
            until(partial(lambda expected: stage.trouble(id_) == expected, expected), "it is tried again")
            assert 7_000 < stage.shows_in(id_) <= 7_200
            stage.show_now()
        until(lambda: stage.trouble(id_) == ("quarantined", "BUSY", 2), "then an operator is asked")
