"""How a run on the deterministic loop ends: well, stuck, running away, by an error, and with what it leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
from collections.abc import AsyncIterator

import pytest

from allswell.testing.loop import DeterministicLoop, LoopStuck, Runaway, run, running_loop

SEEDS = [None, 0, 1, 2, 3]


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

    with pytest.raises(LoopStuck) as caught:
        run(main(), seed=seed)
    message = str(caught.value)
    assert "at 5.000000 s" in message
    assert f"seed {seed}" in message
    assert "forgotten: " in message
    assert "waits_for_ever:" in message
    assert "Event.wait:" in message
    assert sorted(cleaned) == ["child", "main"]


def test_an_infinite_sleep_never_ends() -> None:
    with pytest.raises(LoopStuck):
        run(asyncio.sleep(math.inf), seed=None)


def test_a_crowd_that_is_stuck_is_listed_in_part() -> None:
    async def main() -> None:
        await asyncio.gather(*(asyncio.Event().wait() for _ in range(1_000)))

    with pytest.raises(LoopStuck, match="and 981 more"):
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
