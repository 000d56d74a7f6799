"""kill -9 in the middle of the work: what was acknowledged is there, once, and readable."""

import asyncio
import os
import random
from collections import Counter

import pytest

import allswell
from tests.crash.conftest import Start

KILLS = int(os.environ.get("ALLSWELL_KILLS", "10"))


@pytest.mark.timeout(600)
def test_acknowledged_work_survives_kill_9(url: str, start: Start) -> None:
    """Promise 1 and 3: acknowledged and lost 0, completed twice 0, unreadable 0, unaccounted 0."""
    chance = random.Random(7)
    submitted: list[str] = []
    completed: Counter[str] = Counter()
    for life in range(KILLS):
        process = start("race", url, f"life{life}")
        assert process.stdout is not None
        for _ in range(chance.randrange(20, 300)):
            _note(process.stdout.readline(), submitted, completed)
        process.kill()
        for line in process.communicate()[0].splitlines(keepends=True):
            _note(line, submitted, completed)
    assert len(submitted) > KILLS * 5
    assert sum(completed.values()) > KILLS * 5
    asyncio.run(_check(url, submitted, completed))


def _note(line: str, submitted: list[str], completed: Counter[str]) -> None:
    if not line.endswith("\n"):
        return  # torn by the kill: it was never said
    match line.split():
        case ["submitted", task]:
            submitted.append(task)
        case ["completed", task, _]:
            completed[task] += 1
        case _:
            pass


async def _check(url: str, submitted: list[str], completed: Counter[str]) -> None:
    async with allswell.open(url) as watch:
        assert await watch.unaccounted() == []
        for task in submitted:
            row = await watch.task(task)
            assert row is not None, f"{task} was acknowledged and is lost"
        for task, count in completed.items():
            row = await watch.task(task)
            assert count == 1
            assert row is not None
            assert row.task.state == "done", f"{task} was acknowledged as done and is {row.task.state}"
            done = [attempt for attempt in await watch.attempts(task) if attempt.outcome == "done"]
            assert len(done) == 1
            assert await watch.result(task) == {"token": done[0].token}
        # What the dead processes still held comes back within its lease, and everything can be finished.
        while (counts := await watch.counts()).keys() - {"done"}:
            lease = await watch.claim(agent="after", wait="10s")
            assert lease is not None, counts
            await lease.complete({"token": lease.token})
        events = [entry.event async for entry in watch.events()]
        ended = Counter(event.task for event in events if event.kind == "task_completed")
        assert max(ended.values()) == 1
        assert len(ended) == counts["done"]
