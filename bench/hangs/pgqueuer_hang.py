"""PgQueuer: no limit on a job's time; a job whose worker sends no heartbeat is picked again by another worker.

Two workers, each a process of its own: the first hangs with the job, the second waits for work.
"""

import asyncio
import subprocess
import sys
from datetime import timedelta

import asyncpg
import stage
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

url, case = sys.argv[1:3]
role = sys.argv[3] if len(sys.argv) > 3 else "B"
SETTING = "heartbeat_timeout=1s (there is no limit on a job's time)"


async def work() -> None:
    """One worker: A takes the job, B whatever comes back."""
    manager = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))

    @manager.entrypoint("case")
    async def work_on(_: Job) -> None:
        if role == "B":
            stage.note("noticed")
            stage.following()
        elif stage.is_sync(case):
            await asyncio.to_thread(stage.hanging_sync, case)  # as its documentation has it; it takes no sync functions
        else:
            await stage.hanging(case)

    asyncio.get_running_loop().call_later(0.5, stage.note, f"{role} is ready")
    await manager.run(
        dequeue_timeout=timedelta(seconds=0.2), batch_size=1, heartbeat_timeout=timedelta(seconds=stage.LIMIT)
    )


async def prepare() -> Queries:
    """Its tables."""
    queries = Queries(AsyncpgDriver(await asyncpg.connect(url)))
    await queries.install()
    return queries


async def tell_the_story() -> None:
    """A begins alone, so that it has the job."""
    queries = await prepare()
    await asyncio.to_thread(subprocess.Popen, [sys.executable, __file__, url, case, "A"])
    await asyncio.to_thread(stage.awaited, "A is ready")
    await asyncio.to_thread(stage.ready)
    await queries.enqueue("case", None)
    await asyncio.to_thread(stage.awaited, "began")
    await asyncio.gather(work(), asyncio.to_thread(stage.tell, SETTING))


if __name__ == "__main__":
    asyncio.run(work() if role == "A" else tell_the_story())
