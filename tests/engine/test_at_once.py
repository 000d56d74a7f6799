"""A command that comes alone is begun by its caller: answered in the same step, or handed to a loop that rests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Self

import pytest

from allswell.engine.batch import Performed
from allswell.engine.batcher import Batcher, Wait
from allswell.engine.book import News
from allswell.engine.pace import DEFAULT
from allswell.errors import Bug, Unavailable
from allswell.testing.loop import run


class Scene:
    """A batcher whose store is a function; what it was given, batch by batch."""

    def __init__(self, perform: Callable[[Sequence[str]], Awaitable[None]]) -> None:
        self.batches: list[list[str]] = []
        self._store = perform
        self.batcher = Batcher[str](
            self._perform,
            name="test",
            pace=DEFAULT,
            draw=lambda: 0.5,
            tell=lambda _: None,
            unwanted=lambda _: None,
        )
        self.working: asyncio.Task[None] | None = None

    async def _perform(self, commands: Sequence[str], wait: Wait) -> Performed:
        del wait
        self.batches.append([*commands])
        await self._store(commands)
        return Performed([command.upper() for command in commands], News())

    async def __aenter__(self) -> Self:
        self.batcher.open()
        self.working = asyncio.create_task(self.batcher.work())
        await asyncio.sleep(0.1)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        assert self.working is not None
        self.working.cancel()
        await asyncio.wait([self.working])


async def answers_at_once(_: Sequence[str]) -> None:
    return


async def takes_a_second(_: Sequence[str]) -> None:
    await asyncio.sleep(1)


def test_a_store_that_answers_at_once_answers_in_the_callers_own_step() -> None:
    async def main() -> None:
        async with Scene(answers_at_once) as scene:
            asked = scene.batcher.ask("a")
            assert asked.done()
            assert await asked == "A"

    run(main(), seed=None)


def test_who_comes_back_in_the_same_step_is_queued_and_answered() -> None:
    async def main() -> None:
        async with Scene(answers_at_once) as scene:
            assert scene.batcher.ask("a").done()
            asked = [scene.batcher.ask(command) for command in ("b", "c")]
            assert not any(one.done() for one in asked)
            assert await asyncio.gather(*asked) == ["B", "C"]
            assert scene.batches == [["a"], ["b", "c"]], "and together"

    run(main(), seed=None)


def test_a_caller_that_never_pauses_keeps_nobody_from_the_loop() -> None:
    async def main() -> None:
        async with Scene(answers_at_once) as scene:
            passed: list[None] = []
            asyncio.get_running_loop().call_later(0, passed.append, None)
            count = 0
            while not passed:
                await scene.batcher.ask("a")
                count += 1
                assert count < 10

    run(main(), seed=None)


def test_a_store_that_takes_its_time_is_waited_for_by_a_loop_that_rests() -> None:
    async def main() -> None:
        async with Scene(takes_a_second) as scene:
            asked = scene.batcher.ask("a")
            assert scene.batches == [["a"]], "it was begun"
            assert not asked.done()
            asked.cancel()
            later = [scene.batcher.ask(command) for command in ("b", "c")]
            assert await asyncio.gather(*later) == ["B", "C"]
            assert scene.batches == [["a"], ["b", "c"]], "what one caller began ends without it"

    run(main(), seed=None)


def test_a_timeout_that_was_begun_in_the_callers_step_is_none_of_the_callers() -> None:
    async def gives_up(_: Sequence[str]) -> None:
        async with asyncio.timeout(1):
            await asyncio.sleep(5)

    async def main() -> None:
        async with Scene(gives_up) as scene:
            with pytest.raises(Bug, match="TimeoutError"):
                await scene.batcher.ask("a")
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            assert await asyncio.sleep(10, "still here") == "still here"

    run(main(), seed=None)


def test_what_goes_wrong_in_the_callers_step_is_its_answer() -> None:
    async def fails(_: Sequence[str]) -> None:
        raise Unavailable("no such luck")

    async def main() -> None:
        async with Scene(fails) as scene:
            scene.batcher._pace = type(DEFAULT)(store_patience=1.0)
            with pytest.raises(Unavailable, match="no such luck; gave up after store_patience 1 s"):
                await scene.batcher.ask("a")

    run(main(), seed=None)


@pytest.mark.parametrize("steps", range(4))
def test_closing_right_after_it_was_begun_leaves_nobody_waiting(steps: int) -> None:
    """Also in the moment in which the loop was told to take over and has not begun to."""
    ended: list[BaseException] = []

    async def notes_its_end(_: Sequence[str]) -> None:
        try:
            await asyncio.sleep(1)
        except BaseException as end:
            ended.append(end)
            raise

    async def main() -> None:
        async with Scene(notes_its_end) as scene:
            asked = scene.batcher.ask("a")
            for _ in range(steps):
                await asyncio.sleep(0)
            await scene.close()
            with pytest.raises(Unavailable, match="closed before the store answered"):
                await asked
            (end,) = ended
            assert isinstance(end, asyncio.CancelledError), "the store was told that nobody waits"
            with pytest.raises(Unavailable, match="closed"):
                await scene.batcher.ask("b")

    run(main(), seed=None)


def test_what_a_caller_begins_does_not_run_in_its_context() -> None:
    """What is made there, a timer for instance, would keep the caller's things alive."""
    whose: ContextVar[str] = ContextVar("whose", default="nobody's")
    seen: list[str] = []

    async def looks(_: Sequence[str]) -> None:
        seen.append(whose.get())
        await asyncio.sleep(1)
        seen.append(whose.get())

    async def main() -> None:
        async with Scene(looks) as scene:
            whose.set("the caller's")
            await scene.batcher.ask("a")
            assert seen == ["nobody's", "nobody's"]

    run(main(), seed=None)


def test_a_future_that_the_store_awaits_can_be_awaited_by_others_meanwhile() -> None:
    async def main() -> None:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def shares(_: Sequence[str]) -> None:
            await answer

        async with Scene(shares) as scene:
            asked = scene.batcher.ask("a")
            asyncio.get_running_loop().call_later(1, answer.set_result, None)
            await answer
            assert await asked == "A"

    run(main(), seed=None)
