"""Lines that come late, twice or from an earlier life, and what was decided and not said yet (C2, C3, C6, C8)."""

import pytest

from allswell.domain.build.hearing import Rights
from allswell.domain.build.limits import BuildLimits
from allswell.domain.ids import RunId
from allswell.domain.task.model import TaskFilter
from allswell.views.run import BuildShape
from tests.build.scene import BuildScene, play_build


@pytest.mark.row("C2", "C3")
def test_an_earlier_claim_of_a_barred_builder_is_no_dispute() -> None:
    async def scene(build: BuildScene) -> None:
        await build.build("@b", "db")
        before = build.stage.clock.wall()
        await build.claim("@a", "api")
        await build.fail("@a", "api", 3)
        await build.claim("@b", "api")
        await build.say("@a", "CLAIM api", at=before, id_="late")
        await build.told('REJECT api @a "your work on it has failed 3 audits; leave it to another builder"')
        assert await build.watch.questions() == []

    play_build(scene)


@pytest.mark.row("C2")
def test_a_verdict_from_before_ready_is_about_an_earlier_one() -> None:
    async def scene(build: BuildScene) -> None:
        await build.claim("@a", "db")
        await build.say("@a", "READY db https://x/1")
        await build.pass_time(1)
        seen = build.stage.clock.wall()
        await build.say("@auditor", "AUDIT db FAIL no tests")
        await build.told("AUDIT db FAIL no tests")
        await build.pass_time(0.1)
        await build.say("@a", "READY db https://x/1")
        await build.say("@other", "AUDIT db PASS", at=seen, id_="late")  # of the first
        await build.pass_time(1)
        assert build.count("MERGED db") == 0
        await build.say("@other", "AUDIT db PASS")
        await build.told("MERGED db")

    play_build(scene)


@pytest.mark.row("C2")
def test_a_verdict_that_names_a_replaced_ready_is_not_about_the_newer_one() -> None:
    async def scene(build: BuildScene) -> None:
        await build.claim("@a", "db")
        await build.say("@a", "READY db https://x/1")
        await build.pass_time(0.1)
        seen = build.stage.clock.wall()
        await build.pass_time(0.1)
        await build.say("@a", "READY db https://x/2")
        await build.say("@other", "AUDIT db PASS", at=seen, id_="late")  # sent before the second READY
        await build.say("@other", "AUDIT db PASS https://x/1")  # sent after it, by somebody who has not heard of it
        await build.told('REJECT db @other "that is about https://x/1; what is to be judged is https://x/2"')
        assert build.count("MERGED db") == 0
        await build.say("@other", "AUDIT db FAIL https://x/2 no tests")
        await build.told("AUDIT db FAIL no tests")  # its builder knows the address
        await build.say("@a", "READY db https://x/1")  # an earlier address may come again
        await build.say("@other", "AUDIT db PASS https://x/2")
        await build.told('REJECT db @other "that is about https://x/2; what is to be judged is https://x/1"')
        await build.kill()
        build.begin()  # the next life knows of what was replaced, too
        await build.say("@other", "AUDIT db PASS https://x/1")
        await build.told("MERGED db")

    play_build(scene)


@pytest.mark.row("C6")
def test_what_was_said_under_an_earlier_lease_is_not_about_this_one() -> None:
    async def scene(build: BuildScene) -> None:
        await build.claim("@a", "db")
        await build.pass_time(1)
        before = build.stage.clock.wall()
        await build.pass_time(31)
        await build.claim("@a", "db")
        await build.say("@a", 'ABORT db "no luck"', at=before, id_="late1")
        await build.say("@a", "READY db https://x/1", at=before, id_="late2")
        await build.say("@auditor", "AUDIT db PASS")
        await build.pass_time(1)
        (row,) = await build.watch.tasks(TaskFilter(role="build.component"))
        assert row.lease is not None
        assert row.lease.agent == "@a"
        assert build.count("MERGED db") == 0
        assert build.lines[-1] == "ACK db @a"  # nothing that would make it stop

    play_build(scene)


@pytest.mark.row("C8")
def test_a_message_that_comes_twice_is_acted_on_once_though_nobody_says_that_it_is_a_replay() -> None:
    async def scene(build: BuildScene) -> None:
        await build.claim("@a", "db")
        await build.say("@a", "READY db https://x/1", id_="r1", at=build.stage.clock.wall())
        said = build.room.said[-1]
        await build.say("@auditor", "AUDIT db FAIL no tests")
        await build.told("AUDIT db FAIL no tests")
        for _ in range(2):  # heard by whoever heard it before, and by the next life
            await build.say("@a", said.text, id_=said.id, at=said.at)
            await build.say("@auditor", "AUDIT db FAIL again")
            await build.pass_time(0.1)
            await build.kill()
            build.begin()
            await build.pass_time(6)
        assert build.count("AUDIT db FAIL again") == 0

    play_build(scene)


@pytest.mark.row("C3")
def test_whoever_loses_a_dispute_is_told_to_stop() -> None:
    async def scene(build: BuildScene) -> None:
        before = build.stage.clock.wall() - 5_000
        await build.claim("@a", "db")
        await build.say("@b", "CLAIM db", at=before)
        await build.pass_time(0.1)
        (question,) = await build.watch.questions()
        await build.say("@human", f"ANSWER {question.id} give")
        await build.told("ACK db @b")
        assert build.lines[-2:] == ['REJECT db @a "a human has given it to @b"', "ACK db @b"]

    play_build(scene)


@pytest.mark.row("C7")
def test_whoever_fails_last_of_all_is_told_to_stop_and_may_try_again_when_a_human_says_so() -> None:
    async def scene(build: BuildScene) -> None:
        await build.claim("@a", "db")
        await build.fail("@a", "db", 3)
        await build.told('REJECT db @a "your work on it has failed, and a human decides about it"')
        await build.say("@human", f"ANSWER {(await build.watch.questions())[0].id} retry")
        await build.told("TASKS https://x/spec db", 2)
        await build.claim("@a", "db")

    play_build(scene)


@pytest.mark.row("C8")
def test_what_was_decided_and_not_said_is_said_by_the_next_life() -> None:
    async def scene(build: BuildScene) -> None:
        await build.told("TASKS https://x/spec db")
        build.room.mute()
        await build.say("@a", "CLAIM db")
        await build.say("@b", "CLAIM db")
        await build.say("@c", "READY db https://x/1")
        await build.pass_time(0.1)
        assert len(build.lines) == 1
        await build.kill()
        build.room.unmute()
        build.begin()
        await build.told('REJECT db @b "already claimed"')
        assert build.lines[1:] == [
            'REJECT db @c "you do not have it; claim it again"',
            "ACK db @a",
            'REJECT db @b "already claimed"',
        ]

    play_build(scene)


@pytest.mark.row("C8")
def test_announcements_that_nobody_could_hear_are_made_once() -> None:
    async def scene(build: BuildScene) -> None:
        await build.build("@a", "db")
        await build.claim("@a", "api")
        await build.say("@a", "READY api https://x/1")
        await build.pass_time(0.1)
        build.room.mute()
        await build.pass_time(45)
        build.room.unmute()
        await build.pass_time(0.1)
        assert build.count("READY api https://x/1") <= 2  # one was on its way
        assert build.count("TASKS https://x/spec web") <= 2

    play_build(scene)


@pytest.mark.row("C8")
def test_a_coordinator_without_a_key_knows_its_own_words_under_its_earlier_name() -> None:
    async def scene(build: BuildScene) -> None:
        await build.claim("@a", "db")
        await build.fail("@a", "db")
        await build.say("@a", "READY db https://x/2")
        await build.pass_time(0.1)
        await build.kill()
        build.name = "@another"
        build.begin()
        await build.pass_time(1)
        assert build.room.lines("@another") == []  # neither a verdict nor an answer to itself
        await build.say("@auditor", "AUDIT db PASS")
        await build.room.wait_for("@another", "MERGED db")

    play_build(scene)


def test_a_coordinator_that_was_away_for_too_long_goes_on_unless_somebody_else_came() -> None:
    async def scene(build: BuildScene) -> None:
        await build.told("TASKS https://x/spec db")
        (row,) = await build.watch.tasks(TaskFilter(role="build.coordinator"))
        assert row.lease is not None
        await build.watch.held(row.task.id, row.lease.token, row.lease.agent).release("it was away")
        await build.pass_time(0.5)
        await build.build("@a", "db")

    play_build(scene, lease=20_000)


@pytest.mark.row("C8")
def test_a_flood_of_nonsense_keeps_nobody_waiting() -> None:
    async def scene(build: BuildScene) -> None:
        await build.told("TASKS https://x/spec db")
        await build.say("@x", *[f"CLAIM no-{number}" for number in range(400)])
        await build.claim("@a", "db")
        assert len(build.lines) == 1 + 10 + 1

    play_build(scene)


@pytest.mark.row("C7")
def test_a_build_that_a_human_stops_is_told_of() -> None:
    async def scene(build: BuildScene) -> None:
        await build.claim("@a", "db")
        await build.pass_time(121)
        (question,) = await build.watch.questions()
        await build.say("@human", f"ANSWER {question.id} stop")
        standing = await build.over()
        assert standing.stopped
        assert build.lines[-1] == 'ERROR "the build was stopped by a human"'

    play_build(scene)


@pytest.mark.row("C2", "C8")
def test_where_keys_are_required_a_verdict_needs_one_too() -> None:
    async def scene(build: BuildScene) -> None:
        await build.claim("@a", "db")
        await build.say("@a", "READY db https://x/1")
        await build.say("@b", "AUDIT db PASS", keyed=False)
        await build.told('REJECT db @b "verdicts need a key here"')
        await build.say("@c", "AUDIT db PASS")
        await build.told("MERGED db")

    play_build(scene, rights=Rights(require_keys=True))


@pytest.mark.row("C8")
def test_told_to_stop_while_the_chat_is_away_it_leaves_and_the_next_one_says_what_is_owed() -> None:
    async def scene(build: BuildScene) -> None:
        await build.claim("@a", "db")
        await build.say("@a", "READY db https://x/1")
        await build.pass_time(0.1)
        build.room.mute()
        await build.say("@auditor", "AUDIT db PASS")
        await build.pass_time(0.1)
        assert build.coordinator is not None
        build.coordinator.stop()
        assert (await build.over()).is_over
        assert (await build.watch.runs())[0].ended_at is None  # nobody knows yet
        build.room.unmute()
        build.begin()
        await build.told("BUILD COMPLETE https://x/spec")
        await build.over()
        assert (await build.watch.runs())[0].ended_at is not None
        assert build.lines[-2:] == ["MERGED db", "BUILD COMPLETE https://x/spec"]

    play_build(scene, {"db": []})


def test_what_almost_fits_is_understood_and_what_does_not_is_answered_once() -> None:
    async def scene(build: BuildScene) -> None:
        await build.say("@a", "- CLAIM: `db` please")
        await build.told("ACK db @a")
        await build.say("@a", "READY db https://x/1")
        await build.say("@auditor", "AUDIT db FAIL: no tests")
        await build.told("AUDIT db FAIL no tests")
        await build.say("@a", "READY db https://x/1 (retry)")  # as the protocol writes it
        await build.say("@auditor", "AUDIT db FAIL still none")
        await build.told("AUDIT db FAIL still none")
        await build.say("@a", "READY db")  # of the same address
        await build.say("@b", "AUDIT db PASSED")
        await build.say("@b", "claim to fame")
        await build.told('@b: "AUDIT db PASSED" was not understood; write: AUDIT component PASS|FAIL [details]')
        await build.say("@b", "AUDIT db PASS https://x/1")
        await build.told("MERGED db")
        await build.kill()
        build.begin()
        await build.say("@b", "CLAIM")
        await build.say("@c", "Tasks for today: none")
        await build.pass_time(1)
        assert sum("was not understood" in line for line in build.lines) == 1

    play_build(scene)


@pytest.mark.row("C2", "C7")
def test_known_builders_are_all_who_have_spoken_as_such_and_a_newcomer_gets_what_they_failed() -> None:
    async def scene(build: BuildScene) -> None:
        await build.claim("@a", "db")
        await build.say("@b", "CLAIM db")
        await build.told('REJECT db @b "already claimed"')
        await build.fail("@a", "db", 3)
        await build.told("RETRY db")  # @b has held nothing yet, and is a builder
        await build.claim("@b", "db")
        await build.fail("@b", "db", 3)
        await build.told('REJECT db @b "your work on it has failed, and a human decides about it"')
        (question,) = await build.watch.questions()
        assert question.text.startswith("All known builders have failed db 3 times.")
        await build.claim("@c", "db")  # that is no longer true: nobody has to decide
        assert await build.watch.questions() == []
        await build.say("@a", "CLAIM db")
        await build.told('REJECT db @a "your work on it has failed 3 audits; leave it to another builder"')
        await build.say("@c", "READY db https://x/9")
        await build.say("@auditor", "AUDIT db PASS")
        await build.told("MERGED db")

    play_build(scene)


@pytest.mark.row("C7")
def test_what_a_human_skips_is_told_with_all_that_goes_with_it_and_nothing_merged_is_not_complete() -> None:
    async def scene(build: BuildScene) -> None:
        for _ in range(3):
            await build.claim("@a", "db")
            await build.say("@a", 'ABORT db "no luck"')
            await build.pass_time(0.1)
        (question,) = await build.watch.questions()
        await build.say("@human", f"ANSWER {question.id} skip")
        await build.told("SKIPPED db api web all")
        await build.told('ERROR "the build is over and nothing is merged: everything was skipped"')
        assert build.count("BUILD COMPLETE https://x/spec") == 0
        standing = await build.over()
        assert not BuildShape.of(RunId("r_x"), "shop", standing).complete
        assert [run.reason for run in await build.watch.runs()] == ["nothing merged"]

    play_build(scene)


@pytest.mark.row("C7")
def test_what_a_human_clarifies_is_said_in_the_channel() -> None:
    async def scene(build: BuildScene) -> None:
        for _ in range(3):
            await build.claim("@a", "db")
            await build.say("@a", 'ABORT db "which database?"')
            await build.pass_time(0.1)
        (question,) = await build.watch.questions()
        await build.say("@human", f"ANSWER {question.id} clarify use SQLite")
        await build.told('CLARIFY db "use SQLite"')
        await build.kill()
        build.begin()
        await build.claim("@a", "db")
        assert build.count('CLARIFY db "use SQLite"') == 1

    play_build(scene)


@pytest.mark.row("C3")
def test_who_claimed_earlier_and_does_not_get_it_is_told() -> None:
    async def scene(build: BuildScene) -> None:
        before = build.stage.clock.wall() - 5_000
        await build.claim("@a", "db")
        await build.say("@b", "CLAIM db", at=before)
        await build.pass_time(0.1)
        (question,) = await build.watch.questions()
        await build.say("@human", f"ANSWER {question.id} keep")
        await build.told('REJECT db @b "a human has decided that @a keeps it"')

    play_build(scene)


@pytest.mark.row("C1")
def test_an_interval_that_is_not_the_usual_one_is_announced() -> None:
    async def scene(build: BuildScene) -> None:
        await build.told("TASKS https://x/spec db (PROGRESS every 30s)")
        await build.say("@a", "CLAIM db")
        await build.told("ACK db @a (PROGRESS every 30s)")

    play_build(scene, limits=BuildLimits(progress_every=30_000))
