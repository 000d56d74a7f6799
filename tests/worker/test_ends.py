"""How messages end: handled, tried again, quarantined, failed; and what is committed with that."""

from __future__ import annotations

from functools import partial
from typing import Any

import psycopg
import pytest

from allswell.domain.message import Message
from allswell.worker import BusinessFailure, Permanent, Transient, send, send_batch
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
        "no such type": ("quarantined", "UNKNOWN_TYPE", 0),
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
    assert stage.reason(id_) == "it is down (transient after 3 retries)"


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
def test_a_statement_timeout_is_told_from_a_cancel_and_from_a_lock_whatever_the_text(stage: Stage) -> None:
    worker = stage.worker(concurrency=3, statement_timeout=700, visibility_timeout=20)
    stage.execute(f"INSERT INTO {stage.table} VALUES (0, 'locked')")
    said = "canceling statement due to statement timeout"

    @worker.handler("slow")
    def slow(_message: Message, connection: Connection) -> None:
        connection.execute("SELECT pg_sleep(60)")

    @worker.handler("cancelled")
    def cancelled(_message: Message, connection: Connection) -> None:
        row = connection.execute("SELECT pg_backend_pid()").fetchone()
        assert row is not None
        stage.execute("SELECT pg_cancel_backend(pid) FROM (SELECT pg_sleep(0.2), %s AS pid) AS soon", row[0])
        connection.execute("SELECT pg_sleep(60)")

    @worker.handler("same words")
    def same_words(_message: Message, connection: Connection) -> None:
        connection.execute(f"DO $$BEGIN RAISE EXCEPTION '{said}' USING ERRCODE = '57014'; END$$".encode())

    @worker.handler("locked")
    def locked(_message: Message, connection: Connection) -> None:
        connection.execute("SET LOCAL lock_timeout = 50")
        connection.execute(f"SELECT * FROM {stage.table} FOR UPDATE".encode())

    with psycopg.connect(stage.url) as holder, worker:
        holder.execute(f"SELECT * FROM {stage.table} FOR UPDATE".encode())
        ids = {kind: stage.send(kind) for kind in ("slow", "same words", "locked")}
        until(lambda: worker.counts()["retried"] == 3, "all have failed")
    assert stage.trouble(ids["slow"]) == ("retrying", "TIMEOUT", 1)
    assert stage.trouble(ids["same words"]) == ("retrying", "CANCELLED", 1)
    assert stage.trouble(ids["locked"]) == ("retrying", "LOCK_TIMEOUT", 1)


@pytest.mark.row("W5")
def test_an_operators_cancel_is_not_a_timeout(stage: Stage) -> None:
    worker = stage.worker(statement_timeout=15_000, visibility_timeout=20)
    worker.handler("work")(lambda _message, connection: connection.execute("SELECT pg_sleep(14)"))
    with worker:
        id_ = stage.send()
        cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(14)'"
        until(lambda: stage.execute(cancel + " AND wait_event = 'PgSleep'"), "the statement runs")
        until(lambda: stage.trouble(id_) == ("retrying", "CANCELLED", 1), "it is told")


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
        with stage.outside.transaction():
            send_batch(stage.outside, stage.queue, [("part", n) for n in range(5)], then=("all", "over"))
        until(lambda: "over" in seen, "the callback came")
    assert sorted(map(str, seen[:-1])) == ["0", "1", "3", "4"]
    assert seen[-1] == "over"
