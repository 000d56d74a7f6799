"""A fleet over HTTP: workers with keys of their own that are killed, zombies that come late, a server that is killed.

Lost 0, twice 0: everything that was handed over is done, and done once, whoever died meanwhile. `make chaos` runs 200.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from allswell import Policy
from allswell.app import make_watch, store_for
from allswell.engine.access.keys import Keyring
from tests.interfaces.http.served import Served, started
from tests.patience import SECONDS

WORKERS = int(os.environ.get("ALLSWELL_HTTP_WORKERS", "8"))
TASKS = int(os.environ.get("ALLSWELL_HTTP_TASKS", str(WORKERS * 10)))
KILLS = int(os.environ.get("ALLSWELL_HTTP_KILLS", "1"))
PER_PROCESS = 20
WORKER = Path(__file__).parent / "fleet_worker.py"


async def prepared(store: str) -> dict[str, str]:
    async with make_watch(store_for(store)) as watch:
        keys = Keyring(watch)
        names = [f"w{number}" for number in range(WORKERS)]
        made = {name: (await keys.create(name, ["agent"], roles=["build"]))[1] for name in names}
        made["admin"] = (await keys.create("admin", ["admin"]))[1]
        # Whoever loses its holder three times is a human's business elsewhere; here holders are killed all the time.
        fields: dict[str, Any] = {"role": "build", "policy": Policy(timeout_escalation=1_000)}
        await watch.submit_many([{"name": f"n{number}", **fields} for number in range(TASKS)])
    return made


@pytest.mark.realtime
@pytest.mark.row("O4", "O9")
def test_a_fleet_over_http_loses_nothing_and_does_nothing_twice(tmp_path: Path) -> None:
    chance = random.Random(11)
    store = f"sqlite:///{tmp_path}/.allswell/allswell.db"
    keys = asyncio.run(prepared(store))
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    place = "127.0.0.1:0"
    workers: list[subprocess.Popen[bytes]] = []
    env = {name: value for name, value in os.environ.items() if not name.startswith("ALLSWELL_")}

    def work(url: str, names: list[str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(WORKER), url, str(tmp_path / "keys.json"), *names]
        return subprocess.Popen(command, cwd=tmp_path, env=env)

    groups = [
        [f"w{one}" for one in range(first, min(first + PER_PROCESS, WORKERS))]
        for first in range(0, WORKERS, PER_PROCESS)
    ]
    groups = groups if len(groups) > 1 else [groups[0][::2], groups[0][1::2]]
    try:
        for killed in range(KILLS + 1):
            with started(tmp_path, store, "--listen", place) as (process, url):
                place = url.removeprefix("http://")
                served = Served(store, url, keys, process, tmp_path)
                workers = workers or [work(url, group) for group in groups]
                target = TASKS * (killed + 1) // (KILLS + 2)
                while done(served) < (target if killed < KILLS else TASKS):
                    victim = chance.randrange(len(workers))
                    if killed < KILLS and chance.random() < 0.1:
                        workers[victim].kill()
                        workers[victim].wait(SECONDS)
                        workers[victim] = work(url, groups[victim])
                    time.sleep(0.1)
                if killed < KILLS:
                    process.send_signal(signal.SIGKILL)
                    process.wait(SECONDS)
    finally:
        for one in workers:
            one.kill()
            one.wait(SECONDS)
    told = asyncio.run(journal(store))
    completed = Counter(task for kind, task in told if kind == "task_completed")
    submitted = {task for kind, task in told if kind == "task_submitted"}
    assert len(submitted) == TASKS
    assert set(completed) == submitted  # nothing was lost
    assert set(completed.values()) == {1}  # nothing was done twice


def done(served: Served) -> int:
    return int(served.ok("GET", "/status")["counts"].get("done", 0))


async def journal(store: str) -> list[tuple[str, str]]:
    async with make_watch(store_for(store), sweeping=False) as watch:
        return [(entry.event.kind, str(entry.event.task)) async for entry in watch.events()]
