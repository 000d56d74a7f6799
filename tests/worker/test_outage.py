"""The database goes away, hangs, forbids or loses the queue: the worker says so, keeps quiet, and is back at once."""

from __future__ import annotations

import http.client
import logging
import statistics
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial

import psycopg
import pytest

from allswell.testing.postgres import Cluster
from allswell.testing.proxy import Proxy
from allswell.worker import Worker, reader, send, setup
from allswell.worker.session import Pending
from allswell.worker.supervisor import HealthPort
from tests.worker.stage import Stage, until


@pytest.fixture(scope="module")
def apart() -> Iterator[Cluster]:
    """A server that is restarted, with a database of its own."""
    with Cluster() as cluster:
        yield cluster


def idle(stage: Stage, url: str | None = None) -> Worker:
    """A worker as it is made by default, with nothing to do."""
    worker = stage.worker(url, concurrency=10)
    worker.handler("work")(lambda message, connection: stage.write(connection, message.id))
    return worker


def _has_handled(worker: Worker, messages: int) -> bool:
    return worker.counts()["handled"] == messages


@pytest.mark.row("W3", "W6")
@pytest.mark.realtime
@pytest.mark.alone
def test_a_restart_of_the_server_blinds_an_idle_worker_for_less_than_three_seconds(
    apart: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allswell.worker.connection.TRUST_SECONDS", 0.0)  # as after a second without a message
    stage = Stage(apart.create_database(), "restarted")
    stage.send()
    with idle(stage) as worker:
        for handled in (1, 2):
            until(partial(_has_handled, worker, handled), "it works")
            stage.close()
            apart.restart()
            with psycopg.connect(stage.url) as outside:
                send(outside, stage.queue, "work")
            sent = time.monotonic()
            until(partial(_has_handled, worker, handled + 1), "the next message is handled")
            assert time.monotonic() - sent < 3
        assert worker.counts()["exhausted"] == 0, "a server that is away is no pool that is exhausted"


def answer(port: HealthPort) -> int:
    """What /readyz says."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port.port}/readyz", timeout=10) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.row("W6")
def test_readiness_is_what_is_true(
    stage: Stage, pg_cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reader, "BLIND_SECONDS", 0.3)
    caplog.set_level(logging.WARNING, "allswell.worker")
    database = f'"{stage.url.rpartition("/")[2]}"'
    ours = "application_name = 'allswell-worker' AND datname = current_database()"
    new_sessions = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}"
    with Proxy(pg_cluster.host, pg_cluster.port) as proxy, idle(stage, proxy.before(stage.url)) as worker:
        port = HealthPort(0, lambda: [worker.status()])

        def turns(code: int, why: str) -> None:
            until(lambda: answer(port) == code, f"readiness is {code}: {why}")
            how, told = worker.condition()
            assert (how, why in told) == ("healthy" if code == 200 else "degraded", True), told

        turns(200, "")
        stage.execute("SELECT pgmq.drop_queue(%s)", stage.queue)
        turns(503, "nothing could be read for")
        until(lambda: caplog.text.count("messages cannot be read") == 1, "it is logged")
        stage.execute("SELECT pgmq.create(%s)", stage.queue)
        turns(200, "")
        stage.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
        try:
            stage.execute(new_sessions)
            turns(503, "read-only")
        finally:
            stage.execute("SET default_transaction_read_only = off")
            stage.execute(f"ALTER DATABASE {database} RESET default_transaction_read_only")
        stage.execute(new_sessions)
        turns(200, "")
        proxy.cut()
        turns(503, "the database does not answer")
        proxy.mend()
        turns(200, "")
        stage.send()
        until(stage.written, "and it works")
        port.close()
    lines = [line for line in caplog.messages if "cannot be read" in line]
    assert len(lines) == len(set(lines)) <= 6, "one line for each kind of trouble and minute"


@pytest.mark.row("W6")
def test_depth_and_age_of_the_queue_are_metrics_and_heads_are_answered(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allswell.worker.worker.TELL_SECONDS", 0.1)
    worker, wake = stage.worker(concurrency=1), threading.Event()
    worker.handler("work")(lambda _message, _connection: wake.wait(60))
    with worker:
        port = HealthPort(0, lambda: [worker.status()])

        def metric(name: str) -> float:
            with urllib.request.urlopen(f"http://127.0.0.1:{port.port}/metrics", timeout=10) as reply:
                lines = [line for line in reply.read().decode().splitlines() if line.startswith(name)]
            return float(lines[0].rpartition(" ")[2])

        for _ in range(3):
            stage.send()
        until(lambda: metric("allswell_worker_queue_messages") == 3, "all are counted")
        until(lambda: metric("allswell_worker_queue_visible") == 2, "two wait")
        until(lambda: metric("allswell_worker_queue_oldest_seconds") > 0, "for a while")
        line = http.client.HTTPConnection("127.0.0.1", port.port, timeout=10)
        line.request("HEAD", "/readyz")
        reply = line.getresponse()
        assert (reply.status, reply.read(), int(reply.headers["Content-Length"]) > 0) == (200, b"", True)
        line.close()
        wake.set()
        port.close()


@pytest.mark.row("W7")
@pytest.mark.realtime
def test_a_queue_that_tells_of_nothing_is_polled_often_under_load(worker_url: str) -> None:
    setup(worker_url, "quiet", notify=False)
    seen: list[float] = []
    worker = Worker(worker_url, "quiet", concurrency=2)
    worker.handler("work")(lambda _message, _connection: seen.append(time.monotonic()))
    took = []
    with worker, psycopg.connect(worker_url, autocommit=True) as outside:
        for number in range(1, 7):
            time.sleep(0.4)  # as it comes: not at once after the last one
            sent = time.monotonic()
            send(outside, "quiet", "work")
            until(partial(lambda number: len(seen) == number, number), "it is handled")
            took.append(seen[-1] - sent)
    assert statistics.median(took[1:]) < 0.15, took


@pytest.mark.row("W6")
def test_a_read_error_with_an_end_to_be_written_pauses(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "BLIND_SECONDS", 0.3)
    worker = stage.worker(concurrency=1)
    reads: list[float] = []

    @worker.handler("work")
    def work(_message: object, _connection: object) -> None:
        stage.execute("SELECT pgmq.drop_queue(%s)", stage.queue)
        assert worker._parts is not None
        shift = worker._parts.shift
        pending = shift.pending

        def counted() -> list[Pending]:
            reads.append(time.monotonic())
            return pending()

        monkeypatch.setattr(shift, "pending", counted)

    with worker:
        stage.send()
        until(lambda: not worker.status().ready, "nothing can be read")
        assert 1 <= len(reads) < 10, "it does not try all the time"
