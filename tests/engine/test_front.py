"""Screen one, as it is read: the same truth as `allswell`, `agents` and `why`, put together and bounded."""

import asyncio

from allswell import Policy
from allswell.engine.status import overview as screen
from allswell.engine.status.overview import StatusOverview, front
from allswell.engine.status.verdict import look
from allswell.engine.status.why import why
from tests.engine.stage import MINUTE, Stage, play


async def seen(stage: Stage) -> StatusOverview:
    return await front(stage.watch.views)


def test_an_empty_watch_is_well_and_has_nothing_ahead() -> None:
    async def scene(stage: Stage) -> None:
        told = await seen(stage)
        assert told.verdict.well
        assert (told.questions, told.troubles, told.hands, told.runs, told.ahead) == ((), (), (), (), ())

    play(scene)


def test_the_verdict_is_that_of_allswell_alone_and_questions_have_their_context() -> None:
    async def scene(stage: Stage) -> None:
        task = await stage.watch.submit("migrate")
        await stage.watch.submit("deploy", needs=[task])
        lease = await stage.watch.claim(agent="ada")
        assert lease is not None
        question = await lease.ask("which table?")
        told = await seen(stage)
        assert told.verdict == await look(stage.watch.views)
        (asked,) = told.questions
        assert (asked.question.id, asked.waiting) == (question, 1)
        assert asked.task is not None
        await stage.watch.dismiss(question, "mia")
        assert (await seen(stage)).questions == ()

    play(scene)


def test_a_stalled_agent_is_a_problem_with_its_evidence_and_its_end() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit("parse", timeout="1h")
        await stage.watch.claim(agent="ada")
        await asyncio.sleep(15 * MINUTE + 31)
        told = await seen(stage)
        stalled = [one for one in told.troubles if one.kind == "stalled"]
        assert "3 check-ins missed" in stalled[0].what
        assert stalled[0].evidence == ("it holds “parse”",)
        assert stalled[0].ends is not None

    play(scene)


def test_a_parked_service_says_when_it_wakes_and_who_waits() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit("translate", services=["anthropic"])
        await stage.watch.park("anthropic", 30 * MINUTE * 1_000)
        told = await seen(stage)
        (trouble,) = told.troubles
        assert (trouble.kind, trouble.id) == ("parked", "anthropic")
        assert trouble.ends is not None
        assert trouble.ends.at == told.verdict.now + 30 * MINUTE * 1_000
        assert "1 task waits" in trouble.evidence[0]
        assert told.verdict.well, "what ends by itself needs nobody"
        assert [one.at for one in told.ahead if one.task is None] == [trouble.ends.at]

    play(scene)


def test_a_task_that_nobody_answers_for_is_blocked() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit("deploy", timeout="1h")
        lease = await stage.watch.claim(agent="sandman")
        assert lease is not None
        assert (await lease.request("oracle", "handoff", "access?", timeout="1m", retries=0)).blocked
        (trouble,) = (await seen(stage)).troubles
        assert trouble.kind == "blocked"
        assert "without an answer" in trouble.what

    play(scene)


def test_lanes_are_what_why_tells_and_a_run_knows_its_limit() -> None:
    async def scene(stage: Stage) -> None:
        run = await stage.watch.open_run("release", timeout="1h")
        build = await stage.watch.submit("build", run=run, retries=2)
        test = await stage.watch.submit("test", run=run, needs=[build])
        first = await stage.watch.claim(agent="ada", task=build)
        assert first is not None
        await asyncio.sleep(MINUTE)
        await first.fail("reset", error_class="network")
        second = await stage.watch.claim(agent="bob", task=build, wait="1m")
        assert second is not None
        await asyncio.sleep(MINUTE)
        told = await seen(stage)
        (fall,) = told.runs
        assert (fall.name, fall.limit) == ("release", fall.start + 3_600_000)
        lanes = {lane.task: lane for lane in fall.lanes}
        for task in (build, test):
            assert lanes[task].spans == (await why(stage.watch.views, task)).spent
        assert [span.kind for span in lanes[build].spans if span.kind == "held"] == ["held", "held"]
        assert lanes[build].attempts == 2
        assert lanes[test].spans[-1].kind == "waiting"

    play(scene)


def test_in_the_morning_the_runs_of_the_night_are_still_there() -> None:
    async def scene(stage: Stage) -> None:
        run = await stage.watch.open_run("nightly")
        task = await stage.watch.submit("build", run=run)
        lease = await stage.watch.claim(agent="ada", task=task)
        assert lease is not None
        await lease.complete()
        await asyncio.sleep(60 * MINUTE)
        (fall,) = (await seen(stage)).runs
        assert (fall.name, [lane.state for lane in fall.lanes]) == ("nightly", ["done"])

    play(scene)


def test_what_comes_next_is_in_order_and_leaves_out_what_a_live_holder_prevents() -> None:
    async def scene(stage: Stage) -> None:
        for number in range(3):
            await stage.watch.submit(f"work {number}", timeout=f"{20 + number}m")
            await stage.watch.claim(agent=f"agent.{number}", lease="30s")
        told = (await seen(stage)).ahead
        assert [one.at for one in told] == sorted(one.at for one in told)
        assert len(told) <= screen.AHEAD
        assert not any("renews its lease" in one.what for one in told)
        assert "is asked for a check-in" in told[0].what

    play(scene)


def test_agents_come_in_pages_those_in_trouble_first() -> None:
    async def scene(stage: Stage) -> None:
        most = screen.AGENTS + 10
        await stage.watch.submit_many([{"name": f"work {number}", "timeout": "1h"} for number in range(most)])
        for number in range(most):
            await stage.watch.claim(agent=f"agent.{number:03}")
        first, second = await seen(stage), await front(stage.watch.views, agents_from=screen.AGENTS)
        assert (first.agents, len(first.hands), len(second.hands)) == (most, screen.AGENTS, 10)
        assert all(hand.lease is not None for hand in first.hands)
        names = {hand.member.agent for hand in (*first.hands, *second.hands)}
        assert len(names) == most

    play(scene)


def test_a_question_that_quotes_an_output_is_told_without_half_of_it() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit("p", policy=Policy(verify=("x",), verify_attempts=1))
        lease = await stage.watch.claim(agent="ada")
        assert lease is not None
        said = '{"level": "error", "events": [' + ", ".join(f'"event {number}"' for number in range(60)) + "]}"
        await lease.verified(passed=False, why="exit code 1", said=said)
        (asked,) = (await look(stage.watch.views)).needs
        assert "How should we proceed?" in asked.what
        assert "printed" not in asked.what

    play(scene)
