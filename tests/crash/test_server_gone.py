"""Losing the server pauses work and goes on when it is back; nothing is lost, nothing is done twice."""

import asyncio
from collections import Counter

import pytest

import allswell
from allswell.engine.timings import Timings
from allswell.testing.postgres import Cluster


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_work_goes_on_when_the_server_is_back(how: str) -> None:
    """Promise 10: callers wait through an outage and get their answers; unknown commits are settled."""

    async def worker(watch: allswell.Watch, name: str, acknowledged: Counter[str], done: asyncio.Event) -> None:
        while not done.is_set():
            task = await watch.submit(name)
            lease = await watch.claim(agent=name, roles=[""])
            if lease is not None:
                await lease.complete(name)
                acknowledged[lease.task] += 1
            acknowledged[task] += 0

    async def scene(cluster: Cluster) -> None:
        acknowledged: Counter[str] = Counter()
        done = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with allswell.open(cluster.create_database()) as watch:
            workers = [asyncio.create_task(worker(watch, f"w{n}", acknowledged, done)) for n in range(8)]
            for _ in range(3):
                before = sum(acknowledged.values())
                while sum(acknowledged.values()) < before + 40:
                    await asyncio.sleep(0.02)
                    assert not any(task.done() for task in workers)
                if how == "restart":
                    await loop.run_in_executor(None, cluster.restart, "fast")
                else:
                    await loop.run_in_executor(None, cluster.kill)
                    await loop.run_in_executor(None, cluster.start)
            before = sum(acknowledged.values())
            while sum(acknowledged.values()) < before + 40:
                await asyncio.sleep(0.02)
            done.set()
            await asyncio.gather(*workers)
            assert max(acknowledged.values()) == 1
            for task, count in acknowledged.items():
                row = await watch.task(task)
                assert row is not None, f"{task} was acknowledged and is lost"
                assert count == 0 or row.task.state == "done"
            completed = Counter([e.event.task async for e in watch.events() if e.event.kind == "task_completed"])
            assert max(completed.values()) == 1
            assert await watch.unaccounted() == []

    with Cluster() as cluster:
        asyncio.run(scene(cluster))


@pytest.mark.realtime
def test_a_caller_whose_patience_ends_is_told_so() -> None:
    """A server that stays away is `Unavailable` with the name of the bound, not a hang."""

    async def scene(cluster: Cluster) -> None:
        async with allswell.open(cluster.create_database(), pace=Timings(store_patience=1.5)) as watch:
            await watch.submit("before")
            cluster.kill()
            with pytest.raises(allswell.Unavailable, match="store_patience"):
                await watch.submit("into the void")
            cluster.start()
            await watch.submit("after")
            assert {row.task.name for row in await watch.tasks()} >= {"before", "after"}

    with Cluster() as cluster:
        asyncio.run(scene(cluster))
