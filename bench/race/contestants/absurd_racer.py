"""Absurd: several of its workers as threads, each with a connection of its own, claiming `batch` tasks at a time."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
from absurd_sdk import Absurd, TaskContext
from finished import execute
from protocol import Contestant, serve

CHUNK = 1_000


class Racer(Contestant):
    """One connection for what is asked, one for each worker."""

    def __init__(self, place: str, settings: dict) -> None:
        super().__init__(place, settings)
        self._connection = psycopg.connect(place, autocommit=True)
        self._app = Absurd(self._connection)
        self._held = []

    def setup(self) -> None:
        """Its schema and one queue."""
        init = [Path(sys.executable).parent / "absurdctl", "init", "-d", self.place]
        subprocess.run(init, check=True, capture_output=True)
        self._app.create_queue()

    def enqueue(self, count: int) -> None:
        """Spawned one by one, 1,000 in a transaction."""
        for first in range(0, count, CHUNK):
            with self._connection.transaction():
                for _ in range(min(CHUNK, count - first)):
                    self._app.spawn("noop", {}, queue="default")

    def _worker(self) -> Absurd:
        app = Absurd(psycopg.connect(self.place, autocommit=True))

        @app.register_task(name="noop")
        def noop(params: dict, context: TaskContext) -> None:
            pass

        @app.register_task(name="stamped")
        def stamped(params: dict, context: TaskContext) -> None:  # noqa: ARG001
            self.picked(params["sent"])

        return app

    def drain(self) -> float:
        """Its workers, until no run is open; the last run says when it was done."""
        workers = [self._worker() for _ in range(self.settings["workers"])]
        options = {"batch_size": self.settings["batch"], "poll_interval": 0.01}
        threads = [threading.Thread(target=worker.start_worker, kwargs=options) for worker in workers]
        for thread in threads:
            thread.start()
        left = "SELECT EXISTS (SELECT FROM absurd.r_default WHERE state IN ('pending', 'running', 'sleeping'))"
        while self._connection.execute(left).fetchone()[0]:
            time.sleep(0.05)
        for worker in workers:
            worker.stop_worker()
        for thread in threads:
            thread.join()
        query = "SELECT extract(epoch FROM max(completed_at))::float FROM absurd.r_default"
        return self._connection.execute(query).fetchone()[0]

    def stamp(self) -> None:
        """One task."""
        self._app.spawn("stamped", {"sent": time.time()}, queue="default")

    def watch(self) -> None:
        """Its worker, which polls: every 250 ms unless it is told otherwise."""
        self._worker().start_worker(poll_interval=self.settings["poll"])

    def hold(self, count: int) -> None:
        """Runs claimed and kept."""
        self.enqueue(count)
        self._held = [task["run_id"] for task in self._app.claim_tasks(batch_size=count, claim_timeout=600)]

    def beat(self) -> int:
        """extend_claim, one by one: what the context's heartbeat() sends."""
        for run in self._held[:200]:
            self._connection.execute("SELECT absurd.extend_claim(%s, %s, %s)", ("default", run, 600))
        return len(self._held[:200])

    def fill(self, count: int) -> None:
        """Tasks and their runs."""
        execute(self.place, "absurd", count)


if __name__ == "__main__":
    serve(Racer)
