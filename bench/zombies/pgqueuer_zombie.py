"""PgQueuer: a job whose heartbeat is stale is given to the next worker; completion goes by the job's id alone."""

import asyncio
import sys
from datetime import timedelta
from uuid import uuid4

import asyncpg
from pgqueuer.db import AsyncpgDriver
from pgqueuer.ports.repository import EntrypointExecutionParameter
from pgqueuer.queries import Queries
from story import ACCEPTED, REFUSED, Story

LAPSE = timedelta(seconds=1)


async def main(url: str) -> None:
    """Tell the story on a fresh database."""
    story = Story("heartbeat_timeout of 1 s without a heartbeat")
    queries = Queries(AsyncpgDriver(await asyncpg.connect(url)))
    await queries.install()
    await queries.enqueue("noop", None)

    async def dequeue(who: str) -> list:
        jobs = await queries.dequeue(
            batch_size=1,
            entrypoints={"noop": EntrypointExecutionParameter(concurrency_limit=0)},
            queue_manager_id=uuid4(),
            global_concurrency_limit=None,
            heartbeat_timeout=LAPSE,
        )
        story.say(who, "queries.dequeue(heartbeat_timeout=1 s)", [f"job {job.id}" for job in jobs])
        return jobs

    (held,) = await dequeue("A")
    await asyncio.sleep(1.2)
    (again,) = await dequeue("B")
    assert held.id == again.id
    answer = await queries.log_jobs([(held, "successful", None)])
    story.say("A", "queries.log_jobs([(job, 'successful', None)])", answer)
    [(_, status)] = await queries.job_status([held.id])
    left = await queries.queue_size()
    story.say(
        "B", "queries.log_jobs([(job, 'successful', None)])", await queries.log_jobs([(again, "successful", None)])
    )
    gone = status == "successful" and not left
    story.end(ACCEPTED if gone else REFUSED, f"after A's call the job is {status} and B's is gone from the queue")


asyncio.run(main(sys.argv[1]))
