"""A coordinator that is killed at any moment: the build goes on, no component is lost, no line is said twice."""

import asyncio
import os
import random
from collections import Counter

import pytest

from allswell.domain.build.hearing import Rights
from allswell.domain.build.line import AckLine, MergedLine, RetryLine, TimeoutLine, read
from allswell.domain.task.model import TaskFilter
from tests.build.robots import Auditor, Builder, Human, Luck, Robot, is_over
from tests.build.scene import COORDINATOR, BuildScene, play_build

KILLS = int(os.environ.get("ALLSWELL_BUILD_KILLS", "25"))
SEEDS = int(os.environ.get("ALLSWELL_BUILD_SEEDS", "2"))
GRAPH = {
    f"c{number}": [f"c{other}" for other in range(number) if (number * 7 + other) % 4 == 0] for number in range(12)
}


async def crew(build: BuildScene, robots: list[Robot]) -> list[asyncio.Task[None]]:
    return [asyncio.ensure_future(robot.live()) for robot in robots]


async def finished(build: BuildScene) -> None:
    """Wait for the end; a build that has none within three days has hung."""
    for _ in range(3 * 24 * 60):
        if is_over(build):
            return
        assert build.coordinating is not None
        assert not build.coordinating.done()
        await asyncio.sleep(60)
    pytest.fail("the build hangs:\n" + "\n".join(f"{heard.who}: {heard.text}" for heard in build.room.said[-40:]))


def one_holder_at_a_time(build: BuildScene) -> None:
    """In the order of what was said: no ACK for what somebody else has."""
    holds: dict[str, str] = {}
    for heard in build.room.said:
        for line in read(heard.text):
            if heard.who == COORDINATOR:
                match line:
                    case AckLine(component, agent):
                        assert holds.get(component, agent) == agent, (
                            f"{component}: ACK to {agent} and {holds[component]}"
                        )
                        holds[component] = agent
                    case TimeoutLine(component) | RetryLine(component) | MergedLine(component):
                        holds.pop(component, None)
                    case _:
                        pass
            elif heard.text.startswith("ABORT"):
                holds.pop(heard.text.split()[1], None)


async def leases(build: BuildScene) -> Counter[tuple[str, str]]:
    """How often each agent was given each component, as the store has it."""
    found: Counter[tuple[str, str]] = Counter()
    for row in await build.watch.tasks(TaskFilter(role="build.component")):
        for attempt in await build.watch.attempts(row.task.id):
            found[row.task.name, attempt.agent] += 1
        if row.lease is not None:
            found[row.task.name, row.lease.agent] += 1
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_killed_again_and_again_the_build_goes_on_and_says_everything_once(seed: int) -> None:
    async def scene(build: BuildScene) -> None:
        luck = Luck(seed)
        robots: list[Robot] = [Builder(build, f"@b{number}", luck) for number in range(5)]
        robots += [Auditor(build, f"@auditor{number}", luck, fails=0.15) for number in range(2)]
        robots += [Human(build, "@human", luck)]
        living = await crew(build, robots)
        chance = random.Random(seed)
        for _ in range(KILLS):
            # Moments just after something was said are the dangerous ones; so most kills come soon after one.
            await build.room.wait_for_more(len(build.room.said))
            await asyncio.sleep(chance.choice([0, 0, 0.001, 0.01, 0.5, 1.0, 1.001, 30]))
            if is_over(build):
                break
            await build.kill()
            build.begin()
        await finished(build)
        for task in living:
            task.cancel()
        one_holder_at_a_time(build)
        said_lines = Counter(build.lines)
        granted = await leases(build)
        for (component, agent), times in granted.items():
            assert said_lines[f"ACK {component} {agent}"] == times
        merged = {row.task.name for row in await build.watch.tasks(TaskFilter(role="build.component"))}
        assert merged == set(GRAPH)
        assert all(said_lines[f"MERGED {component}"] == 1 for component in GRAPH)
        assert build.lives > 5

    play_build(scene, GRAPH, Rights(humans=["@human"]), seed=seed, lease=20_000, echo=0.2)
