"""Guards of a watch from wherever they are used: threads, other loops, a loop that is blocked or gone (F8)."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import allswell
from allswell.domain.service.breaker import BreakerPolicy
from allswell.domain.service.guard import GuardPolicy
from allswell.domain.service.retry import RetryPolicy
from allswell.engine.timings import Timings
from allswell.runtime.guard import Guard
from allswell.runtime.guard.breakers import breakers_of
from allswell.testing.sim.process import engine_of

ONCE = GuardPolicy(retry=RetryPolicy(retries=0))


def breaks() -> None:
    raise ConnectionError("gone")


async def breaks_later() -> None:
    breaks()


def fails(guard: Guard) -> None:
    with pytest.raises(ConnectionError):
        guard.call_sync(breaks)


@pytest.mark.row("F8")
def test_sync_code_async_code_and_threads_count_on_one_breaker(tmp_path: Path) -> None:
    with allswell.open(f"sqlite:///{tmp_path / 'watch.db'}") as watch:
        guard = allswell.guard("api", ONCE, watch=watch)
        fails(guard)

        async def elsewhere() -> None:
            with pytest.raises(ConnectionError):
                await guard.call(breaks_later)

        asyncio.run(elsewhere())
        with ThreadPoolExecutor(1) as pool:
            pool.submit(fails, guard).result()
        with pytest.raises(allswell.BreakerOpen):
            guard.call_sync(breaks)
        (row,) = watch.wait_for(watch.inner.services())
        assert row.state.failures == 3


@pytest.mark.row("F8")
def test_a_call_that_blocks_the_loop_of_its_own_watch_does_not_hang(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with allswell.open("memory:") as watch:
            guard = allswell.guard("api", ONCE, watch=watch)
            for _ in range(3):
                fails(guard)
            with pytest.raises(allswell.BreakerOpen):
                guard.call_sync(breaks)
            assert await watch.services() == []

    asyncio.run(scene())
    assert [record.message for record in caplog.records].count(
        "a guarded call blocks the loop of its own watch, so its breaker is this process's own"
    ) == 1


@pytest.mark.row("F8")
def test_a_guard_whose_watch_is_closed_goes_by_its_own_process(tmp_path: Path) -> None:
    with allswell.open(f"sqlite:///{tmp_path / 'watch.db'}") as watch:
        guard = allswell.guard("api", ONCE, watch=watch)
        assert guard.call_sync(str.upper, "fine") == "FINE"

    async def elsewhere() -> None:
        with pytest.raises(ConnectionError):
            await guard.call(breaks_later)

    fails(guard)
    asyncio.run(elsewhere())
    fails(guard)
    with pytest.raises(allswell.BreakerOpen):
        guard.call_sync(breaks)


def test_a_forked_child_asks_no_loop_that_stayed_with_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with allswell.open(f"sqlite:///{tmp_path / 'watch.db'}") as watch:
        guard = allswell.guard("api", ONCE, watch=watch)
        with monkeypatch.context() as patch:
            patch.setattr("allswell.timing.loops.os.getpid", lambda: -1)
            fails(guard)
        assert watch.wait_for(watch.inner.services()) == []


def test_breakers_do_not_keep_a_closed_watch_alive() -> None:
    async def scene() -> weakref.ref[allswell.Watch]:
        async with allswell.open("memory:") as watch:
            await allswell.guard("api", ONCE, watch=watch).call(asyncio.sleep, 0)
            return weakref.ref(watch)

    gone = asyncio.run(scene())
    gc.collect()
    assert gone() is None


def test_a_name_that_no_store_can_hold_is_refused_at_once() -> None:
    async def scene() -> None:
        async with allswell.open("memory:") as watch:
            with pytest.raises(allswell.Refused, match="service has 1000 characters"):
                allswell.guard("x" * 1_000, watch=watch)

    asyncio.run(scene())


@pytest.mark.realtime
def test_a_watch_whose_loop_is_blocked_holds_nobody_up_for_long(tmp_path: Path) -> None:
    pace = Timings(service_patience=0.1)
    with allswell.open(f"sqlite:///{tmp_path / 'watch.db'}", pace=pace) as watch:
        threads, awaited = breakers_of(watch)
        loop, free = engine_of(watch.inner).loop, threading.Event()
        assert loop is not None
        loop.call_soon_threadsafe(free.wait)
        try:
            assert threads.admit("api", BreakerPolicy()).given.service == "api"
            given = asyncio.run(awaited.admit("api", BreakerPolicy())).given
            assert given.service == "api"
        finally:
            free.set()
