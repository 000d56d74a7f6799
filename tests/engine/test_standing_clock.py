"""A run's clock stands while one of its tasks waits for an answer: no limit takes the answer's place (O9)."""

from __future__ import annotations

import asyncio

import pytest

from allswell.domain.run.run import Run
from allswell.domain.task.model import Policy
from allswell.engine.status.why import why
from allswell.errors import LeaseLost
from allswell.testing.sim.process import engine_of
from tests.engine.stage import MINUTE, Stage, play


async def the_run(stage: Stage) -> Run:
    (run,) = await stage.watch.runs()
    return run


@pytest.mark.row("O9")
@pytest.mark.row("O1")
def test_a_question_outlives_the_deadline_of_its_run_and_the_steps_beside_it_do_too() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        run = await watch.open_run("flow", timeout="30m")
        asks = await watch.submit("asks", run=run)
        await watch.submit("works", run=run, policy=Policy(timeout=120 * MINUTE * 1_000))
        after = await watch.submit("after", run=run, needs=[asks])
        asking = await watch.claim(agent="ann", task=asks)
        working = await watch.claim(agent="bob", lease="1m")
        assert asking is not None
        assert working is not None
        opened = stage.clock.wall()
        assert working.deadline == opened + 30 * MINUTE * 1_000, "cut short by the run"
        await asyncio.sleep(10 * MINUTE)
        question = await asking.ask("Which one?")
        await asyncio.sleep(2)
        row = await watch.task(working.task)
        assert row is not None
        assert row.lease is not None
        assert row.lease.deadline == opened + 120 * MINUTE * 1_000, "the lease of a parallel step moves too"
        await working.renew()
        assert working.until_limit > 100 * MINUTE * 1_000, "and its holder hears of it with the next renewal"
        (told,) = (await why(stage.store, run)).chain[0].says[-1:]
        assert told == f"Its time limit is paused while {question} is open; 20m are left of its time."

        await asyncio.sleep(8 * 60 * MINUTE - 2)  # a night
        assert [one.closed_at for one in await watch.questions()] == [None]
        assert (await the_run(stage)).ended_at is None
        await watch.answer(question, "reply", "the left one")
        stands = await the_run(stage)
        assert (stands.stood, stands.limit) == (480 * MINUTE * 1_000, opened + 510 * MINUTE * 1_000)
        again = await watch.claim(agent="ann", task=asks)
        assert again is not None
        assert again.deadline == opened + 505 * MINUTE * 1_000, "its own limit is nearer"
        await again.complete()
        await asyncio.sleep(1)
        last = await watch.claim(agent="ann", task=after)
        assert last is not None
        await asyncio.sleep(15 * MINUTE)
        assert (await the_run(stage)).ended_at is None
        await asyncio.sleep(5 * MINUTE)
        ended = await the_run(stage)
        assert (ended.reason, ended.ended_at) == ("run_timeout", opened + 510 * MINUTE * 1_000)

    play(scene)


@pytest.mark.row("O9")
def test_a_lease_that_was_claimed_while_the_clock_stood_ends_with_the_run_all_the_same() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        run = await watch.open_run("flow", timeout="30m")
        await watch.submit("asks", run=run)
        first = await watch.claim(agent="ann")
        assert first is not None
        opened = stage.clock.wall()
        await asyncio.sleep(29 * MINUTE)
        lost = await watch.task(first.task)
        assert lost is not None
        if lost.lease is None:  # its own limit of 15 minutes
            first = await watch.claim(agent="ann")
            assert first is not None
        question = await first.ask("Which one?")
        await watch.submit("beside", run=run)
        beside = await watch.claim(agent="bob")
        assert beside is not None
        assert beside.deadline == opened + 44 * MINUTE * 1_000, "nothing cuts it short while the clock stands"
        await asyncio.sleep(5 * MINUTE)
        await watch.answer(question, "reply", "go")
        await asyncio.sleep(1)
        assert (await beside.renew()).remaining_ms == MINUTE * 1_000 - 1_000, "the run has a minute left, and so has it"
        await asyncio.sleep(MINUTE)
        with pytest.raises(LeaseLost):
            await beside.checkin("still here")
        row = await watch.task(beside.task)
        assert row is not None
        assert (row.task.state, row.task.record.reason) == ("failed", "run_timeout")

    play(scene)


def test_what_is_asked_in_passing_and_what_is_withdrawn_does_not_hold_the_clock() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        run = await watch.open_run("flow", timeout="30m")
        one = await watch.submit("one", run=run)
        two = await watch.submit("two", run=run)
        first = await watch.claim(agent="ann", task=one)
        second = await watch.claim(agent="bob", task=two)
        assert first is not None
        assert second is not None
        await first.ask("By the way?", hold=True)
        assert (await the_run(stage)).stands_since is None
        await second.ask("Which one?")
        assert (await the_run(stage)).asked == 1
        await asyncio.sleep(MINUTE)
        await watch.cancel(two)
        await asyncio.sleep(1)
        stands = await the_run(stage)
        assert (stands.asked, stands.stands_since) == (0, None)
        assert MINUTE * 1_000 <= stands.stood < MINUTE * 1_000 + 1_000
        await asyncio.sleep(31 * MINUTE)
        assert (await the_run(stage)).reason == "run_timeout"

    play(scene)


@pytest.mark.row("O4")
def test_a_holder_that_comes_back_after_the_limit_of_a_run_that_stands_is_heard() -> None:
    """No sweeper has moved its lease yet, so what the lease carries is out of date."""

    async def scene(stage: Stage) -> None:
        watch = stage.watch
        run = await watch.open_run("flow", timeout="5m")
        ids = [await watch.submit(name, run=run) for name in ("asks", "works", "ends")]
        asking, working, ending = [await watch.claim(agent="ann", task=id_) for id_ in ids]
        assert asking is not None
        assert working is not None
        assert ending is not None
        engine_of(watch).sweeper.sweep = asleep  # type: ignore[method-assign]
        await asking.ask("Which one?")
        await asyncio.sleep(6 * MINUTE)
        assert (await working.checkin("half")).remaining_ms == 9 * MINUTE * 1_000
        await ending.complete()
        row = await watch.task(ids[2])
        assert row is not None
        assert row.task.state == "done"

    play(scene)


async def asleep() -> float:
    """A sweeper that does nothing."""
    return 3_600.0
