"""Wake-up calls make waiting quick, and that is all they do: lost, late or in floods, they cost nothing but time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from allswell import Watch, make_watch
from allswell.domain.rules.event import Entry
from allswell.engine.engine import Debouncer
from allswell.engine.timings import Timings
from allswell.store.memory import MemoryStore
from allswell.store.port import Wakeup
from allswell.testing.loop import run, running_loop
from allswell.testing.sim.process import engine_of
from tests.engine.stage import Stage, play

SLOW = Timings(claim_poll=600.0, sweep_most=600.0, follow_poll=600.0)
"""So slow that only a call can have been the reason."""


def test_a_waiting_claim_elsewhere_is_served_at_once() -> None:
    async def scene(stage: Stage) -> None:
        async with stage.another(seed=2) as other:
            waiting = asyncio.ensure_future(other.claim(agent="bob", wait="1h"))
            await asyncio.sleep(10)
            await stage.watch.submit("a")
            assert await waiting is not None
            assert stage.seconds == pytest.approx(10, abs=0.01)

    play(scene, pace=SLOW)


def test_a_follower_elsewhere_reads_at_once() -> None:
    async def scene(stage: Stage) -> None:
        seen: list[Entry] = []

        async def read(entries: object) -> None:
            assert isinstance(entries, list)
            seen.extend(entries)

        async with stage.another(seed=2) as other:
            other.follow("reader", read)
            await asyncio.sleep(10)
            await stage.watch.submit("a")
            await asyncio.sleep(1)
            assert [entry.event.kind for entry in seen] == ["task_submitted"]

    play(scene, pace=SLOW)


def test_a_timer_set_by_a_process_that_does_not_sweep_rings_in_time() -> None:
    async def scene(stage: Stage) -> None:
        quiet = make_watch(stage.store.another(), clock=stage.clock, pace=SLOW, sweeping=False)
        async with quiet:
            await asyncio.sleep(10)
            await quiet.submit("later", not_before=stage.clock.wall() + 5_000)
            lease = await stage.watch.claim(agent="bob", wait="1h")
            assert lease is not None
            assert stage.seconds == pytest.approx(15, abs=0.05)

    play(scene, pace=SLOW)


def test_a_consequence_left_by_a_process_that_does_not_sweep_is_worked_off() -> None:
    async def scene(stage: Stage) -> None:
        quiet = make_watch(stage.store.another(), clock=stage.clock, pace=SLOW, sweeping=False)
        async with quiet:
            first = await quiet.submit("first")
            await quiet.submit("second", needs=[first])
            await asyncio.sleep(10)
            lease = await quiet.claim(agent="ann")
            assert lease is not None
            await lease.complete()
            after = await stage.watch.claim(agent="bob", wait="1h")
            assert after is not None
            assert after.name == "second"
            assert stage.seconds == pytest.approx(10, abs=0.05)

    play(scene, pace=SLOW)


def lossy(stage: Stage) -> Watch:
    """A process that nobody hears."""
    store = MemoryStore(database=stage.store.database, carry=lambda: ())
    return make_watch(store, clock=stage.clock, pace=stage.pace)


def test_no_work_is_lost_with_its_call() -> None:
    """Polling is the truth: claim, timer, consequence and journal are found without a single call."""

    async def scene(stage: Stage) -> None:
        async with lossy(stage) as mute:
            waiting = asyncio.ensure_future(stage.watch.claim(agent="bob", wait="1h"))
            await asyncio.sleep(10)
            await mute.submit("a", not_before=stage.clock.wall() + 5_000)
            assert await waiting is not None
            assert 15 <= stage.seconds < 15 + 1 + 1.25 * stage.pace.claim_poll

    play(scene)


def counted(watch: Watch) -> Callable[[], int]:
    """How many units of work this process has run so far."""
    store = engine_of(watch).store
    calls = 0
    transact = store.transact

    async def count(*given: object, **how: object) -> object:
        nonlocal calls
        calls += 1
        return await transact(*given, **how)  # type: ignore[arg-type]

    store.transact = count  # type: ignore[assignment, method-assign]
    return lambda: calls


def test_ten_thousand_calls_cost_one_look() -> None:
    async def scene(stage: Stage) -> None:
        async with stage.another(seed=2) as other:
            waiting = asyncio.ensure_future(other.claim(agent="bob", wait="1h"))
            await asyncio.sleep(30)
            looks = counted(other)
            for _ in range(10_000):
                stage.store.announce(Wakeup(ready=True))
            await asyncio.sleep(0.004)
            assert looks() == 1
            await stage.watch.submit("a")
            assert await waiting is not None

    play(scene, pace=SLOW)


def test_a_flood_that_leads_to_nothing_costs_at_most_as_much_again_as_polling() -> None:
    """A hundred calls a second for a minute about work that is not for us: a few quick looks, then ever fewer."""

    async def scene(stage: Stage) -> None:
        async with stage.another(seed=2) as other:
            waiting = asyncio.ensure_future(other.claim(agent="bob", roles=["rare"], wait="1h"))
            await asyncio.sleep(30)
            looks = counted(other)
            for _ in range(6_000):
                stage.store.announce(Wakeup(ready=True))
                await asyncio.sleep(0.01)
            assert looks() < 2 * 60 / stage.pace.claim_poll + 20
            await stage.watch.submit("a", role="rare")
            assert await waiting is not None

    play(scene)


def test_an_ear_hears_at_once_again_after_a_reward_or_a_quiet_while() -> None:
    async def scene() -> None:
        rung: list[float] = []
        ear = Debouncer(lambda: rung.append(running_loop().time()), most=1.0)

        async def flood(count: int) -> None:
            for _ in range(count):
                ear.call()
                await asyncio.sleep(0.001)

        await flood(3_000)
        assert len(rung) < 15, "5, 10, 20, … ms apart, then a second"
        assert rung[-1] - rung[-2] == pytest.approx(1.0, abs=0.01)
        await asyncio.sleep(5)
        ear.call()
        assert rung[-1] == running_loop().time()
        await flood(500)
        rung.clear()
        ear.rewarded()
        await asyncio.sleep(1)
        await flood(20)
        assert len(rung) >= 3
        ear.call()
        ear.close()
        rung.clear()
        await asyncio.sleep(5)
        ear.call()
        assert rung == [], "it is deaf when it is closed"

    run(scene(), seed=None)
