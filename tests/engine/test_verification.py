"""Verification on every store: what is reported as done counts once it was verified, whoever says so."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import allswell
from allswell import Watch
from allswell.domain.lease.audit import AfterAudit
from allswell.engine.lease import Lease
from allswell.errors import LeaseLost, Refused
from tests.engine.stage import Stage, play
from tests.patience import SECONDS


async def taken(watch: Watch, task: str, agent: str = "ada", lease: int | None = None) -> Lease:
    got = await watch.claim(agent=agent, task=task, lease=lease)
    assert got is not None
    return got


async def a_holder_is_refused_and_what_it_brought_becomes_the_result(watch: Watch) -> None:
    task = await watch.submit("mend it", verify="make test")
    lease = await taken(watch, task)
    assert lease.verify == ("make", "test")
    with pytest.raises(Refused, match="counts as done once `make test` has passed") as refused:
        await lease.complete({"pages": 3})
    assert refused.value.code == "needs_verification"
    row = await watch.task(task)
    assert row is not None
    assert row.lease is not None
    assert (await watch.views.view_payload(task))[1] == '{"pages":3}'
    assert await watch.result(task) is None, "who waits for a result is not given what nobody has verified"
    done = await watch.held(task, lease.token, lease.agent).verified(passed=True, why="exit code 0", by="grace")
    assert done.follows is AfterAudit.ACCEPT
    assert await watch.result(task) == {"pages": 3}


async def three_failures_ask_and_the_answer_acts(watch: Watch) -> None:
    task = await watch.submit("mend that", verify=["make", "test"])
    for number in (1, 2, 3):
        lease = await taken(watch, task)
        assert lease.attempt == number
        if number > 1:
            assert lease.handover is not None
            assert f"`make test` failed (exit code 2), sent back, {number - 1} of 3" in lease.handover.message
        await lease.verified(passed=False, why="exit code 2", said="1 failed", result={"try": number})
    (question,) = [one for one in await watch.questions() if one.task == task]
    assert question.kind == "not_verified"
    await watch.answer(question.id, "accept", by="grace")
    assert await watch.result(task) == {"try": 3}
    row = await watch.task(task)
    assert row is not None
    assert (row.task.state, row.task.record.reason) == ("done", "accepted")


async def a_human_who_sends_it_back_gives_it_as_many_tries_again(watch: Watch) -> None:
    task = await watch.submit("mend more", policy=allswell.Policy(verify=("t",), verify_attempts=1))
    await (await taken(watch, task)).verified(passed=False, why="exit code 2")
    (question,) = [one for one in await watch.questions() if one.task == task]
    await watch.answer(question.id, "clarify", "look into the parser")
    lease = await taken(watch, task)
    assert list(lease.notes) == ["look into the parser"]
    followed = await lease.verified(passed=False, why="exit code 2")
    assert (followed.follows, followed.failed) == (AfterAudit.ASK, 1)


async def an_operator_ends_the_wait(watch: Watch) -> None:
    task = await watch.submit("mend last", policy=allswell.Policy(verify=("t",), verify_attempts=1))
    lease = await taken(watch, task)
    await lease.verified(passed=False, why="exit code 2", result="mine")
    held = watch.held(task, lease.token, lease.agent)
    assert (await held.verified(passed=False, why="exit code 1", by="grace")).follows is AfterAudit.ASK
    await held.verified(passed=True, why="exit code 0", by="grace")
    assert await watch.result(task) == "mine"
    async with asyncio.timeout(SECONDS):  # another sweeper may be at it
        while any(one.task == task for one in await watch.questions()):
            await watch.sweep_once()


SCENES = (
    a_holder_is_refused_and_what_it_brought_becomes_the_result,
    three_failures_ask_and_the_answer_acts,
    a_human_who_sends_it_back_gives_it_as_many_tries_again,
    an_operator_ends_the_wait,
)


@pytest.mark.row("C2")
@pytest.mark.parametrize("store", ["sqlite", "postgres", "memory"])
def test_what_is_said_to_be_done_counts_once_it_was_verified(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async def main(url: str) -> None:
        async with allswell.open(url) as watch:
            for scene in SCENES:
                await scene(watch)

    if store == "postgres":
        asyncio.run(main(request.getfixturevalue("pg_url")))
    else:
        asyncio.run(main("memory:" if store == "memory" else f"sqlite:///{tmp_path / 'x.db'}"))


def test_a_holder_that_is_lost_after_it_said_done_leaves_a_question_and_a_stale_verdict_changes_nothing() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        task = await watch.submit("mend it", verify="make test")
        lease = await taken(watch, task, lease=10_000)
        with pytest.raises(Refused):
            await lease.complete("mine")
        stage.watch._renewing._held.clear()
        await asyncio.sleep(60)
        await watch.sweep_once()
        (question,) = await watch.questions()
        assert "its holder is gone" in question.text
        await watch.answer(question.id, "retry")
        again = await taken(watch, task, "bob")
        with pytest.raises(LeaseLost):
            await watch.held(task, lease.token, "ada").verified(passed=True, why="exit code 0")
        await again.verified(passed=True, why="exit code 0", result="bob's")
        assert await watch.result(task) == "bob's"
        kinds = [event.kind for event in await stage.told()]
        assert kinds.count("task_completed") == 1

    play(scene)


@pytest.mark.parametrize(
    "wrong, says",
    [
        ("make test && true", "only a shell knows"),
        ('make "test', "cannot be split"),
        ("", "is empty"),
        ([], "is empty"),
        (7, "must be a command"),
        (["a", 7], "must be a command"),
    ],
)
def test_what_is_no_command_is_refused_when_it_is_handed_over(wrong: object, says: str) -> None:
    async def scene(stage: Stage) -> None:
        with pytest.raises(Refused, match=says):
            await stage.watch.submit_many([{"name": "a", "verify": wrong}])

    play(scene)
