"""Procrastinate: stalled jobs are found and retried by the application; finishing goes by the job's id alone."""

import asyncio
import sys

from procrastinate import App, PsycopgConnector
from procrastinate.jobs import Status
from procrastinate.utils import utcnow
from story import ACCEPTED, REFUSED, Story


async def main(url: str) -> None:
    """Tell the story on a fresh database."""
    story = Story("no worker heartbeat for 1 s, then retry_job() as the documentation shows")
    app = App(connector=PsycopgConnector(conninfo=url))

    @app.task(name="noop")
    async def noop() -> None:
        pass

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await noop.defer_async()
        jobs = app.job_manager
        first, second = await jobs.register_worker(), await jobs.register_worker()
        held = await jobs.fetch_job(queues=None, worker_id=first)
        story.say("A", "job_manager.fetch_job(worker_id=1)", f"job {held.id}")
        await asyncio.sleep(1.2)
        await jobs.update_heartbeat(second)
        stalled = list(await jobs.get_stalled_jobs(seconds_since_heartbeat=1))
        story.say("-", "job_manager.get_stalled_jobs(seconds_since_heartbeat=1)", [f"job {job.id}" for job in stalled])
        await jobs.retry_job(stalled[0], retry_at=utcnow())
        again = await jobs.fetch_job(queues=None, worker_id=second)
        story.say("B", "job_manager.fetch_job(worker_id=2)", f"job {again.id}")
        assert held.id == again.id
        answer = await jobs.finish_job(held, status=Status.SUCCEEDED, delete_job=False)
        story.say("A", "job_manager.finish_job(job, SUCCEEDED)", answer)
        status = await jobs.get_job_status_async(job_id=held.id)
        try:
            answer = await jobs.finish_job(again, status=Status.FAILED, delete_job=False)
        except Exception as error:  # noqa: BLE001 - whatever it says is the finding
            answer = error.__cause__ or error
        story.say("B", "job_manager.finish_job(job, FAILED)", answer)
        accepted = status == Status.SUCCEEDED
        story.end(
            ACCEPTED if accepted else REFUSED, f"after A's call the job is {status.value}; B, the holder, is refused"
        )


asyncio.run(main(sys.argv[1]))
