"""Batches: one answer for each command, whatever becomes of its neighbours, and consequences within one batch."""

import asyncio

import pytest
from msgspec.structs import replace

from allswell import LeaseLost, Refused, Unavailable
from allswell.domain.ids import AgentId, CommandId, TaskId, Token
from allswell.domain.lease.late import afterwards
from allswell.domain.rules.command import Cancel, Command, Complete, NewTask, Release, Submit
from allswell.engine.group_commit import Batch
from allswell.engine.unit_of_work import BatchResult, Wait
from allswell.errors import Bug
from allswell.store.port import RowChanges
from allswell.testing.sim.process import engine_of
from tests.engine.stage import Stage, Weather, play

IN_ORDER = None
"""The loop's order where a test is about commands of one batch in a certain order."""


async def together(stage: Stage, *commands: object) -> list[object]:
    """Commands that form one batch, in this order; their answers or errors."""
    before = len(stage.commits)
    asked = [asyncio.ensure_future(stage.watch._engine.do(command)) for command in commands]  # type: ignore[arg-type]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert len(stage.commits) <= before + 1, "they were not one batch"
    return list(answers)


def new(id_: str, *needs: str) -> NewTask:
    return NewTask(TaskId(id_), id_[2:], needs=tuple(TaskId(need) for need in needs))


def submit(*tasks: NewTask, id_: str = "s") -> Submit:
    return Submit(CommandId(id_), tasks)


def test_a_refused_command_disturbs_no_other_of_its_batch() -> None:
    async def scene(stage: Stage) -> None:
        good, cycle, lost, unknown, also_good = await together(
            stage,
            submit(new("t_a")),
            submit(new("t_b", "t_c"), new("t_c", "t_b")),
            Complete(CommandId("c"), TaskId("t_a"), Token(1), AgentId("bob")),
            Cancel(CommandId("x"), TaskId("t_nowhere")),
            submit(new("t_d")),
        )
        assert (good, also_good) == (["t_a"], ["t_d"])
        assert isinstance(cycle, Refused)
        assert isinstance(lost, LeaseLost)
        assert isinstance(unknown, Refused)
        assert await stage.watch.counts() == {"ready": 2}

    play(scene, seed=IN_ORDER)


def test_a_task_that_is_waited_for_and_ended_in_one_batch_frees_its_dependent() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch._engine.do(submit(new("t_a")))
        lease = await stage.watch.claim(agent="bob")
        assert lease is not None
        done = Complete(CommandId("c"), TaskId("t_a"), lease.token, AgentId("bob"))
        await together(stage, submit(new("t_b", "t_a"), id_="late"), done)
        await asyncio.sleep(2)
        assert await stage.watch.counts() == {"done": 1, "ready": 1}

    play(scene, seed=IN_ORDER)


def test_a_task_submitted_needed_and_cancelled_in_one_batch_skips_its_dependent() -> None:
    async def scene(stage: Stage) -> None:
        await together(
            stage,
            submit(new("t_a")),
            submit(new("t_b", "t_a"), id_="late"),
            Cancel(CommandId("x"), TaskId("t_a")),
        )
        await asyncio.sleep(2)
        assert await stage.watch.counts() == {"cancelled": 1, "skipped": 1}

    play(scene, seed=IN_ORDER)


def test_a_known_task_submitted_again_beside_one_that_needs_it_counts_as_it_stands() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        first = await watch.submit("a", key="a")
        lease = await watch.claim(agent="bob")
        assert lease is not None
        await lease.complete()
        again, _ = await watch.submit_many([{"name": "a", "key": "a"}, {"name": "b", "needs": ["a"]}])
        assert again == first
        assert await watch.counts() == {"done": 1, "ready": 1}

    play(scene)


def test_of_two_late_results_in_one_batch_the_first_is_the_one_to_use() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        task = await watch.submit("a", timeout=1_000)
        lease = await watch.claim(agent="bob")
        assert lease is not None
        stage.clock.jump_wall(1_500)  # too short to count as a jump, and no sweeper has noticed yet
        late = [Complete(CommandId(word), task, lease.token, lease.agent, f'"{word}"') for word in ("first", "second")]
        assert all(isinstance(told, LeaseLost) for told in await together(stage, *late))
        (attempt,) = await watch.attempts(task)
        assert attempt.late == '"first"'
        assert [word.text for word in afterwards(attempt).words] == ["", '"second"'], "what follows is kept beside it"
        assert len(await stage.told("late_result")) == 2

    play(scene, seed=IN_ORDER)


def test_the_same_command_twice_in_one_batch_is_carried_out_once() -> None:
    async def scene(stage: Stage) -> None:
        task = await stage.watch.submit("a")
        lease = await stage.watch.claim(agent="bob")
        assert lease is not None
        done = Complete(CommandId("c"), task, lease.token, lease.agent)
        first, second = await together(stage, done, done)
        assert first == second == task
        assert len(await stage.told("task_completed")) == 1

    play(scene, seed=IN_ORDER)


def test_tasks_completed_together_are_completed_by_one_word_which_each_knows_again() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        await watch.submit_many([{"name": "a"}, {"name": "b"}])
        leases = await watch.claim_many(2, agent="bob")
        assert await watch.complete_many([(lease, None) for lease in leases]) == [None, None]
        (ended,) = {(await watch.attempts(lease.task))[0].command for lease in leases}
        again = [lease.completion("late", ended) for lease in leases]
        assert await watch._engine.do_many(again) == [lease.task for lease in leases]
        others = await watch._engine.do_many([lease.completion("late", CommandId("another")) for lease in leases])
        assert all(isinstance(other, LeaseLost) for other in others)

    play(scene)


def test_a_task_completed_twice_at_once_keeps_what_came_second_as_late() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        await watch.submit("a")
        lease = await watch.claim(agent="bob")
        assert lease is not None
        first, second = await watch.complete_many([(lease, "first"), (lease, "second")])
        assert first is None
        assert isinstance(second, LeaseLost)
        assert [attempt.late for attempt in await watch.attempts(lease.task)] == ['"second"']

    play(scene)


def test_a_hundred_commands_at_once_go_in_few_transactions() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit("first")
        before = len(stage.commits)
        await asyncio.gather(*(stage.watch.submit(f"task {number}") for number in range(100)))
        assert len(stage.commits) - before <= 5
        assert await stage.watch.counts() == {"ready": 101}

    play(scene)


def test_one_command_alone_is_not_delayed() -> None:
    async def scene(stage: Stage) -> None:
        task = await stage.watch.submit("a")
        lease = await stage.watch.claim(agent="bob")
        assert lease is not None
        await lease.checkin("going")
        await lease.complete()
        assert await stage.watch.result(task) is None
        assert stage.seconds == 0

    play(scene)


def test_commands_that_come_while_batches_commit_form_the_next() -> None:
    weather = Weather()

    async def slowly(statement: str) -> None:
        if statement == "write":
            await asyncio.sleep(1)

    async def scene(stage: Stage) -> None:
        await stage.watch.submit("first")
        weather.on = slowly
        before = len(stage.commits)
        under_way = []
        for number in range(stage.store.max_parallel):
            under_way.append(asyncio.ensure_future(stage.watch.submit(f"under way {number}")))
            await asyncio.sleep(0.25)
        await asyncio.gather(*under_way, *(stage.watch.submit(f"task {number}") for number in range(50)))
        made = [len(changes.new_tasks) for written in stage.commits[before:] for changes in written]
        assert [count for count in made if count] == [1] * stage.store.max_parallel + [50]

    play(scene, faults=weather)


def test_a_batch_that_breaks_is_tried_one_by_one_so_that_only_the_bad_command_fails() -> None:
    weather = Weather()

    async def scene(stage: Stage) -> None:
        watch = stage.watch
        poison = TaskId("t_poison")
        await watch._engine.do(submit(new(poison)))

        async def break_on_poison(statement: str) -> None:
            if statement == "lock" and any(isinstance(command, Cancel) for command in in_batch):
                raise RuntimeError("the disk said something odd")

        in_batch: list[object] = []
        perform = engine_of(watch)._decisions._perform

        async def note(batch: Batch[Command], wait: Wait) -> BatchResult:
            in_batch[:] = batch.commands
            return await perform(batch, wait)

        engine_of(watch)._decisions._perform = note
        weather.on = break_on_poison
        good, bad, also = await asyncio.gather(
            watch.submit("a"), watch.cancel(poison), watch.submit("b"), return_exceptions=True
        )
        assert isinstance(good, str)
        assert isinstance(also, str)
        assert isinstance(bad, Bug)
        assert "the disk said something odd" in str(bad)

    play(scene, faults=weather)


def test_a_caller_that_left_before_its_command_broke_harms_nobody() -> None:
    weather = Weather()

    async def scene(stage: Stage) -> None:
        task = await stage.watch.submit("a")

        async def break_slowly(statement: str) -> None:
            if statement == "lock":
                weather.on = None
                await asyncio.sleep(1)
                raise RuntimeError("the disk said something odd")

        weather.on = break_slowly
        cancelling = asyncio.ensure_future(stage.watch.cancel(task))
        await asyncio.sleep(0.5)
        cancelling.cancel()
        await asyncio.sleep(2)
        await stage.watch.submit("b")
        assert await stage.watch.counts() == {"ready": 2}

    play(scene, faults=weather)


def test_a_watch_that_is_not_open_says_so_instead_of_waiting_for_ever() -> None:
    async def scene(stage: Stage) -> None:
        other = stage.another()
        with pytest.raises(Unavailable, match="the watch is not open"):
            await other.submit("a")
        async with other:
            await other.submit("a")
        with pytest.raises(Unavailable, match="the watch is closed"):
            await other.submit("b")

    play(scene)


def test_closing_a_watch_leaves_nobody_waiting() -> None:
    weather = Weather()

    async def scene(stage: Stage) -> None:
        other = stage.another(faults=weather)
        async with other:
            weather.down = True
            asked = [asyncio.ensure_future(other.submit(name)) for name in "abc"]
            await asyncio.sleep(1)
        told = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(one) for one in told] == [Unavailable] * 3

    play(scene)


def test_nothing_but_rows_that_changed_is_written() -> None:
    async def scene(stage: Stage) -> None:
        task = await stage.watch.submit("a")
        lease = await stage.watch.claim(agent="bob")
        assert lease is not None
        stage.commits.clear()
        await lease.checkin()
        ((changes,),) = stage.commits
        assert changes == RowChanges(leases=changes.leases, at=changes.at)
        assert [row.task for row in changes.leases] == [task]
        assert replace(changes.leases[0], renewed_at=0, checkin_at=None) == replace(
            lease.granted.lease, renewed_at=0, checkin_at=None
        )

    play(scene)


def test_a_run_that_one_command_reads_and_another_changes_is_locked_for_the_change() -> None:
    async def scene(stage: Stage) -> None:
        run = await stage.watch.open_run("night", timeout="1h")
        held = await stage.watch.take_up(
            run, "flow", limit=900_000, length=60_000, agent="ada", is_dead=lambda _: False
        )
        lease = held.lease
        assert lease is not None
        made, left = await together(
            stage,
            submit(replace(new("t_a"), run=run)),
            Release(CommandId("r"), lease.task, lease.token, AgentId("ada"), "not now"),
        )
        assert (made, left) == (["t_a"], lease.task)
        found = await stage.watch.run(run)
        assert found is not None
        assert found.asked == 1  # whoever runs it was asked, so its clock stands

    play(scene, seed=IN_ORDER)
