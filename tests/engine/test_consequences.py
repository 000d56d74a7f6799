"""Big consequences are worked off in chunks, and everything is accounted for at every moment (the stage checks it)."""

import asyncio

import pytest

from allswell import Refused, Watch
from allswell.domain.task.model import TaskFilter
from tests.engine.stage import Stage, play

MANY = 2_000


async def finish(watch: Watch, agent: str = "bob") -> None:
    lease = await watch.claim(agent=agent, wait="5s")
    assert lease is not None
    await lease.complete()


def test_2000_dependents_are_freed_in_chunks() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        first = await watch.submit("first")
        await watch.submit_many([{"name": f"{number}", "needs": [first]} for number in range(MANY)])
        stage.commits.clear()
        await finish(watch)
        assert await watch.unaccounted() == []
        await asyncio.sleep(1)
        assert await watch.counts() == {"done": 1, "ready": MANY}
        freed = [len(changes.new_ready) for written in stage.commits for changes in written if changes.new_ready]
        assert sum(freed) == MANY
        assert max(freed) <= 500
        assert len(await stage.told("task_ready")) == MANY

    play(scene)


def test_a_run_of_2000_tasks_is_ended_in_chunks_and_takes_no_more() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        run = await watch.open_run("build")
        await watch.submit_many([{"name": f"{number}", "run": run} for number in range(MANY)])
        held = await watch.claim_many(10, agent="bob")
        stage.commits.clear()
        await watch.end_run(run, "enough")
        with pytest.raises(Refused, match=r"has ended \(enough\); open another"):
            await watch.submit("late", run=run)
        await asyncio.sleep(1)
        assert await watch.counts() == {"cancelled": MANY}
        assert max(len(changes.tasks) for written in stage.commits for changes in written) <= 500
        (ended,) = await watch.runs()
        assert (ended.reason, ended.ended_at) == ("enough", stage.clock.wall() - 1_000)
        assert [(await watch.attempts(lease.task))[0].outcome for lease in held] == ["cancelled"] * 10

    play(scene)


def test_a_chain_that_breaks_is_skipped_to_its_end_but_for_what_runs_anyway() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        made = await watch.submit_many(
            [{"name": "0"}]
            + [{"name": f"{number}", "needs": [f"{number - 1}"]} for number in range(1, 30)]
            + [{"name": "report", "needs": ["29", "3"], "if_need_fails": "run"}]
        )
        await watch.cancel(made[0])
        await asyncio.sleep(1)
        assert await watch.counts() == {"cancelled": 1, "skipped": 29, "ready": 1}
        lease = await watch.claim(agent="bob")
        assert lease is not None
        assert lease.name == "report"

    play(scene)


def test_a_run_s_deadline_ends_everything_in_it() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        run = await watch.open_run("build", timeout="20m")
        tasks = await watch.submit_many(
            [{"name": "a", "run": run}, {"name": "b", "run": run, "needs": ["a"]}, {"name": "c", "run": run}]
        )
        outside = await watch.submit("outside", needs=[tasks[1]], if_need_fails="run")
        await asyncio.sleep(600)
        lease = await watch.claim(agent="bob")
        assert lease is not None
        assert lease.remaining == 600_000, "no attempt outlives its run"
        await asyncio.sleep(601)
        counts = await watch.counts()
        assert counts.pop("ready") == 1
        assert counts in ({"failed": 3}, {"failed": 2, "skipped": 1}), "b may hear of its run or of its need first"
        row = await watch.task(outside)
        assert row is not None
        assert row.ready
        (ended,) = await stage.told("run_ended")
        assert ended.data == {"reason": "run_timeout"}
        reasons = [row.task.record.reason for row in await watch.tasks(TaskFilter(run=run, states=("failed",)))]
        assert set(reasons) == {"run_timeout"}

    play(scene)


def test_a_question_is_withdrawn_when_its_task_ends_without_it() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        task = await watch.submit("a")
        lease = await watch.claim(agent="bob")
        assert lease is not None
        question = await lease.ask("Which one?")
        assert [one.id for one in await watch.questions()] == [question]
        await watch.cancel(task)
        await asyncio.sleep(1)
        assert await watch.questions() == []
        (closed,) = await watch.questions(open_only=False)
        assert closed.choice == "withdrawn"
        with pytest.raises(Refused, match="is closed: withdrawn"):
            await watch.answer(question, "skip")

    play(scene)


def test_two_needs_that_end_at_once_in_two_processes_free_their_dependent() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        async with stage.another(seed=2) as other:
            one, two = await watch.submit_many([{"name": "one"}, {"name": "two"}])
            await watch.submit("both", needs=[one, two])
            await asyncio.gather(finish(watch), finish(other, "ann"))
            await asyncio.sleep(2)
            assert await watch.counts() == {"done": 2, "ready": 1}

    for seed in range(20):
        play(scene, seed=seed)
