"""A server goes away while an agent works elsewhere: what ended well is told when it is back, and not done again."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from allswell import make_watch
from allswell.app import store_for
from allswell.domain.task.model import Attempt
from tests.interfaces.http.served import make_keys, started
from tests.patience import SECONDS

SCRIPT = "touch ready; while [ ! -e go ]; do sleep 0.02; done; echo $ALLSWELL_ATTEMPT >> made"


def until(reached: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.02)


async def attempts(store: str, task: str) -> list[Attempt]:
    async with make_watch(store_for(store)) as watch:
        return await watch.attempts(task)


async def submitted(store: str) -> str:
    async with make_watch(store_for(store)) as watch:
        return await watch.submit("mend")


@pytest.mark.row("O10")
def test_a_worker_over_the_network_tells_when_its_server_is_back(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "allswell.toml").write_text("[pace]\nstore_patience = '500ms'\n")
    store = f"sqlite:///{tmp_path}/.allswell/allswell.db"
    key = asyncio.run(make_keys(store))["admin"]
    task = asyncio.run(submitted(store))
    log = elsewhere / "said"
    with started(tmp_path, store, "--listen", "127.0.0.1:0") as (server, url):
        words = [sys.executable, "-m", "allswell", "work", "--drain", "--store", url, "--", "sh", "-c", SCRIPT]
        env = {**os.environ, "ALLSWELL_KEY": key}
        with log.open("wb") as out, subprocess.Popen(words, cwd=elsewhere, env=env, stdout=out, stderr=out) as work:
            try:
                until((elsewhere / "ready").exists)
                server.send_signal(signal.SIGKILL)
                server.wait()
                (elsewhere / "go").touch()
                until(lambda: "the store does not answer; how work:worker ended “mend” is kept" in log.read_text())
                with started(tmp_path, store, "--listen", url.removeprefix("http://")):
                    assert work.wait(SECONDS) == 0, log.read_text()
            finally:
                work.kill()
    assert [one.outcome for one in asyncio.run(attempts(store, task))] == ["done"], log.read_text()
    assert (elsewhere / "made").read_text() == "1\n", "it was done twice"
