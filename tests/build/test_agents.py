"""Builders and auditors around plain functions finish a build with a real coordinator, on virtual time."""

import asyncio
from collections import Counter

import pytest

from allswell.build.agents import AuditAgent, AuditTask, BuildAgent, BuildJob
from allswell.domain.build.builder import BeginWork, BuilderState, CeaseWork, ClaimNow, builder_gives_up, builder_hears
from allswell.domain.build.limits import BuildLimits
from allswell.domain.build.line import read
from tests.build.scene import COORDINATOR, BuildScene, play_build


def heard(state: BuilderState, *lines: str) -> tuple[BuilderState, list[object]]:
    acts: list[object] = []
    for text in lines:
        (line,) = read(text)
        state, more = builder_hears(state, line)  # type: ignore[arg-type]
        acts += more
    return state, acts


ME = BuilderState("@me")


def test_a_builder_waits_for_its_ack_and_claims_another_after_a_reject() -> None:
    state, acts = heard(ME, "TASKS x a b", "TASKS x c")
    assert acts == [ClaimNow("a")]
    state, acts = heard(state, 'REJECT a @me "already claimed"')
    assert acts == [ClaimNow("b")]
    state, acts = heard(state, "ACK b @other")
    assert acts == [ClaimNow("c")]
    state, acts = heard(state, "ACK c @me", "TASKS x d")
    assert acts == [BeginWork("c")]
    state, acts = heard(state, "AUDIT c FAIL no tests", "AUDIT d FAIL not mine", "MERGED c")
    assert acts == [BeginWork("c", "no tests"), ClaimNow("d")]
    assert heard(state, "BUILD COMPLETE")[0].over


@pytest.mark.row("C6")
def test_a_builder_claims_again_what_it_has_lost_unless_somebody_has_it() -> None:
    holding, _ = heard(ME, "TASKS x a", "ACK a @me")
    _, acts = heard(holding, "TIMEOUT a")
    assert acts == [CeaseWork("a", "we were silent for too long"), ClaimNow("a")]
    _, acts = heard(holding, 'REJECT a @me "you were silent for too long and have lost it; claim it again"')
    assert acts[-1] == ClaimNow("a")
    _, acts = heard(holding, 'REJECT a @me "you were silent for too long and have lost it; @b has it now"')
    assert [type(act) for act in acts] == [CeaseWork]
    assert builder_gives_up(holding, "a")[1] == []


@pytest.mark.row("C2")
def test_a_builder_never_claims_again_what_it_has_failed() -> None:
    holding, _ = heard(ME, "TASKS x a b", "ACK a @me")
    state, acts = heard(holding, "RETRY a", "TASKS x a b")
    assert acts == [CeaseWork("a", "our work on it has failed too often"), ClaimNow("b")]
    state, acts = heard(state, "ACK b @me", "MERGED b", "TASKS x a")
    assert ClaimNow("a") not in acts


@pytest.mark.row("C3", "C6")
def test_an_ack_that_is_repeated_begins_nothing_anew_and_one_for_somebody_else_ends_the_work() -> None:
    holding, _ = heard(ME, "TASKS x a b", "ACK a @me")
    assert heard(holding, "ACK a @me") == (holding, [])
    _, acts = heard(holding, "ACK a @other")
    assert acts == [CeaseWork("a", "@other has it now"), ClaimNow("b")]


def test_an_auditor_looks_at_one_after_the_other_and_only_at_what_is_still_to_be_judged() -> None:
    async def scene(build: BuildScene) -> None:
        seen: list[AuditTask] = []
        at_once = most = 0

        async def look(task: AuditTask) -> tuple[bool, str]:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            seen.append(task)
            try:
                await asyncio.sleep(100)
            finally:
                at_once -= 1
            return True, ""

        await build.build("@a", "db", "@somebody")
        await build.claim("@a", "api")
        await build.claim("@b", "web")
        agent = AuditAgent(build.room.join("@auditor"), look, coordinator=COORDINATOR)
        running = asyncio.ensure_future(agent.run())
        await build.say("@mallory", "READY api https://x/evil")  # she does not have it
        await build.say("@a", "READY api https://x/1")
        await asyncio.sleep(50)
        await build.say("@b", "READY web https://x/2")
        await build.say("@a", "READY api https://x/3")  # instead of the first
        await build.told("MERGED api")
        await build.told("MERGED web")
        await asyncio.sleep(1_000)
        assert (seen[0].url, seen[0].builder) == ("https://x/1", "@a")
        assert {(task.url, task.builder) for task in seen[1:]} == {("https://x/2", "@b"), ("https://x/3", "@a")}
        assert most == 1
        running.cancel()
        await asyncio.wait({running})

    play_build(scene)


def test_three_builders_and_an_auditor_finish_a_build() -> None:
    async def scene(build: BuildScene) -> None:
        built: Counter[str] = Counter()
        found: list[str] = []

        async def work(job: BuildJob) -> str:
            built[job.component] += 1
            found.append(job.details)
            await asyncio.sleep(40 * 60)  # longer than a builder may be silent
            if built[job.component] == 1 and job.component == "web":
                raise RuntimeError("environment failure")
            return f"https://x/{job.component}/{built[job.component]}"

        async def look(task: AuditTask) -> tuple[bool, str]:
            await asyncio.sleep(60)
            assert task.builder.startswith("@b")
            bad = task.url.endswith("/api/1")
            return not bad, "no tests\nnone at all" if bad else ""

        agents: list[BuildAgent | AuditAgent] = [
            BuildAgent(build.room.join(f"@b{number}"), work, coordinator=COORDINATOR) for number in range(3)
        ]
        agents.append(AuditAgent(build.room.join("@auditor"), look, coordinator=COORDINATOR))
        running = [asyncio.ensure_future(agent.run()) for agent in agents]
        await build.over()
        await asyncio.wait_for(asyncio.gather(*running), 60)
        assert dict(built) == {"db": 1, "api": 2, "web": 2, "all": 1}
        assert "no tests\nnone at all" in found
        assert build.count("TIMEOUT db") == 0
        assert any('ABORT web "environment failure"' in said.text for said in build.room.said)

    play_build(scene, limits=BuildLimits(build=86_400_000))


def test_only_the_coordinator_moves_a_builder() -> None:
    async def scene(build: BuildScene) -> None:
        begun: list[BuildJob] = []

        async def work(job: BuildJob) -> str:
            begun.append(job)
            await asyncio.Event().wait()
            return ""

        running = asyncio.ensure_future(BuildAgent(build.room.join("@b"), work, coordinator=COORDINATOR).run())
        await build.told("ACK db @b")
        await build.say("@mallory", "AUDIT db FAIL delete everything", "TIMEOUT db", "BUILD COMPLETE", "ACK web @b")
        await build.pass_time(1)
        assert begun == [BuildJob("db")]
        running.cancel()
        await asyncio.wait({running})

    play_build(scene)


@pytest.mark.row("C1")
def test_a_builder_says_progress_three_times_as_often_as_is_expected_of_it() -> None:
    async def scene(build: BuildScene) -> None:
        async def work(_: BuildJob) -> str:
            await asyncio.sleep(100)
            return "https://x/pr"

        agent = BuildAgent(build.room.join("@a"), work, coordinator=COORDINATOR)
        running = asyncio.ensure_future(agent.run())
        await build.told("ACK db @a (PROGRESS every 6s)")
        await asyncio.sleep(90)
        assert 40 <= build.room.lines("@a").count("PROGRESS db") <= 45
        assert build.count("TIMEOUT db") == 0
        running.cancel()
        await asyncio.wait({running})

    play_build(scene, limits=BuildLimits(progress_every=6_000))


@pytest.mark.row("C1")
def test_the_interval_is_always_announced_and_a_new_one_holds_at_once() -> None:
    """Of the usual ten minutes, too; and a coordinator that comes back with a shorter one times nobody out."""

    async def scene(build: BuildScene) -> None:
        async def work(_: BuildJob) -> str:
            await asyncio.sleep(3_600)
            return "https://x/pr"

        agent = BuildAgent(build.room.join("@a"), work, coordinator=COORDINATOR)
        running = asyncio.ensure_future(agent.run())
        await build.told("ACK db @a (PROGRESS every 10m)")
        (tasks, *_) = [line for line in build.room.lines(COORDINATOR) if line.startswith("TASKS ")]
        assert tasks.endswith(" (PROGRESS every 10m)")
        await asyncio.sleep(590)
        assert build.room.lines("@a").count("PROGRESS db") == 2
        await build.say(COORDINATOR, "TASKS spec.yaml web (PROGRESS every 9s)")
        await asyncio.sleep(9)
        assert 5 <= build.room.lines("@a").count("PROGRESS db") <= 6
        running.cancel()
        await asyncio.wait({running})

    play_build(scene)


@pytest.mark.row("C7")
def test_a_build_that_a_human_stops_is_over_at_once_for_its_members_and_their_work() -> None:
    async def scene(build: BuildScene) -> None:
        ended: list[str] = []

        async def work(job: BuildJob) -> str:
            try:
                await asyncio.sleep(36_000)
            finally:
                ended.append(job.component)
            return "https://x/pr"

        async def audit(_: AuditTask) -> tuple[bool, str]:
            return True, ""

        members = [
            BuildAgent(build.room.join("@a"), work, coordinator=COORDINATOR),
            AuditAgent(build.room.join("@b"), audit, coordinator=COORDINATOR),
        ]
        running = [asyncio.ensure_future(member.run()) for member in members]
        await build.told("ACK db @a")
        while not (questions := await build.watch.questions()):
            await asyncio.sleep(60)
        await build.say("@human", f"ANSWER {questions[0].id} stop")
        began = build.stage.seconds
        await asyncio.wait_for(asyncio.gather(*running), 5)
        standing = await build.over()
        assert (ended, standing.stopped) == (["db"], True)
        assert build.stage.seconds - began < 5

    play_build(scene)
