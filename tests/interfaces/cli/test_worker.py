"""`allswell worker`: a real worker with its supervising process, seen from the shell, from systemd and over HTTP."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from allswell.domain.worker.limits import Layers
from allswell.worker import send, setup, supervisor
from allswell.worker.handlers import WorkerPlan
from allswell.worker.process import ProcessOrder
from allswell.worker.supervisor import ChildProcess, ServiceNotice
from tests import patience
from tests.interfaces.cli.upkeep import at_terminal, environment, run
from tests.interfaces.views.outside import check
from tests.worker.stage import until

ROOT = Path(__file__).parents[3]
JOBS = "tests.worker.jobs:handlers"


@pytest.mark.row("W2")
def test_what_cannot_be_is_told_in_a_sentence(pg_url: str, tmp_path: Path) -> None:
    def told(*words: str, store: str = pg_url) -> str:
        ran = run("worker", *words, cwd=tmp_path, ALLSWELL_STORE=store)
        assert (ran.code, ran.out) == (2, ""), ran
        assert "Traceback" not in ran.err
        return ran.err

    assert "lies in the store's PostgreSQL, and the store is memory:" in told("setup", "orders", store="memory:")
    assert "has no PGMQ: run `allswell worker setup orders" in told(JOBS, "--queue", "orders")
    assert "small letters, digits and underscores" in told("setup", "Orders")
    assert "There is no queue here yet" in run("worker", "status", cwd=tmp_path, ALLSWELL_STORE=pg_url).out
    done = run("worker", "setup", "orders", "--json", cwd=tmp_path, ALLSWELL_STORE=pg_url)
    assert check("worker setup", done.out) == "WorkerSetup"
    shown = at_terminal("worker", "status", cwd=tmp_path, columns=100, ALLSWELL_STORE=pg_url).out
    assert "orders        0  no process works on it" in shown, "no escape codes in a cell"
    assert "has no queue 'mails'" in told(JOBS, "--queue", "mails")
    assert "names no handlers: say module:name" in told("jobs", "--queue", "orders")
    assert "there is no module 'nothing_here'" in told("nothing_here:handlers", "--queue", "orders")
    (tmp_path / "jobs.py").write_text("handlers = 7\n")
    assert "jobs:handlers is of type int: it must be a Handlers, or a Worker" in told(
        "jobs:handlers", "--queue", "orders"
    )
    assert "--queue NAME is missing: `allswell worker [OPTIONS] MODULE:NAME --queue NAME" in told(JOBS)
    (tmp_path / "leaving.py").write_text("import sys; sys.exit(3)\n")
    assert (
        "leaving:handlers could not be started"
        in run("worker", "leaving:handlers", "--queue", "orders", cwd=tmp_path, ALLSWELL_STORE=pg_url).err.splitlines()[
            -1
        ]
    )
    assert "it must be a whole number from 1 to 1,000" in told(JOBS, "--queue", "orders", "--concurrency", "0")
    (tmp_path / "allswell.toml").write_text("[worker]\nvisibility_timeout = 20\n")
    assert "statement_timeout (25000ms) must be less than visibility_timeout (20s = 20000ms)" in told(
        JOBS, "--queue", "orders"
    )
    (tmp_path / "allswell.toml").unlink()
    gone = run("worker", JOBS, "--queue", "x", cwd=tmp_path, ALLSWELL_STORE="postgresql://nobody@127.0.0.1:1/x")
    assert gone.code == 75


@pytest.mark.row("W6")
def test_a_supervised_worker_from_start_to_stop(pg_url: str, tmp_path: Path) -> None:
    """Ready, handling, one process killed and replaced, shown everywhere, stopped; systemd and HTTP hear of it."""
    setup(pg_url, "orders")
    with psycopg.connect(pg_url) as connection:
        connection.execute("CREATE TABLE effect (number int, process int)")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(patience.SECONDS)
        words = ("worker", JOBS, "--queue", "orders", "--processes", "2", "--health-port", "0", "--json")
        more = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "ALLSWELL_STORE": pg_url, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            [sys.executable, "-m", "allswell", *words],
            cwd=tmp_path,
            env=environment(**more),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        try:
            first = process.stdout.readline()
            assert check("worker", first) == "Said"
            port = int(json.loads(first)["said"].rpartition(":")[2].partition("/")[0])
            _until_said(systemd, b"READY=1")
            assert _asked(port, "readyz")[0] == 200
            _handle(pg_url, range(20))
            lines = [Path(f"/proc/{one['pid']}/cmdline").read_bytes() for one in _asked(port, "healthz")[1]["workers"]]
            assert all(b"allswell.worker.process" in line and b"postgresql" not in line for line in lines), "ps is open"
            victim = _asked(port, "healthz")[1]["workers"][0]["pid"]
            os.kill(victim, signal.SIGKILL)
            until(lambda: _asked(port, "readyz")[0] == 503, "one process is missing")
            until(lambda: _asked(port, "readyz")[0] == 200, "it was replaced")
            assert victim not in [one["pid"] for one in _asked(port, "healthz")[1]["workers"]]
            _handle(pg_url, range(20, 30))
            _shown(pg_url, tmp_path, port)
            _until_said(systemd, b"WATCHDOG=1")
            process.send_signal(signal.SIGTERM)
            assert process.wait(patience.SECONDS) == 0
            _until_said(systemd, b"STOPPING=1")
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def _handle(url: str, numbers: range) -> None:
    with psycopg.connect(url) as connection:
        for number in numbers:
            send(connection, "orders", "work", {"number": number})
    with psycopg.connect(url, autocommit=True) as connection:
        expected = [(number,) for number in range(numbers.stop)]
        query = b"SELECT number FROM effect ORDER BY number"
        until(lambda: connection.execute(query).fetchall() == expected, "all are handled once")


def _shown(url: str, folder: Path, port: int) -> None:
    processes = sorted(str(one["pid"]) for one in _asked(port, "healthz")[1]["workers"])

    def status() -> dict[str, object]:
        ran = run("worker", "status", "--json", cwd=folder, ALLSWELL_STORE=url)
        assert check("worker status", ran.out) == "Queues"
        (queue,) = json.loads(ran.out)["queues"]
        return dict(queue)

    until(lambda: status()["visible"] == 0, "nothing waits")
    assert "Queue orders: 0 waiting; " in run(cwd=folder, ALLSWELL_STORE=url).out
    shown = run("worker", "status", cwd=folder, ALLSWELL_STORE=url).out.splitlines()
    assert {"QUEUE", "orders", "PROCESS", *processes} <= {line.split()[0] for line in shown if line}
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    assert (
        '# TYPE allswell_worker_handled_total counter\nallswell_worker_handled_total{queue="orders",process="' in text
    )
    assert _asked(port, "elsewhere")[0] == 404


def _asked(port: int, path: str) -> tuple[int, dict[str, list[dict[str, int]]]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, {}


def _until_said(systemd: socket.socket, words: bytes) -> None:
    while words not in systemd.recv(4_096):
        pass


@pytest.mark.row("W6")
def test_an_interpreter_that_is_held_is_seen_from_outside_and_its_stack_is_written(
    pg_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(supervisor, "SILENCE", 2.5)
    setup(pg_url, "orders")
    plan = WorkerPlan(pg_url, "orders", Layers(900, 1, 5.0, 1.0, 2))
    child = ChildProcess(ProcessOrder(JOBS, str(ROOT), plan))

    def seen(condition: Callable[[], object]) -> bool:
        child.hear()
        return bool(condition())

    try:
        until(lambda: seen(lambda: child.status is not None and child.status.ready), "it works")
        assert not child.hangs()
        with psycopg.connect(pg_url) as connection:
            send(connection, "orders", "hold")
        until(lambda: seen(child.hangs), "it is seen to hang")
        assert "has said nothing for" in child.hangs()
    finally:
        child.abort()
        child.close()
    assert child.process.returncode == -signal.SIGABRT
    assert "in hold_the_interpreter" in capfd.readouterr().err


@pytest.mark.row("W6")
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on PATH")
def test_the_unit_file_is_sound(tmp_path: Path) -> None:
    unit = ROOT / "deploy" / "allswell-worker.service"
    command = ["systemd-analyze", "verify", str(unit)]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "HOME": str(tmp_path)}
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    text = unit.read_text(encoding="utf-8")
    assert "Type=notify" in text
    assert "WatchdogSec=" in text


@pytest.mark.row("W6")
def test_a_pause_of_all_processes_at_once_ends_none_of_them(pg_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container that was stopped, a machine that slept: the supervising process did not look meanwhile either."""
    setup(pg_url, "orders")
    order = ProcessOrder(JOBS, str(ROOT), WorkerPlan(pg_url, "orders", Layers()))
    told: list[str] = []
    processes = supervisor.WorkerProcesses(order, 1, ServiceNotice({}), told.append)
    slept = [0.0]
    monkeypatch.setattr(
        supervisor, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + slept[0], time=time.time)
    )

    def ready() -> bool:
        assert processes._look() == 0
        return all(one.ready for one in processes.statuses())

    try:
        until(ready, "it is ready")
        (pid,) = [one.pid for one in processes.statuses()]
        slept[0] = 3_600.0
        for _ in range(2):
            assert processes._look() == 0
        assert [one.pid for one in processes.statuses()] == [pid], told
        slept[0] += 0.9
        until(ready, "it still is")
    finally:
        processes._end()
