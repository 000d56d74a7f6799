"""A scope ends its block at min(own, what is left outside), takes back its own cancels, and leaves others' alone.

Nearly every test runs in asyncio's own order and in some drawn ones: the promises hold in all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import pytest

from allswell.errors import AllswellError, Refused
from allswell.testing.loop import run, running_loop
from allswell.timing.nursery import Nursery
from allswell.timing.scope import Scope, ScopeTimeout, current, pause, remaining_ms, within

Run = Callable[[Coroutine[Any, Any, Any]], Any]
GRACE = 5.0


@pytest.fixture(name="go", params=[None, 0, 1, 2], ids=lambda seed: f"seed={seed}")
def _go(request: pytest.FixtureRequest) -> Run:
    return lambda main: run(main, seed=request.param, max_steps=20_000)


def now() -> float:
    return running_loop().time()


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


# --- how it cancels ---------------------------------------------------------------------------------------------------


def stubborn(log: list[float], until: float) -> Callable[[], Coroutine[Any, Any, None]]:
    """A body that swallows its cancels."""

    async def body() -> None:
        while now() < until:
            try:
                await asyncio.sleep(until - now())
            except asyncio.CancelledError:
                log.append(round(now(), 3))

    return body


def test_it_cancels_once_and_again_at_every_third_of_the_grace(go: Run) -> None:
    async def main() -> None:
        log: list[float] = []
        async with within(1_000) as scope:
            await stubborn(log, 8)()
        assert log == [1.0, 2.667, 4.333, 6.0, 7.667]
        assert scope.expired

    go(main())


def test_clean_up_within_a_third_of_the_grace_is_not_cut_short(go: Run) -> None:
    async def main() -> None:
        saved = []

        async def block() -> None:
            async with within(1_000):
                try:
                    await asyncio.sleep(100)
                finally:
                    for _ in range(16):
                        await asyncio.sleep(0.1)
                    saved.append(now())

        with pytest.raises(ScopeTimeout):
            await block()
        assert saved
        assert now() == pytest.approx(2.6)

    go(main())


def test_an_outer_deadline_does_not_cut_the_clean_up_of_an_inner_one(go: Run) -> None:
    async def main() -> None:
        saved = []

        async def block() -> None:
            async with within(1_200, kind="flow", name="outside"), within(1_000, kind="tool"):
                try:
                    await asyncio.sleep(100)
                finally:
                    await asyncio.sleep(0.25)
                    saved.append(now())

        with pytest.raises(ScopeTimeout) as caught:
            await block()
        assert saved
        assert caught.value.scope.name == "outside"
        assert now() == 1.25

    go(main())


def test_the_grace_of_an_inner_scope_lies_inside_the_outer_budget(go: Run) -> None:
    async def main() -> None:
        log: list[float] = []
        with contextlib.suppress(ScopeTimeout):
            async with within(4_000), within(1_000):
                await stubborn(log, 3.9)()
        assert log == [1.0, 2.0, 3.0]

    go(main())


# --- what the body does at the end ------------------------------------------------------------------------------------


def test_what_the_body_raises_passes_with_a_note(go: Run) -> None:
    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None

        async def block() -> None:
            async with within(1_000, kind="step", name="save"):
                try:
                    await asyncio.sleep(100)
                finally:
                    raise ValueError("half written")

        with pytest.raises(ValueError, match="half written") as caught:
            await block()
        assert caught.value.__notes__ == ["step 'save' had reached its limit when this was raised."]
        assert task.cancelling() == 0

    go(main())


def test_a_body_that_ends_all_the_same_has_ended(go: Run) -> None:
    async def main() -> str:
        result = ""
        async with within(1_000) as scope:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                result = "what there was"
        assert scope.expired
        await asyncio.sleep(100)
        return result

    assert go(main()) == "what there was"


def test_a_result_that_comes_with_the_deadline_is_not_half_taken(go: Run) -> None:
    """Whoever comes first, the block ends once, and nothing of the cancel is left behind."""

    async def main() -> None:
        done = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(1, lambda: None if done.done() else done.set_result("done"))
        with contextlib.suppress(ScopeTimeout):
            async with within(1_000):
                assert await done == "done"
        await asyncio.sleep(100)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    go(main())


def test_clean_up_has_until_the_end_of_the_grace(go: Run) -> None:
    async def main() -> None:
        log: list[object] = []

        async def block() -> None:
            async with within(1_000, kind="flow", name="outside"):
                try:
                    await asyncio.sleep(100)
                finally:
                    log.append(remaining_ms())
                    try:
                        async with within(500, kind="tool", name="receipt"):
                            await asyncio.sleep(100)
                    except ScopeTimeout as error:
                        log.append(error.scope.name)
                    async with within("1h") as last:
                        log.append(last.effective_ms)

        with pytest.raises(ScopeTimeout) as caught:
            await block()
        assert caught.value.scope.name == "outside"
        assert log == [5_000, "receipt", pytest.approx(4_500)]
        assert now() == 1.5

    go(main())


def test_after_the_grace_no_scope_can_be_entered(go: Run) -> None:
    async def main() -> None:
        entered = []

        async def block() -> None:
            async with within(1_000):
                await stubborn([], 6.5)()
                async with within(1_000):
                    entered.append(now())

        with pytest.raises(ScopeTimeout):
            await block()
        assert entered == []

    go(main())


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
