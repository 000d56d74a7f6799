"""What cannot be handled holds up nothing else: one sick row no other, one bad look no later one."""

import asyncio
import random

import pytest

import allswell
from allswell.domain.ids import Millis
from allswell.domain.lease import expiry as ticking
from allswell.domain.rules.query import SweepAgenda
from allswell.domain.run.run import Run
from allswell.domain.task.aggregate import TaskAggregate, TaskChange
from allswell.store.memory import MemoryStore
from allswell.testing.loop import VirtualClock, run
from allswell.testing.sim.process import engine_of


def test_a_sick_timer_is_set_aside_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sick one is reported, tried again later, and handled once it is well."""
    sick = {"name": "sick"}

    def tick(case: TaskAggregate, now: Millis, run: Run | None) -> TaskChange:
        if case.task.name == sick["name"]:
            raise ZeroDivisionError("planted")
        return right(case, now, run)

    async def scene() -> None:
        clock = VirtualClock()
        watch = allswell.make_watch(MemoryStore(clock=clock), clock=clock, chance=random.Random(1))
        async with watch:
            for name in ("sick", "fit", "fitter"):
                await watch.submit(name, timeout="10s")
                assert await watch.claim(agent=name)
            await asyncio.sleep(11)
            assert (await watch.counts()) == {"held": 1, "ready": 2}
            assert len(engine_of(watch).sweeper.troubles) == 1
            sick.clear()
            sick["name"] = "nobody"
            await asyncio.sleep(60)
            assert (await watch.counts()) == {"ready": 3}

    right = ticking.tick
    monkeypatch.setattr(ticking, "tick", tick)
    run(scene(), seed=3)


def test_a_look_that_breaks_does_not_end_the_sweeping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was wrong, the next look may find it gone; without sweeping, everything would hang silently."""

    async def scene() -> None:
        clock = VirtualClock()
        store = MemoryStore(clock=clock)
        right = store.view_agenda
        broken = True

        async def view_agenda() -> SweepAgenda:
            if broken:
                raise ZeroDivisionError("planted")
            return await right()

        monkeypatch.setattr(store, "view_agenda", view_agenda)
        async with allswell.make_watch(store, clock=clock, chance=random.Random(1)) as watch:
            await watch.submit("work", timeout="10s")
            assert await watch.claim(agent="bob")
            await asyncio.sleep(60)
            assert (await watch.counts()) == {"held": 1}
            broken = False
            await asyncio.sleep(watch.pace.retry_most * 2)
            assert (await watch.counts()) == {"ready": 1}

    run(scene(), seed=3)
