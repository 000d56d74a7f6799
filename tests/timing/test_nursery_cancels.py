"""Cancels around a nursery: those from outside pass through and are counted, its own never strike after the block.

Nearly every test runs in asyncio's own order and in some drawn ones: the promises hold in all of them.
"""

from __future__ import annotations

import asyncio
import sys

import pytest

from allswell.timing.loops import Nursery
from tests.timing.children import Run, fail, note_cancel


def test_our_cancel_never_strikes_after_the_block(go: Run) -> None:
    async def main() -> str:
        async def fails_at_once() -> None:
            raise ValueError("first")

        async def body(nursery: Nursery) -> None:
            nursery.start(fails_at_once())
            for _ in range(5):  # drawn orders let the child fail at any of these, or after them
                await asyncio.sleep(0)

        with pytest.raises(ValueError, match="first"):
            async with Nursery() as nursery:
                await body(nursery)
        await asyncio.sleep(1)
        return "undisturbed"

    assert go(main()) == "undisturbed"


def test_a_body_that_swallows_our_cancel_hides_no_error(go: Run) -> None:
    async def main() -> None:
        async with Nursery() as nursery:
            nursery.start(fail(ValueError("first")))
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.sleep(1)

    with pytest.raises(ValueError, match="first"):
        go(main())


@pytest.mark.parametrize("in_body", [True, False])
def test_a_cancel_from_outside_passes_through(go: Run, in_body: bool) -> None:
    async def main() -> list[str]:
        log: list[str] = []

        async def host() -> None:
            async with Nursery() as nursery:
                nursery.start(note_cancel(log, "child"))
                if in_body:
                    await asyncio.Event().wait()

        task = asyncio.create_task(host())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert task.cancelling() == 1
        return log

    assert go(main()) == ["child"]


@pytest.mark.parametrize("in_body", [True, False])
def test_a_timeout_around_a_nursery_holds(go: Run, in_body: bool) -> None:
    async def main() -> float:
        host = asyncio.current_task()
        assert host is not None

        async def bounded() -> None:
            async with asyncio.timeout(5), Nursery() as nursery:
                nursery.start(asyncio.sleep(1_000))
                if in_body:
                    await asyncio.Event().wait()

        with pytest.raises(TimeoutError):
            await bounded()
        assert host.cancelling() == 0
        return asyncio.get_running_loop().time()

    assert go(main()) == 5


def test_every_cancel_of_the_host_reaches_a_child_that_swallows_them(go: Run) -> None:
    async def main() -> int:
        swallowed = 0

        async def stubborn() -> None:
            nonlocal swallowed
            while swallowed < 3:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    swallowed += 1

        async def host() -> None:
            async with Nursery() as nursery:
                nursery.start(stubborn())

        task = asyncio.create_task(host())
        for _ in range(3):
            await asyncio.sleep(1)
            task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        return swallowed

    assert go(main()) == 3


def test_an_error_comes_before_a_cancel_from_outside_which_stays_counted(go: Run) -> None:
    async def main() -> None:
        async def fails_when_cancelled() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                raise ValueError("in clean-up")

        async def host() -> str:
            try:
                async with Nursery() as nursery:
                    nursery.start(fails_when_cancelled())
            except ValueError:
                me = asyncio.current_task()
                assert me is not None
                assert me.cancelling() == 1
            await asyncio.sleep(1)
            return "went on"

        task = asyncio.create_task(host())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() == (sys.version_info >= (3, 13))

    go(main())


def test_a_nursery_works_in_the_clean_up_of_a_cancelled_task(go: Run) -> None:
    async def main() -> list[str]:
        log: list[str] = []

        async def clean_up() -> None:
            async with Nursery() as nursery:
                nursery.start(fail(ValueError("inner")))
                await asyncio.Event().wait()

        async def host() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                with pytest.raises(ValueError, match="inner"):
                    await clean_up()
                await asyncio.sleep(1)
                log.append("cleaned")

        task = asyncio.create_task(host())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        return log

    assert go(main()) == ["cleaned"]


def test_nested_nurseries_on_one_host_each_take_back_their_own_cancel(go: Run) -> None:
    async def main() -> None:
        host = asyncio.current_task()
        assert host is not None

        async def nested() -> None:
            async with Nursery() as outer:
                outer.start(fail(ValueError("outer")))
                async with Nursery() as inner:
                    inner.start(fail(ValueError("inner")))
                    await asyncio.Event().wait()

        with pytest.raises(ValueError, match=r"outer|inner"):
            await nested()
        assert host.cancelling() == 0
        await asyncio.sleep(1)

    go(main())


def test_system_exit_comes_before_everything(go: Run) -> None:
    hosts: list[asyncio.Task[None] | None] = []

    async def main() -> None:
        hosts.append(asyncio.current_task())
        async with Nursery() as nursery:
            nursery.start(fail(SystemExit(3)))
            await asyncio.Event().wait()

    with pytest.raises(SystemExit):
        go(main())
    # Seen: asyncio would otherwise tell of it whenever it is collected, in the middle of another test.
    assert hosts[0] is not None
    assert isinstance(hosts[0].exception(), SystemExit)


def test_a_nursery_that_is_not_open_starts_nothing(go: Run) -> None:
    async def main() -> None:
        nursery = Nursery()
        with pytest.raises(RuntimeError, match="not open yet: 'early'"):
            nursery.start(asyncio.sleep(1), name="early")
        async with nursery:
            nursery.cancel()
            with pytest.raises(RuntimeError, match="ending"):
                nursery.start(asyncio.sleep(1))
        with pytest.raises(RuntimeError, match="has ended"):
            nursery.start(asyncio.sleep(1))
        with pytest.raises(RuntimeError, match="entered once"):
            async with nursery:
                pass

    go(main())
