"""What an open question holds back: its task, its run, or everything, as `pause_on_question` says (O9)."""

import asyncio
import random

import pytest

from allswell import Watch, make_watch
from allswell.domain.question import Pause
from allswell.engine.lease import Lease
from allswell.store.memory import MemoryStore
from allswell.testing.loop import VirtualClock, run


async def _a_question_in_a_run(watch: Watch) -> str:
    """Tasks of two runs and one of none, and a question about one of the first run; its id."""
    first, second = await watch.open_run("first"), await watch.open_run("second")
    for name, of_run in (("asks", first), ("same run", first), ("other run", second), ("no run", None)):
        await watch.submit(name, run=of_run)
    lease = await watch.claim(agent="ann")
    assert lease is not None
    assert lease.name == "asks"
    return await lease.ask("which one?")


@pytest.mark.row("O9")
@pytest.mark.parametrize(
    "pause, goes_on",
    [("task", ["same run", "other run", "no run"]), ("run", ["other run", "no run"]), ("all", [])],
)
def test_what_does_not_depend_on_the_question_goes_on(pause: Pause, goes_on: list[str]) -> None:
    async def scene() -> None:
        clock = VirtualClock()
        store = MemoryStore(clock=clock)
        async with make_watch(store, clock=clock, chance=random.Random(1), pause_on_question=pause) as watch:
            question = await _a_question_in_a_run(watch)
            got = await watch.claim_many(10, agent="bob")
            assert [lease.name for lease in got] == goes_on
            await watch.answer(question, "reply", "the second")
            rest = await watch.claim_many(10, agent="bob", wait="1m")
            every = {"asks", "same run", "other run", "no run"}
            assert {lease.name for lease in (*got, *rest)} == every

    run(scene(), seed=1)


@pytest.mark.row("O9")
def test_claims_by_name_that_are_sent_together_are_held_back_too() -> None:
    async def scene() -> None:
        clock = VirtualClock()
        store = MemoryStore(clock=clock)
        async with make_watch(store, clock=clock, chance=random.Random(1), pause_on_question="run") as watch:
            await _a_question_in_a_run(watch)
            ids = {row.task.name: row.task.id for row in await watch.tasks()}
            got = await watch.claim_each([ids["same run"], ids["other run"]], agent="bob")
            assert [one.name if isinstance(one, Lease) else one for one in got] == [None, "other run"]

    run(scene(), seed=1)


@pytest.mark.row("O9")
def test_a_paused_run_with_a_thousand_tasks_holds_up_nobody_behind_it() -> None:
    async def scene() -> None:
        clock = VirtualClock()
        store = MemoryStore(clock=clock)
        async with make_watch(store, clock=clock, chance=random.Random(1), pause_on_question="run") as watch:
            await _a_question_in_a_run(watch)
            runs = {run_.name: run_.id for run_ in await watch.runs()}
            many = [{"name": f"n{number}", "run": runs["first"], "priority": 9} for number in range(1_000)]
            await watch.submit_many(many)
            got = await watch.claim_many(10, agent="bob")
            assert [lease.name for lease in got] == ["other run", "no run"]

    run(scene(), seed=1)


@pytest.mark.row("O9")
def test_a_claim_that_waits_goes_on_when_the_answer_comes() -> None:
    async def scene() -> None:
        clock = VirtualClock()
        store = MemoryStore(clock=clock)
        async with make_watch(store, clock=clock, chance=random.Random(1), pause_on_question="all") as watch:
            question = await _a_question_in_a_run(watch)
            waiting = asyncio.ensure_future(watch.claim(agent="bob", wait="1h"))
            await asyncio.sleep(600)
            assert not waiting.done()
            await watch.answer(question, "reply", "the second")
            lease = await waiting
            assert lease is not None

    run(scene(), seed=1)
