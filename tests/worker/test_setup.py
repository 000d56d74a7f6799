"""Setting up a database: looking first, saying what was done, and what is refused."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from allswell.domain.worker.message import Message
from allswell.errors import Refused, Unavailable
from allswell.testing.postgres import Cluster
from allswell.worker import Handlers, Permanent, Transient, Worker, send, setup
from tests.interfaces.cli.upkeep import run
from tests.worker.stage import Stage, until

OLD_PGMQ = """
CREATE SCHEMA pgmq;
SET check_function_bodies = off;
CREATE TYPE pgmq.message_record AS
    (msg_id bigint, read_ct integer, enqueued_at timestamptz, vt timestamptz, message jsonb{headers});
CREATE TABLE pgmq.queues (queue_name text);
CREATE FUNCTION pgmq.list_queues() RETURNS SETOF pgmq.queues AS 'SELECT * FROM pgmq.queues' LANGUAGE sql;
CREATE FUNCTION pgmq.create(queue_name text) RETURNS void AS $$
    CREATE TABLE pgmq.q_old (headers jsonb, message jsonb, msg_id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
        vt timestamptz NOT NULL DEFAULT clock_timestamp(), read_ct integer NOT NULL DEFAULT 0,
        enqueued_at timestamptz NOT NULL DEFAULT now());
    CREATE TABLE pgmq.a_old (LIKE pgmq.q_old);
    INSERT INTO pgmq.queues VALUES (queue_name) $$ LANGUAGE sql;
CREATE FUNCTION pgmq.read(queue_name text, vt integer, qty integer) RETURNS SETOF pgmq.message_record AS $$
    UPDATE pgmq.q_old SET read_ct = read_ct + 1, vt = clock_timestamp() + make_interval(secs => $2)
    WHERE msg_id IN (SELECT msg_id FROM pgmq.q_old AS q WHERE q.vt <= clock_timestamp() LIMIT qty FOR UPDATE)
    RETURNING msg_id, read_ct, enqueued_at, q_old.vt, message{headers_column} $$ LANGUAGE sql;
CREATE FUNCTION pgmq.send(queue_name text, msg jsonb, headers jsonb, delay integer) RETURNS SETOF bigint AS $$
    INSERT INTO pgmq.q_old (message, headers) VALUES (msg, $3) RETURNING msg_id $$ LANGUAGE sql;
"""
"""As older versions have it: columns missing, and in another order."""


def test_it_looks_first_and_may_be_repeated_and_run_by_two_at_once(pg_url: str) -> None:
    first: list[str] = []
    setup(pg_url, "orders", say=first.append)
    assert first == [
        "made the store (allswell), for the questions about messages",
        "installed PGMQ 1.13.0 from its SQL",
        "made the worker's own tables (allswell_worker)",
        "made queue orders",
        "notification of new messages is on (LISTEN), beside polling",
    ]
    again: list[str] = []
    both = [threading.Thread(target=setup, args=(pg_url, "more"), kwargs={"say": again.append}) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert sorted(again) == sorted(
        ["the store is there", "PGMQ is there (as SQL)", "the worker's own tables are there"] * 2
        + ["made queue more", "queue more is there"]
        + ["notification of new messages is on (LISTEN), beside polling", "notification of new messages is on already"]
    )


@pytest.mark.row("W7")
def test_columns_are_read_by_name_whatever_the_version(pg_url: str) -> None:
    with psycopg.connect(pg_url) as connection:
        connection.execute(OLD_PGMQ.format(headers=", headers jsonb", headers_column=", headers").encode())
    said: list[str] = []
    setup(pg_url, "old", say=said.append)
    assert "this PGMQ cannot notify of new messages: the worker polls" in said
    seen: list[object] = []
    worker = Worker(pg_url, "old", poll_interval=0.1, concurrency=1)
    worker.handler("work")(lambda message, _connection: seen.append((message.payload, message.headers)))
    with psycopg.connect(pg_url) as connection:
        send(connection, "old", "work", {"a": 1}, headers={"b": 2})
    with worker:
        until(lambda: worker.counts()["handled"], "it is handled")
    assert seen == [({"a": 1}, {"b": 2})]


def test_what_cannot_be_used_is_refused_with_what_to_do(pg_url: str, pg_cluster: Cluster) -> None:
    worker = Worker(pg_url, "orders")
    with pytest.raises(Refused, match="no handlers"):
        worker.start()
    worker.handler("work")(lambda _message, _connection: None)
    with pytest.raises(Refused, match="has no PGMQ: run `allswell worker setup orders` first"):
        worker.start()
    setup(pg_url, "others")
    with pytest.raises(Refused, match="has no queue 'orders': run `allswell worker setup orders`"):
        worker.start()
    with psycopg.connect(pg_url) as connection:
        connection.execute("ALTER TABLE allswell_worker.trouble DROP COLUMN late")  # as it was made before
    with pytest.raises(Refused, match="lacks tables or columns of the worker's: run `allswell worker setup orders`"):
        worker.start()
    setup(pg_url, "orders")
    with worker:
        assert worker.status().running
    foreign, old = pg_cluster.create_database(), pg_cluster.create_database()
    with psycopg.connect(foreign) as connection:
        connection.execute("CREATE SCHEMA pgmq")
    with pytest.raises(Refused, match="another program's, or an incomplete setup"):
        setup(foreign, "orders")
    with psycopg.connect(old) as connection:
        connection.execute(OLD_PGMQ.format(headers="", headers_column="").encode())
    with pytest.raises(Refused, match=r"1\.5 or newer is needed"):
        setup(old, "orders")
    with pytest.raises(Unavailable, match="cannot be reached"):
        setup("postgresql://nobody@127.0.0.1:1/x", "orders")
    for url in (foreign, old):
        pg_cluster.drop_database(url)


@pytest.mark.parametrize("queue", ["", "Orders", "a-b", "x; drop", "q" * 48, None])
def test_a_queue_needs_a_name_that_pgmq_can_have(queue: str) -> None:
    with pytest.raises(Refused, match="small letters, digits and underscores"):
        Worker("postgresql://x", queue)


def test_handlers_that_could_never_be_called_are_refused(stage: Stage) -> None:
    handlers = Handlers()
    handlers.handler("work")(lambda _message, _connection: None)
    with pytest.raises(Refused, match="has a handler already"):
        handlers.handler("work")
    with pytest.raises(Refused, match="must take two arguments"):
        handlers.handler("one")(lambda _message: None)
    with pytest.raises(Refused, match="is no type"):
        handlers.handler("")
    with pytest.raises(Refused, match="cannot be written as JSON"):
        stage.send("work", object())
    with pytest.raises(Refused, match="whole number of seconds"):
        stage.send("work", delay=-1)


@pytest.mark.row("W7")
def test_a_role_without_rights_is_told_which_grants_it_needs_and_works_with_them(
    stage: Stage, pg_cluster: Cluster, tmp_path: Path
) -> None:
    role = f"worker_of_{stage.queue}"
    stage.execute(f"GRANT SELECT, INSERT ON {stage.table} TO public")
    url = make_role(pg_cluster, stage.url, role)
    try:
        for words in (("worker", "tests.worker.jobs:handlers", "--queue", stage.queue), ("worker", "status")):
            refused = run(*words, cwd=tmp_path, ALLSWELL_STORE=url)
            assert (refused.code, "bug" in refused.err, role in refused.err) == (2, False, True), refused.err
            assert "--print-grants" in refused.err
        printed = run("worker", "setup", stage.queue, "--print-grants", cwd=tmp_path, ALLSWELL_STORE=url)
        assert printed.code == 0, printed.err
        assert f"GRANT USAGE ON SCHEMA pgmq, allswell, allswell_worker TO {role};" in printed.out
        with psycopg.connect(pg_cluster.admin_url(stage.url.rpartition("/")[2]), autocommit=True) as owner:
            owner.execute(printed.out.encode())
        worker = stage.worker(url)

        @worker.handler("work")
        def work(message: Message, connection: psycopg.Connection[Any]) -> None:
            if message.payload == "bad":
                raise Permanent("NO")
            if message.payload == "later":
                raise Transient("DOWN")
            stage.write(connection, message.id)
            send(connection, stage.queue, "next")

        worker.handler("next")(lambda _message, _connection: None)
        with worker:
            for payload in ("good", "bad", "later"):
                stage.send("work", payload)
            until(lambda: worker.counts()["handled"] == 2, "what is good is handled, and what it sent")
            until(lambda: worker.counts()["quarantined"] == worker.counts()["retried"] == 1, "the others end as well")
    finally:
        drop_role(pg_cluster, stage.url, role)


def make_role(cluster: Cluster, url: str, role: str) -> str:
    """A role that may connect and nothing more; the URL that it connects with."""
    with psycopg.connect(cluster.admin_url(url.rpartition("/")[2]), autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'".encode())
        owner.execute(f"ALTER ROLE {role} SET search_path = allswell, public".encode())  # where tests make tables
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{role}:{role}@{parts.netloc.rpartition('@')[2]}"))


def drop_role(cluster: Cluster, url: str, role: str) -> None:
    with psycopg.connect(cluster.admin_url(url.rpartition("/")[2]), autocommit=True) as owner:
        owner.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())
