"""A dispatcher that gives back what it has claimed and not begun, on the memory store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from allswell import Watch, make_watch
from allswell.domain.ids import AgentId
from allswell.engine.lease import Lease
from allswell.errors import Unavailable
from allswell.runtime.supervisor.dispatch import Dispatcher, Slot
from allswell.store.memory import MemoryStore
from tests import patience
from tests.runtime.supervisor.stage import standin

Meanwhile = Callable[[Watch, Lease], Awaitable[None]]


class _Interrupted:
    """A watch after each claim of which something else happens first."""

    def __init__(self, watch: Watch, meanwhile: Meanwhile) -> None:
        self._watch = watch
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the watch has
        return getattr(self._watch, name)

    async def claim(self, **wanted: Any) -> Lease | None:  # noqa: ANN401 - as the watch's own
        lease = await self._watch.claim(**wanted)
        if lease is not None:
            await self._meanwhile(self._watch, lease)
        return lease


def _dispatcher(watch: Any, *, halted: asyncio.Event) -> Dispatcher:  # noqa: ANN401 - a watch, or one that is interrupted
    spec = standin()
    return Dispatcher(
        watch,
        spec,
        [Slot(spec, AgentId("agent"))],
        lease=3_000,
        take=lambda _slot, _lease: None,
        hindrance=lambda: "the fleet is paused" if halted.is_set() else "",
        trusted=lambda: 60.0,
    )


@pytest.mark.row("O4")
def test_a_task_that_was_cancelled_before_it_was_given_back_ends_no_supervisor() -> None:
    async def main() -> None:
        halted, cancelled = asyncio.Event(), asyncio.Event()

        async def cancel_and_pause(watch: Watch, lease: Lease) -> None:
            await watch.cancel(lease.task)
            halted.set()
            cancelled.set()

        async with make_watch(MemoryStore()) as watch:
            await watch.submit("slow")
            dispatcher = _dispatcher(_Interrupted(watch, cancel_and_pause), halted=halted)
            working = asyncio.ensure_future(dispatcher.work())
            async with asyncio.timeout(patience.SECONDS):
                await cancelled.wait()
                while not dispatcher.waits:
                    await asyncio.sleep(0)
                    assert not working.done(), working
            halted.clear()
            await _stop(working)

    asyncio.run(main())


@pytest.mark.row("O4")
@pytest.mark.parametrize("failure", ["lost", "away"])
def test_a_dispatcher_that_is_stopped_with_a_task_in_its_hand_stops(failure: str) -> None:
    async def main() -> None:
        looks = asyncio.Event()

        async def look_for_ever() -> None:
            looks.set()
            await asyncio.Event().wait()

        async with make_watch(MemoryStore()) as watch:

            async def meanwhile(_: Watch, lease: Lease) -> None:
                if failure == "lost":
                    await watch.cancel(lease.task)
                else:
                    interrupted.held = _away
                interrupted.views = SimpleNamespace(view_services=look_for_ever)

            await watch.submit("slow")
            interrupted: Any = _Interrupted(watch, meanwhile)
            working = asyncio.ensure_future(_dispatcher(interrupted, halted=asyncio.Event()).work())
            async with asyncio.timeout(patience.SECONDS):
                await looks.wait()
            await _stop(working)

    asyncio.run(main())


def _away(*_: object) -> Any:  # noqa: ANN401 - a lease whose store does not answer
    async def release(_reason: str) -> None:
        await asyncio.sleep(0)
        raise Unavailable("the store is away")

    return SimpleNamespace(release=release)


async def _stop(working: asyncio.Future[None]) -> None:
    working.cancel()
    done, _ = await asyncio.wait([working], timeout=patience.SECONDS)
    assert done, "it took no notice of its cancel"
    assert working.cancelled(), working
