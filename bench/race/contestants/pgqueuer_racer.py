"""PgQueuer on asyncpg and uvloop, with its own queue manager: `batch_size` jobs per dequeue and per log write."""

import asyncio
import time
from datetime import timedelta
from uuid import uuid4

import asyncpg
import uvloop
from finished import texts
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.ports.repository import EntrypointExecutionParameter
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode
from protocol import Contestant, serve

CHUNK = 1_000


class Racer(Contestant):
    """One connection for what is asked, one for each worker."""

    def __init__(self, place: str, settings: dict) -> None:
        super().__init__(place, settings)
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._queries = self._runner.run(self._connect())
        self._held = []

    async def _connect(self) -> Queries:
        return Queries(AsyncpgDriver(await asyncpg.connect(self.place)))

    def setup(self) -> None:
        """Its tables."""
        self._runner.run(self._queries.install())

    def enqueue(self, count: int) -> None:
        """Lists of 1,000."""

        async def work() -> None:
            for first in range(0, count, CHUNK):
                size = min(CHUNK, count - first)
                await self._queries.enqueue(["noop"] * size, [None] * size, [0] * size)

        self._runner.run(work())

    def drain(self) -> float:
        """Its drain mode; the last job's own log entry says when it was done."""

        async def work() -> float:
            manager = PgQueuer(AsyncpgDriver(await asyncpg.connect(self.place)))

            @manager.entrypoint("noop")
            async def noop(job: Job) -> None:
                pass

            await manager.run(batch_size=self.settings["batch"], mode=QueueExecutionMode.drain)
            query = "SELECT extract(epoch FROM max(created))::float AS at FROM pgqueuer_log WHERE status = 'successful'"
            [row] = await self._queries.driver.fetch(query)
            return row["at"] or 0.0  # another process may have done it all

        return self._runner.run(work())

    def stamp(self) -> None:
        """One job."""
        self._runner.run(self._queries.enqueue("stamped", repr(time.time()).encode()))

    def watch(self) -> None:
        """Its continuous mode: LISTEN, and a poll every 30 s."""

        async def work() -> None:
            manager = PgQueuer(AsyncpgDriver(await asyncpg.connect(self.place)))

            @manager.entrypoint("stamped")
            async def stamped(job: Job) -> None:
                self.picked(float(job.payload))

            await manager.run(batch_size=10)

        self._runner.run(work())

    def hold(self, count: int) -> None:
        """Jobs picked and kept."""
        self.enqueue(count)

        async def work() -> None:
            jobs = await self._queries.dequeue(
                batch_size=count,
                entrypoints={"noop": EntrypointExecutionParameter(concurrency_limit=0)},
                queue_manager_id=uuid4(),
                global_concurrency_limit=None,
                heartbeat_timeout=timedelta(minutes=10),
            )
            self._held = [job.id for job in jobs]

        self._runner.run(work())

    def beat(self) -> int:
        """100 at a time."""

        async def work() -> int:
            for first in range(0, len(self._held), 100):
                await self._queries.update_heartbeat(self._held[first : first + 100])
            return len(self._held)

        return self._runner.run(work())

    def fill(self, count: int) -> None:
        """Its log; the queue's own rows are deleted when a job is done."""

        async def work() -> None:
            for text in texts("pgqueuer", count):
                await self._queries.driver.execute(text)
            await self._queries.driver.execute("VACUUM (ANALYZE)")

        self._runner.run(work())


if __name__ == "__main__":
    serve(Racer)
