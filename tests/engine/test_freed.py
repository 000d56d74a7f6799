"""What a caller's own command frees, its next claim finds: without waiting, on every store and by both doors."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import allswell
from allswell import Watch
from allswell.app import store_for
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.engine.lease import Lease
from tests.engine.stage import Stage, play


async def held(watch: Watch, name: str) -> Lease:
    """The one task that can be claimed, which has this name."""
    lease = await watch.claim(agent="bob")
    assert lease is not None
    assert lease.name == name
    return lease


async def completes(watch: Watch) -> None:
    await (await held(watch, "first")).complete()


async def fails(watch: Watch) -> None:
    await (await held(watch, "first")).fail(Failure(ErrorClass.VALIDATION, "no"))


async def cancels(watch: Watch) -> None:
    await watch.cancel((await held(watch, "first")).task)


async def skips(watch: Watch) -> None:
    question = await (await held(watch, "first")).ask("Shall I?")
    await watch.answer(question, "skip")


async def completes_after_an_answer(watch: Watch) -> None:
    question = await (await held(watch, "first")).ask("Shall I?")
    await watch.answer(question, "reply", "yes")
    await (await held(watch, "first")).complete()


async def releases(watch: Watch) -> None:
    await (await held(watch, "first")).release()
    await (await held(watch, "first")).complete()


COMMANDS: tuple[Callable[[Watch], Awaitable[None]], ...] = (
    completes,
    fails,
    cancels,
    skips,
    completes_after_an_answer,
    releases,
)


async def scene(watch: Watch) -> None:
    """Whatever ends a task frees those that wait for it, and the next claim of the same caller has one."""
    for command in COMMANDS:
        first = await watch.submit("first")
        await watch.submit("second", needs=[first], if_need_fails="run")
        await command(watch)
        await (await held(watch, "second")).complete()


async def chain(watch: Watch) -> None:
    """What follows from a consequence, too: twenty that are skipped one after the other, and the last is to be done."""
    last = await watch.submit("first")
    for number in range(20):
        last = await watch.submit(f"skipped {number}", needs=[last])
    await watch.submit("last", needs=[last], if_need_fails="run")
    await fails(watch)
    await (await held(watch, "last")).complete()


async def many(watch: Watch) -> None:
    """Claims of many are filled up with what was freed, in one call."""
    first = await watch.submit("first", priority=5)
    await watch.submit_many([{"name": "second", "needs": [first]} for _ in range(700)])
    await watch.submit("beside")
    await completes(watch)
    leases = await watch.claim_many(701, agent="bob")
    assert len(leases) == 701


@pytest.mark.parametrize("store", ["sqlite", "postgres", "memory"])
def test_the_next_claim_finds_it(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    async def main(url: str) -> None:
        async with allswell.open(url) as watch:
            for story in (scene, chain, many):
                await story(watch)

    if store == "postgres":
        asyncio.run(main(request.getfixturevalue("pg_url")))
    else:
        asyncio.run(main("memory:" if store == "memory" else f"sqlite:///{tmp_path / 'x.db'}"))


def test_by_the_sync_door_too(tmp_path: Path) -> None:
    with allswell.open(f"sqlite:///{tmp_path / 'x.db'}") as watch:
        first = watch.submit("first")
        watch.submit("second", needs=[first])
        lease = watch.claim(agent="bob")
        assert lease is not None
        lease.complete()
        lease = watch.claim(agent="bob")
        assert lease is not None
        assert lease.name == "second"


def test_a_task_that_was_split_gives_its_parts_and_then_whoever_waits() -> None:
    async def main(stage: Stage) -> None:
        watch = stage.watch
        first = await watch.submit("first", timeout="20s")
        await watch.submit("second", needs=[first])
        for _ in range(3):
            await held(watch, "first")
            await asyncio.sleep(21)
        (question,) = await watch.questions()
        await watch.answer(question.id, "split", subtasks=[{"name": "part"}])
        await (await held(watch, "part")).complete()
        await (await held(watch, "second")).complete()

    play(main)


def test_an_engine_that_does_not_sweep_finds_what_it_freed(tmp_path: Path) -> None:
    async def main() -> None:
        store = store_for(f"sqlite:///{tmp_path / 'x.db'}")
        async with allswell.make_watch(store, sweeping=False) as watch:
            await scene(watch)

    asyncio.run(main())
