"""A need is named by id, as a fellow, or by a name that only one task has; a held task may be given back for one."""

import asyncio
from pathlib import Path

import pytest

import allswell
from allswell.domain.ids import CommandId, TaskId
from allswell.domain.rules.command import NewTask, Release
from allswell.errors import Refused
from tests.engine.stage import Stage, play
from tests.interfaces.cli.console import Console


async def needs_of(watch: allswell.Watch, task: str) -> list[str]:
    row = await watch.task(task)
    assert row is not None
    return list(row.task.spec.needs)


async def refused(watch: allswell.Watch, *tasks: dict[str, object]) -> Refused:
    with pytest.raises(Refused) as caught:
        await watch.submit_many(tasks)
    return caught.value


def test_a_need_is_an_id_then_a_fellow_then_the_only_task_of_its_name() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        fetch = await watch.submit("fetch")
        assert await needs_of(watch, await watch.submit("report", needs=["fetch"])) == [fetch]
        both = await watch.submit("by id and by name", needs=[fetch, "fetch"])
        assert await needs_of(watch, both) == [fetch], "the same task is needed once"
        # A fellow is nearer than an older task of the same name; a task that comes alone is no fellow of its own.
        mine, after = await watch.submit_many([{"name": "fetch"}, {"name": "after", "needs": ["fetch"]}])
        assert await needs_of(watch, after) == [mine]
        assert (
            await needs_of(watch, await watch.submit("report", needs=["report"]))
            == [row.task.id for row in await watch.tasks() if row.task.name == "report"][:1]
        )
        # An id is nearer than a fellow of that name, and so is an ended task's name as good as an open one's.
        await watch.submit_prepared([NewTask(TaskId("t_odd"), "an odd one")])
        lease = await watch.claim(agent="ada", task="t_odd")
        assert lease is not None
        await lease.complete()
        _, odd = await watch.submit_many([{"name": "t_odd"}, {"name": "b", "needs": ["t_odd", "an odd one"]}])
        assert await needs_of(watch, odd) == ["t_odd"]

    play(scene)


def test_what_is_not_unique_or_not_there_is_told_with_its_candidates() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        twins = [await watch.submit("twin"), await watch.submit("twin")]
        before = stage.contents()
        error = await refused(watch, {"name": "a"}, {"name": "b", "needs": ["twin"]})
        assert (error.code, error.where, error.place) == ("ambiguous", "needs", 1)
        assert all(task in error.message for task in twins), error.message
        error = await refused(watch, {"name": "a", "needs": ["twinn"]})
        assert (error.code, error.place) == ("unknown_task", 0)
        assert error.message == "there is no task 'twinn'; did you mean 'twin'?"
        error = await refused(watch, {"name": "a", "needs": ["t_0000000000000000"]})
        assert error.code == "unknown_need"
        assert stage.contents() == before

    play(scene)


def test_both_doors_find_the_same_task_and_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli = Console(tmp_path, monkeypatch)
    old = cli.submit("fetch")
    cli.submit("twin")
    cli.submit("twin")
    typed = cli.ok("show", cli.submit("report", "--needs", "fetch"), "--json").json["task"]["needs"]
    with allswell.open(f"sqlite:///{cli.database}") as watch:
        row = watch.task(watch.submit("report", needs=["fetch"]))
        assert row is not None
        assert list(row.task.spec.needs) == typed == [old]
        for need in ("twin", "fetsh"):
            with pytest.raises(Refused) as caught:
                watch.submit("x", needs=[need])
            assert str(caught.value) in cli("submit", "x", "--needs", need).err


def test_any_number_of_tasks_from_python_joins_runs_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from allswell.engine import submission

    monkeypatch.setattr(submission, "FEW", 20)
    monkeypatch.setattr(submission, "PARCEL", 10)

    async def scene(stage: Stage) -> None:
        watch = stage.watch
        ids: list[str] = []
        seen: list[tuple[int, int | None]] = []
        old = await watch.submit("old")
        tasks = [
            {"name": f"n{number}", "run": "night", "needs": ["old"] if number == 24 else []} for number in range(25)
        ]
        done = await watch.submit_all(
            tasks, run_timeout="8h", told=ids.extend, progress=lambda count, total: seen.append((count, total))
        )
        (run,) = await watch.runs()
        assert (done.count, done.runs, done.opened) == (25, {"night": run.id}, ("night",))
        assert len(set(ids)) == 25
        assert await needs_of(watch, ids[24]) == [old]
        assert seen == [(10, None), (20, None), (10, 25), (20, 25), (25, 25)]
        # What is wrong with the last leaves nothing of the others behind, and says which it is.
        before = stage.contents()
        with pytest.raises(Refused) as caught:
            await watch.submit_all([*tasks, {"name": "x", "run": "day", "needs": ["nobody"]}])
        assert caught.value.place == 25
        with pytest.raises(Refused, match="no task names a run"):
            await watch.submit_all(iter([{"name": "a"}]), run_timeout="1h")
        assert stage.contents() == before

    play(scene)


async def given_back(watch: allswell.Watch, first: str, *, awaits: str, together: bool) -> None:
    """The first task waits for the other one, which is done after that, or in the same batch."""
    held, other = await watch.claim(agent="ada", task=first), await watch.claim(agent="bob", task=awaits)
    assert held is not None
    assert other is not None
    if together:
        await asyncio.gather(held.release("later", delay="1h", awaits=awaits), other.complete())
    else:
        await held.release("later", delay="1h", awaits=awaits)
        row = await watch.task(first)
        assert row is not None
        assert (row.state, row.task.record.failures) == ("waiting", {})
        await other.complete()
    again = await watch.claim(agent="ada", task=first, wait="1m")
    assert again is not None, "and not only when the pause is over"
    assert again.handover is not None
    assert again.handover.message == "later"
    await again.complete()


@pytest.mark.parametrize("store", ["sqlite", "postgres", "memory"])
def test_a_task_that_is_given_back_waits_for_another_ones_end(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async def main(url: str) -> None:
        async with allswell.open(url) as watch:
            for together in (False, True):
                first, other = await watch.submit("first"), await watch.submit("other")
                await given_back(watch, first, awaits=other, together=together)

    urls = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path / 'x.db'}"}
    asyncio.run(main(urls.get(store) or request.getfixturevalue("pg_url")))


def test_it_waits_however_that_ends_and_never_in_a_circle() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        first, other = await watch.submit("first"), await watch.submit("other")
        third = await watch.submit("third", needs=[other])
        held, beside = await watch.claim(agent="ada", task=first), await watch.claim(agent="bob", task=other)
        assert held is not None
        assert beside is not None
        for awaits, code in ((first, "unknown_task"), ("t_none", "unknown_task"), (third, "waits_itself")):
            with pytest.raises(Refused) as caught:
                await held.release(awaits=awaits)
            assert caught.value.code == code
        for _ in range(2):  # the second one repeats it
            await held.repeat(Release(CommandId("c"), held.task, held.token, held.agent, "later", 0, TaskId(other)))
        with pytest.raises(Refused, match="first waits for another task itself"):
            await beside.release(awaits=first)
        await watch.cancel(other)
        again = await watch.claim(agent="ada", task=first, wait="1m")
        assert again is not None, "it is not skipped with it"
        await again.release("and again", awaits=other)
        assert await watch.claim(agent="ada", task=first) is not None, "that has ended already"

    play(scene)
