"""Builds in a storm, on virtual time: lines come late, twice and out of order, and everybody is cut off at times.

There are 20 builders and 3 auditors, and a coordinator that is killed as well. `ALLSWELL_BUILD_STORMS=100` plays more.
"""

import asyncio
import os
import random
import re
from collections import Counter
from itertools import pairwise

import pytest

from allswell.domain.build.hearing import Rights
from allswell.domain.build.line import AckLine, ClaimLine, CompleteLine, RejectLine, read
from allswell.domain.task.model import TaskFilter
from tests.build.robots import Auditor, Builder, Human, Luck, Robot, is_over
from tests.build.scene import COORDINATOR, BuildScene, play_build
from tests.build.test_kills import leases, one_holder_at_a_time
from tests.build.weather import StormyRoom

STORMS = int(os.environ.get("ALLSWELL_BUILD_STORMS", "2"))
DAY = 24 * 60
BUILDERS = [f"@b{number}" for number in range(20)]
AUDITORS = [f"@auditor{number}" for number in range(3)]


def graph_of(seed: int) -> dict[str, list[str]]:
    chance = random.Random(seed)
    names = [f"c{number}" for number in range(15)]
    return {name: chance.sample(names[:place], min(place, chance.randrange(3))) for place, name in enumerate(names)}


async def ended(build: BuildScene) -> bool:
    """Wait for the end: everything is merged or skipped; or, after a day, a human is asked who is not there."""
    for _ in range(3 * DAY):
        if is_over(build):
            return True
        await asyncio.sleep(60)
    assert await build.watch.questions(), "the build hangs, and nobody was asked"
    return False


async def no_two_at_once(build: BuildScene) -> None:
    """As the store has it: an attempt begins after the one before it has ended."""
    for row in await build.watch.tasks(TaskFilter(role="build.component")):
        attempts = await build.watch.attempts(row.task.id)
        for one, following in pairwise(attempts):
            assert one.ended_at <= following.granted_at
        if row.lease is not None and attempts:
            assert attempts[-1].ended_at <= row.lease.granted_at


def claims_of(build: BuildScene) -> Counter[tuple[str, str]]:
    """How often each component was claimed by each builder, before the build was complete."""
    claims: Counter[tuple[str, str]] = Counter()
    seen: set[str] = set()
    for heard in build.room.said:
        for line in read(heard.text):
            if isinstance(line, ClaimLine) and heard.mark not in seen:
                claims[line.component, heard.who] += 1
            if isinstance(line, CompleteLine) and heard.who == COORDINATOR:
                return claims
        seen.add(heard.mark)
    return claims


def every_claim_was_answered(build: BuildScene) -> None:
    """Whoever claimed something was told what came of it."""
    answered: set[tuple[str, str]] = set()
    for text in build.lines:
        for line in read(text):
            if isinstance(line, AckLine | RejectLine):
                answered.add((line.component, line.agent))
        if found := re.match(r'ESCALATE "(\S+) has claimed (\S+) before', text):
            answered.add((found[2], found[1]))  # an earlier claim that came late is for a human
    assert set(claims_of(build)) <= answered


@pytest.mark.row("C8", "C6", "C7")
@pytest.mark.parametrize("seed", range(STORMS))
def test_every_build_ends_merged_or_asks_a_human(seed: int) -> None:
    async def scene(build: BuildScene) -> None:
        luck = Luck(seed, doubled=0.05, late=0.2)
        robots: list[Robot] = [Builder(build, name, luck) for name in BUILDERS]
        robots += [Auditor(build, name, luck, fails=0.3) for name in AUDITORS]
        if seed % 2:  # else nobody answers
            robots += [Human(build, "@human", Luck(seed))]
        living = [asyncio.ensure_future(robot.live()) for robot in robots]
        room = build.room
        assert isinstance(room, StormyRoom)
        living.append(asyncio.ensure_future(room.rage([COORDINATOR, *BUILDERS, *AUDITORS])))
        chance = random.Random(seed)
        for _ in range(10):
            await asyncio.sleep(chance.uniform(1, 900))
            if not is_over(build):
                await build.kill()
                build.begin()
        complete = await ended(build)
        for task in living:
            task.cancel()
        room.mend(COORDINATOR)
        await build.pass_time(5)
        one_holder_at_a_time(build)
        await no_two_at_once(build)
        every_claim_was_answered(build)
        said, claims = Counter(build.lines), claims_of(build)
        for (component, agent), times in (await leases(build)).items():
            again = claims[component, agent] - times  # who claims what it has is told so again
            assert times <= said[f"ACK {component} {agent}"] <= times + max(again, 0)  # every line arrived, and once
        states = [row.task.state for row in await build.watch.tasks(TaskFilter(role="build.component"))]
        assert all(said[f"MERGED {name}"] <= 1 for name in build_names(build))
        assert states.count("done") == sum(said[f"MERGED {name}"] for name in build_names(build))
        assert not complete or set(states) <= {"done", "skipped"}
        assert room.cuts

    play_build(
        scene,
        graph_of(seed),
        Rights(humans=["@human"]),
        seed=seed,
        lease=20_000,
        room_of=lambda clock: StormyRoom(clock, seed),
    )


def build_names(build: BuildScene) -> list[str]:
    return [component.name for component in build.spec.components]
