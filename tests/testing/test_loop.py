"""Same seed, same history, and time that passes only when everybody waits: what the deterministic loop promises."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from allswell.testing.loop import run, running_loop


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
