"""kill -9 of whoever tells a sink, at any moment: every event is told, in order, and acted on once."""

import base64
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import allswell
from tests.support.fakes import Lose, WebhookReceiver

KILLS = int(os.environ.get("ALLSWELL_KILLS", "10")) // 4
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
EACH = 12


@pytest.mark.row("M4", "M9")
@pytest.mark.timeout(300)
def test_kill_9_loses_and_doubles_nothing(tmp_path: Path, url: str) -> None:
    chance = random.Random(11)
    environ = {**os.environ, "HOOK_SECRET": SECRET, "ALLSWELL_STORE": url, "ALLSWELL_PACE_FOLLOW_POLL": "20ms"}
    with WebhookReceiver(SECRET) as receiver:
        (tmp_path / "allswell.toml").write_text(
            f'[sinks.hook]\nkind = "webhook"\nurl = "{receiver.url}"\nsecret_env = "HOOK_SECRET"\n'
            'allow_private = true\nbegins = "start"\nhears = "task_submitted"\napart = "50ms"\n'
        )
        submitted: list[str] = []
        for life in range(KILLS + 1):
            names = [f"{life}.{number}" for number in range(EACH)]
            with allswell.open(url) as watch:
                watch.submit_many([{"name": name} for name in names])
            submitted += names
            last = life == KILLS
            teller = subprocess.Popen(
                [sys.executable, "-m", "allswell", "sinks", "run"], cwd=tmp_path, env=environ, stdout=subprocess.DEVNULL
            )
            try:
                if last:
                    receiver.wait_for_taken(len(submitted), 30)
                else:
                    if chance.random() < 0.5:
                        receiver.script(Lose())
                    receiver.wait_for(len(receiver.requests) + chance.randrange(1, EACH), 30)
                    time.sleep(chance.random() / 100)
            finally:
                teller.send_signal(signal.SIGINT if last else signal.SIGKILL)
                teller.wait(20)
        assert [taken["data"]["data"]["name"] for taken in receiver.taken.values()] == submitted
        assert len(receiver.repeated) <= KILLS * 2, "only what was under way when it was killed or lost comes again"
