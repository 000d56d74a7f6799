"""Messages that wait for an operator: asked about as they leave the queue, and settled once, by a worker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from allswell.domain.worker.message import Message
from allswell.testing.postgres import Cluster
from allswell.worker import Permanent, send_batch
from allswell.worker.escalation import store_url
from tests.interfaces.cli.upkeep import Ran, run
from tests.worker.stage import Stage, until

Connection = psycopg.Connection[Any]


def allswell(stage: Stage, folder: Path, *words: str) -> Ran:
    return run(*words, cwd=folder, ALLSWELL_STORE=stage.url)


def questions(stage: Stage) -> dict[int, str]:
    """The open questions about messages of this queue, by message."""
    query = "SELECT id FROM allswell.question WHERE closed_at IS NULL AND id LIKE %s"
    ids = [id_ for (id_,) in stage.execute(query, f"q_:{stage.queue}.%")]
    return {int(id_.split(".")[1]): id_ for id_ in ids}


def settled(stage: Stage) -> list[tuple[str, str]]:
    """The answers that were carried out, as the journal has them: (choice, by)."""
    query = """
        SELECT data::json ->> 'choice', data::json ->> 'by' FROM allswell.event
        WHERE kind = 'message_settled' AND data::json ->> 'queue' = %s ORDER BY id
    """
    return stage.execute(query, stage.queue)


@pytest.mark.row("W5")
def test_an_operator_retries_cancels_and_completes(stage: Stage, tmp_path: Path) -> None:
    worker, mended, seen = stage.worker(), [False], list[object]()

    @worker.handler("part")
    def part(message: Message, connection: Connection) -> None:
        if not mended[0]:
            raise Permanent("NO_STOCK", f"nothing is left of {message.payload}")
        stage.write(connection, message.id, f"reading {message.read_count}")

    worker.handler("all")(lambda message, _connection: seen.append(message.payload))
    with stage.outside.transaction():
        parts = [("part", fruit) for fruit in ("apples", "pears", "plums")]
        send_batch(stage.outside, stage.queue, parts, then=("all", "over"))
    with worker:
        until(lambda: len(questions(stage)) == 3, "each is asked about")
    asked = json.loads(allswell(stage, tmp_path, "questions", "--json").out)["questions"]
    mine = {one["message_id"]: one for one in asked if one["queue"] == stage.queue}
    retried, cancelled, completed = sorted(mine)
    assert [option["key"] for option in mine[retried]["options"]] == ["retry", "complete", "cancel"]
    assert f"Message {retried} (part) of queue {stage.queue} could not be handled: NO_STOCK" in mine[retried]["text"]
    assert 'Its payload: "apples" How should we proceed?' in mine[retried]["text"]
    assert stage.messages() == [], "what is asked about is out of the queue"
    assert stage.archived() == [retried, cancelled, completed]
    for message, choice in ((retried, "retry"), (cancelled, "cancel"), (completed, "complete")):
        said = allswell(stage, tmp_path, "answer", mine[message]["question_id"], choice, "--by", "eve", "--yes")
        assert said.code == 0, said.err
        assert "A worker carries it out" in said.out
    shown = allswell(stage, tmp_path, "worker", "status").out
    assert "3 answered, not yet applied" in shown
    again = allswell(stage, tmp_path, "answer", mine[retried]["question_id"], "cancel", "--yes")
    assert (again.code, "is closed: retry" in again.err) == (2, True)
    mended[0] = True
    with worker, stage.worker(handlers=worker.handlers):
        until(lambda: "over" in seen, "all of the batch have ended")
        until(lambda: len(settled(stage)) == 3, "each answer is carried out")
    assert stage.written() == [(retried, "reading 2")]
    assert stage.trouble(retried) is None
    assert stage.trouble(cancelled) == ("cancelled", "NO_STOCK", 0)
    assert stage.trouble(completed) == ("completed", "NO_STOCK", 0)
    assert sorted(choice for choice, _ in settled(stage)) == ["cancel", "complete", "retry"], "once each"
    assert {by.partition(" ")[0] for _, by in settled(stage)} == {"eve"}
    why = allswell(stage, tmp_path, "why", mine[cancelled]["question_id"]).out
    assert f"It is about message {cancelled} of the queue {stage.queue}" in why
    assert "Its payload: " in why


@pytest.mark.row("W5")
def test_messages_that_fail_for_one_cause_are_one_question_answered_for_all(stage: Stage, tmp_path: Path) -> None:
    worker, mended, calls = stage.worker(concurrency=8), [False], list[int]()

    @worker.handler("part")
    def part(message: Message, connection: Connection) -> None:
        calls.append(message.id)
        if not mended[0]:
            raise Permanent("NO_STOCK", f"nothing is left of item-{message.payload}")
        stage.write(connection, message.id)

    worker.handler("good")(lambda message, connection: stage.write(connection, message.id, "good"))
    bad = 300
    stage.execute(
        """SELECT pgmq.send_batch(%s, array(SELECT jsonb_build_object('type', 'part', 'payload', n)
        FROM generate_series(1, %s) AS n))""",
        stage.queue,
        bad,
    )
    good = stage.send("good")
    with worker:
        until(lambda: worker.counts()["quarantined"] == bad, "all are quarantined")
        until(lambda: stage.written() == [(good, "good")], "what is good goes through")
        assert len(set(calls)) == len(calls) == bad, "each is tried once"
        assert stage.messages() == []
        asked = [one for one in questions(stage).values() if one.startswith(f"q_:{stage.queue}.")]
        assert len(asked) == 1
        shown = allswell(stage, tmp_path, "questions").out
        assert f"and 299 others of queue {stage.queue} could not be handled: NO_STOCK" in " ".join(shown.split())
        mended[0] = True
        assert allswell(stage, tmp_path, "answer", asked[0], "retry").code == 0
        until(lambda: len(stage.written()) == bad + 1, "all are handled")
        until(lambda: not stage.messages(), "and over")
    assert [choice for choice, _ in settled(stage)] == ["retry"] * len(settled(stage))
    assert len(settled(stage)) <= 3, "together"


@pytest.mark.row("W5")
def test_a_message_leaves_its_queue_together_with_the_question_about_it(stage: Stage) -> None:
    worker = stage.worker()
    worker.handler("work")(lambda _message, _connection: (_ for _ in ()).throw(Permanent("NO")))
    with psycopg.connect(stage.url) as other:
        other.execute("LOCK TABLE allswell.question IN SHARE MODE")  # nobody can be asked anything now
        with worker:
            id_ = stage.send()
            waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'allswell.question'::regclass"
            until(lambda: stage.execute(waits), "the question waits")
            assert stage.messages() == [(id_, 1)], "the message is still there"
            assert stage.trouble(id_) is None
            other.rollback()
            until(lambda: questions(stage), "it is asked")
            assert stage.messages() == []
            assert stage.trouble(id_) == ("quarantined", "NO", 0)


@pytest.mark.row("W5")
def test_an_answer_about_a_message_of_a_queue_that_was_dropped_is_applied_to_no_new_one(stage: Stage) -> None:
    worker, refuse, visits = stage.worker(), [True], list[int]()

    @worker.handler("work")
    def work(message: Message, connection: Connection) -> None:
        visits.append(message.read_count)
        if refuse[0]:
            raise Permanent("NO")
        stage.write(connection, message.id)

    def made_anew() -> int:
        with stage.outside.transaction():
            stage.execute("SELECT pgmq.drop_queue(%s)", stage.queue)
            stage.execute("SELECT pgmq.create(%s)", stage.queue)
            return stage.send()

    first = stage.send()
    with worker:
        until(lambda: questions(stage), "it is asked about")
    (old,) = questions(stage).values()
    close = "UPDATE allswell.question SET closed_at = 1, choice = 'retry', answered_by = 'eve' WHERE id = %s"
    stage.execute(close, old)
    assert made_anew() == first
    with worker:
        until(lambda: questions(stage), "the new one is asked about too")
    assert old not in questions(stage).values()
    assert visits == [1, 1], "the old answer did not bring the new one back"
    assert stage.archived() == [first]
    assert stage.trouble(first) == ("quarantined", "NO", 0)
    stage.execute(close, questions(stage)[first])
    assert made_anew() == first
    refuse[0] = False
    for _ in range(2):
        assert len(stage.execute("SELECT * FROM pgmq.read(%s, 0, 1)", stage.queue)) == 1, "read by others before"
    with worker:
        until(lambda: worker.counts()["handled"], "the third is handled")
        until(lambda: not stage.messages(), "its end is written")
    assert stage.written() == [(first, "")], "once: the answer about the second brings nothing back"


@pytest.mark.row("W7")
def test_a_handlers_end_does_not_end_another_message_of_the_same_id(stage: Stage) -> None:
    worker = stage.worker(concurrency=1)

    @worker.handler("work")
    def work(message: Message, connection: Connection) -> None:
        stage.write(connection, message.id)
        with stage.outside.transaction():
            stage.execute("SELECT pgmq.drop_queue(%s)", stage.queue)
            stage.execute("SELECT pgmq.create(%s)", stage.queue)
            assert stage.send("other") == message.id
            assert len(stage.execute("SELECT * FROM pgmq.read(%s, 600, 1)", stage.queue)) == 1

    with worker:
        id_ = stage.send()
        until(lambda: worker.counts()["late"] == 1, "its end is refused")
    assert (stage.messages(), stage.written()) == ([(id_, 1)], [])


def test_a_message_that_somebody_else_has_is_not_asked_about(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    worker = stage.worker()

    @worker.handler("work")
    def work(_message: Message, _connection: Connection) -> None:
        stage.take_elsewhere()
        raise Permanent("NO")

    with worker:
        id_ = stage.send()
        until(lambda: worker.counts()["late"] == 1, "it is too late")
    assert questions(stage) == {}
    assert stage.messages() == [(id_, 2)]
    assert "is quarantined" not in caplog.text


def test_a_connection_string_of_any_form_names_the_store(pg_cluster: Cluster) -> None:
    assert store_url("postgresql://a@b/c") == "postgresql://a@b/c"
    assert store_url("host=h port=5 dbname=d user=u password='p w/@'") == "postgresql://u:p%20w%2F%40@h:5/d"
    assert store_url("host=/run/pg dbname=d") == "postgresql:///d?host=%2Frun%2Fpg"
