"""What was said while nobody coordinated counts when it was said, before anything is due (C1, C6, C8)."""

import pytest

from allswell.domain.build.limits import BuildLimits
from allswell.testing.chat import Room
from tests.build.scene import COORDINATOR, BuildScene, play_build

pytestmark = pytest.mark.row("C1", "C6", "C8")


async def away(build: BuildScene, how: str) -> None:
    if how == "killed":
        await build.kill()
    else:
        build.room.cut(COORDINATOR)


async def back(build: BuildScene, how: str) -> None:
    if how == "killed":
        build.begin()
    else:
        build.room.mend(COORDINATOR)


@pytest.mark.parametrize("how", ["killed", "cut off"])
def test_progress_said_meanwhile_keeps_the_component_and_counts_from_when_it_was_said(how: str) -> None:
    async def scene(build: BuildScene) -> None:
        await build.claim("@a", "db")
        await away(build, how)
        await build.pass_time(25)
        await build.say("@a", "PROGRESS db 50%")
        await build.pass_time(15)  # 40 minutes after the claim; another process sweeps the store all the time
        assert await build.watch.sweep_once() is not None
        await back(build, how)
        await build.pass_time(14)  # 29 minutes after PROGRESS
        assert build.count("TIMEOUT db") == 0
        await build.pass_time(1.2)
        assert build.count("TIMEOUT db") == 1

    play_build(scene)


@pytest.mark.parametrize("how", ["killed", "cut off"])
def test_who_was_silent_all_the_time_has_lost_it_once_the_replay_is_over(how: str) -> None:
    async def scene(build: BuildScene) -> None:
        await build.claim("@a", "db")
        await away(build, how)
        await build.pass_time(35)
        assert build.count("TIMEOUT db") == 0
        await back(build, how)
        await build.pass_time(0.2)
        assert build.count("TIMEOUT db") == 1

    play_build(scene)


@pytest.mark.parametrize("how", ["killed", "cut off"])
def test_work_that_was_handed_in_and_passed_meanwhile_is_merged(how: str) -> None:
    async def scene(build: BuildScene) -> None:
        await build.claim("@a", "db")
        await away(build, how)
        await build.pass_time(20)
        await build.say("@a", "PROGRESS db")
        await build.say("@a", "READY db https://x/1")
        await build.pass_time(45)
        await build.say("@auditor", "AUDIT db PASS")
        await build.pass_time(20)
        await back(build, how)
        await build.told("MERGED db", seconds=60)
        said = [line.split()[0] for line in build.lines]
        assert not {"TIMEOUT", "REJECT", "READY"} & set(said)

    play_build(scene)


@pytest.mark.parametrize("how", ["killed", "cut off"])
def test_after_a_replay_that_may_lack_lines_there_is_one_more_interval(how: str) -> None:
    async def scene(build: BuildScene) -> None:
        await build.claim("@a", "db")
        await away(build, how)
        await build.pass_time(20)
        await build.say("@a", "PROGRESS db")
        await build.pass_time(15)
        for number in range(20):  # more than the server keeps: PROGRESS is forgotten
            await build.say("@b", f"chatter {number}")
        await back(build, how)
        await build.pass_time(9.8)
        assert build.count("TIMEOUT db") == 0
        await build.pass_time(0.4)
        assert build.count("TIMEOUT db") == 1

    play_build(scene, room_of=lambda clock: Room(clock, replayed=20))


def test_a_failed_audit_said_long_ago_begins_the_builders_time_when_it_was_said() -> None:
    async def scene(build: BuildScene) -> None:
        await build.claim("@a", "db")
        await build.say("@a", "READY db https://x/1")
        await build.pass_time(1)
        await build.kill()
        await build.pass_time(60)
        await build.say("@auditor", "AUDIT db FAIL no tests")
        await build.pass_time(10)
        build.begin()
        await build.told("AUDIT db FAIL no tests", seconds=60)
        await build.pass_time(19)
        assert build.count("TIMEOUT db") == 0
        await build.pass_time(2)
        assert build.count("TIMEOUT db") == 1

    play_build(scene)


def test_several_claims_in_one_message_are_each_answered() -> None:
    async def scene(build: BuildScene) -> None:
        await build.say("@a", "CLAIM db\nCLAIM web\nPROGRESS db 10%")
        await build.told("ACK db @a")
        await build.told("ACK web @a")
        await build.say("@b", "CLAIM web")
        await build.told('REJECT web @b "already claimed"')
        await build.say("@a", 'ABORT web "too much"\nREADY db https://x/1')
        await build.claim("@b", "web")
        await build.say("@auditor", "AUDIT db PASS")
        await build.told("MERGED db")

    play_build(scene, {"db": [], "web": []})


def test_short_intervals_are_kept_to_the_second() -> None:
    async def scene(build: BuildScene) -> None:
        await build.say("@a", "CLAIM db")
        await build.told("ACK db @a (PROGRESS every 1s)")
        await build.pass_time(2.9 / 60)
        assert build.count("TIMEOUT db") == 0
        await build.pass_time(0.4 / 60)
        assert build.count("TIMEOUT db") == 1

    play_build(scene, limits=BuildLimits(progress_every=1_000))


@pytest.mark.parametrize("heard", [True, False])
@pytest.mark.parametrize("what", ["set", "slept"])
def test_a_clock_that_was_set_and_a_machine_that_slept_make_no_builder_silent(what: str, heard: bool) -> None:
    async def scene(build: BuildScene) -> None:
        await build.claim("@a", "db")
        await build.pass_time(1)
        if heard:
            await build.say("@a", "PROGRESS db")
        await build.pass_time(1)
        if what == "set":
            build.stage.clock.jump_wall(3 * 3_600_000)
        else:
            build.stage.clock.suspend(3_600_000)
        await build.pass_time(5)
        assert build.count("TIMEOUT db") == 0
        await build.pass_time(40)
        assert build.count("TIMEOUT db") == 1

    play_build(scene, limits=BuildLimits(build=86_400_000))
