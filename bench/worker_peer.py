"""`reliable-cmd` with handlers that do nothing, in its own environment: `bench/worker.py` runs it.

    worker_peer.py URL MESSAGES CONCURRENCY sync|async

The database has a PGMQ that it can read (before 1.10). Prints messages per second, from the first to the last.
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import time
import uuid
from importlib.resources import files

from commandbus import CommandBus, HandlerRegistry, Worker
from commandbus.models import SendRequest
from commandbus.sync import SyncWorker
from psycopg_pool import AsyncConnectionPool, ConnectionPool

DOMAIN = "bench"
ended: list[float] = []


async def fill(url: str, messages: int) -> None:
    """Put the commands into its queue."""
    async with AsyncConnectionPool(url, min_size=2, open=False) as pool:
        async with pool.connection() as connection:
            for file in sorted(files("commandbus.migrations").iterdir(), key=lambda one: one.name):
                if file.name.endswith(".sql"):  # PGMQ is there as SQL, not as the extension that it asks for
                    schema = re.sub(r"(?i)CREATE EXTENSION[^;]*;", "", file.read_text(encoding="utf-8"))
                    await connection.execute(schema.encode())
            await connection.execute(f"SELECT pgmq.create('{DOMAIN}__commands')")
        requests = [SendRequest(DOMAIN, "Nothing", uuid.uuid4(), {}) for _ in range(messages)]
        await CommandBus(pool).send_batch(requests)


async def run_async(url: str, messages: int, concurrency: int) -> None:
    """Its async worker."""
    registry = HandlerRegistry()

    async def nothing(_command: object, _context: object) -> None:
        ended.append(time.monotonic())

    registry.register(DOMAIN, "Nothing", nothing)
    async with AsyncConnectionPool(url, min_size=concurrency, max_size=2 * concurrency, open=False) as pool:
        worker = Worker(pool, DOMAIN, registry)
        running = asyncio.create_task(worker.run(concurrency=concurrency))
        while len(ended) < messages:  # noqa: ASYNC110 - as the other one waits, which has no loop
            await asyncio.sleep(0.01)
        await worker.stop(timeout=5)
        running.cancel()


def run_sync(url: str, messages: int, concurrency: int) -> None:
    """Its worker with threads."""
    registry = HandlerRegistry()

    def nothing(_command: object, _context: object) -> None:
        ended.append(time.monotonic())

    registry.register_sync(DOMAIN, "Nothing", nothing)
    with ConnectionPool(url, min_size=concurrency, max_size=2 * concurrency) as pool:
        worker = SyncWorker(pool, DOMAIN, registry)
        threading.Thread(target=worker.run, kwargs={"concurrency": concurrency}, daemon=True).start()
        while len(ended) < messages:
            time.sleep(0.01)
        worker.stop(timeout=5)


if __name__ == "__main__":
    where, count, slots, kind = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    asyncio.run(fill(where, count))
    if kind == "async":
        asyncio.run(run_async(where, count, slots))
    else:
        run_sync(where, count, slots)
    print(len(ended) / (ended[-1] - ended[0]))
