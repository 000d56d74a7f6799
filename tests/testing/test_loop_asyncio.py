"""Asyncio works on the deterministic loop: locks, queues, timeouts and groups, in its own order and in drawn ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from allswell.testing.loop import run, running_loop

SEEDS = [None, 0, 1, 2, 3]


async def _timeout() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await asyncio.Event().wait()
    assert running_loop().time() == 2


async def _timeout_rescheduled() -> None:
    async with asyncio.timeout(2) as limit:
        limit.reschedule(running_loop().time() + 10)
        await asyncio.sleep(9)


async def _wait_for() -> None:
    assert await asyncio.wait_for(asyncio.sleep(1, "done"), 2) == "done"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.sleep(5), 2)
    assert running_loop().time() == 3


async def _event() -> None:
    event = asyncio.Event()
    waiters = [asyncio.create_task(event.wait()) for _ in range(5)]
    running_loop().call_later(3, event.set)
    assert await asyncio.gather(*waiters) == [True] * 5
    assert running_loop().time() == 3


async def _queue() -> None:
    queue = asyncio.Queue[int](maxsize=2)

    async def produce() -> None:
        for n in range(20):
            await queue.put(n)

    async def consume() -> list[int]:
        got = []
        for _ in range(20):
            got.append(await queue.get())
            queue.task_done()
        return got

    _, got = await asyncio.gather(produce(), consume())
    assert got == list(range(20))
    await queue.join()


async def _lock() -> None:
    lock, inside = asyncio.Lock(), 0

    async def member() -> None:
        nonlocal inside
        async with lock:
            inside += 1
            assert inside == 1
            await asyncio.sleep(1)
            inside -= 1

    await asyncio.gather(*(member() for _ in range(20)))
    assert running_loop().time() == 20


async def _semaphore_and_condition() -> None:
    limit, condition, ready = asyncio.Semaphore(3), asyncio.Condition(), 0

    async def member() -> None:
        nonlocal ready
        async with limit:
            await asyncio.sleep(1)
        async with condition:
            ready += 1
            condition.notify_all()

    async with condition:
        members = [asyncio.create_task(member()) for _ in range(9)]
        await condition.wait_for(lambda: ready == 9)
    await asyncio.gather(*members)
    assert running_loop().time() == 3


async def _gather_with_errors() -> None:
    async def fail() -> None:
        raise ValueError("child")

    result = await asyncio.gather(fail(), asyncio.sleep(1, 1), return_exceptions=True)
    assert [type(r) for r in result] == [ValueError, int]
    with pytest.raises(ValueError, match="child"):
        await asyncio.gather(fail(), asyncio.sleep(1))


async def _task_group() -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(asyncio.sleep(n, n)) for n in range(5)]
    assert [task.result() for task in tasks] == list(range(5))


async def _as_completed_wait_shield() -> None:
    order = [await done for done in asyncio.as_completed([asyncio.sleep(n, n) for n in (3, 1, 2)])]
    assert order == [1, 2, 3]
    inner = asyncio.create_task(asyncio.sleep(5, "inner"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(inner), 1)
    done, pending = await asyncio.wait([inner], timeout=1)
    assert (done, pending) == (set(), {inner})
    assert await inner == "inner"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "main",
    [
        _timeout,
        _timeout_rescheduled,
        _wait_for,
        _event,
        _queue,
        _lock,
        _semaphore_and_condition,
        _gather_with_errors,
        _task_group,
        _as_completed_wait_shield,
    ],
)
def test_asyncio_works_on_it(main: Callable[[], Coroutine[Any, Any, None]], seed: int | None) -> None:
    run(main(), seed=seed, max_steps=10_000)
