"""A machine that slept: nobody is judged before every holder has got one more window, whoever comes first (ADR 9)."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from allswell import Watch
from allswell.domain.ids import CommandId
from allswell.domain.lease.model import stop_reserve
from allswell.domain.rules.command import CheckIn, Complete
from allswell.engine.engine import Engine
from allswell.engine.ids import Ids
from allswell.engine.lease import Lease
from allswell.errors import LeaseLost
from allswell.store.memory import MemoryStore
from allswell.store.port import Store
from allswell.store.sqlite import SqliteStore
from allswell.testing.loop import VirtualClock, run
from allswell.testing.sim.process import engine_of
from allswell.timing.clock import Clock, SystemClock, this_machine
from tests.engine.stage import Stage, play

HOUR = 3_600_000
WORDS: dict[str, Callable[[Lease], Awaitable[object]]] = {
    "check-in": lambda lease: lease.checkin("still here"),
    "renewal": lambda lease: lease.renew(),
    "completion": lambda lease: lease.complete(),
    "release": lambda lease: lease.release(),
}


class Sleepy(SystemClock):
    """This machine's clocks, if it had slept for so long."""

    slept = 0

    def wall(self) -> int:
        return super().wall() + self.slept

    def boottime(self) -> int:
        return super().boottime() + self.slept


@asynccontextmanager
async def process(store: Store, clock: Clock, machine: str | None = "this one") -> AsyncIterator[Watch]:
    """A process on a store that only answers: nobody sweeps in it unless it is told to."""
    chance = random.Random(1)
    engine = Engine(store, rng=chance.random, clock=clock, sweeping=False, machine=machine)
    async with Watch(engine, Ids(clock.wall, chance.getrandbits)) as watch:
        yield watch


async def say(watch: Watch, lease: Lease) -> None:
    """What the holder says through another process."""
    await watch._engine.check_in(CheckIn(lease.task, lease.token, lease.agent))
    await watch._engine.do(Complete(CommandId("done"), lease.task, lease.token, lease.agent))


@pytest.mark.parametrize("word", WORDS)
def test_a_holder_that_speaks_before_the_sweeper_has_looked_is_heard(word: str) -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit("work", timeout="10m")
        lease = await stage.watch.claim(agent="bob", lease="60s")
        assert lease is not None
        await asyncio.sleep(1.25)
        stage.clock.suspend(HOUR)
        await WORDS[word](lease)
        assert len(await stage.told("clock_jumped")) == 1

    play(scene)


@pytest.mark.row("O10")
def test_a_machine_that_slept_does_not_trust_its_leases_before_it_has_asked() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit("work", timeout="2h")
        lease = await stage.watch.claim(agent="bob", lease="60s")
        assert lease is not None
        assert lease.remaining == 60_000
        stage.clock.suspend(HOUR)
        assert (lease.remaining, lease.until_stop) == (0, 0)
        assert await lease.renew_in_time()  # our own store gives one more window
        assert lease.remaining > 59_000

    play(scene)


@pytest.mark.row("O10")
def test_a_holder_stops_in_time_and_renews_sooner_for_it() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit("work", timeout="2h")
        lease = await stage.watch.claim(agent="bob", lease="30s")
        assert lease is not None
        now = asyncio.get_running_loop().time()
        assert lease.renew_at == now + 10
        lease.reserve = stop_reserve(30_000, 10_000)
        assert lease.reserve == 12_000
        assert (lease.until_stop, lease.renew_at) == (18_000, now + 6)
        assert stop_reserve(30_000, 60_000) == 12_000, "a grace as long as the lease would stop it at once"

    play(scene)


def test_after_a_jump_silence_is_still_judged() -> None:
    """One more window, not one for each look."""

    async def scene(stage: Stage) -> None:
        await stage.watch.submit("work", timeout="10m")
        lease = await stage.watch.claim(agent="bob")
        assert lease is not None
        stage.clock.suspend(HOUR)
        await asyncio.sleep(40)
        assert await stage.watch.counts() == {"ready": 1}
        with pytest.raises(LeaseLost):
            await lease.complete()

    play(scene)


def on_memory(scene: Callable[[MemoryStore, VirtualClock], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = VirtualClock()
        await scene(MemoryStore(clock=clock), clock)

    run(main(), seed=1)


async def _claimed(store: Store, clock: Clock) -> Lease:
    """A lease whose process has gone, as a command line does."""
    async with process(store, clock) as watch:
        await watch.submit("work", timeout="10m")
        lease = await watch.claim(agent="bob")
    assert lease is not None
    return lease


def test_a_process_that_was_not_there_before_notices_too() -> None:
    async def scene(store: MemoryStore, clock: VirtualClock) -> None:
        lease = await _claimed(store, clock)
        clock.suspend(HOUR)
        async with process(store.another(), clock) as watch:
            await say(watch, lease)

    on_memory(scene)


def test_clocks_of_another_machine_tell_nothing() -> None:
    """What is apart there was never together here; so an hour is an hour."""

    async def scene(store: MemoryStore, clock: VirtualClock) -> None:
        lease = await _claimed(store, clock)
        clock.suspend(HOUR)
        async with process(store.another(), clock, machine="another") as watch:
            with pytest.raises(LeaseLost):
                await say(watch, lease)

    on_memory(scene)


def test_of_several_processes_one_gives_the_window() -> None:
    async def scene(store: MemoryStore, clock: VirtualClock) -> None:
        lease = await _claimed(store, clock)
        async with process(store.another(), clock) as long_lived:
            clock.suspend(HOUR)
            async with process(store.another(), clock) as command_line:
                await command_line._engine.check_in(CheckIn(lease.task, lease.token, lease.agent))
            await engine_of(long_lived).sweeper.sweep()
            told = [entry.event.kind async for entry in long_lived.events()]
            assert told.count("clock_jumped") == 1

    on_memory(scene)


def test_it_is_so_on_sqlite(tmp_path: Path) -> None:
    async def scene() -> None:
        clock = Sleepy()
        lease = await _claimed(SqliteStore(tmp_path / "x.db", clock=clock), clock)
        clock.slept = HOUR
        async with process(SqliteStore(tmp_path / "x.db", clock=clock), clock) as watch:
            await say(watch, lease)
            assert await watch.counts() == {"done": 1}

    asyncio.run(scene())


def test_this_machine_is_the_same_for_every_process_on_it() -> None:
    assert this_machine() == this_machine()
    assert this_machine()
