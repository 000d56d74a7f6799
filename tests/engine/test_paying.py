"""What attempts cost: kept with each, summed, and held to limits; on virtual time."""

from __future__ import annotations

import random

import pytest

from allswell import Watch
from allswell.domain.access.key import Key, Right
from allswell.domain.agents.cost import Expense, Spent, SpentBy
from allswell.domain.ids import Millis
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.engine.access import gate as backend
from allswell.engine.access.gate import Gate
from allswell.engine.budget import Budgets
from allswell.engine.ids import Ids
from allswell.engine.lease import Lease
from allswell.errors import LeaseLost, Refused, Unavailable
from allswell.testing.sim.process import engine_of
from allswell.views.status import ServiceShape
from tests.engine.stage import Stage, play

USD = 1_000_000
BROKE = Failure(ErrorClass.TRANSIENT, "it broke")


async def taken(watch: Watch, task: str, agent: str = "ada") -> Lease:
    lease = await watch.claim(agent=agent, task=task)
    assert lease is not None
    return lease


def test_what_an_attempt_costs_is_kept_with_it_and_a_later_report_replaces_it() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        run = await watch.open_run("night")
        task = await watch.submit("paint", role="painter", run=run)
        lease = await taken(watch, task)
        assert not await lease.spend(Expense(2 * USD, 10, 1))
        assert not await lease.spend(Expense(3 * USD, 20, 2))
        await lease.fail(BROKE)
        assert not await lease.spend(Expense(4 * USD, 20, 2))  # its last words come after its end
        await watch.sweep_once()
        rows = await watch.views.view_expenses(task)
        assert [(row.token, row.agent, row.role, row.run, row.cost) for row in rows] == [
            (1, "ada", "painter", run, 4 * USD)
        ]
        sums = [(await watch.views.view_spent(by))[key] for by, key in _places(task, run)]
        assert sums == [Spent(1, 1, 4 * USD, 20, 2)] * 5
        with pytest.raises(LeaseLost):
            await watch.held(task, 7, "ada").spend(Expense(1))
        with pytest.raises(LeaseLost):
            await watch.held(task, 1, "eve").spend(Expense(1))

    play(scene)


def _places(task: str, run: str) -> list[tuple[SpentBy, str]]:
    return [("task", task), ("run", run), ("role", "painter"), ("agent", "ada"), ("all", "")]


def test_at_its_limit_a_task_waits_for_a_human_who_gives_more_or_skips_it() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        task = await watch.submit("paint", max_cost_usd=5)
        lease = await taken(watch, task)
        assert lease.max_cost == 5 * USD
        with pytest.raises(Refused, match="has not reached"):
            await lease.end_costly()
        assert not await lease.spend(Expense(None, 10**9, 10**9))  # what nobody reports reaches nothing
        assert await lease.spend(Expense(5 * USD))
        await lease.end_costly()
        (question,) = await watch.questions()
        assert question.kind == "cost_limit"
        assert "has cost $5.00 in its attempt, and may cost $5.00" in question.text
        assert [option.key for option in question.options] == ["increase_cost", "skip"]
        assert await watch.claim(agent="ada") is None
        with pytest.raises(Refused, match="must be more than"):
            await watch.answer(question.id, "increase_cost", max_cost_usd=5)
        await watch.answer(question.id, "increase_cost", max_cost_usd=7.5)
        lease = await taken(watch, task)
        assert lease.max_cost == 7_500_000
        assert await lease.spend(Expense(3 * USD))  # with what the first one cost
        await lease.fail(BROKE)
        row = await watch.task(task)
        assert row is not None
        assert row.due is not None, "it was put back before its supervisor could say more"
        assert await lease.spend(Expense(3 * USD))  # so it is taken out of the pool
        (question,) = await watch.questions()
        await watch.answer(question.id, "skip")
        await watch.sweep_once()
        assert await watch.counts() == {"skipped": 1}
        assert [one.data["cost_usd"] for one in await stage.told("cost_limit")] == [5.0]

    play(scene)


def test_at_its_token_limit_a_task_waits_for_a_human_too() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        task = await watch.submit("paint", max_tokens=1_000)
        lease = await taken(watch, task)
        assert (lease.max_cost, lease.max_tokens) == (None, 1_000)
        assert not await lease.spend(Expense(9 * USD, 900, 99))
        with pytest.raises(Refused, match="has not reached"):
            await lease.end_costly()
        assert await lease.spend(Expense(None, 900, 100))
        await lease.end_costly()
        (question,) = await watch.questions()
        assert question.kind == "token_limit"
        assert "has used 1,000 tokens in its attempt, and may use 1,000 tokens. Its work is kept." in question.text
        assert [option.key for option in question.options] == ["increase_tokens", "skip"]
        with pytest.raises(Refused, match="must be more than the present 1,000 tokens"):
            await watch.answer(question.id, "increase_tokens", max_tokens=1_000)
        await watch.answer(question.id, "increase_tokens", max_tokens=1_500)
        lease = await taken(watch, task)
        assert lease.max_tokens == 1_500
        assert await lease.spend(Expense(None, None, 500))  # with what the first one used
        await lease.end_costly()
        (question,) = await watch.questions()
        assert "has used 1,500 tokens in its 2 attempts" in question.text
        assert [one.data["tokens"] for one in await stage.told("token_limit")] == [1_000, 1_500]
        assert await stage.told("cost_limit") == []

    play(scene)


def test_a_task_that_has_reached_both_limits_is_asked_about_once() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        task = await watch.submit("paint", max_cost_usd=1, max_tokens=100)
        lease = await taken(watch, task)
        assert await lease.spend(Expense(2 * USD, 100, 20))
        await lease.end_costly()
        (question,) = await watch.questions()
        assert question.kind == "cost_limit"
        assert (
            "has cost $2.00 and used 120 tokens in its attempt, and may cost $1.00 and use 100 tokens." in question.text
        )
        assert [option.key for option in question.options] == ["increase_both", "skip"]
        await watch.answer(question.id, "increase_both", max_cost_usd=5)
        lease = await taken(watch, task)
        assert (lease.max_cost, lease.max_tokens) == (5 * USD, 200)
        assert not await lease.spend(Expense(USD, 10, 20))

    play(scene)


def test_a_done_task_is_done_whatever_it_cost() -> None:
    async def scene(stage: Stage) -> None:
        task = await stage.watch.submit("paint", max_cost_usd=1)
        lease = await taken(stage.watch, task)
        assert await lease.spend(Expense(9 * USD))
        await lease.complete(None)
        assert await lease.spend(Expense(9 * USD))
        assert await stage.watch.counts() == {"done": 1}
        assert await stage.watch.questions() == []

    play(scene)


@pytest.mark.parametrize("what", ["day", "role", "run"])
def test_a_day_a_role_or_a_run_is_shut_with_one_question(what: str) -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        run = await watch.open_run("night", max_cost_usd=2 if what == "run" else None)
        for name in ("a", "b", "c"):
            await watch.submit(name, role="painter", run=run)
        other = await watch.submit("other")
        limits = Budgets(2 * USD if what == "day" else None, {"painter": 2 * USD} if what == "role" else {})
        for reached in (0, 1):
            lease = await watch.claim(agent="ada", roles=["painter"])
            assert lease is not None
            await lease.spend(Expense(USD))
            await lease.complete(None)
            assert len(await lease.hold_to_budgets(limits)) == reached
            if reached:  # it is shut, and was asked about
                assert await lease.hold_to_budgets(limits) == []
        assert await watch.claim(agent="ada", roles=["painter"]) is None
        assert (await watch.claim(agent="ada", task=other) is None) == (what == "day")
        (question,) = await watch.questions()
        assert question.kind == "budget_reached"
        assert "has cost $2.00, and may cost $2.00" in question.text
        await watch.answer(question.id, "go_on")
        lease = await watch.claim(agent="ada", roles=["painter"], wait="10s")
        assert lease is not None
        await lease.spend(Expense(USD))
        await lease.complete(None)
        assert await lease.hold_to_budgets(limits) == []  # as much again may be spent

    play(scene)


def test_a_day_that_is_over_opens_by_itself() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        for name in ("a", "b"):
            await watch.submit(name)
        lease = await watch.claim(agent="ada")
        assert lease is not None
        await lease.spend(Expense(USD))
        await lease.complete(None)
        assert await lease.hold_to_budgets(Budgets(USD))
        (question,) = await watch.questions()
        await watch.answer(question.id, "wait")
        assert await watch.claim(agent="ada") is None
        assert await watch.claim(agent="ada", wait="25h") is not None

    play(scene)


def test_a_run_that_has_cost_what_it_may_stays_shut_wherever_the_clock_is_set_to() -> None:
    """Only an answer opens it: that it is shut for good does not hang on the far moment that programs read."""

    async def scene(stage: Stage) -> None:
        watch = stage.watch
        run = await watch.open_run("night", max_cost_usd=1)
        for name in ("a", "b"):
            await watch.submit(name, run=run)
        lease = await watch.claim(agent="ada")
        assert lease is not None
        await lease.spend(Expense(USD))
        await lease.complete(None)
        assert await lease.hold_to_budgets(Budgets())
        stage.clock.jump_wall(11 * 365 * 86_400_000)
        await watch.sweep_once()
        assert await watch.claim(agent="ada") is None
        (row,) = (await watch.views.view_services()).values()
        assert ServiceShape.of(row, await watch.now()).parked_until_at is not None
        (question,) = await watch.questions()
        await watch.answer(question.id, "go_on")
        assert await watch.claim(agent="ada", wait="10s") is not None

    play(scene)


def test_who_spends_with_a_key_is_held_to_limits_it_cannot_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what it said is done, even if its limits cannot be asked about just then; the next expense asks again."""

    async def away(*_: object) -> list[str]:
        raise Unavailable("the store cannot be reached")

    async def scene(stage: Stage) -> None:
        ids = Ids(stage.clock.wall, random.Random(7).getrandbits)
        gate = Gate(engine_of(stage.watch), ids, budgets=Budgets(roles={"painter": USD}))
        key = Key("crew", "", (Right.SUPERVISOR,), Millis(0), roles=("painter",), agents=("ada",))
        task = await stage.watch.submit("paint", role="painter")
        lease = await taken(gate.watch_for(key), task)
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(backend, "hold_to_budgets", away)
            await lease.spend(Expense(2 * USD))
        assert [row.cost for row in await stage.watch.views.view_expenses(task)] == [2 * USD]
        assert await stage.watch.questions() == []
        await lease.spend(Expense(3 * USD))
        (asked,) = await stage.watch.questions()
        assert "The role painter has cost $3.00, and may cost $1.00." in asked.text
        await lease.complete()

    play(scene)
