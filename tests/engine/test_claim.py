"""Claims: who gets what, in which order, and how a waiting claim is woken."""

import asyncio

import pytest

from allswell import Lease, Watch
from allswell.domain.ids import AgentId, CommandId, TaskId
from allswell.domain.rules.command import Claim, Park
from allswell.domain.service.service import REOPENING
from allswell.errors import Refused
from allswell.testing.sim.process import engine_of
from tests.engine.stage import Stage, Weather, play


async def names(watch: Watch, count: int = 100, **how: object) -> list[str]:
    how.setdefault("agent", "bob")
    return [lease.name for lease in await watch.claim_many(count, **how)]  # type: ignore[arg-type]


def test_higher_priority_goes_first_then_the_older() -> None:
    async def scene(stage: Stage) -> None:
        for name, priority in (("b", 1), ("a", 5), ("c", 1), ("d", 0)):
            await stage.watch.submit(name, priority=priority)
            await asyncio.sleep(0.01)
        assert await names(stage.watch) == ["a", "b", "c", "d"]

    play(scene)


def test_a_claim_takes_no_more_than_it_asks_for() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit_many([{"name": f"{number}"} for number in range(5)])
        assert len(await names(stage.watch, 3)) == 3
        assert len(await names(stage.watch, 3)) == 2
        assert await names(stage.watch, 3) == []

    play(scene)


def test_roles_and_bars_are_respected() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit("code", role="builder")
        await stage.watch.submit("judge", role="auditor", barred=["bob"])
        await stage.watch.submit("anything")
        assert await names(stage.watch, roles=["auditor"]) == []
        assert await names(stage.watch, roles=["builder"]) == ["code"]
        assert await names(stage.watch, roles=[]) == []
        assert await names(stage.watch) == ["anything"]
        assert await names(stage.watch, agent="ann") == ["judge"]

    play(scene)


def test_agents_that_claim_together_share_what_is_there_and_no_one_gets_what_it_is_barred_from() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        await watch.submit("one", priority=9, barred=["a"])
        await watch.submit("two", priority=8, barred=["a"])
        await watch.submit("three")
        got = await asyncio.gather(*(watch.claim(agent=agent) for agent in "ab"))
        held = {str(lease.agent): lease.name for lease in got if lease is not None}
        assert held["a"] == "three"
        assert held["b"] in ("one", "two")

    for seed in range(10):
        play(scene, seed=seed)


def test_a_task_is_given_to_one_claimer_only() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit_many([{"name": f"{number}"} for number in range(10)])
        async with stage.another(seed=2) as other:
            claims = [watch.claim_many(3, agent=f"{number}") for number in range(4) for watch in (stage.watch, other)]
            got = [lease.task for leases in await asyncio.gather(*claims) for lease in leases]
            while more := await stage.watch.claim(agent="last"):
                got.append(more.task)
        assert len(got) == len(set(got)) == 10

    for seed in range(5):
        play(scene, seed=seed)


def test_a_waiting_claim_is_woken_at_once() -> None:
    async def scene(stage: Stage) -> None:
        waiting = asyncio.ensure_future(stage.watch.claim(agent="bob", wait="1h"))
        await asyncio.sleep(10.1)
        assert not waiting.done()
        began = stage.seconds
        await stage.watch.submit("a")
        lease = await waiting
        assert lease is not None
        assert stage.seconds == began

    play(scene)


def test_a_claim_that_finds_nothing_in_time_gets_nothing() -> None:
    async def scene(stage: Stage) -> None:
        assert await stage.watch.claim(agent="bob", wait="5s") is None
        assert stage.seconds == pytest.approx(5)
        assert await stage.watch.claim(agent="bob") is None

    play(scene)


def test_what_another_process_submits_is_found_by_looking() -> None:
    async def scene(stage: Stage) -> None:
        async with stage.another(seed=2) as other:
            waiting = asyncio.ensure_future(stage.watch.claim(agent="bob", wait="1m"))
            await asyncio.sleep(1)
            await other.submit("a")
            began = stage.seconds
            assert await waiting is not None
            assert stage.seconds - began <= 0.4

    play(scene)


@pytest.mark.row("F5")
def test_a_parked_service_closes_its_lanes_for_everybody_until_its_time() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        await watch.submit_many([{"name": name, "services": ["api"]} for name in ("a", "b")])
        await watch.submit("other", services=["disk"])
        lease = await watch.claim(agent="bob")
        assert lease is not None
        await lease.fail("slow down", error_class="rate_limit", retry_after="10m", services=["api"])
        assert await names(watch, agent="ann") == ["other"]
        waiting = asyncio.ensure_future(watch.claim_many(2, agent="ann", wait="1h"))
        got = await waiting
        assert [one.name for one in got] == ["a", "b"]
        assert 600 <= stage.seconds <= 600.5 + REOPENING / 1_000  # agents come back one after the other
        assert (await watch.task(lease.task)).task.record.failures == {}  # type: ignore[union-attr]

    play(scene)


@pytest.mark.row("F5")
def test_those_who_wait_for_a_service_come_back_a_few_at_a_time() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        await watch.submit_many([{"name": str(number), "services": ["api"]} for number in range(50)])
        await watch._engine.do(Park(CommandId("p"), "api", 60_000))
        came: list[float] = []

        async def agent(name: str) -> None:
            assert await watch.claim(agent=name, wait="1h") is not None
            came.append(stage.seconds)

        await asyncio.gather(*(agent(f"agent {number}") for number in range(50)))
        assert min(came) >= 60
        assert max(came) <= 60.5 + REOPENING / 1_000
        busiest = max(sum(start <= moment < start + 1 for moment in came) for start in came)
        assert busiest <= 20  # 50 agents over 5 s are 10 in a second, more or less

    play(scene)


def test_a_repeated_claim_is_given_the_same_leases() -> None:
    async def scene(stage: Stage) -> None:
        tasks = [{"name": name, "payload": name, "priority": place} for place, name in enumerate("abc")]
        await stage.watch.submit_many(tasks)
        first = await stage.watch.claim_many(2, agent="bob", command="mine")
        again = await stage.watch.claim_many(2, agent="bob", command="mine")
        assert [(lease.task, lease.token, lease.payload) for lease in again] == [
            (lease.task, lease.token, lease.payload) for lease in first
        ]
        assert (await stage.watch.counts()) == {"held": 2, "ready": 1}

    play(scene)


def test_a_lease_shows_what_its_holder_needs() -> None:
    async def scene(stage: Stage) -> Lease:
        await stage.watch.submit("a", payload={"file": "notes.md"}, timeout="10m")
        lease = await stage.watch.claim(agent="bob")
        assert lease is not None
        assert (lease.name, lease.payload, lease.attempt, lease.token) == ("a", {"file": "notes.md"}, 1, 1)
        assert (lease.remaining, lease.handover, lease.notes) == (600_000, None, ())
        assert lease.deadline == stage.clock.wall() + 600_000
        await lease.fail("no luck", error_class="network")
        assert lease.remaining == 0
        again = await stage.watch.claim(agent="ann", wait="5s")
        assert again is not None
        assert again.handover is not None
        assert (again.attempt, again.handover.message) == (2, "no luck")
        return again

    play(scene)


def claim(agent: str, *roles: str, count: int = 1) -> Claim:
    return Claim(CommandId(f"claim of {agent}"), AgentId(agent), roles or None, count)


async def held_by(stage: Stage, *claims: Claim) -> dict[str, list[str]]:
    """Who got what from claims of one batch."""
    answers = await engine_of(stage.watch)._decisions.ask_many(claims)
    return {one.agent: [each.task.name for each in got] for one, got in zip(claims, answers, strict=True)}  # type: ignore[attr-defined]


def test_claims_of_one_batch_that_look_in_different_lanes_do_not_take_from_each_other() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit("held", role="builder")
        assert await names(stage.watch) == ["held"]
        await stage.watch.submit_many([{"name": name, "role": "auditor"} for name in ("one", "two")])
        assert await held_by(stage, claim("ann"), claim("bob", "auditor")) == {"ann": ["one"], "bob": ["two"]}

    play(scene)


def test_a_claimer_that_is_barred_from_what_its_neighbours_left_looks_further() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        for name, barred in (("one", []), ("two", ["ann"]), ("three", [])):
            await watch.submit(name, barred=barred)
            await asyncio.sleep(0.01)
        assert await held_by(stage, claim("bob"), claim("ann")) == {"bob": ["one"], "ann": ["three"]}

    play(scene)


def test_a_claim_by_name_takes_that_task_whatever_else_there_is() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit("first", priority=9)
        wanted = await stage.watch.submit("wanted")
        lease = await stage.watch.claim(agent="bob", task=wanted)
        assert lease is not None
        assert (lease.name, lease.payload) == ("wanted", None)
        assert await stage.watch.claim(agent="ann", task=wanted) is None
        assert await names(stage.watch) == ["first"]

    play(scene)


def test_a_claim_by_name_waits_until_it_can_be_had() -> None:
    async def scene(stage: Stage) -> None:
        task = await stage.watch.submit("once more", retries=2)
        lease = await stage.watch.claim(agent="bob", task=task)
        assert lease is not None
        await lease.fail("it broke")
        again = await stage.watch.claim(agent="bob", task=task, wait="1m")
        assert again is not None
        assert again.token == 2

    play(scene)


def test_a_claim_by_name_respects_bars_roles_and_parked_services() -> None:
    async def scene(stage: Stage) -> None:
        barred = await stage.watch.submit("barred", barred=["bob"])
        served = await stage.watch.submit("served", services=["api"], role="builder")
        assert await stage.watch.claim(agent="bob", task=barred) is None
        assert await stage.watch.claim(agent="bob", task=served, roles=["auditor"]) is None
        await stage.watch._engine.do(Park(CommandId("p"), "api", 60_000))
        assert await stage.watch.claim(agent="bob", task=served) is None
        assert await stage.watch.claim(agent="ann", task=barred) is not None

    play(scene)


def test_a_claim_by_name_of_nothing_is_refused() -> None:
    async def scene(stage: Stage) -> None:
        ended = await stage.watch.submit("ended")
        await stage.watch.cancel(ended)
        with pytest.raises(Refused, match="already cancelled"):
            await stage.watch.claim(agent="bob", task=ended, wait="1h")
        with pytest.raises(Refused, match="there is no task"):
            await stage.watch.claim(agent="bob", task="t_nothing")

    play(scene)


def test_claims_by_name_that_are_sent_together_are_answered_each_for_itself() -> None:
    async def scene(stage: Stage) -> None:
        submit = stage.watch.submit
        ended, barred = await submit("ended"), await submit("barred", barred=["bob"])
        first, other = await submit("first"), await submit("other")
        waits = await submit("waits", needs=[other])
        await stage.watch.cancel(ended)
        asked = [first, TaskId("t_nothing"), ended, barred, first, other, waits]
        got = await stage.watch.claim_each(asked, agent="bob", lease=30_000)
        assert [one.name if isinstance(one, Lease) else getattr(one, "code", None) for one in got] == [
            "first",
            "unknown_task",
            "task_ended",
            None,
            None,
            "other",
            None,
        ]
        assert await stage.watch.claim_each([barred], agent="bob") == [None]
        (lease,) = await stage.watch.claim_each([barred], agent="ann")
        assert isinstance(lease, Lease)

    play(scene)


def test_claims_sent_together_whose_caller_has_gone_are_given_back() -> None:
    weather = Weather()

    async def scene(stage: Stage) -> None:
        tasks = [await stage.watch.submit(name) for name in ("one", "two")]

        async def slow(statement: str) -> None:
            if statement == "write":
                weather.on = None
                await asyncio.sleep(1)

        weather.on = slow
        claiming = asyncio.ensure_future(stage.watch.claim_each(tasks, agent="bob"))
        await asyncio.sleep(0.5)
        claiming.cancel()
        await asyncio.sleep(2)
        assert await stage.watch.counts() == {"ready": 2}
        assert len(await stage.told("task_claimed")) == 2

    play(scene, faults=weather)
