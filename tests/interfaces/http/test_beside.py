"""`allswell up --serve`: a server beside the fleet, in a process of its own, and neither is in the other's way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interfaces.http.served import Served, make_keys

SECONDS = 20


def until(there: Callable[[], bool]) -> None:
    """What other processes do can only be polled for."""
    ends = time.monotonic() + SECONDS
    while not there():
        assert time.monotonic() < ends
        time.sleep(0.02)


@contextlib.contextmanager
def up(folder: Path, place: str) -> Iterator[tuple[Served, Callable[[], int]]]:
    """A fleet that is served, and the id of the server's process."""
    (folder / "allswell.toml").write_text('[agents.shell]\ncommand = ["sh", "-c", "true", "{name}"]\n')
    store = f"sqlite:///{folder}/.allswell/allswell.db"
    keys = asyncio.run(make_keys(store))
    said = folder / "said.txt"
    env = {name: value for name, value in os.environ.items() if not name.startswith("ALLSWELL_")}
    command = [sys.executable, "-m", "allswell", "up", f"--serve={place}"]
    with said.open("w") as out, subprocess.Popen(command, cwd=folder, env=env, stdout=out, text=True) as process:
        try:
            until(lambda: "serving" in said.read_text())
            url = re.search(r"serving\s+(\S+);", said.read_text())
            assert url is not None
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

            def server() -> int:
                for child in children.read_text().split():
                    if b"allswell.interfaces.http.sidecar" in Path(f"/proc/{child}/cmdline").read_bytes():
                        return int(child)
                return 0

            yield Served(store, url[1], keys, process), server
        finally:
            process.kill()


@pytest.mark.realtime
def test_a_server_beside_the_fleet(tmp_path: Path) -> None:
    """A frozen server holds up no task; a killed one is back, and who called meanwhile is answered; no orphan stays.

    One that is back has the settings that the fleet began with, whatever was written into the file since.
    """
    with up(tmp_path, "127.0.0.1:0") as (served, server):
        first = server()
        os.kill(first, signal.SIGSTOP)
        made = subprocess.run(
            [sys.executable, "-m", "allswell", "submit", "work", "--store", served.store],
            capture_output=True,
            text=True,
            check=True,
            timeout=SECONDS,
        )
        task = made.stdout.split()[0]

        def state() -> str:
            shown = [sys.executable, "-m", "allswell", "show", task, "--store", served.store]
            return subprocess.run(shown, capture_output=True, text=True, check=True, timeout=SECONDS).stdout

        until(lambda: "done" in state())
        os.kill(first, signal.SIGCONT)
        assert served.ok("GET", f"/tasks/{task}")["task"]["state"] == "done"
        settings = served.ok("GET", "/config")
        with (tmp_path / "allswell.toml").open("a") as file:  # as an agent might, before it ends the server
            file.write('[roles.x]\nverify = ["evil"]\n')
        os.kill(first, signal.SIGKILL)
        assert served.ok("GET", f"/tasks/{task}")["task"]["state"] == "done"  # it waited in the socket's queue
        assert served.ok("GET", "/config") == settings, "what `up` read at its start is kept"
        second = server()
        assert second not in (0, first)
        served.process.kill()
        until(lambda: not Path(f"/proc/{second}").exists())


def test_it_stops_in_good_order_with_the_fleet(tmp_path: Path) -> None:
    """A unix socket is its user's alone, and gone afterwards; an open address is refused before anything runs."""
    place = tmp_path / "watch.sock"
    (tmp_path / "allswell.toml").write_text('[agents.shell]\ncommand = ["sh", "-c", "true", "{name}"]\n')
    command = [sys.executable, "-m", "allswell", "up", "--serve=0.0.0.0:0"]
    refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert refused.returncode == 2
    assert "run `allswell serve` beside it: it has --tls-cert" in refused.stderr
    with up(tmp_path, str(place)) as (served, server):
        assert place.stat().st_mode & 0o777 == 0o600
        child = server()
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(SECONDS) == 0
        assert not Path(f"/proc/{child}").exists()
    assert not place.exists()
