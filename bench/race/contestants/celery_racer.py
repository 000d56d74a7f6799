"""Celery on Redis with its own worker: a pool of processes, a large prefetch, results and events off.

The worker is a process of its own, which begins to consume when the draining begins.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import redis
from celery import Celery
from protocol import Contestant, serve

place = os.environ.get("RACE_REDIS", sys.argv[1])
app = Celery("race", broker=f"redis+socket://{place}")
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    worker_prefetch_multiplier=128,
    worker_send_task_events=False,
    task_default_queue="race",
)


@app.task(name="noop")
def noop() -> None:
    """Nothing."""


@app.task(name="stamped")
def stamped(sent: float) -> None:
    """Leave how long it took where the contestant finds it."""
    redis.Redis(unix_socket_path=place).rpush("picked", repr(time.time() - sent))


class Racer(Contestant):
    """A producer, and a worker once it is needed."""

    def __init__(self, at: str, settings: dict) -> None:
        super().__init__(at, settings)
        self._redis = redis.Redis(unix_socket_path=at)
        self._worker = None

    def _start(self, queue: str) -> None:
        celery = [sys.executable, "-m", "celery", "-A", "celery_racer", "worker", "-Q", queue, "-l", "CRITICAL"]
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-c", str(self.settings["processes"])]
        environment = {**os.environ, "RACE_REDIS": self.place}
        here = Path(__file__).parent
        self._worker = subprocess.Popen([*celery, *quiet], cwd=here, env=environment, stdout=subprocess.DEVNULL)
        while not app.control.ping(timeout=0.2):
            time.sleep(0.05)

    def enqueue(self, count: int) -> None:
        """One by one over one connection."""
        with app.producer_pool.acquire(block=True) as producer:
            for _ in range(count):
                noop.apply_async(producer=producer)

    def prepare(self) -> None:
        """A worker that consumes nothing yet."""
        self._start("nothing")

    def drain(self) -> float:
        """Until nothing is queued or unacknowledged."""
        app.control.add_consumer("race")
        while self._redis.llen("race") or self._redis.hlen("unacked"):
            time.sleep(0.002)
        ended = time.time()
        app.control.cancel_consumer("race")
        time.sleep(0.2)
        return ended

    def stamp(self) -> None:
        """One message."""
        stamped.apply_async((time.time(),), queue="stamped")

    def watch(self) -> None:
        """Its worker."""
        self._start("stamped")
        while True:
            _, took = self._redis.blpop("picked")
            self.picked(time.time() - float(took))

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.terminate()
            self._worker.wait(20)


if __name__ == "__main__":
    serve(Racer)
