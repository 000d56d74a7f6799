"""`run` comes back: whatever the body does, the caller goes on when the grace is over, and the rest is fenced."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from allswell.testing.loop import run as run_virtual
from allswell.testing.loop import running_loop
from allswell.timing.loops import Nursery
from allswell.timing.scopes import Scope, ScopeTimeout, abandoned, current, run, within

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(name="go", params=[None, 0, 1, 2], ids=lambda seed: f"seed={seed}")
def _go(request: pytest.FixtureRequest) -> Run:
    return lambda main: run_virtual(main, seed=request.param, max_steps=20_000)


def now() -> float:
    return running_loop().time()


async def deaf(until: float, log: list[float] | None = None) -> str:
    """A body that swallows every cancel."""
    while now() < until:
        try:
            await asyncio.sleep(until - now())
        except asyncio.CancelledError:
            if log is not None:
                log.append(round(now(), 3))
    return "too late"


def test_a_call_gives_its_result_its_error_and_its_timeout(go: Run) -> None:
    async def double(number: int, *, slow: float = 0) -> int:
        await asyncio.sleep(slow)
        if number < 0:
            raise ValueError(number)
        return 2 * number

    async def main() -> None:
        assert await run(within(1_000), double, 21) == 42
        with pytest.raises(ValueError, match="-1"):
            await run(within(1_000), double, -1)
        with pytest.raises(ScopeTimeout) as caught:
            await run(within(1_000, kind="tool"), double, 1, slow=100)
        assert now() == 1
        assert not caught.value.abandoned
        assert current() is None

    go(main())


@pytest.mark.row("F2")
def test_a_body_that_swallows_its_cancels_is_given_up_when_the_grace_is_over(
    go: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        log: list[float] = []
        with pytest.raises(ScopeTimeout) as caught, caplog.at_level(logging.WARNING):
            await run(within(1_000, kind="tool", name="deaf"), deaf, 60, log)
        assert now() == 6
        assert caught.value.abandoned
        assert "was given up" in str(caught.value)
        assert log == [1.0, 2.667, 4.333]
        assert abandoned() == (caught.value.scope,)
        assert caught.value.scope.fenced
        assert "tool 'deaf' did not stop within its grace and was given up; it is at" in caplog.text
        await asyncio.sleep(60)
        assert abandoned() == ()
        assert len(log) > 10  # still told, now and then

    go(main())


@pytest.mark.row("F2")
def test_a_group_whose_child_swallows_cancels_holds_nobody(go: Run) -> None:
    """`async with` around such a TaskGroup hangs, however often its host is cancelled."""

    async def body() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(deaf(60))

    async def main() -> None:
        with pytest.raises(ScopeTimeout):
            await run(within(1_000), body)
        assert now() == 6
        await asyncio.sleep(60)

    go(main())


def test_what_was_given_up_enters_no_scope_any_more(go: Run) -> None:
    effects: list[str] = []

    async def zombie() -> None:
        await deaf(20)
        async with within(1_000):
            effects.append("wrote")

    async def main() -> None:
        with pytest.raises(ScopeTimeout):
            await run(within(1_000), zombie)
        await asyncio.sleep(60)
        assert effects == []
        assert abandoned() == ()

    go(main())


def test_the_clean_up_of_the_outer_levels_is_not_used_up_by_what_hangs_inside(go: Run) -> None:
    async def main() -> None:
        log: list[tuple[str, float]] = []

        async def level(name: str, depth: int) -> None:
            try:
                if depth:
                    await run(within(60_000, name=name), level, name + "'", depth - 1)
                else:
                    await deaf(60)
            finally:
                log.append((name, round(now(), 2)))

        with pytest.raises(ScopeTimeout) as caught:
            await run(within(1_000, kind="flow"), level, "a", 2)
        assert caught.value.scope.kind == "flow"
        assert not caught.value.abandoned
        # 5 s of grace for the flow; a third of that for the step inside, a third of that for the call inside it.
        assert log == [("a'", 1.56), ("a", 1.56)]
        await asyncio.sleep(60)

    go(main())


@pytest.mark.parametrize("obeys", [True, False])
def test_a_caller_that_is_cancelled_takes_its_body_with_it(go: Run, obeys: bool) -> None:
    async def main() -> None:
        log: list[float] = []

        async def body() -> None:
            if not obeys:
                await deaf(40, log)
            try:
                await asyncio.sleep(100)
            finally:
                log.append(now())

        task = asyncio.get_running_loop().create_task(run(within(60_000), body))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert now() == (1 if obeys else 6)
        assert log[0] == 1.0
        assert log == [1.0] if obeys else [1.0, 2.667, 4.333]
        assert len(abandoned()) == (0 if obeys else 1)
        await asyncio.sleep(60)
        assert abandoned() == ()

    go(main())


def test_what_a_cancelled_caller_left_behind_is_fenced_long_before_its_own_deadline(go: Run) -> None:
    async def main() -> None:
        effects: list[str] = []

        async def zombie() -> None:
            await deaf(20)
            async with within(1_000):
                effects.append("wrote")

        scope = within(3_600_000)
        task = asyncio.get_running_loop().create_task(run(scope, zombie))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert scope.fenced
        await asyncio.sleep(60)
        assert (effects, abandoned()) == ([], ())

    go(main())


def test_a_caller_that_is_cancelled_during_the_grace_tells_the_body_no_second_time(go: Run) -> None:
    async def main() -> None:
        log: list[str] = []

        async def body() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                await asyncio.sleep(1)
                log.append("cleaned up")

        task = asyncio.get_running_loop().create_task(run(within(1_000), body))
        await asyncio.sleep(1.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (log, now()) == (["cleaned up"], 2.0)

    go(main())


def test_an_impatient_caller_reaches_the_body_again(go: Run) -> None:
    async def main() -> None:
        log: list[float] = []

        async def body() -> None:
            for _ in range(2):
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(100)
                log.append(now())

        task = asyncio.get_running_loop().create_task(run(within(60_000), body))
        for _ in range(2):
            await asyncio.sleep(0.5)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert log == [0.5, 1.0]

    go(main())


def test_an_error_in_the_clean_up_of_a_cancelled_call_is_seen(go: Run) -> None:
    async def main() -> None:
        async def body() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                raise ValueError("could not save")

        task = asyncio.get_running_loop().create_task(run(within(60_000), body))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(ValueError, match="could not save"):
            await task

    go(main())


@pytest.mark.row("F2")
def test_a_flow_that_times_out_ends_all_its_steps(go: Run) -> None:
    async def main() -> None:
        ended: list[tuple[str, float]] = []

        async def call(name: str) -> None:
            async with within(120_000, kind="llm_call"):
                try:
                    await asyncio.sleep(1_000)
                finally:
                    ended.append((name, now()))

        async def flow() -> None:
            async with Nursery() as nursery:
                for name in ("a", "b", "c"):
                    nursery.start(run(within(600_000, kind="step", name=name), call, name))

        with pytest.raises(ScopeTimeout) as caught:
            await run(within(5_000, kind="flow", name="build"), flow)
        assert caught.value.scope.kind == "flow"
        assert sorted(ended) == [("a", 5.0), ("b", 5.0), ("c", 5.0)]
        assert now() == 5

    go(main())


def test_what_was_given_up_does_not_keep_asyncio_from_ending(caplog: pytest.LogCaptureFixture) -> None:
    """`asyncio.run` cancels every task it knows of, and waits for it without a bound."""
    assert "_unregister_task" in asyncio.__all__, "it is exported, or adr/0007 must find another way"

    async def deaf_for_ever() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    async def main() -> None:
        with pytest.raises(ScopeTimeout) as caught:
            await run(Scope(20, grace_ms=30), deaf_for_ever)
        assert caught.value.abandoned
        assert len(abandoned()) == 1

    asyncio.run(main())
    assert abandoned() == ()
    gc.collect()
    assert "destroyed" not in caplog.text


def test_a_body_that_is_fenced_and_will_not_hear_does_not_keep_the_loop_busy(go: Run) -> None:
    async def main() -> None:
        tries = []

        async def tries_again() -> None:
            while now() < 30:
                with contextlib.suppress(asyncio.CancelledError):
                    async with within(1_000):
                        await deaf(8)
                tries.append(now())

        with pytest.raises(ScopeTimeout):
            await run(within(1_000), tries_again)
        await asyncio.sleep(60)
        assert 1 < len(tries) < 500

    go(main())


def test_one_sick_task_does_not_hold_up_the_other_deadlines() -> None:
    class Sick(asyncio.Task[None]):
        def cancel(self, msg: object = None) -> bool:
            if self.get_coro() is sick:
                raise ZeroDivisionError
            return super().cancel(msg)

    async def forever() -> None:
        async with within(20):
            await asyncio.Event().wait()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        reported: list[object] = []
        loop.set_exception_handler(lambda _, context: reported.append(context.get("exception")))
        bad = Sick(sick, loop=loop)
        good = loop.create_task(forever())
        with pytest.raises(ScopeTimeout):
            await good
        assert [type(error) for error in reported][:1] == [ZeroDivisionError]
        assert not bad.done()
        asyncio.Task.cancel(bad)
        with contextlib.suppress(asyncio.CancelledError):
            await bad

    sick = forever()
    asyncio.run(main())


def test_a_scope_runs_one_call(go: Run) -> None:
    async def main() -> None:
        scope = within(1_000)
        await run(scope, asyncio.sleep, 0)
        with pytest.raises(RuntimeError, match="entered once"):
            await run(scope, asyncio.sleep, 0)

    go(main())


def test_what_was_given_up_has_its_line_in_the_tree_and_books_nothing_later(go: Run) -> None:
    async def whole() -> None:
        async with within("9s", kind="flow", name="all"):
            with pytest.raises(ScopeTimeout):
                await run(Scope("1s", kind="tool", name="deaf", grace_ms=2_000), deaf, 6.0)
            await asyncio.sleep(60)

    async def main() -> None:
        with pytest.raises(ScopeTimeout) as caught:
            await whole()
        assert caught.value.explain().splitlines()[1:] == [
            "flow 'all': 9s, limit 9s, cut",
            "├─ tool 'deaf': 3s, limit 1s, cut",
            "└─ itself: 6s",
        ]

    go(main())
