"""Celery: soft and hard time limits, a pool of one process; what it notices stands in its worker's log."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import stage
from celery import Celery

url = os.environ.get("HANG_BROKER") or sys.argv[1]
SETTING = "soft_time_limit=1, time_limit=2 (prefork pool, -c 1)"
app = Celery("hang", broker=url)
app.conf.update(
    task_ignore_result=True,
    task_soft_time_limit=int(stage.LIMIT),
    task_time_limit=int(stage.LIMIT + stage.GRACE),
    broker_connection_retry_on_startup=True,
    task_default_queue=os.environ["HANG_NOTES"],  # one broker for all cases
)


@app.task(name="hang")
def hang(case: str) -> None:
    """Work that hangs; its tasks are sync, so async code has a loop of its own."""
    stage.hanging_sync(case)


@app.task(name="follow")
def follow() -> None:
    """The next one."""
    stage.following()


def read_log(worker: subprocess.Popen) -> None:
    """Note what the worker says."""
    for line in worker.stderr:
        if "ready." in line:
            stage.note("worker is ready")
        if "time limit" in line.lower() or "TimeLimitExceeded" in line:
            stage.note("noticed")


def main(case: str) -> None:
    """One worker with one process."""
    celery = [sys.executable, "-m", "celery", "-A", "celery_hang", "worker", "-c", "1", "-P", "prefork", "-l", "INFO"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    worker = subprocess.Popen(
        [*celery, *quiet],
        cwd=Path(__file__).parent,
        env={**os.environ, "HANG_BROKER": url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    threading.Thread(target=read_log, args=(worker,), daemon=True).start()
    stage.awaited("worker is ready")
    time.sleep(0.2)
    stage.ready()
    hang.delay(case)
    follow.delay()
    stage.tell(SETTING)


if __name__ == "__main__":
    main(sys.argv[2])
