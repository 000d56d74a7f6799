"""Scopes and tasks: groups, what is inherited, the one timer of a loop, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from allswell.testing.loop import running_loop
from allswell.timing.loops import Nursery
from allswell.timing.scopes import Scope, ScopeTimeout, current, of_loop, within
from tests.timing.scope.stage import Run, now, stubborn

# --- tasks and groups -------------------------------------------------------------------------------------------------


@pytest.mark.row("F2")
@pytest.mark.parametrize("group", ["nursery", "taskgroup"])
def test_children_end_with_the_scope_around_their_group(go: Run, group: str) -> None:
    async def child(log: list[float]) -> None:
        async with within(60_000):
            try:
                await asyncio.sleep(100)
            finally:
                log.append(now())

    async def main() -> None:
        log: list[float] = []

        async def block() -> None:
            async with within(1_000, name="outside"):
                if group == "nursery":
                    async with Nursery() as nursery:
                        for _ in range(3):
                            nursery.start(child(log))
                else:
                    async with asyncio.TaskGroup() as tasks:
                        for _ in range(3):
                            tasks.create_task(child(log))

        with pytest.raises(ScopeTimeout) as caught:
            await block()
        assert caught.value.scope.name == "outside"
        assert log == [1.0, 1.0, 1.0]

    go(main())


def test_a_stubborn_child_of_a_nursery_is_told_again(go: Run) -> None:
    async def main() -> None:
        log: list[float] = []
        with pytest.raises(ScopeTimeout):
            async with within(1_000), Nursery() as nursery:
                nursery.start(stubborn(log, 4)())
        assert log == [1.0, 2.667]
        assert now() == 4

    go(main())


def test_a_task_inherits_the_scope_it_was_made_in(go: Run) -> None:
    """A bare task is not ended by the scope, but what it enters is capped by it."""

    async def child() -> float:
        assert isinstance(current(), Scope)
        with pytest.raises(ScopeTimeout) as caught:
            async with within(60_000, kind="tool"):
                await asyncio.sleep(100)
        assert caught.value.report.capped_by == ("flow", "build")
        assert "that flow 'build' had left for it" in str(caught.value)
        return now()

    async def main() -> None:
        async with within(2_000, kind="flow", name="build"):
            task = asyncio.get_running_loop().create_task(child())
            await asyncio.sleep(1)
        assert await task == 2.0

    go(main())


# --- the timer --------------------------------------------------------------------------------------------------------


def waiting() -> int:
    """How many deadlines the loop's heap holds, dead ones included."""
    return len(of_loop[running_loop()].heap)


def test_a_scope_that_is_capped_by_one_of_its_task_sets_no_timer(go: Run) -> None:
    async def main() -> None:
        async with within(1_000):
            assert waiting() == 1
            async with within(5_000), within(None):
                assert waiting() == 1
                async with within(500):
                    assert waiting() == 2
            assert waiting() == 1
        assert waiting() == 0

    go(main())


def test_scopes_that_were_left_are_swept_and_live_ones_stay(go: Run) -> None:
    async def live(ms: int) -> float:
        with contextlib.suppress(ScopeTimeout):
            async with within(ms):
                await asyncio.sleep(1_000)
        return now()

    async def short() -> None:
        async with within(3_600_000):
            await asyncio.sleep(0.5)

    async def main() -> None:
        limits = [1_000 + 7 * number for number in range(60)]
        async with Nursery() as nursery:
            lives = [nursery.start(live(ms)) for ms in limits]
            for _ in range(1_000):
                nursery.start(short())
            await asyncio.sleep(0.6)
            assert waiting() <= 60 + 2 * 100
        assert [task.result() for task in lives] == [pytest.approx(ms / 1_000) for ms in limits]

    go(main())


# --- misuse -----------------------------------------------------------------------------------------------------------


def test_a_scope_is_entered_once(go: Run) -> None:
    async def main() -> None:
        scope = within(1_000)
        async with scope:
            pass
        with pytest.raises(RuntimeError, match="entered once"):
            async with scope:
                pass

    go(main())


def test_a_scope_is_left_by_the_task_that_entered_it(go: Run) -> None:
    async def main() -> None:
        scope = within(1_000)
        await scope.__aenter__()

        async def other() -> None:
            await scope.__aexit__(None, None, None)

        with pytest.raises(RuntimeError, match="entered in Task-1 and left elsewhere"):
            await asyncio.get_running_loop().create_task(other())
        await asyncio.sleep(10)

    go(main())


def test_a_scope_in_a_generator_that_was_left_open_is_refused_and_put_in_order(go: Run) -> None:
    async def numbers() -> AsyncGenerator[int, None]:
        async with within(1_000):
            yield 1
            yield 2

    async def main() -> None:
        kept = numbers()

        async def block() -> None:
            async with within(60_000):
                async for _ in kept:
                    break

        with pytest.raises(RuntimeError, match="aclosing"):
            await block()
        assert current() is None
        await asyncio.sleep(10)
        with contextlib.suppress(RuntimeError):
            await kept.aclose()

    go(main())


def test_a_generator_that_is_closed_where_it_is_used_is_fine(go: Run) -> None:
    async def numbers() -> AsyncGenerator[int, None]:
        async with within(1_000):
            yield 1
            yield 2

    async def main() -> None:
        async with within(60_000) as outer:
            async with contextlib.aclosing(numbers()) as stream:
                async for _ in stream:
                    break
            assert current() is outer
            await asyncio.sleep(10)

    go(main())


def test_a_coroutine_that_is_thrown_away_with_its_loop_says_nothing() -> None:
    async def body() -> None:
        async with within(1_000), within(500):
            await asyncio.sleep(100)

    async def main() -> None:
        async with within(100):
            await asyncio.sleep(0)

    coroutine = body()
    loop = asyncio.new_event_loop()
    task = loop.create_task(coroutine)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    coroutine.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    asyncio.run(main())
    assert current() is None
