"""Two batches under way at once: when another begins, and what must not overtake what."""

import asyncio

import pytest

from allswell.domain.ids import AgentId, CommandId, RunId, TaskId, Token
from allswell.domain.lease.claim import Granted
from allswell.domain.rules.command import Cancel, Claim, Command, Complete, EndRun, NewTask, OpenRun, Submit
from allswell.engine.group_commit import Batch, WaitingCommand
from tests.engine.stage import Stage, Weather, play


def slow() -> Weather:
    """Every write takes a second."""
    weather = Weather()

    async def on(statement: str) -> None:
        if statement == "write":
            await asyncio.sleep(1)

    weather.on = on
    return weather


def new(id_: str, *needs: str, run: str | None = None) -> NewTask:
    return NewTask(
        TaskId(id_),
        id_[2:],
        needs=tuple(TaskId(need) for need in needs),
        run=None if run is None else RunId(run),
    )


def submit(*tasks: NewTask, id_: str = "s") -> Submit:
    return Submit(CommandId(id_), tasks)


async def one_after_the_other(stage: Stage, *commands: object) -> list[object]:
    """Queue commands so that each could be a batch of its own, and await them all."""
    asked = []
    for command in commands:
        asked.append(asyncio.ensure_future(stage.watch._engine.do(command)))  # type: ignore[arg-type]
        await asyncio.sleep(0.1)
    return list(await asyncio.gather(*asked, return_exceptions=True))


def sizes(stage: Stage, before: int) -> list[int]:
    """How many tasks each commit made."""
    made = [sum(len(changes.new_tasks) for changes in written) for written in stage.commits[before:]]
    return [count for count in made if count]


def test_a_second_batch_begins_when_as_much_waits_as_is_under_way() -> None:
    async def scene(stage: Stage) -> None:
        await one_after_the_other(stage, submit(new("t_a")), submit(new("t_b")))
        assert stage.seconds == pytest.approx(1.1)  # one after the other would be two seconds

    play(scene, faults=slow())


def test_stragglers_wait_and_go_together() -> None:
    async def scene(stage: Stage) -> None:
        before = len(stage.commits)
        many = stage.watch._engine.do_many([submit(new(f"t_{number}")) for number in range(20)])
        first = asyncio.ensure_future(many)
        await asyncio.sleep(0.1)
        late = [asyncio.ensure_future(stage.watch.submit(f"late {number}")) for number in range(5)]
        await asyncio.gather(first, *late)
        assert sizes(stage, before) == [20, 5]

    play(scene, faults=slow())


def test_a_claim_weighs_as_much_as_it_asks_for() -> None:
    weather = slow()

    async def scene(stage: Stage) -> None:
        on, weather.on = weather.on, None
        await stage.watch.submit_many([{"name": "x"}] * 20)
        leases = await stage.watch.claim_many(10, agent="bob")
        weather.on = on
        done = asyncio.ensure_future(stage.watch.complete_many([(lease, None) for lease in leases]))
        await asyncio.sleep(0.1)
        assert len(await stage.watch.claim_many(10, agent="bob")) == 10
        await done
        assert stage.seconds == pytest.approx(1.1)

    play(scene, faults=weather)


def test_a_task_is_there_for_the_one_that_needs_it_although_nobody_awaited_it() -> None:
    async def scene(stage: Stage) -> None:
        answers = await one_after_the_other(stage, submit(new("t_a")), submit(new("t_b", "t_a")))
        assert answers == [["t_a"], ["t_b"]]

    play(scene, faults=slow())


def test_a_run_is_there_for_the_tasks_in_it_although_nobody_awaited_it() -> None:
    async def scene(stage: Stage) -> None:
        opened = OpenRun(CommandId("o"), RunId("r_1"), "night")
        answers = await one_after_the_other(stage, opened, submit(new("t_a", run="r_1")))
        assert answers == ["r_1", ["t_a"]]

    play(scene, faults=slow())


def test_a_claim_that_is_repeated_while_the_first_is_under_way_gets_the_same_lease() -> None:
    weather = slow()

    async def scene(stage: Stage) -> None:
        on, weather.on = weather.on, None
        await stage.watch.submit_many([{"name": "x"}] * 2)
        weather.on = on
        claim = Claim(CommandId("mine"), AgentId("bob"))
        first, second = await one_after_the_other(stage, claim, claim)
        assert isinstance(first, list)
        assert isinstance(second, list)
        assert [granted.lease.task for granted in first] == [granted.lease.task for granted in second]
        assert all(isinstance(granted, Granted) for granted in first)

    play(scene, faults=weather)


def test_what_is_behind_something_that_must_wait_does_not_overtake_it() -> None:
    async def scene(stage: Stage) -> None:
        before = len(stage.commits)
        await one_after_the_other(stage, submit(new("t_a")), submit(new("t_b", "t_a")), submit(new("t_c")))
        assert sizes(stage, before) == [1, 2]

    play(scene, faults=slow())


def test_a_watch_that_is_closed_with_two_batches_under_way_leaves_nobody_waiting() -> None:
    async def scene(stage: Stage) -> None:
        async with stage.another(faults=slow()) as other:
            asked = [asyncio.ensure_future(other.submit("a"))]
            await asyncio.sleep(0.1)
            asked += [asyncio.ensure_future(other.submit(f"more {number}")) for number in range(3)]
            await asyncio.sleep(0.1)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert ["closed" in str(answer) for answer in answers] == [True] * 4

    play(scene)


@pytest.mark.parametrize(
    "first, second, meet",
    [
        (submit(new("t_a")), submit(new("t_b")), False),
        (submit(new("t_a")), submit(new("t_b", "t_a")), True),
        (submit(new("t_a")), Cancel(CommandId("c"), TaskId("t_a")), True),
        (submit(new("t_a", run="r")), submit(new("t_b", run="r")), False),
        (submit(new("t_a", run="r")), EndRun(CommandId("e"), RunId("r"), "over"), True),
        (submit(new("t_a", run="r")), EndRun(CommandId("e"), RunId("another"), "over"), False),
        (Claim(CommandId("c"), AgentId("a")), Claim(CommandId("c"), AgentId("a")), True),
        (Claim(CommandId(""), AgentId("a")), Claim(CommandId(""), AgentId("a")), False),
        (
            Complete(CommandId("c"), TaskId("t_a"), Token(1), AgentId("a")),
            Complete(CommandId("d"), TaskId("t_b"), Token(1), AgentId("a")),
            False,
        ),
        (Cancel(CommandId("c"), ["no", "id"]), submit(new("t_b")), False),  # type: ignore[arg-type]
    ],
)
def test_which_commands_name_the_same(first: Command, second: Command, meet: bool) -> None:
    assert batch_of(first).meets(batch_of(second)) is meet
    assert batch_of(second).meets(batch_of(first)) is meet


def batch_of(command: Command) -> Batch[Command]:
    """What waits to be sent by itself; nobody is told of it."""
    loop = asyncio.new_event_loop()
    try:
        return Batch([WaitingCommand([command], loop.create_future(), 0.0, many=False)])
    finally:
        loop.close()
