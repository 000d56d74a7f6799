"""Handing ended tasks over again: a new task with the old one's history, on virtual time."""

from __future__ import annotations

import pytest

from allswell.domain.ids import TaskId
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.domain.task.model import Policy, Task
from allswell.errors import Refused
from tests.engine.stage import Stage, Weather, play

NO = Failure(ErrorClass.VALIDATION, "no such table")


async def failed(stage: Stage, task: TaskId, agent: str = "ada") -> None:
    lease = await stage.watch.claim(agent=agent, task=task)
    assert lease is not None
    await lease.checkin("half of it", progress=0.5)
    await lease.fail(NO)
    await stage.watch.sweep_once()


async def seen(stage: Stage, task: str) -> Task:
    row = await stage.watch.task(task)
    assert row is not None
    return row.task


def test_a_new_task_carries_the_ended_one_s_history_and_each_names_the_other() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        old = await watch.submit(
            "paint", payload={"wall": 3}, role="painter", priority=7, barred=["eve"], critical=True, timeout="7m"
        )
        await failed(stage, old)
        before = await seen(stage, old)
        new = (await watch.retry(old, by="grace"))[old]
        after = await seen(stage, old)
        assert (after.state, after.record.retried_as) == ("failed", new)
        assert after.ended_at == before.ended_at
        made = await seen(stage, new)
        assert (made.name, made.role, made.priority, made.state) == ("paint", "painter", 7, "open")
        assert made.spec.retry_of == old
        assert made.spec.policy == before.spec.policy
        assert made.record.handover == before.record.handover
        assert made.record.handover is not None
        assert made.record.handover.note == "half of it"
        assert (made.record.token, made.record.failures) == (0, {})
        assert await watch.payload(new) == {"wall": 3}
        assert await watch.claim(agent="eve", task=new) is None
        lease = await watch.claim(agent="ada", task=new)
        assert lease is not None
        assert lease.handover is not None
        await lease.complete(None)
        with pytest.raises(Refused, match=f"retried already, as {new}"):
            await watch.retry(old)

    play(scene)


def test_those_that_were_skipped_because_of_it_go_with_it() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        a = await watch.submit("a")
        other = await watch.submit("other")
        b = await watch.submit("b", needs=[a, other])
        c = await watch.submit("c", needs=[b])
        apart = await watch.submit("apart", needs=[other])
        await failed(stage, a)
        await failed(stage, other)
        assert [(await seen(stage, one)).state for one in (b, c, apart)] == ["skipped"] * 3
        with pytest.raises(Refused, match="needs b, which was skipped; retry that first"):
            await watch.retry(c)
        with pytest.raises(Refused, match=r"needs other|needs a"):
            await watch.retry(b)
        again = (await watch.retry(other))[other]
        new = await watch.retry(a, dependents=True)
        assert set(new) == {a, b, c}
        assert (await seen(stage, new[b])).spec.needs == (new[a], again)
        assert (await seen(stage, new[c])).spec.needs == (new[b],)
        assert (await seen(stage, apart)).record.retried_as is None
        for one in (again, new[a], new[b], new[c]):
            lease = await watch.claim(agent="ada", task=one)
            assert lease is not None, one
            await lease.complete(None)
            await watch.sweep_once()
        assert (await seen(stage, new[c])).state == "done"

    play(scene)


def test_what_cannot_be_retried_is_refused_with_what_to_do() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        task = await watch.submit("paint")
        with pytest.raises(Refused, match="has not ended"):
            await watch.retry(task)
        with pytest.raises(Refused, match="there is no task t_nothing"):
            await watch.retry("t_nothing")
        lease = await watch.claim(agent="ada")
        assert lease is not None
        await lease.complete(None)
        with pytest.raises(Refused, match="is done") as refused:
            await watch.retry(task)
        assert "--again" in (refused.value.hint or "")
        assert task in await watch.retry(task, again=True)
        run = await watch.open_run("night", timeout="1h")
        lost = await watch.submit("lost", run=run)
        await watch.end_run(run)
        await watch.sweep_once()
        with pytest.raises(Refused, match="has ended"):
            await watch.retry(lost)
        day = await watch.open_run("day")
        new = (await watch.retry(lost, run=day))[lost]
        assert (await seen(stage, new)).run == day
        for role in ("run", "step"):
            ours = await watch.submit("x", role=role)
            await watch.cancel(ours)
            with pytest.raises(Refused, match=r"started|flow"):
                await watch.retry(ours)

    play(scene)


@pytest.mark.parametrize("committed", [True, False])
def test_a_lost_answer_makes_no_second_one(committed: bool) -> None:
    weather = Weather()

    async def scene(stage: Stage) -> None:
        watch = stage.watch
        old = await watch.submit("paint", policy=Policy())
        await watch.cancel(old)
        weather.lost.append(committed)
        new = (await watch.retry(old))[old]
        assert (await seen(stage, old)).record.retried_as == new
        assert [row.task.id for row in await watch.tasks()] == sorted([old, new])

    play(scene, faults=weather)
