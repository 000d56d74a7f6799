"""A nursery ends its children together, in start order, and raises what went wrong first.

Nearly every test runs in asyncio's own order and in some drawn ones: the promises hold in all of them.
"""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allswell.testing.loop import run
from allswell.timing.loops import Nursery
from tests.timing.children import Run, fail, note_cancel


def test_the_block_ends_when_every_child_has_ended(go: Run) -> None:
    async def main() -> list[int]:
        ended: list[int] = []

        async def child(n: int) -> None:
            await asyncio.sleep(n)
            ended.append(n)

        async with Nursery() as nursery:
            for n in (3, 1, 2):
                nursery.start(child(n))
        return ended

    assert go(main()) == [1, 2, 3]


def test_start_returns_the_task_under_its_name(go: Run) -> None:
    async def answer() -> int:
        return 42

    async def main() -> tuple[str, int]:
        async with Nursery() as nursery:
            task = nursery.start(answer(), name="oracle")
        return task.get_name(), task.result()

    assert go(main()) == ("oracle", 42)


def test_a_child_may_start_siblings_while_the_block_waits(go: Run) -> None:
    async def main() -> list[int]:
        seen: list[int] = []

        async def child(nursery: Nursery, depth: int) -> None:
            await asyncio.sleep(1)
            seen.append(depth)
            if depth:
                nursery.start(child(nursery, depth - 1))

        async with Nursery() as nursery:
            nursery.start(child(nursery, 3))
        return seen

    assert go(main()) == [3, 2, 1, 0]


@given(st.integers(1, 40), st.sets(st.integers(0, 39)))
def test_children_are_cancelled_in_start_order(count: int, already_ended: set[int]) -> None:
    async def main() -> list[str]:
        log: list[str] = []
        async with Nursery() as nursery:
            gates = [asyncio.Event() for _ in range(count)]

            async def child(n: int) -> None:
                try:
                    await gates[n].wait()
                except asyncio.CancelledError:
                    log.append(str(n))
                    raise

            for n in range(count):
                nursery.start(child(n))
            for n in already_ended & set(range(count)):
                gates[n].set()
            await asyncio.sleep(1)
            nursery.cancel()
        return log

    assert run(main(), seed=None) == [str(n) for n in range(count) if n not in already_ended]


def test_cancel_is_quiet_and_leaves_the_body_alone(go: Run) -> None:
    async def main() -> list[str]:
        log: list[str] = []
        async with Nursery() as nursery:
            nursery.start(note_cancel(log, "background"))
            await asyncio.sleep(1)
            nursery.cancel()
            await asyncio.sleep(1)
            log.append("body")
        log.append("after")
        return log

    assert go(main()) == ["background", "body", "after"]


def test_a_child_may_cancel_the_nursery(go: Run) -> None:
    async def main() -> list[str]:
        log: list[str] = []

        async def ender(nursery: Nursery) -> None:
            await asyncio.sleep(1)
            nursery.cancel()

        async with Nursery() as nursery:
            nursery.start(note_cancel(log, "background"))
            nursery.start(ender(nursery))
        return log

    assert go(main()) == ["background"]


def test_a_child_cancelled_by_someone_else_has_simply_ended(go: Run) -> None:
    async def main() -> str:
        async with Nursery() as nursery:
            child = nursery.start(asyncio.sleep(10, "never"))
            nursery.start(asyncio.sleep(2))
            await asyncio.sleep(1)
            child.cancel()
        return "fine"

    assert go(main()) == "fine"


def test_an_error_cancels_siblings_and_body_once_and_is_raised_as_itself(go: Run) -> None:
    error = ValueError("first")
    log: list[str] = []

    async def main() -> None:
        host = asyncio.current_task()
        assert host is not None
        try:
            async with Nursery() as nursery:
                nursery.start(note_cancel(log, "sibling"))
                nursery.start(fail(error))
                await note_cancel(log, "body")
        finally:
            assert host.cancelling() == 0
            await asyncio.sleep(1)  # no cancel is left to strike here

    with pytest.raises(ValueError, match="first") as caught:
        go(main())
    assert caught.value is error
    assert sorted(log) == ["body", "sibling"]


def test_clean_up_is_not_cut_short_by_a_second_cancel_of_ours(go: Run) -> None:
    async def main() -> list[str]:
        log: list[str] = []

        async def slow_to_end() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(5)
                log.append("cleaned")

        async def body_fails_after_cancel() -> None:
            async with Nursery() as nursery:
                nursery.start(slow_to_end())
                await asyncio.sleep(1)
                nursery.cancel()
                await asyncio.sleep(1)
                raise ValueError("body")

        async def child_fails() -> None:
            async with Nursery() as nursery:
                nursery.start(slow_to_end())
                nursery.start(fail(ValueError("child")))
                await asyncio.Event().wait()

        with pytest.raises(ValueError, match="body"):
            await body_fails_after_cancel()
        with pytest.raises(ValueError, match="child"):
            await child_fails()
        return log

    assert go(main()) == ["cleaned", "cleaned"]


def test_later_errors_are_kept_in_the_notes_of_the_first(go: Run) -> None:
    async def fails_in_clean_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise KeyError("echo")

    async def main() -> None:
        async with Nursery() as nursery:
            nursery.start(fails_in_clean_up(), name="sibling")
            nursery.start(fail(ValueError("first")))

    with pytest.raises(ValueError, match="first") as caught:
        go(main())
    (note,) = caught.value.__notes__
    assert "sibling failed too" in note
    assert "KeyError: 'echo'" in note
    assert "fails_in_clean_up" in note


def test_an_error_of_the_body_ends_the_children_and_passes(go: Run) -> None:
    log: list[str] = []

    async def main() -> None:
        async with Nursery() as nursery:
            nursery.start(note_cancel(log, "child"))
            await asyncio.sleep(1)
            raise ValueError("body")

    with pytest.raises(ValueError, match="body") as caught:
        go(main())
    assert log == ["child"]
    assert not hasattr(caught.value, "__notes__")


def test_awaiting_a_child_that_fails_raises_its_error_once(go: Run) -> None:
    async def main() -> None:
        async with Nursery() as nursery:
            await nursery.start(fail(ValueError("once")))

    with pytest.raises(ValueError, match="once") as caught:
        go(main())
    assert not hasattr(caught.value, "__notes__")


def test_an_error_keeps_the_context_it_was_born_with(go: Run) -> None:
    async def child() -> None:
        try:
            int("origin")
        except ValueError:
            raise LookupError("translated")  # noqa: B904 - the implicit context is the point

    async def main() -> None:
        async with Nursery() as nursery:
            nursery.start(child())
            await asyncio.Event().wait()

    with pytest.raises(LookupError, match="translated") as caught:
        go(main())
    assert isinstance(caught.value.__context__, ValueError)
