"""Guards read with hostile eyes: what nests, lives on, lies, or is cut off at the worst moment."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from allswell.domain.service.breaker import BreakerPolicy, BreakerState
from allswell.domain.service.guard import GuardPolicy
from allswell.domain.service.incident import GaveUp, Waiting
from allswell.domain.service.retry import RetryPolicy
from allswell.errors import BreakerOpen, ServiceParked
from tests.runtime.guard.stage import Service, Stage, Status, now, play

ONCE = GuardPolicy(retry=RetryPolicy(retries=0))
NO_BREAKER = GuardPolicy(breaker=None)


async def open_it(stage: Stage) -> None:
    for _ in range(3):
        with pytest.raises(Status):
            await stage.guard(ONCE).call(Service([Status(500)]))


def test_a_parked_service_inside_parks_no_other_outside() -> None:
    async def scene() -> None:
        stage = Stage()
        inner, outer = stage.guard(), stage.guard(service="outer")
        with pytest.raises(ServiceParked) as caught:
            await outer.call(inner.call, Service([Status(429, "36000")]))
        assert caught.value.service == "s"
        assert stage.breakers.parked("outer") == 0
        assert await outer.call(Service()) == "answer"

    play(scene())


def test_a_long_pause_of_a_breaker_inside_parks_no_service_outside() -> None:
    """A pause beyond the cap looks like a Retry-After beyond the cap, and is none."""

    async def scene() -> None:
        stage = Stage()
        policy = GuardPolicy(retry=RetryPolicy(retries=0), breaker=BreakerPolicy(open_after=1, pause=900_000))
        inner, outer = stage.guard(policy), stage.guard(service="outer")
        with pytest.raises(Status):
            await inner.call(Service([Status(500)]))
        with pytest.raises(BreakerOpen):
            await outer.call(inner.call, Service())
        assert stage.breakers.parked("outer") == 0
        assert stage.breakers.standing("outer")[1].failures == 0
        assert isinstance(stage.told[-1], GaveUp)

    play(scene())


def test_a_task_that_outlives_the_probe_it_was_started_in_is_no_part_of_it() -> None:
    async def scene() -> None:
        stage = Stage()
        guard = stage.guard(ONCE)
        late: list[asyncio.Future[int]] = []
        await open_it(stage)
        await asyncio.sleep(30)

        async def lives_on() -> int:
            await asyncio.sleep(5)
            with pytest.raises(BreakerOpen):
                await guard.call(Service())
            return now()

        async def probe() -> None:
            late.append(asyncio.ensure_future(lives_on()))
            raise Status(500)

        with pytest.raises(Status):
            await guard.call(probe)
        assert await late[0] == 35_000

    play(scene())


def test_who_waits_for_a_probe_says_so_once() -> None:
    async def scene() -> None:
        stage = Stage()
        await open_it(stage)
        await asyncio.sleep(30)
        probe = asyncio.ensure_future(stage.guard(ONCE).call(Service(takes=100.0)))
        await asyncio.sleep(1)
        assert await stage.guard(GuardPolicy(patient=True)).call(Service()) == "answer"
        await probe
        assert sum(isinstance(told, Waiting) for told in stage.told) == 1
        assert 130_000 <= now() <= 131_000

    play(scene())


def test_a_probe_that_is_cancelled_before_it_begins_frees_the_slot() -> None:
    """The cancel strikes at the first await inside the attempt, or on the way there."""

    async def scene(seed: int) -> None:
        stage = Stage()
        await open_it(stage)
        await asyncio.sleep(30)
        task = asyncio.ensure_future(stage.guard(ONCE).call(Service(takes=1.0)))
        for _ in range(seed % 3):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert stage.breakers.standing("s")[1].probe_until is None
        await asyncio.sleep(30)
        assert await stage.guard(ONCE).call(Service()) == "answer"

    for seed in range(6):
        play(scene(seed), seed=seed)


def test_a_coroutine_that_is_thrown_away_gives_its_probe_back() -> None:
    async def scene() -> None:
        stage = Stage()
        await open_it(stage)
        await asyncio.sleep(30)
        thrown_away = stage.guard(ONCE).call(asyncio.Event().wait)
        thrown_away.send(None)
        assert stage.breakers.standing("s")[0] is BreakerState.PROBING
        thrown_away.close()
        assert stage.breakers.standing("s")[0] is BreakerState.OPEN

    play(scene())


class Hostile(Exception):
    """An exception that wants neither to be looked at nor to be written on."""

    def __getattr__(self, name: str) -> object:
        raise OSError(name)

    def __setattr__(self, name: str, value: object) -> None:
        raise OSError(name)

    def __str__(self) -> str:
        raise ValueError


def test_an_exception_that_does_not_want_to_be_looked_at_is_retried_like_any_other() -> None:
    async def scene() -> None:
        stage = Stage()
        inner, outer = stage.guard(NO_BREAKER), stage.guard(NO_BREAKER)
        service, ended = Service([Hostile() for _ in range(99)]), False
        try:
            await outer.call(inner.call, service)
        except Hostile:  # pytest.raises would look at it
            ended = True
        assert (ended, len(service.calls)) == (True, 4)

    play(scene())


def test_what_has_failed_is_not_kept_alive_by_its_own_traceback() -> None:
    async def scene() -> None:
        gc.collect()
        gc.disable()
        try:
            stage = Stage()
            first = Status(500)
            gone = weakref.ref(first)
            service = Service([first])
            del first
            assert await stage.guard(NO_BREAKER).call(service) == "answer"
            await asyncio.sleep(0)
            assert gone() is None
        finally:
            gc.enable()

    play(scene())
