"""The ways to write a guard: decorators of all kinds, blocks, loops, sync and async; what each does with an error."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from allswell.domain.service.breaker import BreakerState
from allswell.domain.service.guard import GuardPolicy
from allswell.domain.service.retry import RetryPolicy
from allswell.errors import BreakerOpen, Refused
from allswell.runtime.guard import Guard, GuardEnvironment, MemoryBreakers
from allswell.timing.scopes import ScopeTimeout, current, remaining_ms
from tests.runtime.guard.stage import Service, Stage, Status, now, play

NO_BREAKER = GuardPolicy(breaker=None)
NOT_CALLABLE: Any = 5
ONCE = GuardPolicy(retry=RetryPolicy(retries=0))


class Waits:
    """Sleeps for sync guards: they are noted, and nobody waits."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.breakers = MemoryBreakers()

    def guard(self, policy: GuardPolicy = NO_BREAKER, *, on: str = "thread") -> Guard:
        around = GuardEnvironment(breakers=self.breakers, draw=lambda: 0.0, sleep=self.slept.append)
        return Guard("s", policy, on=on, around=around)  # type: ignore[arg-type]


# --- functions --------------------------------------------------------------------------------------------------------


def test_a_coroutine_function_stays_one_and_keeps_its_name() -> None:
    async def scene() -> None:
        stage, tries = Stage(), []

        @stage.guard(NO_BREAKER)
        async def fetch(what: str, *, twice: bool = False) -> str:
            """Says what."""
            tries.append(now())
            if len(tries) < 3:
                raise ConnectionError
            return what * (1 + twice)

        assert inspect.iscoroutinefunction(fetch)
        assert (fetch.__name__, fetch.__doc__) == ("fetch", "Says what.")
        assert await fetch("a", twice=True) == "aa"
        assert tries == [0, 1_000, 3_000]

    play(scene())


@pytest.mark.parametrize("on", ["thread", "here"])
def test_a_plain_function_is_retried_with_the_same_parameters(on: str) -> None:
    waits = Waits()
    seen: list[tuple[object, ...]] = []

    @waits.guard(on=on)
    def fetch(*given: object) -> str:
        seen.append(given)
        if len(seen) < 3:
            raise ConnectionError
        return "answer"

    assert fetch(1, "two") == "answer"
    assert (seen, waits.slept) == ([(1, "two")] * 3, [1.0, 2.0])


def test_where_a_plain_function_runs_is_chosen() -> None:
    waits = Waits()
    assert waits.guard(on="here").call_sync(threading.get_ident) == threading.get_ident()
    assert waits.guard(on="thread").call_sync(threading.get_ident) != threading.get_ident()
    with pytest.raises(Refused, match="on must be"):
        waits.guard(on="moon")


def test_a_plain_function_that_blocks_is_given_up_at_its_limit() -> None:
    waits, stuck = Waits(), threading.Event()
    guard = waits.guard(GuardPolicy(attempt_timeout=20, breaker=None, retry=RetryPolicy(retries=1)))
    try:
        with pytest.raises(ScopeTimeout) as caught:
            guard.call_sync(stuck.wait, 60)
    finally:
        stuck.set()
    assert caught.value.abandoned
    assert waits.slept == [1.0]


def test_what_a_function_brings_late_it_has_brought() -> None:
    """In the caller's own thread nothing is interrupted; throwing the answer away would only call again."""
    guard = Waits().guard(GuardPolicy(attempt_timeout=1, breaker=None), on="here")

    def slow() -> str:
        left = remaining_ms()
        assert left is not None
        time.sleep(left / 1_000 + 0.001)
        return "late"

    assert guard.call_sync(slow) == "late"


def test_an_async_generator_is_begun_again_until_its_first_item() -> None:
    async def scene() -> None:
        stage, begun = Stage(), []

        @stage.guard()
        async def numbers(most: int, breaks_at: int = -1) -> AsyncIterator[int]:
            begun.append(now())
            if len(begun) < 3:
                raise ConnectionError
            for number in range(most):
                if number == breaks_at:
                    raise ConnectionError("in the middle")
                yield number
                await asyncio.sleep(0.1)

        assert [number async for number in numbers(3)] == [0, 1, 2]
        assert len(begun) == 3
        assert stage.breakers.standing("s")[1].failures == 0
        seen: list[int] = []

        async def consume() -> None:
            async for number in numbers(5, breaks_at=2):
                seen.append(number)  # noqa: PERF401 - what was seen before it broke is the point

        with pytest.raises(ConnectionError, match="middle"):
            await consume()
        assert (seen, len(begun)) == ([0, 1], 4)
        assert stage.breakers.standing("s")[1].failures == 1
        async with aclosing(numbers(9)) as items:  # type: ignore[type-var]
            assert await anext(items) == 0
            assert current() is None  # no scope reaches out to the consumer
        assert stage.breakers.standing("s")[1].failures == 0

    play(scene())


def test_an_async_generator_that_stalls_ends_with_its_attempt() -> None:
    async def scene() -> None:
        stage = Stage()

        @stage.guard(GuardPolicy(attempt_timeout=2_000, breaker=None))
        async def drip() -> AsyncIterator[int]:
            while True:
                yield 1
                await asyncio.sleep(0.9)

        seen: list[int] = []

        async def consume() -> None:
            async for item in drip():
                seen.append(item)
                await asyncio.sleep(5)  # a slow consumer is not a slow service

        with pytest.raises(ScopeTimeout):
            await consume()
        assert len(seen) == 3

    play(scene())


def test_a_plain_generator_is_begun_again_until_its_first_item() -> None:
    waits, begun = Waits(), []

    @waits.guard(GuardPolicy())
    def numbers(most: int, breaks_at: int = -1) -> Iterator[int]:
        begun.append(most)
        if len(begun) < 3:
            raise ConnectionError
        for number in range(most):
            if number == breaks_at:
                raise ConnectionError("in the middle")
            yield number

    assert list(numbers(3)) == [0, 1, 2]
    assert len(begun) == 3
    seen: list[int] = []
    with pytest.raises(ConnectionError, match="middle"):
        seen.extend(numbers(5, breaks_at=2))
    assert (seen, len(begun)) == ([0, 1], 4)
    items = numbers(9)
    next(items)
    items.close()  # type: ignore[attr-defined]
    assert waits.breakers.standing("s")[1].failures == 0


# --- blocks -----------------------------------------------------------------------------------------------------------


def test_a_loop_of_attempts_repeats_its_block() -> None:
    async def scene() -> None:
        stage, service, numbers = Stage(), Service([Status(500), Status(502)]), []
        answer = ""
        async for attempt in stage.guard(NO_BREAKER):
            async with attempt:
                numbers.append(attempt.number)
                answer = await service()
        assert (answer, numbers, service.calls) == ("answer", [1, 2, 3], [0, 1_000, 3_000])

    play(scene())


def test_the_last_error_of_a_loop_is_raised_where_it_happened() -> None:
    async def scene() -> None:
        stage, service = Stage(), Service([Status(500)] * 9)
        waits, tries = Waits(), []

        async def repeated() -> None:
            async for attempt in stage.guard(NO_BREAKER):
                async with attempt:
                    await service()

        def repeated_here() -> None:
            for trial in waits.guard():
                with trial:
                    tries.append(trial.number)
                    raise ConnectionError

        with pytest.raises(Status):
            await repeated()
        assert len(service.calls) == 4
        with pytest.raises(ConnectionError):
            repeated_here()
        assert (tries, waits.slept) == ([1, 2, 3, 4], [1.0, 2.0, 4.0])

    play(scene())


def test_a_block_that_hangs_is_cut_and_repeated() -> None:
    async def scene() -> None:
        stage, tries = Stage(), []

        async def repeated() -> None:
            async for attempt in stage.guard(GuardPolicy(attempt_timeout=1_000, breaker=None)):
                async with attempt:
                    tries.append(now())
                    await asyncio.sleep(60)

        with pytest.raises(ScopeTimeout):
            await repeated()
        assert tries == [0, 2_000, 5_000, 10_000]

    play(scene())


@pytest.mark.row("F7")
def test_once_output_has_reached_the_caller_nothing_is_repeated() -> None:
    async def scene() -> None:
        stage, tries = Stage(), []

        async def repeated() -> None:
            async for attempt in stage.guard(NO_BREAKER):
                async with attempt:
                    tries.append(attempt.number)
                    if attempt.number == 2:
                        attempt.mark_output()
                    raise ConnectionError

        with pytest.raises(ConnectionError):
            await repeated()
        assert tries == [1, 2]

    play(scene())


def test_leaving_the_loop_from_a_block_that_went_well_ends_it() -> None:
    async def first(stage: Stage, service: Service) -> str:
        async for attempt in stage.guard():
            async with attempt:
                return await service()
        raise AssertionError

    async def scene() -> None:
        stage = Stage()
        assert await first(stage, Service([Status(500)])) == "answer"
        assert stage.breakers.standing("s")[1].failures == 0

    play(scene())


def test_an_attempt_that_is_not_entered_or_twice_or_wrongly_is_said_to_be() -> None:
    async def scene() -> None:
        stage = Stage()
        with pytest.raises(RuntimeError, match="was not entered"):
            async for _ in stage.guard():
                pass
        async for attempt in stage.guard():
            async with attempt:
                pass
            with pytest.raises(RuntimeError, match="entered once"):
                async with attempt:
                    pass
        async for attempt in stage.guard():
            with pytest.raises(TypeError, match="async with"), attempt:
                pass
            break
        for trial in Waits().guard():
            with pytest.raises(TypeError, match="with attempt"):
                async with trial:
                    pass
            break

    play(scene())


def test_a_block_that_runs_once_has_everything_but_retries() -> None:
    async def scene() -> None:
        stage = Stage()
        guard = stage.guard()
        for _ in range(3):
            with pytest.raises(Status):
                async with guard:
                    raise Status(500)
        assert stage.breakers.standing("s")[0] is BreakerState.OPEN
        with pytest.raises(BreakerOpen):
            async with guard:
                raise AssertionError
        await asyncio.sleep(30)
        async with guard, guard:  # the inner one is part of the probe
            assert remaining_ms() == 120_000
        assert stage.breakers.standing("s")[0] is BreakerState.CLOSED
        slow = stage.guard(GuardPolicy(attempt_timeout=500))
        with pytest.raises(ScopeTimeout):
            async with slow:
                await asyncio.sleep(9)
        waits = Waits()
        with pytest.raises(ConnectionError), waits.guard(ONCE):
            raise ConnectionError
        with waits.guard(ONCE) as attempt:
            assert attempt.number == 1
        assert waits.slept == []

    play(scene())


def test_one_guard_is_entered_by_many_tasks_at_once() -> None:
    async def scene() -> None:
        stage = Stage()
        guard, ended = stage.guard(), []

        async def work(number: int) -> None:
            async with guard:
                await asyncio.sleep(10 - number)
                if number % 2:
                    raise Status(404)
            ended.append(number)

        await asyncio.gather(*(work(number) for number in range(10)), return_exceptions=True)
        assert ended == [8, 6, 4, 2, 0]

    play(scene(), seed=3)
