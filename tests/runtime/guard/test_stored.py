"""Breakers in a store, in virtual time: several watches on one memory store are several processes (F5, F8)."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from allswell import Watch, guard
from allswell.domain.service.breaker import BreakerPolicy, BreakerState, stand
from allswell.domain.service.guard import GuardPolicy
from allswell.domain.service.retry import RetryPolicy
from allswell.domain.service.service import ServiceRow
from allswell.errors import AllswellError, Refused, ServiceParked
from allswell.runtime.guard import Guard
from allswell.runtime.guard.breakers import OwnPermit, breakers_of
from tests.engine.stage import Stage, Weather, play
from tests.runtime.guard.stage import Service, Status

ONCE = GuardPolicy(retry=RetryPolicy(retries=0))
QUICK = BreakerPolicy(pause=30_000, probe_lease=60_000)


def guards(watch: Watch, policy: GuardPolicy = ONCE) -> Guard:
    return guard("api", policy, watch=watch)


async def tries(one: Guard, call: Callable[[], Awaitable[object]]) -> str:
    """What became of one call: its answer, or the name of its error."""
    try:
        return str(await one.call(call))
    except (Status, AllswellError, asyncio.CancelledError) as error:
        return type(error).__name__


async def row(stage: Stage) -> ServiceRow:
    return (await stage.store.view_services())["api"]


async def shut(stage: Stage, one: Guard, failures: int = 3) -> None:
    """Let calls fail until there have been so many in a row."""
    while "api" not in await stage.store.view_services() or (await row(stage)).state.failures < failures:
        await tries(one, Service([Status(500)]))
        if (left := (await row(stage)).state.open_until) is not None:
            await asyncio.sleep(max(left - stage.clock.wall(), 0) / 1_000)


@pytest.mark.row("F8")
def test_calls_that_go_well_tell_the_store_nothing() -> None:
    looks: list[str] = []

    async def scene(stage: Stage) -> None:
        one = guards(stage.watch)
        service = Service(takes=0.01)
        before = len(stage.commits)
        looks.clear()
        for _ in range(500):  # for 5 s
            assert await tries(one, service) == "answer"
        assert len(stage.commits) == before
        assert 4 <= looks.count("view_services") <= 6
        assert set(looks) <= {"view_services", "view_agenda"}  # the other is the sweeper's

    weather = Weather()

    async def note(statement: str) -> None:
        looks.append(statement)

    weather.on = note
    play(scene, faults=weather)


@pytest.mark.row("F8")
@pytest.mark.parametrize("seed", range(5))
def test_fifty_callers_of_five_processes_on_a_half_open_breaker_send_one_probe(seed: int) -> None:
    async def scene(stage: Stage) -> None:
        others = [stage.another(seed=number) for number in range(2, 6)]
        for other in others:
            await other.__aenter__()
        await shut(stage, guards(stage.watch))
        assert stand((await row(stage)).state, stage.clock.wall()) is BreakerState.HALF_OPEN
        service = Service(takes=20)
        fleet = [guards(watch) for watch in (stage.watch, *others)]
        outcomes = await asyncio.gather(*(tries(fleet[number % 5], service) for number in range(50)))
        assert len(service.calls) == 1
        assert Counter(outcomes) == {"answer": 1, "BreakerOpen": 49}
        assert (await row(stage)).state.open_until is None
        assert len(await stage.told("breaker_probe")) == len(await stage.told("breaker_closed")) == 1
        for other in others:
            await other.__aexit__(None, None, None)

    play(scene, seed=seed)


@pytest.mark.row("F8")
def test_what_one_process_opens_another_sees_within_a_second() -> None:
    async def scene(stage: Stage) -> None:
        async with stage.another(seed=2) as other:
            mine, theirs = guards(stage.watch), guards(other)
            assert await tries(theirs, Service()) == "answer"
            for _ in range(3):
                await tries(mine, Service([Status(503)]))
            await asyncio.sleep(1)
            never = Service()
            assert await tries(theirs, never) == "BreakerOpen"
            assert never.calls == []

    play(scene)


@pytest.mark.row("F8")
def test_failures_of_many_processes_at_once_are_all_counted() -> None:
    async def scene(stage: Stage) -> None:
        others = [stage.another(seed=number) for number in range(2, 6)]
        for other in others:
            await other.__aenter__()
        patient = GuardPolicy(retry=RetryPolicy(retries=0), breaker=BreakerPolicy(open_after=50, escalate_after=100))
        await asyncio.gather(*(tries(guards(watch, patient), Service([Status(500)])) for watch in others))
        assert (await row(stage)).state.failures == 4  # the first of them made the row, and the others knew
        for other in others:
            await other.__aexit__(None, None, None)

    play(scene)


@pytest.mark.row("F8")
def test_a_probe_that_died_is_given_up_when_its_lease_ends() -> None:
    async def scene(stage: Stage) -> None:
        policy = GuardPolicy(attempt_timeout=60_000, retry=RetryPolicy(retries=0), breaker=QUICK)
        await shut(stage, guards(stage.watch, policy))
        dead = stage.another(seed=2)
        await dead.__aenter__()
        _, awaited = breakers_of(dead)
        given = (await awaited.admit("api", QUICK)).given
        await dead.__aexit__(None, None, None)  # it never reports
        assert given.generation == (await row(stage)).state.generation
        assert await tries(guards(stage.watch, policy), Service()) == "BreakerOpen"
        await asyncio.sleep(60)
        assert await tries(guards(stage.watch, policy), Service()) == "BreakerOpen"  # that was one more failure
        assert (await row(stage)).state.failures == 4
        await asyncio.sleep(30)
        assert await tries(guards(stage.watch, policy), Service()) == "answer"

    play(scene)


@pytest.mark.row("F8")
def test_a_cancelled_probe_frees_the_slot() -> None:
    async def scene(stage: Stage) -> None:
        one = guards(stage.watch)
        await shut(stage, one)
        probe = asyncio.ensure_future(tries(one, Service(takes=100)))
        await asyncio.sleep(1)
        assert (await row(stage)).state.probe_until is not None
        probe.cancel()
        assert await probe == "CancelledError"
        state = (await row(stage)).state
        assert (state.probe_until, state.failures) == (None, 3)
        await asyncio.sleep(30)
        assert await tries(one, Service()) == "answer"

    play(scene)


@pytest.mark.row("F8")
@pytest.mark.parametrize("steps", range(0, 40, 3))
def test_a_caller_that_is_cancelled_while_it_asks_keeps_no_probe(steps: int) -> None:
    async def scene(stage: Stage) -> None:
        one = guards(stage.watch)
        await shut(stage, one)
        asking = asyncio.ensure_future(tries(one, Service(takes=100)))
        for _ in range(steps):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        await asyncio.sleep(1)
        assert (await row(stage)).state.probe_until is None
        await asyncio.sleep(30)
        assert await tries(one, Service()) == "answer"

    play(scene)


@pytest.mark.row("F8")
def test_late_results_neither_open_nor_close() -> None:
    async def scene(stage: Stage) -> None:
        async with stage.another(seed=2) as other:
            mine, theirs = guards(stage.watch), guards(other)
            good = asyncio.ensure_future(tries(theirs, Service(takes=40)))
            bad = [asyncio.ensure_future(tries(theirs, Service([Status(500)], takes=41))) for _ in range(4)]
            await asyncio.sleep(1)
            for _ in range(3):
                await tries(mine, Service([Status(500)]))
            await asyncio.sleep(29.9)
            opened = await row(stage)
            assert stand(opened.state, stage.clock.wall()) is BreakerState.OPEN
            assert await good == "answer"
            assert (await row(stage)) == opened
            assert await tries(mine, Service()) == "answer"
            closed = await row(stage)
            assert await asyncio.gather(*bad) == ["Status"] * 4
            assert (await row(stage)) == closed
            assert closed.state.open_until is None

    play(scene)


@pytest.mark.row("F8")
@pytest.mark.parametrize("seed", range(3))
def test_one_question_however_many_fail_and_recovery_withdraws_it(seed: int) -> None:
    async def scene(stage: Stage) -> None:
        async with stage.another(seed=2) as other:
            fleet = [guards(stage.watch), guards(other)]
            for _ in range(8):
                await asyncio.gather(*(tries(fleet[n % 2], Service([Status(500)], takes=0.1)) for n in range(10)))
                await asyncio.sleep(31)
            (question,) = await stage.watch.questions()
            assert (question.id, question.kind, question.service) == ("q_@api.1", "service_failing", "api")
            assert await tries(fleet[0], Service()) == "answer"
            assert await stage.watch.questions() == []
            (closed,) = await stage.watch.questions(open_only=False)
            assert closed.choice == "withdrawn"

    play(scene, seed=seed)


@pytest.mark.row("F8")
def test_a_human_who_is_waited_for_opens_the_way_for_everybody() -> None:
    async def scene(stage: Stage) -> None:
        waits = GuardPolicy(retry=RetryPolicy(retries=0), breaker=BreakerPolicy(then="wait", pause=1_000))
        one = guards(stage.watch, waits)
        await shut(stage, one, failures=5)
        await stage.watch.submit("a", services=["api"])
        await asyncio.sleep(3_600)
        assert await tries(one, Service()) == "BreakerOpen"
        assert await stage.watch.claim(agent="ann") is None
        assert await stage.watch.unaccounted() == []
        (question,) = await stage.watch.questions()
        with pytest.raises(Refused, match="choose one of: probe, wait"):
            await stage.watch.answer(question.id, "skip")
        await stage.watch.answer(question.id, "probe", "it is back", by="eve")
        assert await stage.watch.claim(agent="ann", wait="6s") is not None
        assert await tries(one, Service()) == "answer"

    play(scene)


@pytest.mark.row("F8")
def test_an_open_breaker_closes_its_lanes_and_the_first_to_come_back_is_the_probe() -> None:
    async def scene(stage: Stage) -> None:
        one = guards(stage.watch)
        await stage.watch.submit_many([{"name": name, "services": ["api"]} for name in "ab"])
        for _ in range(3):
            await tries(one, Service([Status(500)]))
        opened = stage.seconds
        assert await stage.watch.claim(agent="ann") is None
        assert await stage.watch.claim(agent="ann", wait="1h") is not None
        assert 30 <= stage.seconds - opened <= 36
        probe = asyncio.ensure_future(tries(one, Service(takes=50)))
        await asyncio.sleep(20)
        assert await stage.watch.claim(agent="bob") is None
        assert await probe == "answer"
        assert await stage.watch.claim(agent="bob", wait="6s") is not None

    play(scene)


@pytest.mark.row("F5")
def test_a_limit_beyond_the_cap_parks_the_service_for_every_process() -> None:
    async def scene(stage: Stage) -> None:
        async with stage.another(seed=2) as other:
            assert await tries(guards(stage.watch), Service([Status(429, "3600")])) == "ServiceParked"
            never = Service()
            assert await tries(guards(other), never) == "ServiceParked"
            without = guard("api", breaker=False, watch=other)
            with pytest.raises(ServiceParked):
                await without.call(never)
            assert never.calls == []
            await asyncio.sleep(3_600)
            assert await without.call(never) == "answer"
            assert await tries(guards(other), never) == "answer"

    play(scene)


@pytest.mark.row("F8")
def test_without_the_store_a_guard_goes_by_its_own_process(caplog: pytest.LogCaptureFixture) -> None:
    weather = Weather()

    async def scene(stage: Stage) -> None:
        one = guards(stage.watch)
        assert await tries(one, Service()) == "answer"
        weather.down = True
        began = stage.seconds
        outcomes = [await tries(one, Service([Status(500)])) for _ in range(6)]
        assert outcomes == ["Status"] * 3 + ["BreakerOpen"] * 3
        assert stage.seconds - began <= 2 * stage.pace.service_patience + 0.1
        await asyncio.sleep(30)
        assert await tries(one, Service()) == "answer"
        weather.down = False
        await asyncio.sleep(5)
        assert await tries(one, Service([Status(500)])) == "Status"
        assert (await row(stage)).state.failures == 1
        assert not isinstance((await breakers_of(stage.watch)[1].admit("api", QUICK)).given, OwnPermit)

    with caplog.at_level(logging.INFO, logger="allswell.guard"):
        play(scene, faults=weather)
    told = [record.message for record in caplog.records]
    assert len([text for text in told if text.startswith("breakers are this process's own until")]) == 1
    assert "the store is back: breakers are shared again" in told


@pytest.mark.row("F8")
def test_a_service_that_was_shut_when_the_store_went_gets_one_probe_of_this_process() -> None:
    weather = Weather()

    async def scene(stage: Stage) -> None:
        one = guards(stage.watch)
        await shut(stage, one)
        weather.down = True
        service = Service(takes=20)
        outcomes = await asyncio.gather(*(tries(one, service) for _ in range(50)))
        assert Counter(outcomes) == {"answer": 1, "BreakerOpen": 49}
        assert await tries(one, service) == "answer"
        weather.down = False

    play(scene, faults=weather)


def test_a_store_that_hangs_holds_up_a_call_for_its_patience_only() -> None:
    weather = Weather()

    async def scene(stage: Stage) -> None:
        async def hang(_: str) -> None:
            await asyncio.sleep(10_000)

        weather.on = hang
        one = guards(stage.watch)
        began = stage.seconds
        assert await asyncio.gather(*(tries(one, Service()) for _ in range(20))) == ["answer"] * 20
        assert stage.seconds - began <= stage.pace.service_patience + 0.01
        weather.on = None

    play(scene, faults=weather)


def test_a_guard_needs_a_watch_that_is_open() -> None:
    async def scene(stage: Stage) -> None:
        with pytest.raises(Refused, match="needs a watch that is open"):
            guards(stage.another(seed=2))

    play(scene)


def test_all_guards_of_a_watch_share_what_is_known() -> None:
    async def scene(stage: Stage) -> None:
        assert guards(stage.watch).awaited is guards(stage.watch).awaited

    play(scene)
