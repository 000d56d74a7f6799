"""An agent hands a focused request to an expert: bounded, tried once, and never the task's own trouble (O5)."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from allswell import Lease, LeaseLost, Policy, Refused, TaskId
from allswell.domain.question import AnswerAction, Option
from allswell.domain.service.retry import ErrorClass, Failure
from tests.engine.stage import MINUTE, Stage, play


async def asking(stage: Stage, *, timeout: str = "15m") -> Lease:
    """Somebody who works on a task, alone in the world."""
    await stage.watch.submit("build it", timeout=timeout)
    lease = await stage.watch.claim(agent="ann", roles=[""])
    assert lease is not None
    return lease


async def expert(stage: Stage) -> Lease:
    lease = await stage.watch.claim(agent="eve", roles=["expert"])
    assert lease is not None
    return lease


async def stands(stage: Stage, task: TaskId) -> tuple[str, str]:
    row = await stage.watch.task(task)
    assert row is not None
    return row.task.state, row.task.record.reason


@pytest.mark.row("O5")
def test_an_expert_has_ten_minutes_and_its_answer_reaches_who_asked() -> None:
    async def scene(stage: Stage) -> None:
        ann = await asking(stage)
        request = await ann.delegate("expert", "which index?", payload={"table": "t"})
        eve = await expert(stage)
        assert eve.task == request
        assert eve.payload == {"table": "t"}
        assert eve.remaining == 10 * MINUTE * 1_000
        await eve.complete({"use": "ix_1"})
        assert await stage.watch.result(request) == {"use": "ix_1"}
        (sent,) = await stage.told("request_sent")
        assert (sent.task, sent.agent, sent.data["to"], sent.data["timeout_ms"]) == (ann.task, "ann", "expert", 600_000)
        (closed,) = await stage.told("request_closed")
        assert (closed.task, closed.token, closed.data["outcome"]) == (ann.task, ann.token, "done")
        await ann.complete()

    play(scene)


@pytest.mark.row("O5")
def test_the_setting_counts_by_the_expert_s_role_and_what_is_said_counts_more() -> None:
    async def scene(stage: Stage) -> None:
        ann = await asking(stage)
        for role, timeout in (("expert", None), ("critic", None), ("expert", "1m")):
            await ann.delegate(role, "which index?", timeout=timeout)
        lengths = [event.data["timeout_ms"] for event in await stage.told("request_sent")]
        assert lengths == [120_000, 180_000, 60_000]

    play(scene, policies={"": Policy(delegation_timeout=180_000), "expert": Policy(delegation_timeout=120_000)})


@pytest.mark.row("O5")
def test_it_never_has_more_than_the_asking_run_has_left() -> None:
    async def scene(stage: Stage) -> None:
        ann = await asking(stage)
        await asyncio.sleep(9 * MINUTE)
        await ann.delegate("expert", "quick")
        eve = await expert(stage)
        assert eve.remaining == 6 * MINUTE * 1_000

    play(scene)


@pytest.mark.row("O5")
def test_its_expiry_fails_the_request_and_not_the_task() -> None:
    async def scene(stage: Stage) -> None:
        ann = await asking(stage, timeout="1h")
        taken = await ann.delegate("expert", "taken, and not answered")
        eve = await expert(stage)
        unwanted = await ann.delegate("nobody has this role", "never taken")
        await asyncio.sleep(10 * MINUTE - 1)
        assert (await stands(stage, taken))[0] == (await stands(stage, unwanted))[0] == "open"
        await asyncio.sleep(2)
        assert await stands(stage, taken) == await stands(stage, unwanted) == ("failed", "delegation_timeout")
        assert stage.watch._engine.store is not None
        assert await stage.watch.questions() == []
        with pytest.raises(LeaseLost, match="the time of the request was up"):
            await eve.complete("too late")
        assert [attempt.outcome for attempt in await stage.watch.attempts(taken)] == ["delegation_timeout"]
        assert [event.data["verb"] for event in await stage.told("late_result")] == ["complete"]
        await ann.complete()  # its own task is as it was
        row = await stage.watch.task(ann.task)
        assert row is not None
        assert (row.task.state, row.task.record.timeouts) == ("done", 0)

    play(scene)


@pytest.mark.row("O5")
@pytest.mark.parametrize("how", ["fails", "needs a human", "is lost", "stalls"])
def test_it_is_tried_once(how: str) -> None:
    async def scene(stage: Stage) -> None:
        ann = await asking(stage, timeout="1h")
        request = await ann.delegate("expert", "hard")
        lease = await stage.watch.claim(agent="eve", roles=["expert"], lease="1m" if how == "is lost" else None)
        assert lease is not None
        if how == "fails":
            await lease.fail("connection reset", error_class=ErrorClass.NETWORK)
        elif how == "needs a human":
            await lease.fail(Failure(ErrorClass.AUTH, "401"))
        else:
            lease.over = True  # nobody renews it, and nobody answers
            await asyncio.sleep(10 * MINUTE)
        state, _ = await stands(stage, request)
        assert state == "failed"
        assert await stage.watch.questions() == []
        assert await stage.watch.claim(agent="eve", roles=["expert"]) is None
        assert len(await stage.watch.attempts(request)) == 1

    play(scene, policies={"": Policy(checkpoint_interval=60_000, checkpoint_timeout=10_000)})


@pytest.mark.row("O5")
def test_an_expert_cannot_delegate_on() -> None:
    async def scene(stage: Stage) -> None:
        ann = await asking(stage)
        await ann.delegate("expert", "first")
        eve = await expert(stage)
        with pytest.raises(Refused, match="delegated to eve by ann, and cannot be delegated on") as told:
            await eve.delegate("expert", "second")
        assert told.value.code == "cannot_delegate"
        with pytest.raises(Refused, match="needs the role"):
            await ann.delegate("", "to whom?")
        with pytest.raises(Refused, match="positive timeout"):
            await ann.delegate("expert", "now", timeout=0)

    play(scene)


@pytest.mark.row("O5")
def test_an_expert_that_asks_a_human_has_no_more_time_for_it() -> None:
    async def scene(stage: Stage) -> None:
        ann = await asking(stage, timeout="1h")
        request = await ann.delegate("expert", "unclear")
        eve = await expert(stage)
        await eve.ask("which one?")
        await asyncio.sleep(10 * MINUTE + 1)
        assert await stands(stage, request) == ("failed", "delegation_timeout")
        assert await stage.watch.questions() == []  # withdrawn
        assert len(await stage.told("question_withdrawn")) == 1

    play(scene)


def test_the_parts_of_a_request_that_was_split_are_tasks_like_any_other() -> None:
    async def scene(stage: Stage) -> None:
        ann = await asking(stage, timeout="1h")
        request = await ann.delegate("expert", "too large")
        eve = await expert(stage)
        split = Option("split", "Split it", AnswerAction.SPLIT)
        question = await eve.ask("this is too much for one", [split])
        await stage.watch.answer(question, "split", subtasks=[{"name": "a part", "role": "expert"}])
        assert (await stands(stage, request))[0] == "split"
        (closed,) = await stage.told("request_closed")
        assert closed.data["outcome"] == "split"
        await asyncio.sleep(30 * MINUTE)  # the time of the request is long over; nothing would ever end its part
        part = await expert(stage)
        assert part.name == "a part"
        await part.complete()

    play(scene)


def test_what_unblocks_most_goes_first_among_equals() -> None:
    async def scene(stage: Stage) -> None:
        tasks: list[Mapping[str, Any]] = [
            {"name": "leaf"},
            {"name": "one waits"},
            {"name": "two wait"},
            {"name": "a", "needs": ["one waits"]},
            {"name": "b", "needs": ["two wait"]},
            {"name": "c", "needs": ["b"]},
        ]
        await stage.watch.submit_many(tasks)
        await stage.watch.submit("urgent", priority=1)
        got = await stage.watch.claim_many(10, agent="ann")
        assert [lease.name for lease in got] == ["urgent", "two wait", "one waits", "leaf"]

    play(scene)


def test_and_a_task_that_unblocks_nothing_does_not_wait_for_ever() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit("old leaf")
        await asyncio.sleep(61 * MINUTE)
        tasks: list[Mapping[str, Any]] = [{"name": f"n{number}", "needs": ["root"]} for number in range(200)]
        await stage.watch.submit_many([*tasks, {"name": "root"}])
        got = await stage.watch.claim_many(2, agent="ann")
        assert [lease.name for lease in got] == ["old leaf", "root"]

    play(scene)
