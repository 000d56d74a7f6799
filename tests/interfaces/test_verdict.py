"""One verdict on the watch: every door tells the same, and the command that each concern names mends it."""

from __future__ import annotations

import asyncio
import contextlib
import html
import json
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from allswell.app import make_watch, store_for
from allswell.engine.status.verdict import LocalFacts, VerdictItem, look
from allswell.timing.clock import SystemClock
from tests.interfaces.cli.upkeep import MINUTE, Ran, Shifted, environment, run, watch_at
from tests.interfaces.http.served import Served, serving
from tests.interfaces.web.visit import logged_in
from tests.patience import SECONDS

IDLE = '[agents.shell]\ncommand = ["sh", "-c", "exit 0", "{name}{prompt}"]\n'
ROOMY = {"ALLSWELL_DOCTOR_DISK_FREE": "1kB"}
"""The disk of the machine that tests is not what is tested."""


def until(holds: object, what: str) -> None:
    """Ask again until something holds, or say what did not come."""
    assert callable(holds)
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def typed(folder: Path, command: str, **env: str) -> Ran:
    """Type a command as it was printed."""
    words = shlex.split(command)
    assert words[0] == "allswell", command
    return run(*words[1:], cwd=folder, **{**ROOMY, **env})


@contextlib.contextmanager
def running(folder: Path, *words: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command that stays, such as `up`, in a process of its own."""
    command = [sys.executable, "-m", "allswell", *words]
    surroundings = environment(**{**ROOMY, **env})
    with (
        (folder / f"{words[0]}.log").open("ab") as log,
        subprocess.Popen(command, cwd=folder, env=surroundings, stdout=log, stderr=log) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)


def status(folder: Path, *words: str, **env: str) -> tuple[int, Any]:
    """What `allswell --json` says, with its exit code."""
    said = run("--json", *words, cwd=folder, **{**ROOMY, **env})
    assert said.err == "", said
    return said.code, json.loads(said.out)


def kinds(said: Mapping[str, Any], part: str = "needs") -> list[str]:
    listed = said[part]
    assert isinstance(listed, list)
    return [one["kind"] for one in listed]


def is_watched(folder: Path) -> bool:
    """Whether a supervisor is there."""
    seen = json.loads(run("agents", "--json", cwd=folder).out)
    return any(not one["gone"] for one in seen["supervisors"])


# --- a supervisor that dies -------------------------------------------------------------------------------------------


def test_a_killed_supervisor_is_told_at_once_and_up_mends_it(tmp_path: Path) -> None:
    (tmp_path / "allswell.toml").write_text(IDLE)
    with running(tmp_path, "up") as supervisor:
        until(lambda: (tmp_path / ".allswell/allswell.db").exists() and is_watched(tmp_path), "`up` did not start")
        assert status(tmp_path)[0] == 0
        supervisor.kill()
        supervisor.wait()
    for name in ("one", "two", "three"):
        assert run("submit", name, cwd=tmp_path).code == 0
    said = run(cwd=tmp_path, **ROOMY)
    assert said.code == 1
    assert "1 thing is broken." in said.out
    assert re.search(r"The supervisor main on \S+ has died", said.out)
    assert "\n    allswell up" in said.out
    checked = run("doctor", cwd=tmp_path, **ROOMY)
    assert (checked.code, "1 thing is broken." in checked.out) == (1, True), checked
    assert "1 thing is broken." in run("watch", "--once", cwd=tmp_path, **ROOMY).out
    code, seen = status(tmp_path)
    assert (code, seen["verdict"], kinds(seen)) == (1, "broken", ["supervisor"])
    mending = seen["needs"][0]["command"]
    assert mending == "allswell up"
    with running(tmp_path, *shlex.split(mending)[1:]):
        until(lambda: status(tmp_path)[1]["verdict"] == "well", "`allswell up` did not mend it")
        assert run("doctor", cwd=tmp_path, **ROOMY).code == 0


def test_with_a_held_task_a_dead_supervisor_is_what_is_to_be_started(tmp_path: Path) -> None:
    """Whatever is overdue then is overdue because it died: `watch` would sweep, and start no agent."""

    async def night() -> None:
        async with watch_at(tmp_path, 30 * MINUTE) as watch:
            await watch.submit("held", timeout="1m")
            assert await watch.claim(agent="shell") is not None
            now = await watch.now()
            word = {"name": "main", "marker": "m", "host": "ship", "pid": 1, "boot_id": "b", "pid_namespace": "n"}
            word |= {"pid_start": 1, "started_at": now, "beaten_at": now}
            word |= {"posts": [{"agent": "shell", "holder": "shell", "kind": "command"}]}
            assert await watch.swap("supervisor.main", None, json.dumps(word))

    asyncio.run(night())
    code, seen = status(tmp_path)
    assert (code, kinds(seen)) == (1, ["overdue", "supervisor"])
    assert {one["command"] for one in seen["needs"]} == {"allswell up"}


def test_settings_with_which_no_supervisor_starts_are_broken_at_every_screen(tmp_path: Path) -> None:
    assert run("submit", "one", cwd=tmp_path).code == 0
    (tmp_path / "allswell.toml").write_text('[agents.shell]\ncommand = ["sh", "-c", "exit 0"]\n')
    for words in ((), ("doctor",), ("watch", "--once"), ("agents",)):
        said = run(*words, cwd=tmp_path, COLUMNS="300", **ROOMY)
        assert said.code == (0 if words in (("watch", "--once"), ("agents",)) else 1), words
        for part in ("The settings have an error: ", "agents.shell.command: it contains neither {prompt}"):
            assert part in " ".join(said.out.split()), words
    code, seen = status(tmp_path)
    assert (code, kinds(seen), seen["needs"][0]["command"]) == (1, ["settings"], "allswell config")


def test_a_supervisor_that_cannot_write_is_not_to_be_started_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk it lives and is silent; another one could not write either."""

    class Full:
        f_bavail = 0
        f_frsize = 4_096

    async def seen() -> tuple[VerdictItem, ...]:
        async with watch_at(tmp_path, MINUTE) as watch:
            now = await watch.now()
            word = {"name": "main", "marker": "m", "host": "ship", "pid": 1, "boot_id": "b", "pid_namespace": "n"}
            assert await watch.swap(
                "supervisor.main", None, json.dumps({**word, "pid_start": 1, "started_at": now, "beaten_at": now})
            )
        async with watch_at(tmp_path) as watch:
            return (await look(watch.views, LocalFacts(folder=tmp_path))).needs

    monkeypatch.setattr("allswell.engine.status.verdict.os.statvfs", lambda _folder: Full)
    supervisor, disk = asyncio.run(seen())
    assert (supervisor.kind, disk.kind) == ("supervisor", "disk")
    assert supervisor.command == disk.command == f"df -h {tmp_path}"
    assert supervisor.what.endswith("ago: the disk is full")


# --- the same at every door -------------------------------------------------------------------------------------------


async def trouble(store: str) -> None:
    """A question, a failure, work that no agent takes, and an account that is parked; half an hour ago."""
    past = Shifted(-30 * MINUTE)
    clock = past if store.startswith("sqlite:") else SystemClock()
    place = store_for(store)
    if store.startswith("sqlite:"):
        from allswell.store.sqlite import SqliteStore

        place = SqliteStore(store.removeprefix("sqlite:///"), clock=clock)
    async with make_watch(place, clock=clock, sweeping=False) as watch:
        await watch.submit("asks", priority=9)
        lease = await watch.claim(agent="ada")
        assert lease is not None
        await lease.ask("Which of the two?")
        await watch.submit("breaks", priority=9, retries=0)
        lease = await watch.claim(agent="ada")
        assert lease is not None
        await lease.fail("no such table")
        await watch.submit_many([{"name": f"waits {number}", "role": "critic"} for number in range(9)])
        await watch.submit("translates", services=["anthropic"])
        await watch.park("anthropic", 2 * 60 * MINUTE)


def told_by(served: Served, folder: Path, *words: str, **env: str) -> dict[str, tuple[str, str]]:
    """What each door tells: its level, and its headline."""
    code, here = status(folder, *words, **env)
    checked = run("doctor", "--json", *words, cwd=folder, **{**ROOMY, **env})
    once = run("watch", "--once", "--json", *words, cwd=folder, **{**ROOMY, **env})
    board = json.loads(once.out)["status"]
    over_http = served.ok("GET", "/status")
    page = logged_in(served).get("/")
    title = re.search(r"<title[^>]*>([^<]*)", page.body.decode())
    assert title is not None
    metrics = served.call("GET", "/metrics").body.decode()
    level = re.findall(r'allswell_verdict\{level="(\w+)"\} 1\.0', metrics)
    assert code == checked.code == {"broken": 1, "needs_human": 3, "waiting": 0, "well": 0}[str(here["verdict"])]
    headline = str(here["headline"])
    return {
        "allswell": (str(here["verdict"]), headline),
        "doctor": (str(here["verdict"]), json.loads(checked.out)["headline"]),
        "watch": (board["verdict"], board["headline"]),
        "GET /status": (over_http["verdict"], over_http["headline"]),
        "page": (str(here["verdict"]), re.sub(r"^\(\d+\) | . Allswell.*$", "", html.unescape(title[1])).strip() + "."),
        "metrics": (level[0], headline),
    }


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "server"])
def test_every_door_tells_the_same(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    (tmp_path / ".allswell").mkdir(0o700)
    (tmp_path / "allswell.toml").write_text('[doctor]\ndisk_free = "1kB"\nunclaimed = "0s"\n')
    files = f"sqlite:///{tmp_path}/.allswell/allswell.db"
    store = str(request.getfixturevalue("pg_url")) if kind == "postgresql" else files
    asyncio.run(trouble(store))
    with serving(tmp_path, store=store) as served:
        words = ("--store", served.url if kind == "server" else store)
        env = {"ALLSWELL_KEY": served.keys["admin"]} if kind == "server" else {}
        told = told_by(served, tmp_path, *words, **env)
        assert set(told.values()) == {("broken", "1 thing is broken, 2 things need you.")}, told
        _, seen = status(tmp_path, *words, **env)
        over_http = served.ok("GET", "/status")
        for part in ("needs", "waiting"):
            mine, its = [
                [(one["kind"], one["about"], one["level"]) for one in said[part]] for said in (seen, over_http)
            ]
            assert mine == its
        assert kinds(seen, "waiting") == ["parked"]
