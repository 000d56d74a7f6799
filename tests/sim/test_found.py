"""What the simulator has found, each as the smallest story that shows it. `seeds.txt` says which seed found it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from allswell.app import make_watch
from allswell.domain.ids import AgentId, CommandId, Millis, QuestionId, TaskId, Token
from allswell.domain.question import REPLY, AnswerAction, Option
from allswell.domain.rules.command import Answer, Ask, Cancel, Claim, Fail, NewTask, Submit
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.engine.watch import Watch
from allswell.errors import Refused
from allswell.store.memory import AnswerLost, MemoryStore
from allswell.store.memory.locks import LockTable, Owner
from allswell.store.port import LockKind
from allswell.testing.loop import VirtualClock, run
from allswell.testing.sim.process import engine_of

A, B, C, D = (TaskId(f"t_{letter}") for letter in "abcd")
ME = AgentId("me")
SPLIT = Option("split", "Split it", AnswerAction.SPLIT)


def on_a_watch(story: Callable[[Watch], Awaitable[None]], *, sweeping: bool = True) -> None:
    async def tell() -> None:
        clock = VirtualClock()
        watch = make_watch(MemoryStore(clock=clock), clock=clock, sweeping=sweeping)
        async with watch:
            await story(watch)

    for seed in range(5):
        run(tell(), seed=seed)


def new(id_: TaskId, *needs: TaskId) -> NewTask:
    return NewTask(id_, id_, needs=needs)


def submit(*tasks: NewTask) -> Submit:
    return Submit(CommandId("submit " + " ".join(task.id for task in tasks)), tasks)


def cancel(task: TaskId) -> Cancel:
    return Cancel(CommandId(f"cancel {task}"), task)


async def stands(watch: Watch, task: TaskId) -> str:
    row = await watch.task(task)
    assert row is not None
    return row.task.state


def test_who_needs_a_task_that_is_skipped_when_it_is_submitted_is_told() -> None:
    async def story(watch: Watch) -> None:
        await watch._engine.do(submit(new(A)))
        await watch._engine.do(cancel(A))
        await watch._engine.do(submit(new(B, A), new(C, B)))
        assert await watch.unaccounted() == []
        await asyncio.sleep(5)
        assert await stands(watch, C) == "skipped"

    on_a_watch(story)


def test_a_task_submitted_again_together_with_one_that_needs_it_counts_as_it_stands() -> None:
    async def story(watch: Watch) -> None:
        await watch._engine.do(submit(new(A)))
        await watch._engine.do(cancel(A))
        await watch._engine.do(submit(new(A), new(B, A)))
        assert await watch.unaccounted() == []
        assert await stands(watch, B) == "skipped"

    on_a_watch(story)


def test_a_need_that_ends_in_the_batch_in_which_it_is_first_needed_tells_so() -> None:
    async def story(watch: Watch) -> None:
        await watch._engine.do(submit(new(A)))
        await watch._engine.do_many([submit(new(B, A)), cancel(A)])
        assert await watch.unaccounted() == []
        await asyncio.sleep(5)
        assert await stands(watch, B) == "skipped"

    on_a_watch(story)


def test_a_task_that_needs_what_was_split_before_is_refused_and_not_skipped() -> None:
    async def story(watch: Watch) -> None:
        await _split(watch, A, C)
        with pytest.raises(Refused) as refused:
            await watch._engine.do(submit(new(B, A)))
        assert refused.value.code == "need_split"

    on_a_watch(story)


async def _split(watch: Watch, task: TaskId, part: TaskId) -> None:
    if await watch.task(task) is None:
        await watch._engine.do(submit(new(task)))
    (granted,) = (await watch._engine.claim(Claim(CommandId(""), ME))).granted
    asked = Ask(CommandId(f"ask {task}"), task, granted.lease.token, ME, "how?", (SPLIT, REPLY))
    question = QuestionId(str(await watch._engine.do(asked)))
    await watch._engine.do(Answer(CommandId(f"split {task}"), question, "split", subtasks=(new(part),)))


def test_a_part_that_is_split_before_the_dependents_are_told_is_waited_for() -> None:
    async def story(watch: Watch) -> None:
        await watch._engine.do(submit(new(A), new(B, A)))
        await _split(watch, A, C)
        await _split(watch, C, D)
        for _ in range(5):
            await engine_of(watch).sweeper.sweep()
        assert await stands(watch, B) == "open"

    on_a_watch(story, sweeping=False)


def test_an_answer_to_what_was_asked_in_passing_does_not_end_a_pause() -> None:
    async def story(watch: Watch) -> None:
        await watch._engine.do(submit(new(A)))
        await watch._engine.claim(Claim(CommandId(""), ME))
        question = await watch._engine.do(Ask(CommandId("ask"), A, Token(1), ME, "how?", hold=True))
        failure = Failure(ErrorClass.RATE_LIMIT, "slow down", Millis(60_000))
        await watch._engine.do(Fail(CommandId("fail"), A, Token(1), ME, failure))
        await watch._engine.do(Answer(CommandId("answer"), QuestionId(str(question)), "reply", "like this"))
        assert (await watch._engine.claim(Claim(CommandId(""), ME))).granted == []
        await asyncio.sleep(100)
        assert len((await watch._engine.claim(Claim(CommandId(""), ME))).granted) == 1

    on_a_watch(story)


def test_a_lease_that_is_told_again_is_trusted_no_longer_than_the_first_time() -> None:
    async def story(watch: Watch) -> None:
        await watch.submit("work", timeout="10m")
        first = await watch.claim(agent="me", command="claim", lease="1m")
        await asyncio.sleep(10)
        second = await watch.claim(agent="me", command="claim", lease="1m")
        assert first is not None
        assert second is not None
        assert second.token == first.token
        assert second.remaining <= first.remaining
        assert second.deadline == first.deadline

    on_a_watch(story)


def test_a_claim_that_comes_twice_in_one_batch_is_one_claim() -> None:
    async def story(watch: Watch) -> None:
        await watch._engine.do(submit(new(A), new(B)))
        claim = Claim(CommandId("claim"), ME)
        once, twice = await asyncio.gather(watch._engine.claim(claim), watch._engine.claim(claim))
        assert once.granted == twice.granted
        assert len(once.granted) == 1

    on_a_watch(story)


def test_a_sweeper_survives_that_the_end_of_its_look_is_lost() -> None:
    class LosesTheFirst:
        left = 1

        async def before(self, statement: str) -> None:
            if statement == "find_spreads":
                self.looking = True

        async def before_commit(self) -> None:
            if self.left and getattr(self, "looking", False):
                self.left -= 1
                raise AnswerLost

        async def after_commit(self) -> None:
            pass

    async def story() -> None:
        clock = VirtualClock()
        weather = LosesTheFirst()
        async with make_watch(MemoryStore(clock=clock, faults=weather), clock=clock) as watch:
            task = await watch.submit("later", not_before=clock.wall() + 1_000)
            await asyncio.sleep(10)
            assert weather.left == 0
            row = await watch.task(task)
            assert row is not None
            assert row.ready

    run(story(), seed=1)


def test_who_was_just_given_a_lock_does_not_seem_to_wait_for_it() -> None:
    async def story() -> None:
        locks = LockTable()
        key = (LockKind.TASK, "t_a")
        first, second, third = (Owner(name) for name in ("first", "second", "third"))
        await locks.acquire(first, key, exclusive=True)
        waiting = asyncio.create_task(locks.acquire(second, key, exclusive=True))
        await asyncio.sleep(0)
        locks.release(first, key)  # hands over to the second, which has not woken up yet
        behind = asyncio.create_task(locks.acquire(third, key, exclusive=True))
        await waiting
        locks.release(second, key)
        await behind
        locks.release(third, key)
        assert locks.is_idle()

    asyncio.run(story())
