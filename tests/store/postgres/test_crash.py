"""A server killed under load, again and again: what was acknowledged is there, what was denied is not."""

from __future__ import annotations

import asyncio
import itertools

from allswell.domain.ids import TaskId
from allswell.domain.task.model import TaskFilter
from allswell.errors import Unavailable
from allswell.store.port import CommitUnknown, RowChanges, Transaction
from allswell.testing.postgres import Cluster
from tests.store.postgres.scene import opened, task

WRITERS, KILLS, BETWEEN = 6, 4, 60


def test_every_answer_about_a_commit_is_true_when_the_server_is_killed_under_load() -> None:
    done: list[str] = []
    denied: list[str] = []
    settled: list[bool] = []
    over, ready = asyncio.Event(), asyncio.Barrier(WRITERS + 1)
    numbers = itertools.count()

    with Cluster() as cluster:
        url = cluster.create_database()

        async def write_on(writer: int) -> None:
            async with opened(url) as store:
                await ready.wait()  # no server is killed while a store is still being opened
                while not over.is_set():
                    id_ = TaskId(f"t_{writer}_{next(numbers):06d}")

                    async def work(tx: Transaction, id_: TaskId = id_) -> None:
                        await tx.write(RowChanges(new_tasks=[(task(id_), "null")]))

                    try:
                        await store.transact(work)
                        there = True
                    except CommitUnknown as unknown:
                        there = await store.outcome(unknown.ticket)
                        settled.append(there)
                    except Unavailable:
                        there = False
                    (done if there else denied).append(id_)

        async def kill_on() -> None:
            await ready.wait()
            for round_ in range(1, KILLS + 1):
                while len(done) < round_ * BETWEEN:
                    await asyncio.sleep(0)
                await asyncio.to_thread(cluster.kill)
                await asyncio.to_thread(cluster.start)
            while len(done) < (KILLS + 1) * BETWEEN:
                await asyncio.sleep(0)
            over.set()

        async def main() -> set[str]:
            await asyncio.gather(kill_on(), *map(write_on, range(WRITERS)))
            async with opened(url) as store:
                return {row.task.id for row in await store.view_tasks(TaskFilter(limit=1_000_000))}

        there = asyncio.run(main())
    assert set(done) == there
    assert not there & set(denied)
    assert settled, "no kill hit a commit: the proof is empty"
