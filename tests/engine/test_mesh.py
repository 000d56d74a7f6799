"""Agents ask agents: delivered, delivered again, blocked, moved on, and unblocked by a late answer (M1, M2, M5)."""

import asyncio

import pytest

from allswell import Lease, LeaseLost, Refused, make_watch
from allswell.domain.command import MoveOn, Respond
from allswell.domain.event import Event
from allswell.domain.names import AgentId, CommandId
from allswell.domain.request import KINDS
from allswell.engine.mesh import Requested, Wishes
from allswell.store.memory import MemoryStore
from allswell.testing.clock import VirtualClock
from allswell.testing.loop import run, running_loop
from tests.engine.stage import MINUTE, Stage, play


async def holding(stage: Stage, name: str = "Deploy webhook monitoring", *, agent: str = "sandman") -> Lease:
    """Somebody who works on a task."""
    await stage.watch.submit(name, timeout="1h", priority=5)
    lease = await stage.watch.claim(agent=agent)
    assert lease is not None
    return lease


def said(event: Event) -> tuple[object, ...]:
    """What an event about a delivery says."""
    return event.kind, event.task, event.agent, event.data.get("attempt"), event.data.get("timeout_ms")


@pytest.mark.row("M1")
@pytest.mark.parametrize(
    "kind, timeout, retries",
    [("handoff", 300, 2), ("status_check", 120, 1), ("collaboration", 300, 2), ("webhook", 30, 3)],
)
def test_each_kind_has_its_timeout_and_retries(kind: str, timeout: int, retries: int) -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        to = "https://oracle.example/hook" if kind == "webhook" else "oracle"
        waiting = asyncio.create_task(lease.request(to, kind, "server access"))
        await asyncio.sleep(timeout * (retries + 1) - 1)
        sent = await stage.told("request_sent", "request_delivered")
        assert [event.data["timeout_ms"] for event in sent] == [timeout * 1_000] * (retries + 1)
        assert not waiting.done()
        await asyncio.sleep(2)
        assert (await waiting).blocked
        assert len(await stage.told("request_expired")) == retries + 1

    assert (KINDS[kind].timeout, KINDS[kind].retries) == (timeout * 1_000, retries)
    play(scene)


@pytest.mark.row("M1")
def test_a_request_may_set_its_own() -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        ended = await lease.request("oracle", "handoff", "a human reads this", timeout="10m", retries=0)
        assert ended.blocked
        assert stage.seconds == pytest.approx(600, abs=1)

    play(scene)


@pytest.mark.row("M2")
def test_an_answer_in_time_comes_back_and_the_task_is_kept() -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        waiting = asyncio.create_task(lease.request("oracle", "collaboration", "server access", payload={"host": "db"}))
        (asked,) = await stage.watch.inbox("oracle", wait="10s")
        assert (asked.sender, asked.summary, asked.payload, asked.attempt) == (
            "sandman",
            "server access",
            {"host": "db"},
            1,
        )
        await asyncio.sleep(2 * MINUTE)
        await stage.watch.respond(asked.request_id, {"key": "k"}, agent="oracle")
        ended = await waiting
        assert (ended.state, ended.answer, ended.blocked) == ("done", {"key": "k"}, False)
        assert await stage.watch.inbox("oracle") == []
        (closed,) = await stage.told("request_closed")
        assert (closed.task, closed.agent, closed.data["outcome"]) == (lease.task, "sandman", "done")
        await lease.complete()

    play(scene)


@pytest.mark.row("M2")
def test_retries_are_deliveries_of_one_request_and_then_its_task_is_blocked_and_the_caller_has_the_next() -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        await stage.watch.submit("some other day", priority=1)
        doc = await stage.watch.submit("doc task", priority=3)
        ended = await lease.request("oracle", "handoff", "server access")
        assert isinstance(ended, Requested)
        assert (ended.blocked, ended.fallback, ended.state) == (True, "next_task", "blocked")
        assert ended.next is not None
        assert (ended.next.task, ended.next.agent) == (doc, "sandman")
        assert stage.seconds == pytest.approx(15 * MINUTE, abs=1)
        row = await stage.watch.task(lease.task)
        assert row is not None
        assert row.lease is None
        assert [(wait.kind, wait.target) for wait in row.waits] == [("request", ended.request_id)]
        assert row.task.record.timeouts == 0  # M8: it is not charged for it
        (blocked,) = await stage.told("request_blocked")
        assert blocked.data == {
            "request": ended.request_id,
            "kind": "handoff",
            "to": "oracle",
            "attempts": 3,
            "next": "doc task",
        }
        assert await stage.told("agent_timeout") == []
        claims = [event.task for event in await stage.told("task_claimed")]
        assert claims == [lease.task, doc]

    play(scene)


@pytest.mark.row("M2")
def test_without_anything_else_to_do_next_is_null_and_nobody_waiting_takes_no_lease() -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        assert (await lease.request("oracle", "status_check", "are you there?")).next is None
        other = await holding(stage, "another", agent="ann")
        free = await stage.watch.submit("free")
        await other.send_request("oracle", "status_check", "are you there?")
        await asyncio.sleep(5 * MINUTE)
        row = await stage.watch.task(free)
        assert row is not None
        assert row.lease is None
        assert len(await stage.told("request_blocked")) == 2

    play(scene)


@pytest.mark.row("M5")
def test_a_late_answer_resolves_the_block_and_queues_the_task_again_once() -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        ended = await lease.request("oracle", "handoff", "server access")
        await asyncio.sleep(30 * MINUTE)
        (late,) = await stage.watch.inbox("oracle")
        assert late.expires_at is None
        await stage.watch.respond(late.request_id, "here is the key", agent="oracle", command="c1")
        await stage.watch.respond(late.request_id, "here is the key", agent="oracle", command="c1")
        with pytest.raises(Refused, match="oracle has answered it already"):
            await stage.watch.respond(late.request_id, "again", agent="oracle")
        again = await stage.watch.claim(agent="sandman", wait="5s")
        assert again is not None
        assert again.task == lease.task
        assert again.handover is not None
        assert again.handover.reason == "blocked"
        assert await stage.watch.result(ended.request_id) == "here is the key"
        (resolved,) = await stage.told("request_resolved")
        assert (resolved.task, resolved.agent) == (lease.task, "sandman")
        assert (resolved.data["by"], resolved.data["requeued"]) == ("oracle", True)
        assert resolved.data["blocked_ms"] == pytest.approx(30 * MINUTE * 1_000, abs=3_000)

    play(scene)


@pytest.mark.row("M5")
def test_a_late_answer_queues_nothing_that_is_over() -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        ended = await lease.request("oracle", "status_check", "server access")
        await stage.watch.cancel(lease.task)
        await asyncio.sleep(1)
        await stage.watch.respond(ended.request_id, "late", agent="oracle")
        await asyncio.sleep(1)
        (resolved,) = await stage.told("request_resolved")
        assert resolved.data["requeued"] is False
        row = await stage.watch.task(lease.task)
        assert row is not None
        assert row.task.state == "cancelled"

    play(scene)


@pytest.mark.row("M6")
def test_a_circle_of_waiting_agents_is_refused_at_once_and_named() -> None:
    async def scene(stage: Stage) -> None:
        ann, bob, eve = [await holding(stage, f"task of {agent}", agent=agent) for agent in ("ann", "bob", "eve")]
        await ann.send_request("bob", "handoff", "one")
        await bob.send_request("eve", "handoff", "two")
        with pytest.raises(Refused, match="eve -> ann -> bob -> eve") as refused:
            await eve.send_request("ann", "handoff", "three")
        assert refused.value.code == "circle"
        with pytest.raises(Refused, match="eve <-> bob"):
            await eve.send_request("bob", "status_check", "four")
        (asked,) = await stage.watch.inbox("eve")
        await stage.watch.respond(asked.request_id, "done", agent="eve")
        await eve.send_request("ann", "handoff", "now it is none")

    play(scene)


@pytest.mark.row("M6")
@pytest.mark.parametrize("seed", range(5))
def test_of_two_processes_that_ask_each_other_at_the_same_moment_one_is_refused(seed: int) -> None:
    async def scene(stage: Stage) -> None:
        ann, bob = await holding(stage, "a", agent="ann"), await holding(stage, "b", agent="bob")
        async with stage.another(seed=seed + 2) as there:
            other = there.held(bob.task, bob.token, "bob")
            asked = [ann.send_request("bob", "handoff", "x"), other.send_request("ann", "handoff", "y")]
            ends = await asyncio.gather(*asked, return_exceptions=True)
        refused = [end for end in ends if isinstance(end, Refused)]
        assert [one.code for one in refused] == ["circle"]

    play(scene, seed=seed)


@pytest.mark.row("M2")
def test_it_blocks_before_the_limit_of_the_asking_lease_and_never_as_agent_timeout() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit("as long as its three deliveries", timeout="15m")
        lease = await stage.watch.claim(agent="ann")
        assert lease is not None
        await asyncio.sleep(3 * MINUTE)
        assert (await lease.request("oracle", "handoff", "server access")).blocked
        assert stage.seconds < 15 * MINUTE
        lengths = [event.data["timeout_ms"] for event in await stage.told("request_expired")]
        assert lengths[:2] == [300_000, 300_000]
        assert 0 < lengths[2] < 120_000  # what is left
        assert await stage.told("agent_timeout", "checkpoint_timeout") == []

    play(scene)


@pytest.mark.row("M2")
def test_before_it_blocks_the_mesh_is_asked_once_and_whoever_has_the_role_may_answer() -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        waiting = asyncio.create_task(lease.request("oracle", "handoff", "server access", role="ops"))
        await asyncio.sleep(9 * MINUTE)
        assert await stage.told("mesh_asked") == []
        (asked,) = await stage.watch.inbox("oracle")
        with pytest.raises(Refused, match="is for oracle, and eve cannot answer it"):
            await stage.watch.respond(asked.request_id, "me!", agent="eve", roles=["ops"])
        await asyncio.sleep(2 * MINUTE)
        assert len(await stage.told("mesh_asked")) == 1
        assert [item.request_id for item in await stage.watch.inbox("eve", roles=["ops"])] == [asked.request_id]
        assert await stage.watch.inbox("bob", roles=["dev"]) == []
        with pytest.raises(Refused, match="sandman has asked"):
            await stage.watch.respond(asked.request_id, "me", agent="sandman", roles=["ops"])
        await stage.watch.respond(asked.request_id, "me!", agent="eve", roles=["ops"])
        assert (await waiting).answer == "me!"

    play(scene)


@pytest.mark.row("M2")
def test_a_request_to_a_role_is_answered_by_whoever_has_it_or_takes_it_as_a_task() -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        first = asyncio.create_task(lease.request("role:ops", "collaboration", "restart it"))
        (item,) = await stage.watch.inbox("eve", roles=["ops"], wait="10s")
        await stage.watch.respond(item.request_id, 1, agent="eve", roles=["ops"])
        assert (await first).answer == 1
        second = asyncio.create_task(lease.request("role:ops", "collaboration", "restart it again"))
        taken = await stage.watch.claim(agent="bob", roles=["ops"], wait="10s")
        assert taken is not None
        await taken.complete(2)
        assert (await second).answer == 2

    play(scene)


@pytest.mark.row("M2")
@pytest.mark.parametrize("free", [0, 1, 2])
def test_two_that_are_blocked_at_once_are_each_told_of_once_with_what_they_do_next(free: int) -> None:
    async def scene(stage: Stage) -> None:
        leases = [await holding(stage, f"task of {agent}", agent=agent) for agent in ("ann", "bob")]
        await stage.watch.submit("not for them", priority=9, barred=["ann", "bob"])
        for number in range(free):
            await stage.watch.submit(f"doc {number}")
        ends = await asyncio.gather(*(lease.request("oracle", "status_check", "there?") for lease in leases))
        given = {
            lease.agent: "" if end.next is None else end.next.name for lease, end in zip(leases, ends, strict=True)
        }
        assert sorted(filter(None, given.values())) == [f"doc {number}" for number in range(free)]
        told = await stage.told("request_blocked")
        assert sorted((str(event.agent), event.data["next"]) for event in told) == sorted(given.items())

    play(scene)


@pytest.mark.row("M2", "M3")
def test_an_answer_that_comes_with_the_block_is_heard_before_it() -> None:
    """In one unit of work the block was told after the answer that resolved it, and the log ended with Blocked."""

    async def main() -> list[str]:
        clock = VirtualClock()
        store = MemoryStore(clock=clock, turn=running_loop().turn)
        async with make_watch(store, clock=clock, sweeping=False) as watch:
            await watch.submit("deploy", timeout="1h")
            lease = await watch.claim(agent="sandman")
            assert lease is not None
            request = await lease.send_request("oracle", "status_check", "there?", retries=0)
            await asyncio.sleep(2 * MINUTE)
            waits = MoveOn(CommandId("c1"), lease.task, lease.token, AgentId("sandman"), request)
            answers = Respond(CommandId("c2"), request, AgentId("oracle"), (), '"here"')
            await asyncio.gather(*map(watch._engine.do, (waits, answers)))
            told = [entry.event.kind async for entry in watch.events()]
        return [kind for kind in told if kind in ("request_blocked", "request_resolved", "request_closed")]

    assert run(main(), seed=1) == ["request_closed"]


@pytest.mark.row("M2")
def test_who_answers_what_another_has_taken_is_heard_and_the_other_has_lost_it() -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        asking = asyncio.create_task(lease.request("role:ops", "collaboration", "restart it"))
        taken = await stage.watch.claim(agent="bob", roles=["ops"], wait="10s")
        assert taken is not None
        await stage.watch.respond(taken.task, "quicker", agent="eve", roles=["ops"])
        assert (await asking).answer == "quicker"
        with pytest.raises(LeaseLost):
            await taken.complete("slower")
        attempts = await stage.watch.attempts(taken.task)
        assert [(one.agent, one.outcome) for one in attempts] == [("bob", "answered_by_another"), ("eve", "done")]

    play(scene)


@pytest.mark.row("M2")
def test_nobody_is_given_as_the_next_task_what_it_asked_of_its_own_role() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit("mine", role="ops")
        lease = await stage.watch.claim(agent="ann", roles=["ops"])
        assert lease is not None
        ended = await lease.request("role:ops", "status_check", "help me")
        assert (ended.blocked, ended.next) == (True, None)
        assert await stage.watch.claim(agent="ann", roles=["ops"]) is None
        assert await stage.watch.claim(agent="ann", task=ended.request_id) is None
        taken = await stage.watch.claim(agent="bob", roles=["ops"])
        assert taken is not None
        await taken.complete("here")
        again = await stage.watch.claim(agent="ann", roles=["ops"], wait="5s")
        assert again is not None
        assert again.task == lease.task

    play(scene)


@pytest.mark.row("M2")
def test_what_is_addressed_to_an_agent_is_offered_to_nobody_else() -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        request = await lease.send_request("oracle", "handoff", "server access")
        assert await stage.watch.claim(agent="eve") is None
        assert await stage.watch.claim(agent="oracle") is None
        assert await stage.watch.claim(agent="eve", task=request) is None
        taken = await stage.watch.claim(agent="oracle", task=request)
        assert taken is not None
        await asyncio.sleep(6 * MINUTE)  # it is delivered again while somebody works on it, and goes on
        assert len(await stage.told("request_delivered")) == 1
        await taken.complete("done")
        assert await stage.watch.result(request) == "done"

    play(scene)


@pytest.mark.row("M2")
def test_a_later_retry_is_delivered_anew_and_the_block_is_told_once() -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        ended = await lease.request("oracle", "status_check", "still there?", again="1h")
        await asyncio.sleep(59 * MINUTE)
        assert len(await stage.told("request_delivered")) == 1
        await asyncio.sleep(10 * MINUTE)
        assert [event.data["attempt"] for event in await stage.told("request_delivered")] == [2, 3, 4]
        assert len(await stage.told("request_blocked")) == 1
        await stage.watch.respond(ended.request_id, "yes", agent="oracle")
        assert await stage.watch.claim(agent="ann", wait="5s") is not None

    play(scene)


def test_a_request_that_nobody_ever_answers_is_given_up_and_its_task_queued_again() -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        ended = await lease.request("oracle", "status_check", "still there?", kept="1h")
        await asyncio.sleep(61 * MINUTE)
        row = await stage.watch.task(ended.request_id)
        assert row is not None
        assert (row.task.state, row.task.record.reason) == ("failed", "request_timeout")
        again = await stage.watch.claim(agent="ann", wait="5s")
        assert again is not None
        assert again.task == lease.task

    play(scene)


def test_whose_asker_is_gone_blocks_nobody() -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        request = await lease.send_request("oracle", "status_check", "still there?")
        await lease.complete()
        await asyncio.sleep(5 * MINUTE)
        row = await stage.watch.task(request)
        assert row is not None
        assert row.task.state == "failed"
        assert await stage.told("request_blocked") == []

    play(scene)


@pytest.mark.parametrize(
    "to, kind, more, code",
    [
        ("oracle", "hand-off", {}, "unknown_kind"),
        ("oracle", "webhook", {}, "bad_address"),
        ("https://user:secret@oracle.example", "webhook", {}, "bad_address"),
        ("ftp://oracle.example", "webhook", {}, "bad_address"),
        ("https://oracle.example", "handoff", {}, "bad_address"),
        ("role:", "handoff", {}, "bad_name"),
        ("role:@oracle", "handoff", {}, "bad_address"),
        ("", "handoff", {}, "bad_name"),
        ("oracle", "handoff", {"timeout": "-1s"}, "bad_duration"),
        ("oracle", "handoff", {"timeout": 0}, "bad_duration"),
        ("oracle", "handoff", {"retries": -1}, "bad_retries"),
        ("oracle", "handoff", {"retries": 101}, "bad_retries"),
        ("oracle", "handoff", {"again": 0}, "bad_duration"),
    ],
)
def test_what_cannot_be_meant_is_refused(to: str, kind: str, more: Wishes, code: str) -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        with pytest.raises(Refused) as refused:
            await lease.send_request(to, kind, "server access", **more)
        assert refused.value.code == code
        assert "secret" not in str(refused.value)
        assert await stage.told("request_sent") == []

    play(scene)
