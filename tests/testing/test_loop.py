"""Same seed, same history: what the deterministic loop promises, and that asyncio works on it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allswell.testing.loop import DeterministicLoop, Runaway, Stuck, run, running_loop

SEEDS = [None, 0, 1, 2, 3]


async def interleave(tasks: int, rounds: int = 5) -> str:
    """Many tasks that meet at sleeps, a lock and a queue; returns who came when."""
    trace: list[str] = []
    lock, queue = asyncio.Lock(), asyncio.Queue[str](maxsize=3)

    async def member(n: int) -> None:
        me = asyncio.current_task()
        assert me is not None
        for turn in range(rounds):
            await asyncio.sleep((n * 7 + turn) % 3)
            async with lock:
                trace.append(f"{me.get_name()}.{turn}@{running_loop().now_us}")
                await asyncio.sleep(0)
            await queue.put(me.get_name())

    async def drain() -> None:
        for _ in range(tasks * rounds):
            sender = await queue.get()
            trace.append(f"got {sender}")

    await asyncio.gather(drain(), *(member(n) for n in range(tasks)))
    return "\n".join(trace)


def test_same_seed_same_history() -> None:
    first = run(interleave(1_000), seed=42)
    assert first.encode() == run(interleave(1_000), seed=42).encode()
    assert first.count("\n") == 9_999


@given(st.integers(0, 2**64), st.integers(2, 20))
def test_every_seed_repeats_itself(seed: int, tasks: int) -> None:
    assert run(interleave(tasks, 2), seed=seed) == run(interleave(tasks, 2), seed=seed)


def test_different_seeds_different_histories() -> None:
    assert len({run(interleave(20), seed=seed) for seed in range(50)}) == 50


def test_history_is_the_same_in_another_process() -> None:
    program = "import test_loop as t; print(t.run(t.interleave(50), seed=7))"
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    histories = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": path, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert histories == {run(interleave(50), seed=7) + "\n"}


def test_every_order_of_three_is_drawn() -> None:
    async def main() -> str:
        order = ""

        async def member(name: str) -> None:
            nonlocal order
            order += name

        await asyncio.gather(*map(member, "abc"))
        return order

    assert {run(main(), seed=seed) for seed in range(100)} == {"abc", "acb", "bac", "bca", "cab", "cba"}


def test_without_a_seed_the_order_is_that_of_asyncio() -> None:
    async def main() -> list[str]:
        trace: list[str] = []

        async def member(n: int) -> None:
            for turn in range(3):
                trace.append(f"{n}.{turn}")
                await asyncio.sleep(0)

        await asyncio.gather(*(member(n) for n in range(20)))
        return trace

    assert run(main(), seed=None) == asyncio.run(main())


def test_task_names_start_anew_in_every_loop() -> None:
    async def main() -> list[str]:
        tasks = [asyncio.create_task(asyncio.sleep(0)) for _ in range(2)]
        named = asyncio.create_task(asyncio.sleep(0), name="mine")
        return [task.get_name() for task in (*tasks, named)]

    assert run(main(), seed=0) == run(main(), seed=0) == ["Task-2", "Task-3", "mine"]


# -- time ----------------------------------------------------------------------------------------------------


def test_a_thousand_hours_of_sleep_take_no_time() -> None:
    async def main() -> float:
        async def sleeper() -> None:
            for _ in range(1_000):
                await asyncio.sleep(3_600)

        await asyncio.gather(*(sleeper() for _ in range(10)))
        return running_loop().time()

    began = time.perf_counter()
    assert run(main(), seed=0) == 3_600_000
    assert time.perf_counter() - began < 1


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_equal_timers_fire_in_the_order_they_were_set(delays: list[int]) -> None:
    async def main() -> list[tuple[int, int]]:
        fired: list[tuple[int, int]] = []
        loop = running_loop()
        for n, delay in enumerate(delays):
            loop.call_later(delay + 1, fired.append, (delay, n))
        await asyncio.sleep(10)
        return fired

    assert run(main(), seed=None) == sorted((delay, n) for n, delay in enumerate(delays))


def test_timers_fire_at_their_time_and_not_after_being_cancelled() -> None:
    async def main() -> list[float]:
        fired: list[float] = []
        loop = running_loop()
        handles = [loop.call_at(n / 10, lambda: fired.append(loop.time())) for n in range(1_000)]
        for handle in handles:
            if handle.when() % 10 != 0:
                handle.cancel()
        await asyncio.sleep(200)
        return fired

    assert run(main(), seed=0) == [float(n) for n in range(0, 100, 10)]


def test_cancelled_timers_do_not_pile_up() -> None:
    async def main() -> int:
        for _ in range(10_000):
            async with asyncio.timeout(3_600):
                await asyncio.sleep(0)
        return len(running_loop()._scheduled)

    assert run(main(), seed=0) < 300


def test_waiting_in_steps_smaller_than_a_microsecond_gets_there() -> None:
    async def main() -> None:
        loop = running_loop()
        deadline = 0.1 + 0.2  # a little over 0.3
        while (left := deadline - loop.time()) > 0:
            await asyncio.sleep(left)
        assert loop.now_us == 300_001

    run(main(), seed=None, max_steps=100)


# -- ends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_stuck_names_who_waits_and_where(seed: int | None) -> None:
    cleaned: list[str] = []

    async def waits_for_ever(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            cleaned.append(name)

    async def main() -> None:
        forgotten = asyncio.create_task(waits_for_ever("child"), name="forgotten")
        await asyncio.sleep(5)
        await waits_for_ever("main")
        await forgotten

    with pytest.raises(Stuck) as caught:
        run(main(), seed=seed)
    message = str(caught.value)
    assert "at 5.000000 s" in message
    assert f"seed {seed}" in message
    assert "forgotten: " in message
    assert "waits_for_ever:" in message
    assert "Event.wait:" in message
    assert sorted(cleaned) == ["child", "main"]


def test_an_infinite_sleep_never_ends() -> None:
    with pytest.raises(Stuck):
        run(asyncio.sleep(math.inf), seed=None)


def test_a_crowd_that_is_stuck_is_listed_in_part() -> None:
    async def main() -> None:
        await asyncio.gather(*(asyncio.Event().wait() for _ in range(1_000)))

    with pytest.raises(Stuck, match="and 981 more"):
        run(main(), seed=0)


def test_runaway() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Runaway, match=r"1,000 steps did not reach the end(.|\n)*Task-1: .*main"):
        run(main(), seed=0, max_steps=1_000)


def test_a_run_within_its_limit_is_no_runaway() -> None:
    async def main() -> int:
        await asyncio.sleep(1)
        return running_loop().steps

    steps = run(main(), seed=0)
    assert run(main(), seed=0, max_steps=steps + 1) == steps  # and one more, which ends the loop


def test_an_error_of_main_is_raised_as_itself() -> None:
    error = ValueError("main")

    async def main() -> None:
        await asyncio.sleep(1)
        raise error

    with pytest.raises(ValueError, match="main") as caught:
        run(main(), seed=0)
    assert caught.value is error


def test_a_callback_that_raises_ends_the_run() -> None:
    def callback() -> None:
        raise ValueError("callback")

    async def main() -> None:
        running_loop().call_later(1, callback)
        await asyncio.sleep(1_000)

    with pytest.raises(ValueError, match="callback"):
        run(main(), seed=0)


def test_what_main_leaves_behind_is_cancelled_oldest_first() -> None:
    ended: list[int] = []

    async def background(n: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(n)

    async def main() -> None:
        for n in range(100):
            running_loop().create_task(background(n))
        await asyncio.sleep(1)

    run(main(), seed=None)
    assert ended == list(range(100))


def test_callbacks_left_behind_are_no_runaway() -> None:
    async def main() -> None:
        for _ in range(10_000):
            running_loop().call_soon(int)

    for seed in range(5):
        run(main(), seed=seed)


def test_what_refuses_to_end_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def stubborn() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1)

    async def main(error: Exception | None) -> None:
        running_loop().create_task(stubborn(), name="stubborn")
        await asyncio.sleep(1)
        if error:
            raise error

    with caplog.at_level(logging.CRITICAL, "asyncio"):
        with pytest.raises(Runaway, match="stubborn: "):
            run(main(None), seed=0)
        with pytest.raises(ValueError, match="first"):
            run(main(ValueError("first")), seed=0)


def test_async_generators_are_closed_in_order_of_first_use() -> None:
    closed: list[int] = []

    async def numbers(n: int) -> AsyncIterator[int]:
        try:
            while True:
                yield n
        finally:
            await asyncio.sleep(1)
            closed.append(n)

    kept = [numbers(n) for n in range(50)]

    async def main() -> None:
        for generator in kept:
            await anext(generator)

    run(main(), seed=None)
    assert closed == list(range(50))


def test_an_abandoned_async_generator_is_closed_by_the_loop() -> None:
    closed: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(1)
            closed.append("closed")

    async def main() -> None:
        async for _ in numbers():
            break
        await asyncio.sleep(2)
        assert closed == ["closed"]

    run(main(), seed=0)


def test_after_step_is_called_after_every_step_and_may_end_the_run() -> None:
    async def main() -> None:
        loop = running_loop()
        seen: list[int] = []

        def check() -> None:
            seen.append(loop.steps)
            if loop.time() >= 3:
                raise AssertionError(f"invariant broken, {seen == list(range(1, len(seen) + 1))}")

        loop.after_step = check
        await asyncio.gather(*(asyncio.sleep(n) for n in range(10)))

    with pytest.raises(AssertionError, match="invariant broken, True"):
        run(main(), seed=0)


def test_after_step_does_not_watch_the_winding_up() -> None:
    ended: list[str] = []

    async def background() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("background")

    async def main() -> None:
        def check() -> None:
            assert not ended

        running_loop().after_step = check
        running_loop().create_task(background())
        await asyncio.sleep(1)

    run(main(), seed=0)
    assert ended == ["background"]


# -- what is refused -----------------------------------------------------------------------------------------


def test_threads_are_refused() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="runs no threads"):
            await asyncio.to_thread(print)

    run(main(), seed=0)


def test_calls_from_other_threads_are_refused() -> None:
    async def main() -> None:
        loop, errors = running_loop(), list[Exception]()

        def intrude() -> None:
            try:
                loop.call_soon_threadsafe(print)
            except RuntimeError as error:
                errors.append(error)

        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()
        assert "another thread" in str(errors[0])

    run(main(), seed=0)


def test_a_closed_loop_takes_nothing() -> None:
    loop = DeterministicLoop(seed=0)
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon(print)
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_later(1, print)


# -- asyncio on it -------------------------------------------------------------------------------------------


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
