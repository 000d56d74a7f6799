"""A scope ends its block at min(own, what is left outside), takes back its own cancels, and leaves others' alone.

Nearly every test runs in asyncio's own order and in some drawn ones: the promises hold in all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import Any

import pytest

from allswell.errors import AllswellError, Refused
from allswell.timing.scopes import ScopeTimeout, current, pause, remaining_ms, within
from tests.timing.scope.stage import Run, now

# --- the limit --------------------------------------------------------------------------------------------------------


@pytest.mark.row("F2")
def test_a_block_ends_at_its_limit_and_not_before(go: Run) -> None:
    async def main() -> None:
        with pytest.raises(ScopeTimeout) as caught:
            async with within(1_500, kind="tool", name="grep") as scope:
                await asyncio.sleep(1_000)
        assert now() == 1.5
        assert caught.value.scope is scope
        assert isinstance(caught.value, TimeoutError)
        assert isinstance(caught.value, AllswellError)
        assert isinstance(caught.value.__cause__, asyncio.CancelledError)

    go(main())


def test_a_block_that_ends_in_time_is_left_alone(go: Run) -> None:
    async def main() -> None:
        async with within("2s") as scope:
            await asyncio.sleep(1.999)
        assert not scope.expired
        await asyncio.sleep(10)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    go(main())


@pytest.mark.row("F3")
def test_an_inner_scope_gets_what_is_left_outside(go: Run) -> None:
    async def main() -> None:
        async with within(10_000, kind="flow") as flow:
            async with within(4_000) as first:
                assert first.effective_ms == 4_000
                assert first.capped_by is None
            await asyncio.sleep(7)
            async with within(4_000) as second:
                assert second.effective_ms == pytest.approx(3_000)
                assert second.deadline == flow.deadline
                assert second.capped_by is flow
                async with within(None) as third:
                    assert third.deadline == flow.deadline
                    assert third.capped_by is flow

    go(main())


def test_the_scope_in_effect_is_the_innermost(go: Run) -> None:
    async def main() -> None:
        assert current() is None
        assert remaining_ms() is None
        async with within(10_000) as outer:
            assert remaining_ms() == 10_000
            async with within(1_000) as inner:
                assert current() is inner
                assert inner.outer is outer
                assert remaining_ms() == 1_000
            assert current() is outer
        assert current() is None
        async with within(None):
            assert remaining_ms() is None

    go(main())


@pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf, -0.5, True, "soon", "0s", 10**18, [1]])
def test_a_limit_that_cannot_be_is_refused_where_it_is_made(wrong: Any) -> None:  # noqa: ANN401 - anything at all
    with pytest.raises(Refused, match="timeout") as caught:
        within(wrong)
    assert caught.value.where == "timeout"


# --- whose cancel it is -----------------------------------------------------------------------------------------------


@pytest.mark.row("F2")
def test_only_the_outermost_expired_scope_raises(go: Run) -> None:
    async def main() -> None:
        async def block() -> None:
            async with within(1_000, kind="flow", name="outside"):
                with contextlib.suppress(TimeoutError):
                    async with within(5_000, kind="step"):
                        with contextlib.suppress(TimeoutError):
                            async with within(5_000, kind="tool"):
                                await asyncio.sleep(100)

        with pytest.raises(ScopeTimeout) as caught:
            await block()
        assert caught.value.scope.name == "outside"
        assert now() == 1.0

    go(main())


def test_an_inner_timeout_can_be_handled_and_the_outer_one_still_holds(go: Run) -> None:
    async def main() -> None:
        tries = []

        async def block() -> None:
            async with within(3_500, name="outside"):
                while True:
                    tries.append(now())
                    with contextlib.suppress(ScopeTimeout):
                        async with within(1_000):
                            await asyncio.sleep(100)

        with pytest.raises(ScopeTimeout) as caught:
            await block()
        assert (tries, now()) == ([0, 1, 2, 3], 3.5)
        assert caught.value.scope.name == "outside"

    go(main())


@pytest.mark.parametrize("after", [0.5, 1.0, 1.5])
def test_a_foreign_cancel_passes_through(go: Run, after: float) -> None:
    """Before the deadline, with it, and in the clean-up after it."""

    async def host() -> None:
        async with within(1_000):
            try:
                await asyncio.sleep(100)
            finally:
                await asyncio.sleep(1)

    async def main() -> None:
        task = asyncio.get_running_loop().create_task(host())
        await asyncio.sleep(after)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert task.cancelling() == 1

    go(main())


def test_own_cancels_are_taken_back(go: Run) -> None:
    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        for _ in range(3):

            async def block() -> None:
                async with within(1_000):
                    try:
                        await asyncio.sleep(100)
                    finally:
                        with contextlib.suppress(asyncio.CancelledError):
                            await asyncio.sleep(100)

            with pytest.raises(ScopeTimeout):
                await block()
            assert task.cancelling() == 0
            await asyncio.sleep(1)

    go(main())


def test_a_scope_in_the_clean_up_of_a_cancelled_task_counts_from_there(go: Run) -> None:
    async def host(log: list[str]) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            try:
                async with within(1_000):
                    await asyncio.sleep(100)
            except ScopeTimeout:
                log.append("clean-up timed out")

    async def main() -> None:
        log: list[str] = []
        task = asyncio.get_running_loop().create_task(host(log))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert log == ["clean-up timed out"]
        assert now() == 2

    go(main())


# --- words ------------------------------------------------------------------------------------------------------------


def test_an_explanation_says_who_fired_and_how_the_time_was_spent(go: Run) -> None:
    async def main() -> str:
        async def block() -> None:
            async with within("10s", kind="flow", name="build"):
                async with within("5s", kind="step", name="plan"):
                    for _ in range(3):
                        async with within("2s", kind="llm_call"):
                            await asyncio.sleep(0.5)
                    await pause(1_000, why="backoff")
                async with within("1h", kind="step", name="impl"):
                    await asyncio.sleep(100)

        with pytest.raises(ScopeTimeout) as caught:
            await block()
        return caught.value.explain()

    assert go(main()).splitlines() == [
        "flow 'build' reached its limit of 10s.",
        "flow 'build': 10s, limit 10s, cut",
        "├─ step 'impl': 7.5s, limit 1h, cut",
        "└─ step 'plan': 2.5s, limit 5s",
        "   ├─ llm_call ×3: 1.5s, limit 2s",
        "   └─ sleep 'backoff': 1s",
    ]
