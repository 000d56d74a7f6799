"""Agents that let requests expire are asked less, and a block that lasts is told: once, whoever sweeps (M6, M7, M8)."""

import asyncio

import pytest

from allswell import Lease, Watch
from allswell.domain.lease.model import AgentRecord
from allswell.domain.mesh.health import DAY, entered, is_degraded, score
from allswell.domain.task.model import Policy
from allswell.engine.status.agents import look
from allswell.engine.status.journal import read_ledger
from allswell.engine.timings import Timings
from tests.engine.stage import MINUTE, Stage, Weather, play

HOUR = 60 * MINUTE
UNASKED = {"": Policy(timeout=7 * DAY, checkpoint_interval=7 * DAY)}
"""Nobody is asked for check-ins in these scenes."""
CALM = Timings(sweep_most=1_800.0, follow_poll=300.0, retry_most=600.0)
"""Days pass in them; what falls due is known, and done in time all the same."""


async def holding(watch: Watch, agent: str = "sandman", *, role: str = "", critical: bool = False) -> Lease:
    """Somebody who works on a task."""
    await watch.submit(f"work of {agent}", timeout="7d", role=role, critical=critical)
    lease = await watch.claim(agent=agent, roles=[role])
    assert lease is not None
    return lease


async def let_expire(stage: Stage, to: str, times: int = 4) -> None:
    """Somebody asks so often, and is not answered."""
    lease = await holding(stage.watch, "impatient")
    assert (await lease.request(to, "status_check", "there?", retries=times - 1)).blocked


async def standing(stage: Stage, agent: str) -> AgentRecord:
    return (await stage.store.view_health()).get(agent, AgentRecord())


async def degraded(stage: Stage) -> list[str]:
    return [one.agent for one in (await look(stage.store)).members if one.degraded]


# --- M7 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.row("M7")
def test_four_expiries_within_a_day_degrade_an_agent_until_they_age_out() -> None:
    async def scene(stage: Stage) -> None:
        await let_expire(stage, "oracle", 3)
        assert await degraded(stage) == []
        await asyncio.sleep(23 * HOUR)
        await let_expire(stage, "oracle", 1)
        assert await degraded(stage) == ["oracle"]
        (oracle,) = [one for one in (await look(stage.store)).members if one.agent == "oracle"]
        assert len({one.request for one in oracle.expiries}) == 2
        assert [one.timeout for one in oracle.expiries] == [120_000] * 4
        await asyncio.sleep(HOUR)
        assert await degraded(stage) == [], "the first has aged out"

    play(scene, policies=UNASKED, pace=CALM)


@pytest.mark.row("M7")
def test_who_asks_impatiently_degrades_nobody() -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage.watch)
        assert (await lease.request("oracle", "status_check", "quick!", timeout="119s", retries=9)).blocked
        expired = await stage.told("request_expired")
        assert len(expired) == 10
        assert {event.data["against"] for event in expired} == {"oracle"}
        assert await standing(stage, "oracle") == AgentRecord()
        assert await degraded(stage) == []

    play(scene, policies=UNASKED, pace=CALM)


async def degrade(stage: Stage, agent: str) -> Lease:
    """An agent with the role of a reviewer that has let too many expire; what it holds shows that it has the role."""
    lease = await holding(stage.watch, agent, role="reviewer")
    await let_expire(stage, agent)
    return lease


async def ask_reviewers(stage: Stage) -> None:
    lease = await holding(stage.watch)
    await lease.send_request("role:reviewer", "handoff", "look at this")


@pytest.mark.row("M7")
def test_a_degraded_agent_is_passed_over_while_another_can_serve() -> None:
    async def scene(stage: Stage) -> None:
        await degrade(stage, "ann")
        await holding(stage.watch, "bob", role="reviewer")
        await ask_reviewers(stage)
        assert await stage.watch.claim(agent="ann", roles=["reviewer"]) is None
        taken = await stage.watch.claim(agent="bob", roles=["reviewer"])
        assert taken is not None
        assert taken.name == "look at this"
        await asyncio.sleep(DAY / 1_000)
        await ask_reviewers(stage)
        again = await stage.watch.claim(agent="ann", roles=["reviewer"])
        assert again is not None, "healthy again"

    play(scene, policies=UNASKED, pace=CALM)


@pytest.mark.row("M7")
def test_the_only_one_that_can_serve_is_used_degraded_or_not() -> None:
    async def scene(stage: Stage) -> None:
        await degrade(stage, "ann")
        await ask_reviewers(stage)
        taken = await stage.watch.claim(agent="ann", roles=["reviewer"])
        assert taken is not None
        assert taken.name == "look at this"

    play(scene, policies=UNASKED, pace=CALM)


@pytest.mark.row("M7")
def test_who_was_passed_over_may_take_the_next_delivery() -> None:
    """The other one is gone, or does not answer: nobody is kept from it any more."""

    async def scene(stage: Stage) -> None:
        await degrade(stage, "ann")
        bob = await holding(stage.watch, "bob", role="reviewer")
        await ask_reviewers(stage)
        await bob.complete()
        assert await stage.watch.claim(agent="ann", roles=["reviewer"]) is None
        await asyncio.sleep(301)
        taken = await stage.watch.claim(agent="ann", roles=["reviewer"])
        assert taken is not None
        assert taken.name == "look at this"
        assert await stage.watch.claim(agent="sandman", roles=["reviewer"]) is None, "who asks is still kept from it"

    play(scene, policies=UNASKED, pace=CALM)


@pytest.mark.row("M7")
def test_who_was_passed_over_may_answer_late_where_there_was_one_delivery() -> None:
    async def scene(stage: Stage) -> None:
        await degrade(stage, "ann")
        await holding(stage.watch, "bob", role="reviewer")
        lease = await holding(stage.watch)
        ended = await lease.request("role:reviewer", "handoff", "look at this", retries=0)
        assert ended.blocked
        taken = await stage.watch.claim(agent="ann", roles=["reviewer"])
        assert taken is not None
        assert taken.task == ended.request_id

    play(scene, policies=UNASKED, pace=CALM)


@pytest.mark.row("M8")
def test_an_answer_to_a_task_that_is_over_has_unblocked_nothing() -> None:
    async def scene(stage: Stage) -> None:
        leases = [await holding(stage.watch), await holding(stage.watch)]
        ends = [await lease.request("oracle", "status_check", "there?", retries=0) for lease in leases]
        await stage.watch.cancel(leases[0].task)
        await asyncio.sleep(1)
        for end in ends:
            await stage.watch.respond(end.request_id, "late", agent="oracle")
        assert len((await standing(stage, "oracle")).unblocked) == 1
        ledger = await read_ledger(stage.watch.views, "oracle", 0)
        assert ledger.total("for") == 1
        assert [line.why for line in ledger.lines if line.what == "answered sandman late"] == [
            "the task did not wait for it any more"
        ]

    play(scene, policies=UNASKED, pace=CALM)


@pytest.mark.row("M8")
def test_of_two_that_are_degraded_the_one_that_unblocks_is_preferred() -> None:
    async def scene(stage: Stage) -> None:
        await degrade(stage, "ann")
        await degrade(stage, "bob")
        (first, *_) = await stage.watch.inbox("bob")
        await stage.watch.respond(first.request_id, "late, but here", agent="bob")
        now = await stage.watch.now()
        assert (score(await standing(stage, "ann"), now), score(await standing(stage, "bob"), now)) == (-4, -3)
        await ask_reviewers(stage)
        assert await stage.watch.claim(agent="ann", roles=["reviewer"]) is None
        assert await stage.watch.claim(agent="bob", roles=["reviewer"]) is not None

    play(scene, policies=UNASKED, pace=CALM)


@pytest.mark.row("M7")
def test_an_expiry_of_a_role_is_of_whoever_had_taken_it() -> None:
    async def scene(stage: Stage) -> None:
        await ask_reviewers(stage)
        await asyncio.sleep(301)
        taken = await stage.watch.claim(agent="main/ann.2", roles=["reviewer"])
        assert taken is not None
        await asyncio.sleep(300)
        assert [event.data["against"] for event in await stage.told("request_expired")] == ["", "ann"]
        assert len((await standing(stage, "ann")).expired) == 1

    play(scene, policies=UNASKED, pace=CALM)


@pytest.mark.row("M8")
@pytest.mark.parametrize("by", ["respond", "complete"])
def test_a_late_answer_speaks_for_whoever_gave_it(by: str) -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage.watch)
        ended = await lease.request("oracle", "status_check", "there?", retries=0)
        assert ended.blocked
        if by == "respond":
            await stage.watch.respond(ended.request_id, "yes", agent="oracle")
        else:
            taken = await stage.watch.claim(agent="oracle", task=ended.request_id)
            assert taken is not None
            await taken.complete("yes")
        (resolved,) = await stage.told("request_resolved")
        assert resolved.data["by"] == "oracle"
        oracle = await standing(stage, "oracle")
        assert (len(oracle.expired), len(oracle.unblocked)) == (1, 1)
        assert await standing(stage, "sandman") == AgentRecord(), "who asked is neither charged nor credited"

    play(scene, policies=UNASKED, pace=CALM)


@pytest.mark.row("M7", "M8")
def test_a_standing_is_the_sum_of_what_the_journal_tells() -> None:
    async def scene(stage: Stage) -> None:
        await degrade(stage, "ann")
        await let_expire(stage, "bob", 2)
        for agent in ("ann", "bob"):
            (first, *_) = await stage.watch.inbox(agent)
            await stage.watch.respond(first.request_id, "late", agent=agent)
        await ask_reviewers(stage)
        await asyncio.sleep(HOUR)
        rows: dict[str, AgentRecord] = {}
        async for entry in stage.watch.events():
            rows |= entered([entry.event], rows, entry.at)
        assert await stage.store.view_health() == rows
        assert is_degraded(rows["ann"], await stage.watch.now())

    play(scene, policies=UNASKED, pace=CALM)


# --- M6 ---------------------------------------------------------------------------------------------------------------


async def blocked_since(stage: Stage, *, critical: bool = False) -> tuple[Lease, str, float]:
    """A task that is blocked from now on: by which request, and since when."""
    lease = await holding(stage.watch, critical=critical)
    ended = await lease.request("oracle", "status_check", "server access", retries=0)
    assert ended.blocked
    return lease, ended.request_id, stage.seconds


@pytest.mark.row("M6")
@pytest.mark.parametrize("critical", [False, True])
def test_a_block_of_an_hour_is_told_once_and_again_after_a_day(critical: bool) -> None:
    async def scene(stage: Stage) -> None:
        lease, request, _ = await blocked_since(stage, critical=critical)
        await asyncio.sleep(HOUR - 5)
        assert await stage.told("task_blocked_long") == []
        await asyncio.sleep(10)
        (told,) = await stage.told("task_blocked_long")
        assert (told.task, told.agent) == (lease.task, "sandman")
        about = {"request": request, "kind": "status_check", "to": "oracle", "critical": critical, "count": 1}
        assert {**told.data, "blocked_ms": 0} == {**about, "blocked_ms": 0}
        assert 3_600_000 <= told.data["blocked_ms"] < 3_605_000
        await asyncio.sleep(23 * HOUR)
        assert len(await stage.told("task_blocked_long")) == 1, "once, not every minute"
        await asyncio.sleep(HOUR)
        assert [event.data["count"] for event in await stage.told("task_blocked_long")] == [1, 2]

    play(scene, policies=UNASKED, pace=CALM)


@pytest.mark.row("M6")
def test_it_is_told_once_by_all_who_sweep_and_after_they_were_away() -> None:
    async def scene(stage: Stage) -> None:
        await blocked_since(stage)
        async with stage.another(seed=2), stage.another(seed=3):
            await asyncio.sleep(2 * HOUR)
        async with stage.another(seed=4):
            await asyncio.sleep(2 * HOUR)
        assert len(await stage.told("task_blocked_long")) == 1

    play(scene, policies=UNASKED, pace=CALM)


@pytest.mark.row("M6")
def test_whoever_was_away_for_a_week_tells_it_once() -> None:
    weather = Weather()

    async def scene(stage: Stage) -> None:
        await blocked_since(stage)
        weather.down = True
        await asyncio.sleep(5 * 24 * HOUR)
        async with stage.another(seed=2) as other:
            await asyncio.sleep(60)
            told = [entry.event async for entry in other.events() if entry.event.kind == "task_blocked_long"]
        assert [event.data["count"] for event in told] == [1]

    play(scene, faults=weather, policies=UNASKED, pace=CALM)


@pytest.mark.row("M6")
@pytest.mark.parametrize("how", ["answered", "cancelled"])
def test_what_is_over_is_not_told(how: str) -> None:
    async def scene(stage: Stage) -> None:
        lease, request, _ = await blocked_since(stage)
        await asyncio.sleep(30 * MINUTE)
        if how == "answered":
            await stage.watch.respond(request, "here", agent="oracle")
        else:
            await stage.watch.cancel(lease.task)
        await asyncio.sleep(48 * HOUR)
        assert await stage.told("task_blocked_long") == []

    play(scene, policies=UNASKED, pace=CALM)
