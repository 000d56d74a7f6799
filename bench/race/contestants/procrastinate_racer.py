"""Procrastinate on psycopg's pool and uvloop, with its own worker: `concurrency` jobs at once, fetched one by one."""

import asyncio
import logging
import time

import uvloop
from finished import execute
from procrastinate import App, PsycopgConnector
from protocol import Contestant, serve

CHUNK = 1_000
logging.disable(logging.WARNING)


class Racer(Contestant):
    """One app."""

    def __init__(self, place: str, settings: dict) -> None:
        super().__init__(place, settings)
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._app = app = App(connector=PsycopgConnector(conninfo=place, min_size=4, max_size=settings["pool"]))
        self._worker = 0

        @app.task(name="noop")
        async def noop() -> None:
            pass

        @app.task(name="stamped", queue="stamped")
        async def stamped(sent: float) -> None:
            self.picked(sent)

        self._noop, self._stamped = noop, stamped

        async def connect() -> None:
            await app.open_async()

        self._runner.run(connect())

    def setup(self) -> None:
        """Its tables."""
        self._runner.run(self._app.schema_manager.apply_schema_async())

    def enqueue(self, count: int) -> None:
        """batch_defer_async, 1,000 at a time."""

        async def work() -> None:
            for first in range(0, count, CHUNK):
                await self._noop.batch_defer_async(*([{}] * min(CHUNK, count - first)))

        self._runner.run(work())

    def drain(self) -> float:
        """Its worker with wait=False; the last job's own event says when it was done."""

        async def work() -> float:
            await self._app.run_worker_async(
                queues=["default"],
                wait=False,
                concurrency=self.settings["concurrency"],
                install_signal_handlers=False,
                listen_notify=False,
            )
            query = "SELECT extract(epoch FROM max(at))::float AS at FROM procrastinate_events WHERE type = 'succeeded'"
            return (await self._app.connector.execute_query_one_async(query))["at"] or 0.0

        return self._runner.run(work())

    def stamp(self) -> None:
        """One job."""
        self._runner.run(self._stamped.defer_async(sent=time.time()))

    def watch(self) -> None:
        """Its worker: LISTEN, and a poll every 5 s."""
        self._runner.run(self._app.run_worker_async(queues=["stamped"], install_signal_handlers=False))

    def hold(self, count: int) -> None:  # noqa: ARG002
        """A worker; its heartbeat stands for all its jobs."""
        self._worker = self._runner.run(self._app.job_manager.register_worker())

    def beat(self) -> int:
        """The worker's heartbeat, 100 times."""

        async def work() -> int:
            for _ in range(100):
                await self._app.job_manager.update_heartbeat(self._worker)
            return 100

        return self._runner.run(work())

    def fill(self, count: int) -> None:
        """Jobs and their events."""
        execute(self.place, "procrastinate", count)


if __name__ == "__main__":
    serve(Racer)
