"""The rules of a build from the seed, played through a coordinator on virtual time (C1 to C7)."""

import asyncio
import random

import pytest

from allswell.domain.build.hearing import Rights
from allswell.domain.build.limits import BuildLimits
from tests.build.scene import BuildScene, play_build, spec_of


def test_a_build_goes_from_its_first_component_to_its_last() -> None:
    async def scene(build: BuildScene) -> None:
        await build.told("TASKS https://x/spec db")
        await build.build("@a", "db")
        await build.told("TASKS https://x/spec api web")
        await asyncio.gather(build.build("@a", "api"), build.build("@b", "web"))
        await build.told("TASKS https://x/spec all")
        await build.build("@b", "all")
        await build.told("BUILD COMPLETE https://x/spec")
        standing = await build.over()
        assert {one.state for one in standing.components.values()} == {"merged"}
        lines = build.lines
        assert [*lines[:6], *sorted(lines[6:8]), *lines[8:]] == [  # which of two is merged first does not matter
            "TASKS https://x/spec db",
            "ACK db @a",
            "MERGED db",
            "TASKS https://x/spec api web",
            "ACK api @a",
            "ACK web @b",
            "MERGED api",
            "MERGED web",
            "TASKS https://x/spec all",
            "ACK all @b",
            "MERGED all",
            "BUILD COMPLETE https://x/spec",
        ]

    play_build(scene)


@pytest.mark.row("C1")
def test_a_builder_that_is_silent_for_three_check_ins_loses_its_component() -> None:
    async def scene(build: BuildScene) -> None:
        await build.claim("@a", "db")
        for _ in range(5):
            await build.pass_time(29.9)
            await build.say("@a", "PROGRESS db 40%")
        assert build.count("TIMEOUT db") == 0
        await build.pass_time(29.9)
        assert build.count("TIMEOUT db") == 0
        await build.pass_time(0.2)
        assert build.lines[-2:] == ["TIMEOUT db", "TASKS https://x/spec db"]
        await build.claim("@a", "db")  # the timed-out builder too
        await build.pass_time(31)
        await build.claim("@b", "db")

    play_build(scene, limits=BuildLimits(build=86_400_000))


@pytest.mark.row("C2")
def test_after_three_failures_another_builder_has_to_do_it() -> None:
    async def scene(build: BuildScene) -> None:
        await build.build("@b", "db")  # so there is another builder
        await build.claim("@a", "api")
        await build.fail("@a", "api", 2)
        assert build.count("AUDIT api FAIL no tests") == 2
        assert build.count("RETRY api") == 0
        await build.fail("@a", "api")
        await build.told("RETRY api")
        assert build.lines[-3:] == ["AUDIT api FAIL no tests", "RETRY api", "TASKS https://x/spec api web"]
        await build.say("@a", "CLAIM api")
        await build.told('REJECT api @a "your work on it has failed 3 audits; leave it to another builder"')
        await build.claim("@a", "web")  # counted per component
        await build.claim("@b", "api")
        await build.fail("@b", "api", 2)  # and per builder
        await build.say("@b", "READY api https://x/pr/9")
        await build.say("@auditor", "AUDIT api PASS")
        await build.told("MERGED api")

    play_build(scene)


@pytest.mark.row("C2")
def test_only_the_first_verdict_of_somebody_who_may_audit_counts() -> None:
    async def scene(build: BuildScene) -> None:
        await build.claim("@a", "db")
        await build.say("@auditor", "AUDIT db PASS")  # nothing to audit yet
        await build.say("@a", "READY db https://x/1")
        await build.say("@a", "AUDIT db PASS")
        await build.told('REJECT db @a "an agent cannot audit its own build"')
        await build.say("@b", "AUDIT db PASS")
        await build.told('REJECT db @b "you are not among the auditors of this build"')
        await build.say("@auditor", "AUDIT db FAIL no tests", "AUDIT db PASS")
        await build.told("AUDIT db FAIL no tests")
        await build.pass_time(1)
        assert build.count("MERGED db") == 0
        await build.say("@a", "READY db https://x/2")
        await build.say("@auditor", "AUDIT db PASS")
        await build.told("MERGED db")

    play_build(scene, rights=Rights(auditors=["@auditor"]))


@pytest.mark.row("C2")
def test_what_nobody_audits_is_announced_again_and_its_builder_keeps_it() -> None:
    async def scene(build: BuildScene) -> None:
        await build.claim("@a", "db")
        await build.say("@a", "READY db https://x/1")
        await build.pass_time(4.9)
        assert build.count("READY db https://x/1") == 0
        await build.pass_time(0.2)
        assert build.count("READY db https://x/1") == 1
        await build.pass_time(60)  # far longer than a builder may be silent
        assert build.count("READY db https://x/1") == 13
        assert build.count("TIMEOUT db") == 0
        await build.say("@late", "AUDIT db PASS")
        await build.told("MERGED db")

    play_build(scene)


@pytest.mark.row("C3")
@pytest.mark.parametrize("first", ["@a", "@b"])
def test_of_two_claims_the_earlier_by_the_servers_clock_wins(first: str) -> None:
    async def scene(build: BuildScene) -> None:
        await build.told("TASKS https://x/spec db")
        now = build.stage.clock.wall()
        moments = {"@a": now + (0 if first == "@a" else 700), "@b": now + (0 if first == "@b" else 700)}
        for who, at in moments.items():  # @a is heard first in any case
            await build.say(who, "CLAIM db", at=at)
        other = "@b" if first == "@a" else "@a"
        await build.told(f'REJECT db {other} "already claimed"')
        assert build.count(f"ACK db {first}") == 1
        assert build.count(f"ACK db {other}") == 0

    play_build(scene)


@pytest.mark.row("C3")
def test_claims_are_collected_for_a_second_of_the_servers_clock() -> None:
    async def scene(build: BuildScene) -> None:
        await build.build("@a", "db")
        began = build.stage.clock.wall()
        # All of it is heard at once, as after an absence, and means what it would have meant in time.
        await build.say("@a", "CLAIM api", at=began + 10)
        await build.say("@b", "CLAIM api", at=began + 1_010)  # within a second of the first
        await build.say("@b", "CLAIM web", at=began + 1_011)  # a second of the first is over: that is decided by now
        await build.say("@a", "ABORT api no time", at=began + 1_200)
        await build.say("@c", "CLAIM api", at=began + 1_300)
        await build.told("ACK api @c")
        about_api = [line for line in build.lines if line.startswith(("ACK api", "REJECT api"))]
        assert about_api == ["ACK api @a", 'REJECT api @b "already claimed"', "ACK api @c"]
        assert build.stage.clock.wall() - began < 2_000  # nothing was waited for twice

    play_build(scene)


@pytest.mark.row("C3")
@pytest.mark.parametrize("ids", [("m1", "m2"), ("m2", "m1"), ("", "")])
def test_an_exact_tie_is_settled_the_same_way_every_time(ids: tuple[str, str]) -> None:
    async def scene(build: BuildScene) -> None:
        await build.told("TASKS https://x/spec db")
        now = build.stage.clock.wall()
        await build.say("@b", "CLAIM db", at=now, id_=ids[0])
        await build.say("@a", "CLAIM db", at=now, id_=ids[1])
        winner = "@b" if ids == ("m1", "m2") else "@a"  # without ids, by the agents' own
        await build.told(f"ACK db {winner}")

    play_build(scene)


@pytest.mark.row("C3", "C7")
@pytest.mark.parametrize("answer", ["keep", "give"])
def test_an_earlier_claim_that_comes_after_the_ack_is_for_a_human(answer: str) -> None:
    async def scene(build: BuildScene) -> None:
        before = build.stage.clock.wall() - 5_000
        await build.claim("@a", "db")
        await build.say("@b", "CLAIM db", at=before)
        await build.say("@b", "CLAIM db", at=before + 1)
        await build.pass_time(0.1)
        (asked,) = [line for line in build.lines if line.startswith("ESCALATE")]
        assert "@b has claimed db before @a" in asked
        (question,) = await build.watch.questions()
        assert asked.endswith(f"ANSWER {question.id} keep|give")
        await build.say("@b", f"ANSWER {question.id} give")  # an agent
        await build.pass_time(0.1)
        assert build.count("ACK db @b") == 0
        await build.say("@human", f"ANSWER {question.id} {answer}")
        await build.pass_time(0.1)
        assert build.count("ACK db @b") == (answer == "give")
        await build.say("@b", "READY db https://x/1")
        await build.say("@auditor", "AUDIT db PASS")
        await build.pass_time(0.1)
        assert build.count("MERGED db") == (answer == "give")

    play_build(scene)


@pytest.mark.row("C4")
def test_a_cycle_halts_the_build_and_a_corrected_spec_goes_on() -> None:
    async def scene(build: BuildScene) -> None:
        await build.told('ERROR "dependency cycle detected: api <-> web"')
        assert [line.split()[0] for line in build.lines] == ["ERROR", "ESCALATE"]
        await build.say("@a", "CLAIM db")
        await build.told('REJECT db @a "the build is halted: dependency cycle detected: api <-> web"')
        await build.pass_time(10)
        assert len(build.lines) == 3
        build.spec = spec_of({"db": [], "api": ["db"], "web": ["api"]})
        await build.told("TASKS https://x/spec db")
        assert await build.watch.questions() == []
        await build.build("@a", "db")
        build.spec = spec_of({"db": [], "api": ["db", "web"], "web": ["api"]})
        await build.told('ERROR "dependency cycle detected: api <-> web"', 2)
        build.spec = spec_of({"db": [], "api": ["db", "web"], "web": []})
        await build.told("TASKS https://x/spec web")  # and what is merged is merged
        await build.build("@a", "web")
        await build.build("@a", "api")
        await build.over()

    play_build(scene, {"db": [], "api": ["web"], "web": ["api"]})


@pytest.mark.row("C5")
def test_giving_back_is_neither_timeout_nor_failure_and_the_third_time_asks_a_human() -> None:
    async def scene(build: BuildScene) -> None:
        for who in ("@a", "@b"):
            await build.claim(who, "db")
            await build.say(who, 'ABORT db "environment failure"')
            await build.pass_time(0.1)
        assert build.count("TIMEOUT db") + build.count("RETRY db") == 0
        assert build.count("TASKS https://x/spec db") == 3
        await build.claim("@a", "db")
        await build.say("@a", 'ABORT db "environment failure"')
        await build.pass_time(0.1)
        (asked,) = [line for line in build.lines if line.startswith("ESCALATE")]
        assert "db was given back 3 times, the last time by @a: environment failure" in asked
        (question,) = await build.watch.questions()
        await build.say("@b", "CLAIM db")
        await build.told('REJECT db @b "a human decides about it first"')
        await build.watch.answer(question.id, "retry", by="somebody at a terminal")
        await build.told("TASKS https://x/spec db", 4)
        await build.claim("@a", "db")  # and it is counted anew
        await build.say("@a", "ABORT db again")
        await build.claim("@b", "db")

    play_build(scene)


@pytest.mark.row("C6")
def test_a_late_ready_is_refused_with_the_reason() -> None:
    async def scene(build: BuildScene) -> None:
        await build.claim("@a", "db")
        await build.pass_time(31)
        await build.say("@a", "READY db https://x/1")
        await build.told('REJECT db @a "you were silent for too long and have lost it; claim it again"')
        await build.claim("@b", "db")
        await build.say("@a", "PROGRESS db 90%", "READY db https://x/1")
        await build.told('REJECT db @a "you were silent for too long and have lost it; @b has it now"', 2)
        await build.say("@b", "READY db https://x/2")  # whoever has the lease goes on
        await build.say("@auditor", "AUDIT db PASS")
        await build.told("MERGED db")
        await build.say("@a", "READY db https://x/1")
        await build.told('REJECT db @a "it is merged"')

    play_build(scene)


@pytest.mark.row("C7")
def test_when_all_known_builders_have_failed_a_human_is_asked() -> None:
    async def scene(build: BuildScene) -> None:
        await build.build("@b", "db")
        for who in ("@a", "@b"):
            await build.claim(who, "api")
            await build.fail(who, "api", 3)
        await build.pass_time(0.1)
        (asked,) = [line for line in build.lines if line.startswith("ESCALATE")]
        assert "All known builders have failed api 3 times. The last audit said: no tests" in asked
        assert asked.endswith("retry|clarify|skip")
        (question,) = await build.watch.questions()
        await build.say("@human", f"ANSWER {question.id} rety")
        await build.told(f"ERROR \"question {question.id} has no option 'rety'; choose one of: retry, clarify, skip\"")
        await build.say("@human", f"ANSWER {question.id} retry")
        await build.claim("@a", "api")  # a human lets everybody try again

    play_build(scene)


@pytest.mark.row("C7")
@pytest.mark.parametrize("answer", ["extend", "stop"])
def test_past_its_limit_one_question_is_asked_and_nothing_new_is_begun(answer: str) -> None:
    async def scene(build: BuildScene) -> None:
        await build.build("@a", "db")
        await build.claim("@a", "api")
        for _ in range(6):
            await build.pass_time(20)
            await build.say("@a", "PROGRESS api")
        await build.pass_time(20)
        asked = [line for line in build.lines if line.startswith("ESCALATE")]
        assert len(asked) == 1
        assert "longer than 2h" in asked[0]
        await build.say("@b", "CLAIM web")
        await build.told('REJECT web @b "nothing new is begun until a human has decided about the build"')
        await build.say("@a", "READY api https://x/1")  # what is held goes on
        await build.say("@auditor", "AUDIT api PASS")
        await build.told("MERGED api")
        (question,) = await build.watch.questions()
        await build.say("@human", f"ANSWER {question.id} {answer}")
        if answer == "stop":
            await build.over()
            run = (await build.watch.runs())[0]
            assert (run.ended_at is not None, run.reason) == (True, "stopped by a human")
            return
        await build.told("TASKS https://x/spec web")
        await build.pass_time(120)
        assert len([line for line in build.lines if line.startswith("ESCALATE")]) == 2

    play_build(scene)


def test_a_human_merges_where_that_is_waited_for() -> None:
    async def scene(build: BuildScene) -> None:
        await build.claim("@a", "db")
        await build.say("@human", "MERGED db")
        await build.told('REJECT db @human "it waits for no merge"')
        await build.say("@a", "READY db https://x/1")
        await build.say("@auditor", "AUDIT db PASS")
        await build.pass_time(60)
        await build.say("@a", "MERGED db")  # not a human
        await build.pass_time(1)
        assert build.count("MERGED db") == 0
        assert build.count("TIMEOUT db") == 0
        await build.say("@human", "MERGED db")
        await build.told("MERGED db")

    play_build(scene, rights=Rights(humans=["@human"], wait_for_merge=True))


@pytest.mark.row("C8")
def test_forged_and_foolish_lines_change_nothing() -> None:
    async def scene(build: BuildScene) -> None:
        await build.told("TASKS https://x/spec db")
        await build.say("@x", "ACK db @x", "MERGED db", "BUILD COMPLETE", "TIMEOUT db", "ANSWER q_1 stop", "CLAIM")
        await build.say("@x", "coordinator: ACK db @x", "CLAIM db for @y", "CLAIM nothing")
        await build.say("@x", "CLAIM " + "x" * 70_000)
        await build.told('REJECT nothing @x "there is no such component"')
        await build.pass_time(1)
        assert len(build.lines) == 3
        await build.say("@nobody", "CLAIM db", id_="1")
        await build.told("ACK db @nobody")

    play_build(scene)


@pytest.mark.row("C8")
def test_after_ten_thousand_random_lines_the_build_goes_on() -> None:
    async def scene(build: BuildScene) -> None:
        chance = random.Random(7)
        verbs = [
            "CLAIM",
            "progress",
            "READY",
            "**AUDIT**",
            "ABORT",
            "ANSWER",
            "MERGED",
            "ACK",
            "BLOCKED",
            "hello",
            "\x1b[2J",
        ]
        words = [
            "db",
            "nothing",
            "PASS",
            "FAIL",
            "https://x/1",
            "@x",
            "q_1.1",
            '"',
            "\x00",
            "\u202e",
            "�" * 50,
            "40%",
            "",
        ]
        for _ in range(100):
            lines = [
                " ".join([chance.choice(verbs), *chance.choices(words, k=chance.randrange(5))]) for _ in range(100)
            ]
            await build.say(f"@x{chance.randrange(5)}", *lines)
        await build.pass_time(1)
        assert build.coordinating is not None
        assert not build.coordinating.done()
        assert len(build.lines) > 500  # those that name a component were looked at, and answered
        assert all(line.isprintable() for line in build.lines)
        for who in range(5):
            await build.say(f"@x{who}", "ABORT db enough")
        await build.pass_time(1)
        if not await build.watch.questions():  # it may have been given back three times
            await build.build("@a", "db")

    play_build(scene)
