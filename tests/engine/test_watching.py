"""The watch at work through its Python face, on virtual time: limits, silence, renewals, jumps of the clock."""

import asyncio

import pytest

from allswell import LeaseLost, Policy, Watch
from allswell.engine.lease import Lease
from tests.engine.stage import MINUTE, Stage, play


async def claimed(watch: Watch, agent: str = "bob", **how: object) -> Lease:
    lease = await watch.claim(agent=agent, **how)  # type: ignore[arg-type]
    assert lease is not None
    return lease


@pytest.mark.row("O4")
def test_the_run_limit_frees_the_task_to_the_millisecond() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit("a")
        await claimed(stage.watch)
        waiting = asyncio.ensure_future(stage.watch.claim(agent="ann", wait="1h"))
        again = await waiting
        assert again is not None
        assert stage.seconds == pytest.approx(15 * MINUTE, abs=0.001)
        (told,) = await stage.told("agent_timeout")
        assert told.data == {"elapsed_ms": 900_000}
        assert again.handover is not None
        assert again.handover.reason == "agent_timeout"

    play(scene)


@pytest.mark.row("O4", "O9")
def test_the_third_timeout_waits_for_a_human_and_every_answer_acts() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        task = await watch.submit("big", policy=Policy(timeout=60_000))
        after = await watch.submit("after", needs=[task])
        for agent in "abc":
            await claimed(watch, agent)
            await asyncio.sleep(61)
        assert await watch.claim(agent="d", wait="1h") is None, "not handed out meanwhile"
        (question,) = await watch.questions()
        assert (question.task, question.kind) == (task, "repeated_timeout")

        await watch.answer(question.id, "increase_timeout", timeout="5m", by="eve")
        lease = await claimed(watch, "d")
        assert lease.remaining == 300_000
        await asyncio.sleep(301)
        for agent in "ef":
            await claimed(watch, agent)
            await asyncio.sleep(301)
        (question,) = await watch.questions()
        await watch.answer(question.id, "Split task into smaller subtasks", subtasks=[{"name": "1"}, {"name": "2"}])
        await asyncio.sleep(1)
        row = await watch.task(after)
        assert row is not None
        assert len(row.waits) == 2
        for _ in range(2):
            await (await claimed(watch, "g")).complete()
        await asyncio.sleep(1)
        assert (await claimed(watch, "g")).name == "after"

    play(scene)


@pytest.mark.row("O9")
def test_questions_survive_a_restart() -> None:
    async def scene(stage: Stage) -> None:
        async with stage.another(seed=2) as first:
            await first.submit("a")
            question = await (await claimed(first)).ask("Which one?")
        async with stage.another(seed=3) as second:
            assert [one.id for one in await second.questions()] == [question]
            await second.answer(question, "reply", "the left one")
            assert (await claimed(second)).notes == ("the left one",)

    play(scene)


@pytest.mark.row("O2", "O3", "O8")
def test_a_silent_agent_is_found_marked_and_its_task_taken_back() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        await watch.submit("a")
        await claimed(watch)
        await asyncio.sleep(15 * MINUTE)
        await claimed(watch, wait="1s")
        await asyncio.sleep(5.5 * MINUTE + 1)
        (agent,) = await watch.agents()
        assert (agent.id, agent.misses, agent.stalled) == ("bob", 3, True)
        await asyncio.sleep(10)
        assert await watch.agents() == []
        assert await watch.counts() == {"ready": 1}
        told = [event.kind for event in await stage.told()]
        assert told[-4:] == ["checkpoint_timeout", "agent_stalled", "task_returned", "stalled_agent_recovered"]

    play(scene)


@pytest.mark.row("O2")
def test_an_agent_that_answers_when_asked_is_left_in_peace() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit("a")
        lease = await claimed(stage.watch)
        for _ in range(14):
            await asyncio.sleep(60)
            if (await lease.renew()).asked:
                await lease.checkin("working", progress=0.5)
        await lease.complete()
        assert len(await stage.told("task_checked_in")) == 2
        assert await stage.told("checkpoint_timeout") == []

    play(scene)


@pytest.mark.row("O10")
def test_a_late_result_is_refused_and_kept_for_the_next_holder_to_find() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        task = await watch.submit("a", timeout="1m")
        late = await claimed(watch)
        await asyncio.sleep(61)
        lease = await claimed(watch, "ann")
        with pytest.raises(LeaseLost, match="its limit was reached"):
            await late.complete({"half": True})
        assert late.remaining == 0
        assert [attempt.late for attempt in await watch.attempts(task)] == ['{"half":true}']
        await lease.complete("whole")
        assert await watch.result(task) == "whole"

    play(scene)


def test_renewals_keep_a_lease_alive_for_as_long_as_the_watch_is_open() -> None:
    async def scene(stage: Stage) -> None:
        async with stage.another(seed=2) as holder:
            await holder.submit("a")
            lease = await claimed(holder, lease="10s")
            await asyncio.sleep(10 * MINUTE)
            assert 6_600 <= lease.remaining <= 10_000
            assert await stage.watch.counts() == {"held": 1}
        await asyncio.sleep(6)
        assert await stage.watch.counts() == {"held": 1}
        await asyncio.sleep(5)
        assert await stage.watch.counts() == {"ready": 1}
        (lapsed,) = await stage.told("lease_lapsed")
        assert lapsed.agent == "bob"

    play(scene)


def test_many_renewals_go_together() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit_many([{"name": f"{number}"} for number in range(300)])
        assert len(await stage.watch.claim_many(300, agent="bob", lease="30s")) == 300
        stage.commits.clear()
        await asyncio.sleep(60)
        renewals = [changes for written in stage.commits for changes in written if changes.leases]
        assert len(renewals) <= 12
        assert await stage.watch.counts() == {"held": 300}

    play(scene)


def test_leases_that_were_taken_one_by_one_are_renewed_together_soon() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit_many([{"name": f"{number}"} for number in range(100)])
        for _ in range(100):
            await claimed(stage.watch, lease="30s")
            await asyncio.sleep(0.1)
        stage.commits.clear()
        await asyncio.sleep(60)
        assert await stage.told("lease_lapsed") == []
        renewals = [changes for written in stage.commits for changes in written if changes.leases]
        assert len(renewals) <= 24, "six times in a minute, in no more than a few groups"

    play(scene)


def test_after_the_machine_slept_every_holder_gets_one_more_window() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        await watch.submit_many([{"name": "kept"}, {"name": "lost"}])
        kept, lost = await claimed(watch, lease="20s"), await claimed(watch, "ann")
        await asyncio.sleep(10)
        stage.clock.suspend(8 * 60 * MINUTE * 1_000)
        await asyncio.sleep(5)
        assert await watch.counts() == {"held": 2}
        assert len(await stage.told("clock_jumped")) == 2
        await kept.complete()
        await asyncio.sleep(40)
        with pytest.raises(LeaseLost):
            await lost.complete()

    play(scene)


def test_two_sweepers_do_nothing_twice() -> None:
    async def scene(stage: Stage) -> None:
        async with stage.another(seed=2), stage.another(seed=3):
            await stage.watch.submit_many([{"name": f"{number}", "timeout": "1m"} for number in range(20)])
            assert len(await stage.watch.claim_many(20, agent="bob")) == 20
            await asyncio.sleep(62)
            assert await stage.watch.counts() == {"ready": 20}
            assert len(await stage.told("agent_timeout")) == 20

    for seed in range(5):
        play(scene, seed=seed)


def test_a_policy_can_be_set_per_role() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit("fix", role="remediation")
        await stage.watch.submit("own", role="remediation", timeout="7m")
        await stage.watch.submit("other", role="builder")
        limits = {lease.name: lease.remaining // 60_000 for lease in await stage.watch.claim_many(3, agent="bob")}
        assert limits == {"fix": 5, "own": 7, "other": 15}

    play(scene, policies={"remediation": Policy(timeout=5 * MINUTE * 1_000)})


def test_the_same_seed_gives_the_same_history() -> None:
    async def scene(stage: Stage) -> list[object]:
        watch = stage.watch
        await watch.submit_many([{"name": f"{number}"} for number in range(5)])
        for lease in await watch.claim_many(5, agent="bob"):
            await lease.fail("no luck", error_class="network")
        await asyncio.sleep(30)
        return [entry async for entry in watch.events()]

    assert play(scene, seed=7) == play(scene, seed=7)
