"""A wall clock that is set, either way: what runs keeps the time it had left, what is a moment stays (ADR 33)."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from allswell import Watch
from allswell.domain.ids import TaskId
from allswell.domain.rules.command import CheckIn
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.engine.engine import Engine
from allswell.engine.ids import Ids
from allswell.engine.lease import Lease
from allswell.engine.sweeper import Sweeper
from allswell.store.clock import SETTLING
from allswell.store.memory import MemoryStore
from allswell.store.port import Store
from allswell.store.sqlite import SqliteStore
from allswell.testing.loop import VirtualClock, run
from allswell.testing.sim.process import engine_of
from allswell.timing.clock import Clock, SystemClock
from tests.engine.stage import Stage, play
from tests.properties.budget import DETERMINISTIC

HOUR = 3_600_000
YEAR = 365 * 24 * HOUR
STEPS = (-YEAR, -HOUR, -20_000, 20_000, HOUR, YEAR)


async def claimed(watch: Watch, role: str = "", lease: str | None = None) -> Lease:
    held = await watch.claim(agent="bob", roles=[role], lease=lease)
    assert held is not None
    return held


async def left(watch: Watch, task: TaskId) -> int:
    """How long it is until something happens to a task by itself."""
    row = await watch._engine.store.view_task(task)
    assert row is not None
    assert row.due is not None
    return row.due - (await watch._engine.store.view_agenda()).now


@pytest.mark.parametrize("by", STEPS)
def test_a_limit_comes_when_it_would_have_come(by: int) -> None:
    """Neither sooner nor later, however the wall was set; and once, though two processes notice it."""

    async def scene(stage: Stage) -> None:
        watch = stage.watch
        await watch.submit("work", timeout="10m")
        lease = await claimed(watch, lease="12m")
        async with stage.another(seed=2) as other:
            await asyncio.sleep(240)
            stage.clock.jump_wall(by)
            for _ in range(23):
                await asyncio.sleep(15)
                await lease.checkin("still here")
            assert await other.counts() == {"held": 1}
            await asyncio.sleep(16)
            assert await other.counts() == {"ready": 1}
        assert [event.data["by_ms"] for event in await stage.told("clock_set")] == [by]
        assert await stage.told("clock_jumped") == []

    play(scene)


@pytest.mark.parametrize("by", STEPS)
def test_silence_is_judged_when_it_would_have_been(by: int) -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit("work", timeout="10m")
        async with stage.another(seed=2) as dies:
            await claimed(dies, lease="60s")
        await asyncio.sleep(30)
        stage.clock.jump_wall(by)
        await asyncio.sleep(29)
        assert await stage.watch.counts() == {"held": 1}
        await asyncio.sleep(2)
        assert await stage.watch.counts() == {"ready": 1}

    play(scene)


@pytest.mark.parametrize("by", STEPS)
def test_a_pause_is_as_long_as_it_was_and_a_not_before_is_when_it_was(by: int) -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        paused = await watch.submit("paused")
        lease = await claimed(watch)
        await lease.fail(Failure(ErrorClass.NETWORK, "no route"))
        moment = stage.clock.wall() + 2 * HOUR
        later = await watch.submit("later", not_before=moment)
        pause = await left(watch, paused)
        stage.clock.jump_wall(by)
        if abs(by) < HOUR:
            await watch.submit("whatever makes it look")
            assert await left(watch, paused) == pause
        await asyncio.sleep(pause / 1_000 + 1.5)
        assert (await watch.counts())["ready"] >= 1
        row = await watch._engine.store.view_task(later)
        assert row is not None
        assert row.ready if moment <= stage.clock.wall() else row.due == moment

    play(scene)


@pytest.mark.parametrize("by", STEPS)
def test_a_run_and_a_request_end_when_they_would_have(by: int) -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        run_ = await watch.open_run("night", timeout="10m")
        await watch.submit("in it", run=run_, role="x")
        await watch.submit("asker", role="y", timeout="1h")
        asker = await claimed(watch, role="y", lease="1h")
        await asker.delegate("expert", "help", timeout="10m")
        await asyncio.sleep(300)
        stage.clock.jump_wall(by)
        await asyncio.sleep(298)
        counts = await watch.counts()
        assert (counts["ready"], counts["held"]) == (2, 1)
        await asyncio.sleep(4)
        assert "ready" not in await watch.counts()
        assert "held" in await watch.counts()

    play(scene)


@pytest.mark.parametrize("by", STEPS)
@pytest.mark.parametrize("standing", [True, False])
def test_a_run_whose_clock_has_stood_has_the_time_left_that_it_had(by: int, *, standing: bool) -> None:
    """Whether the wall is set while its clock stands or after it has stood."""

    async def scene(stage: Stage) -> None:
        watch = stage.watch
        run_ = await watch.open_run("night", timeout="10m")
        await watch.submit("in it", run=run_)
        question = await (await claimed(watch)).ask("Shall I?")
        await asyncio.sleep(100)
        if standing:
            stage.clock.jump_wall(by)
            await asyncio.sleep(100)
        await watch.answer(question, "reply", "yes")
        if not standing:
            stage.clock.jump_wall(by)
        await asyncio.sleep(598)
        assert "ready" in await watch.counts()
        await asyncio.sleep(4)
        assert await watch.counts() == {"failed": 1}

    play(scene)


def test_forward_and_back_again_is_as_if_nothing_had_been(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(stage: Stage) -> None:
        task = await stage.watch.submit("work", timeout="10m")
        await claimed(stage.watch, lease="9m")
        before = await stage.watch._engine.store.view_task(task)
        for by in (HOUR, -HOUR, YEAR, -YEAR):
            stage.clock.jump_wall(by)
            await engine_of(stage.watch).sweeper.sweep()
        assert await stage.watch._engine.store.view_task(task) == before

    with caplog.at_level(logging.WARNING):
        play(scene)
    assert sum("clock was set" in line for line in caplog.messages) == 4
    assert "set back by 1h" in caplog.text


def test_a_walk_over_many_rows_that_is_cut_off_is_taken_up_where_it_was() -> None:
    """Every row moves once, whoever dies after whichever chunk."""

    async def scene(stage: Stage) -> None:
        watch = stage.watch
        await watch.submit_many([{"name": f"task {number}", "timeout": "1h"} for number in range(1_300)])
        leases = await watch.claim_many(1_300, agent="bob", lease="50m")
        assert len(leases) == 1_300
        stage.clock.jump_wall(-HOUR)
        weather = Cut(2)
        with pytest.raises(ConnectionError):
            async with process(stage.store.another(faults=weather), stage.clock) as dies:
                await engine_of(dies).sweeper.settle()
        assert weather.commits == 3
        word = await stage.store.get(SETTLING)
        assert word is not None
        assert '"after"' in word
        async with process(stage.store.another(), stage.clock) as next_one:
            assert (await next_one._engine.store.view_agenda()).stands
            await next_one.submit("another")
        now = stage.clock.wall()
        rows = list(stage.store.database.tables.leases.values())
        assert {row.renewed_at + (row.length or 0) - now for row in rows} == {50 * 60_000}
        assert len(await stage.told("clock_set")) == 1

    play(scene)


class Cut:
    """A connection that breaks for good after so many commits."""

    def __init__(self, commits: int) -> None:
        self._most = commits
        self.commits = 0

    def before(self, statement: str) -> Awaitable[None] | None:
        del statement
        return None

    async def before_commit(self) -> None:
        self.commits += 1
        if self.commits > self._most:
            raise ConnectionError

    async def after_commit(self) -> None:
        pass


@asynccontextmanager
async def process(store: Store, clock: Clock, machine: str | None = "this one") -> AsyncIterator[Watch]:
    """A process that only answers: nobody sweeps in it unless it is told to."""
    chance = random.Random(1)
    engine = Engine(store, rng=chance.random, clock=clock, sweeping=False, machine=machine)
    async with Watch(engine, Ids(clock.wall, chance.getrandbits)) as watch:
        yield watch


@given(
    steps=some.lists(some.tuples(some.sampled_from(STEPS), some.integers(0, 500_000)), max_size=4),
    seed=some.integers(0, 9),
)
@settings(DETERMINISTIC, max_examples=60)
def test_however_often_it_is_set_a_lease_ends_by_elapsed_time(steps: list[tuple[int, int]], seed: int) -> None:
    """Whoever comes and goes between: processes that live on, command lines, and nobody at all."""

    async def main() -> None:
        clock = VirtualClock()
        store = MemoryStore(clock=clock)
        chance = random.Random(seed)
        async with process(store, clock) as first:
            task = await first.submit("work", timeout="1h")
            lease = await claimed(first)
        began = clock.monotonic()
        for by, pause in steps:
            await asyncio.sleep(pause / 1_000)
            clock.jump_wall(by)
            if chance.random() < 0.6:
                async with process(store.another(), clock) as command_line:
                    await command_line._engine.check_in(CheckIn(lease.task, lease.token, lease.agent))
        async with process(store.another(), clock) as last:
            await engine_of(last).sweeper.sweep()
            row = await last._engine.store.view_task(task)
        assert row is not None
        if row.lease is not None:
            assert row.lease.deadline - clock.wall() == HOUR - (clock.monotonic() - began)

    run(main(), seed=1)


class Set(SystemClock):
    """This machine's clocks, if its wall had been set by so much."""

    by = 0

    def wall(self) -> int:
        return super().wall() + self.by


@pytest.mark.parametrize("machine", ["this one", "another", None])
def test_on_sqlite_a_store_from_the_future_is_settled(tmp_path: Path, machine: str | None) -> None:
    """By the same machine, after it was started anew, or where nobody can tell which one it is."""

    async def scene() -> None:
        clock = Set()
        clock.by = YEAR
        async with process(SqliteStore(tmp_path / "x.db", clock=clock), clock) as ahead:
            await ahead.submit_many([{"name": "held"}, {"name": "free"}])
            lease = await claimed(ahead, lease="10m")
            await lease.renew()
        clock.by = 0
        async with process(SqliteStore(tmp_path / "x.db", clock=clock), clock, machine) as watch:
            assert YEAR - 60_000 < (await watch._engine.store.view_agenda()).stands <= YEAR
            await watch._engine.check_in(CheckIn(lease.task, lease.token, lease.agent))
            agenda = await watch._engine.store.view_agenda()
            assert agenda.stands == 0
            assert abs(agenda.now - clock.wall()) < 60_000
            row = await watch._engine.store.view_task(lease.task)
            assert row is not None
            assert row.lease is not None
            assert 9 * 60_000 < row.lease.renewed_at + 600_000 - clock.wall() <= 600_000
            assert abs(row.lease.granted_at - clock.wall()) < 60_000
            assert await watch.claim(agent="ann") is not None
            told = [entry.event.kind async for entry in watch.events()]
            assert told.count("clock_set") == 1

    asyncio.run(scene())


def test_a_process_that_lived_on_follows_whoever_settled(tmp_path: Path) -> None:
    """Its own reckoning is from before; it must neither go by it nor settle a second time."""

    async def scene() -> None:
        clock = Set()
        async with process(SqliteStore(tmp_path / "x.db", clock=clock), clock) as old:
            await old.submit("work", timeout="10m")
            lease = await claimed(old, lease="10m")
            clock.by = -HOUR
            async with process(SqliteStore(tmp_path / "x.db", clock=clock), clock) as command_line:
                await command_line.submit("another")
            await lease.checkin("here")
            await engine_of(old).sweeper.sweep()
            row = await old._engine.store.view_task(lease.task)
            assert row is not None
            assert row.lease is not None
            assert 590_000 < row.lease.deadline - clock.wall() <= 600_000
            told = [entry.event.kind async for entry in old.events()]
            assert told.count("clock_set") == 1

    asyncio.run(scene())


def test_the_sweeper_settles_without_being_asked() -> None:
    """Also where it could not see the jump itself: the store was written from the future before it began."""

    async def scene(stage: Stage) -> None:
        clock = VirtualClock()
        store = MemoryStore(clock=clock)
        clock.jump_wall(YEAR)
        async with process(store, clock, None) as ahead:
            await ahead.submit("work")
            await claimed(ahead)
        clock.jump_wall(-YEAR)
        async with process(store.another(), clock, None) as watch:
            sweeper: Sweeper = engine_of(watch).sweeper
            assert not sweeper.clocks.jumped
            assert await sweeper.sweep() == 0.0
            assert (await watch._engine.store.view_agenda()).stands == 0
            assert 29_000 < await left(watch, (await watch.tasks())[0].task.id) < HOUR
        del stage

    play(scene)
