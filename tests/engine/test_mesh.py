"""Agents ask agents: delivered, delivered again, blocked, moved on, and unblocked by a late answer (M1, M2, M5)."""

import asyncio
import random
from collections.abc import Callable, Coroutine

import pytest

from allswell import Lease, LeaseLost, Refused, make_watch
from allswell.domain.access.key import Key, Right
from allswell.domain.agents.handover import in_words
from allswell.domain.ids import AgentId, CommandId, Millis
from allswell.domain.mesh.request import KINDS
from allswell.domain.rules.command import MoveOn, Respond
from allswell.domain.rules.event import Event
from allswell.domain.task.model import Policy, TaskFilter, TaskRow
from allswell.domain.task.submit import WEBHOOKS
from allswell.engine.access.gate import Gate
from allswell.engine.ids import Ids
from allswell.engine.lease import check_in
from allswell.engine.mesh import Requested, RequestOptions
from allswell.store.memory import MemoryStore
from allswell.testing.loop import VirtualClock, run, running_loop
from allswell.testing.sim.process import engine_of
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
@pytest.mark.parametrize("by", ["respond", "complete"])
def test_the_next_attempt_is_handed_the_late_answer_with_who_gave_it_and_when(by: str) -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        request = (await lease.request("oracle", "status_check", "server access")).request_id
        await asyncio.sleep(30 * MINUTE)
        now = await stage.watch.now()
        if by == "respond":
            await stage.watch.respond(request, {"key": "k"}, agent="oracle")
        else:  # an agent that is started for it takes it as its task
            taken = await stage.watch.claim(agent="oracle", task=request)
            assert taken is not None
            await taken.complete({"key": "k"})
        again = await stage.watch.claim(agent="sandman", wait="5s")
        assert again is not None
        (answer,) = again.answers
        assert (answer.request, answer.by, answer.at, answer.text) == (request, "oracle", now, '{"key":"k"}')
        told = in_words(again.attempt, again.handover, again.notes, answers=again.answers)
        assert f"oracle has answered {request} (server access) after 34m" in told
        assert '\n> {"key":"k"}\n' in told
        assert "has not answered" not in told
        await again.release()  # what nobody has used yet is for the one after, too
        third = await stage.watch.claim(agent="ann")
        assert third is not None
        assert third.answers == again.answers

    play(scene)


@pytest.mark.row("M5")
def test_a_long_answer_is_cut_in_the_handover_and_whole_where_it_is_asked_for() -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        request = (await lease.request("oracle", "status_check", "the log")).request_id
        await stage.watch.respond(request, "x" * 100_000, agent="oracle")
        again = await stage.watch.claim(agent="sandman", wait="5s")
        assert again is not None
        told = in_words(again.attempt, again.handover, again.notes, answers=again.answers)
        assert len(told) < 5_000
        assert f"`allswell show {request}` shows all of it" in told
        assert await again.requested(request) == ("done", f'"{"x" * 100_000}"')

    play(scene)


@pytest.mark.row("M2", "M5")
@pytest.mark.parametrize("first", ["oracle", "eve"])
def test_of_two_open_requests_the_one_that_blocks_releases_both_who_wait_and_both_answers_count(first: str) -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        doc = await stage.watch.submit("doc task")
        both = [
            asyncio.create_task(lease.request("oracle", "handoff", "server access")),
            asyncio.create_task(lease.request("eve", "status_check", "there?", timeout="1m", retries=0)),
        ]
        ends = await asyncio.wait_for(asyncio.gather(*both), 70)
        assert [(end.state, end.blocked, end.fallback) for end in ends] == [("blocked", True, "next_task")] * 2
        assert [end.next.task for end in ends] == [doc, doc]
        assert ends[0].next.token == ends[1].next.token, "one task to go on with, not two"
        await ends[0].next.complete()
        requests = {"oracle": ends[0].request_id, "eve": ends[1].request_id}
        await asyncio.sleep(16 * MINUTE)  # the other one is delivered to its end, and then the task needs both
        blocked = [event.data["request"] for event in await stage.told("request_blocked")]
        assert sorted(blocked) == sorted(requests.values())
        second = "eve" if first == "oracle" else "oracle"
        await stage.watch.respond(requests[first], f"of {first}", agent=first)
        await asyncio.sleep(1)
        assert await stage.watch.claim(agent="ann") is None, "it waits for the other answer"
        await stage.watch.respond(requests[second], f"of {second}", agent=second)
        again = await stage.watch.claim(agent="ann", wait="5s")
        assert again is not None
        assert again.task == lease.task
        assert [(one.by, one.text) for one in again.answers] == [(first, f'"of {first}"'), (second, f'"of {second}"')]
        assert len(await stage.told("request_resolved")) == 2

    play(scene)


@pytest.mark.row("M2", "M5")
def test_an_answer_to_the_other_request_counts_while_the_task_waits_and_while_it_is_held_again() -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        requests = [await lease.send_request(to, "handoff", to, timeout="30m") for to in ("ann", "bob")]
        blocking = await lease.send_request("eve", "status_check", "there?", timeout="1m", retries=0)
        await asyncio.sleep(2 * MINUTE)
        await stage.watch.respond(requests[0], "of ann", agent="ann")
        await stage.watch.respond(blocking, "of eve", agent="eve")
        again = await stage.watch.claim(agent="sandman", wait="5s")
        assert again is not None
        assert [one.by for one in again.answers] == ["ann", "eve"]
        await stage.watch.respond(requests[1], "of bob", agent="bob")
        assert await again.requested(requests[1]) == ("done", '"of bob"')
        row = await stage.watch.task(again.task)
        assert row is not None
        assert [one.by for one in row.task.record.answers] == ["ann", "eve", "bob"]
        await again.complete()

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


@pytest.mark.row("M2")
def test_who_declines_is_heard_at_once_and_the_task_goes_on() -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        asking = asyncio.create_task(lease.request("oracle", "handoff", "server access"))
        (asked,) = await stage.watch.inbox("oracle", wait="1m")
        with pytest.raises(Refused, match="is for oracle; eve need not decline it"):
            await stage.watch.decline(asked.request_id, "not me", agent="eve")
        began = stage.seconds
        await stage.watch.decline(asked.request_id, "I have no access", agent="oracle")
        await stage.watch.decline(asked.request_id, "I have no access", agent="oracle")
        ended = await asking
        assert stage.seconds - began < 1
        assert (ended.state, ended.blocked, ended.reason) == ("failed", False, "oracle declined it: I have no access")
        (told,) = await stage.told("request_declined")
        assert (told.task, told.data["by"], told.data["final"]) == (lease.task, "oracle", True)
        with pytest.raises(Refused, match="takes no answer: it is failed"):
            await stage.watch.respond(asked.request_id, "here", agent="oracle")
        assert await stage.watch.inbox("oracle") == []
        await lease.complete()

    play(scene)


@pytest.mark.row("M2", "M5")
@pytest.mark.parametrize("blocks", [True, False])
def test_a_refusal_that_was_not_waited_for_is_handed_over_as_an_answer_is(blocks: bool) -> None:
    """Declined late, it is in the next attempt's handover; of one that does not block, with a check-in."""

    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        ended = await lease.request("oracle", "status_check", "there?", timeout="10s", retries=0, blocks=blocks)
        await stage.watch.decline(ended.request_id, "gone fishing", agent="oracle")
        if blocks:
            await asyncio.sleep(1)
            again = await stage.watch.claim(agent="sandman")
            assert again is not None
            (answer,) = again.answers
            text = in_words(2, again.handover, (), answers=again.answers)
            assert f"oracle has declined {ended.request_id} (there?) after" in text
            assert "gone fishing" in text
            assert "has not answered" not in text
        else:
            (answer,) = await lease.answered()
        assert (answer.declined, answer.by, answer.text) == (True, "oracle", '"gone fishing"')

    play(scene)


@pytest.mark.row("M2", "M7")
def test_a_role_has_declined_once_all_have_who_are_known_to_have_it() -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        for agent in ("ann", "bob"):
            await stage.watch.submit(f"work of {agent}", role="ops", timeout="1h")
            assert await stage.watch.claim(agent=agent, roles=["ops"]) is not None
        request = await lease.send_request("role:ops", "handoff", "restart it")
        taken = await stage.watch.claim(agent="ann", roles=["ops"])
        assert taken is not None
        assert taken.task == request
        await stage.watch.decline(request, "not today", agent="ann", roles=["ops"])
        assert await stage.watch.inbox("ann", roles=["ops"]) == []
        with pytest.raises(Refused, match="sandman has asked"):
            await stage.watch.decline(request, "I take it back", agent="sandman", roles=["ops"])
        assert await stage.watch.claim(agent="ann", roles=["ops"]) is None
        with pytest.raises(LeaseLost):
            await taken.complete()
        (item,) = await stage.watch.inbox("bob", roles=["ops"])
        await stage.watch.decline(item.request_id, "nor I", agent="bob", roles=["ops"])
        assert (await lease.wait_for(request)).reason == "bob declined it: nor I"
        assert [event.data["final"] for event in await stage.told("request_declined")] == [False, True]

    play(scene)


@pytest.mark.row("M2")
def test_what_is_addressed_to_others_is_a_list_of_its_own_and_a_wait_is_for_what_is_new() -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        request = await lease.send_request("oracle", "handoff", "server access", timeout="2m", retries=1)
        (item,) = await stage.watch.inbox("oracle", wait="1m")
        assert (item.request_id, item.age, item.mesh) == (request, 0, False)
        waiting = asyncio.create_task(stage.watch.inbox("oracle", wait="10m"))
        await asyncio.sleep(MINUTE)
        assert not waiting.done(), "it was listed before"
        assert [item.age for item in await stage.watch.inbox("oracle")] == [MINUTE * 1_000], "and can be listed again"
        assert await stage.watch.inbox("eve", mesh=True) == []
        second = await lease.send_request("oracle", "handoff", "and another", timeout="20m", retries=0)
        assert [(item.request_id, item.new) for item in await waiting] == [(request, False), (second, True)]
        again = await stage.watch.inbox("oracle", wait="10m")
        assert [(item.attempt, item.new) for item in again] == [(2, True), (1, False)], "each delivery is new"
        began = stage.seconds
        assert [item.new for item in await stage.watch.inbox("oracle", wait="5s")] == [False, False]
        assert stage.seconds - began == 5
        assert await stage.watch.inbox("eve") == []
        others = await stage.watch.inbox("eve", mesh=True)
        assert [(item.request_id, item.to, item.mesh) for item in others] == [
            (request, "oracle", True),
            (second, "oracle", True),
        ]
        assert await stage.watch.inbox("oracle", mesh=True) == []
        for agent, waiting_for in (("eve", ()), ("oracle", (request, second))):
            held = await holding(stage, f"work of {agent}", agent=agent)
            news = await check_in(stage.watch, stage.watch.held(held.task, held.token, agent))
            assert news.inbox == waiting_for

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
def test_a_circle_through_a_role_is_found_if_nobody_else_has_it() -> None:
    async def scene(stage: Stage) -> None:
        ann = await holding(stage, "a", agent="ann")
        await stage.watch.submit("b", role="ops", timeout="1h")
        bob = await stage.watch.claim(agent="bob", roles=["ops"])
        assert bob is not None
        first = await ann.send_request("role:ops", "handoff", "restart it")
        with pytest.raises(Refused, match="bob <-> ann") as refused:
            await bob.send_request("ann", "handoff", "which one?")
        assert refused.value.code == "circle"
        await stage.watch.submit("c", role="ops", timeout="1h")
        await stage.watch.cancel(first)
        assert await stage.watch.claim(agent="eve", roles=["ops"]) is not None, "eve has the role, too"
        await ann.send_request("role:ops", "handoff", "restart it again")
        await bob.send_request("ann", "handoff", "which one?")

    play(scene)


@pytest.mark.row("M6")
def test_the_other_way_round_the_request_to_the_role_is_refused() -> None:
    async def scene(stage: Stage) -> None:
        ann = await holding(stage, "a", agent="ann")
        await stage.watch.submit("b", role="ops", timeout="1h")
        bob = await stage.watch.claim(agent="bob", roles=["ops"])
        assert bob is not None
        await bob.send_request("ann", "handoff", "which one?")
        with pytest.raises(Refused, match="circle"):
            await ann.send_request("role:ops", "handoff", "restart it")

    play(scene)


@pytest.mark.row("M6")
def test_who_asks_without_waiting_and_a_free_slot_are_no_circle() -> None:
    async def scene(stage: Stage) -> None:
        ann, bob = await holding(stage, "a", agent="ann.1"), await holding(stage, "b", agent="bob")
        other = await holding(stage, "c", agent="ann.2")
        await ann.send_request("bob", "handoff", "one", blocks=False)
        request = await bob.send_request("ann", "handoff", "nobody waits for bob")
        await stage.watch.cancel(request)
        await ann.send_request("bob", "handoff", "two")
        request = await bob.send_request("ann", "handoff", "the other slot of ann can answer")
        await stage.watch.cancel(request)
        await other.send_request("bob", "handoff", "three")
        with pytest.raises(Refused, match="circle"):
            await bob.send_request("ann", "handoff", "both wait for bob")
        await bob.send_request("ann", "handoff", "and bob need not wait", blocks=False)

    play(scene)


@pytest.mark.row("M6")
@pytest.mark.parametrize("lost", ["released", "lapsed", "blocked"])
def test_who_asked_and_lost_its_lease_is_in_no_circle(lost: str) -> None:
    async def scene(stage: Stage) -> None:
        bob = await holding(stage, "b", agent="bob")
        await stage.watch.submit("a", timeout="1h")
        async with stage.another(seed=2) as there:
            ann = await there.claim(agent="ann", lease="30s")
            assert ann is not None
            await ann.send_request("bob", "handoff", "one", timeout="20m")
            with pytest.raises(Refused, match="bob <-> ann"):
                await bob.send_request("ann", "handoff", "two")
            if lost == "released":
                await ann.release()
            elif lost == "blocked":
                assert (await ann.request("eve", "status_check", "there?", timeout="10s", retries=0)).blocked
        if lost == "lapsed":
            await asyncio.sleep(2 * MINUTE)
        await bob.send_request("ann", "handoff", "ann waits for nobody any more")

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
def test_what_is_asked_without_waiting_is_given_up_with_the_attempt_and_waits_for_nobody() -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        request = await lease.send_request("oracle", "status_check", "there?", blocks=False)
        ended = await lease.wait_for(request)
        assert (ended.state, ended.blocked, ended.reason) == ("open", False, "request_timeout")
        assert [event.data["attempt"] for event in await stage.told("request_expired")] == [1, 2]
        await lease.checkin("it goes on")
        late = await stage.watch.inbox("oracle")
        assert [(item.request_id, item.expires_at) for item in late] == [(request, None)]
        await lease.complete()
        await asyncio.sleep(60 * MINUTE)
        row = await stage.watch.task(request)
        assert row is not None
        assert (row.task.state, row.task.record.reason) == ("failed", "request_timeout")
        assert await stage.told("request_blocked") == []

    play(scene)


@pytest.mark.row("M2", "M8")
@pytest.mark.parametrize("idle", ["40s", "4s"])
def test_waiting_for_an_answer_is_not_idle(idle: str) -> None:
    """The limit of idleness is shorter than the interval of check-ins, so nothing else asks for a sign of life."""

    async def scene(stage: Stage) -> None:
        await stage.watch.submit("deploy", timeout="1h", idle=idle)
        lease = await stage.watch.claim(agent="sandman", lease="1m")
        assert lease is not None
        ended = await lease.request("oracle", "handoff", "server access")
        assert ended.blocked
        assert stage.seconds == pytest.approx(15 * MINUTE, abs=1)
        assert await stage.told("agent_idle", "lease_lapsed", "checkpoint_timeout") == []

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
        assert [item.request_id for item in await stage.watch.inbox("eve", roles=["ops"], mesh=True)] == [
            asked.request_id
        ]
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
def test_what_cannot_be_meant_is_refused(to: str, kind: str, more: RequestOptions, code: str) -> None:
    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        with pytest.raises(Refused) as refused:
            await lease.send_request(to, kind, "server access", **more)
        assert refused.value.code == code
        assert "secret" not in str(refused.value)
        assert await stage.told("request_sent") == []

    play(scene)


Posts = Callable[[Lease, int], Coroutine[object, object, None]]


async def post_on(stage: Stage, until: float, does: Posts) -> list[float]:
    """Claim webhooks as a poster does, until this second, and do so with each; when they were claimed."""
    posts: list[float] = []
    async with asyncio.TaskGroup() as posting:
        while stage.seconds < until:
            lease = await stage.watch.claim(agent="poster", roles=[WEBHOOKS], wait="1s", lease="30s")
            if lease is not None:
                posts.append(round(stage.seconds))
                posting.create_task(does(lease, len(posts)))
    return posts


async def hangs(lease: Lease, number: int) -> None:
    """The receiver never answers: the poster waits as long as the delivery has, and a little longer."""
    del number
    await asyncio.sleep(30.5)
    with pytest.raises(LeaseLost):
        await lease.fail("it did not answer in time", error_class="network")


async def fails(lease: Lease, number: int) -> None:
    del number
    await lease.fail("answered 500", error_class="server")


async def killed(lease: Lease, number: int) -> None:
    """Nobody hears of this poster again; another one comes."""


async def stopped(lease: Lease, number: int) -> None:
    del number
    await lease.release("its process stops")


@pytest.mark.row("M1", "M9")
@pytest.mark.parametrize("does", [hangs, fails, killed, stopped])
def test_a_webhook_is_taken_up_once_for_each_delivery_at_its_time(
    does: Posts,
) -> None:
    """Three retries are four posts, whatever becomes of each, and none comes with the block or after it."""

    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        asking = asyncio.create_task(lease.request("https://oracle.example/", "webhook", "deploy it"))
        assert await post_on(stage, 10 * MINUTE, does) == [0, 30, 60, 90]
        assert (await asking).blocked
        assert len(await stage.told("request_expired")) == 4

    play(scene)


@pytest.mark.row("M9")
def test_a_webhook_that_is_to_come_again_later_does() -> None:
    """429 with Retry-After: 45 s of two deliveries pass, and the second one is made when the receiver wants it."""

    async def scene(stage: Stage) -> None:
        async def busy(lease: Lease, number: int) -> None:
            wait = {1: "45s", 2: "10s", 3: None}[number]
            if wait is None:
                await lease.complete("taken")
            else:
                await lease.fail("answered 429", error_class="rate_limit", retry_after=wait)

        lease = await holding(stage)
        asking = asyncio.create_task(lease.request("https://oracle.example/", "webhook", "deploy it"))
        assert await post_on(stage, 5 * MINUTE, busy) == [0, 45, 60]
        assert (await asking).answer == "taken"

    play(scene)


@pytest.mark.row("M9")
def test_a_webhook_that_is_refused_for_good_has_failed_at_once() -> None:
    async def scene(stage: Stage) -> None:
        async def refused(lease: Lease, number: int) -> None:
            del number
            await lease.fail("answered 404: not here", error_class="permanent")

        lease = await holding(stage)
        asking = asyncio.create_task(lease.request("https://oracle.example/", "webhook", "deploy it"))
        assert await post_on(stage, 3 * MINUTE, refused) == [0]
        ended = await asking
        assert (ended.state, ended.blocked) == ("failed", False)
        assert ended.reason == "answered 404: not here; it is not posted again"
        row = await stage.watch.task(lease.task)
        assert row is not None
        assert row.lease is not None

    play(scene)


@pytest.mark.row("M9")
def test_a_webhook_with_a_long_timeout_is_not_taken_from_its_poster() -> None:
    """It is not asked for check-ins, and no limit of an agent is its own."""

    async def scene(stage: Stage) -> None:
        async def slow(lease: Lease, number: int) -> None:
            del number
            await asyncio.sleep(50 * MINUTE)
            await lease.complete("at last")

        await stage.watch.submit("deploy", timeout="3h")
        lease = await stage.watch.claim(agent="sandman")
        assert lease is not None
        asking = asyncio.create_task(lease.request("https://oracle.example/", "webhook", "deploy it", timeout="1h"))
        assert await post_on(stage, 51 * MINUTE, slow) == [0]
        assert (await asking).answer == "at last"
        told = await stage.told("agent_timeout", "agent_idle", "checkpoint_timeout")
        assert [event.agent for event in told if event.agent != "sandman"] == []

    play(scene, policies={"": Policy(idle=5 * MINUTE * 1_000)})


def test_who_looks_every_second_reads_no_payloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor made objects of every open request's payload, once a second: an agent can send megabytes in them."""

    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        await lease.send_request("oracle", "collaboration", "server access", payload=[[]] * 1_000, blocks=False)
        (asked,) = await stage.watch.inbox("oracle")
        assert asked.payload == [[]] * 1_000
        read: list[object] = []
        monkeypatch.setattr(stage.watch.views, "view_payload", read.append)
        (seen,) = (await stage.watch.inboxes({"oracle": ()}, payloads=False))["oracle"]
        assert (seen.request_id, seen.payload, read) == (asked.request_id, None, [])

    play(scene)


def test_an_agents_key_looks_into_its_inbox_past_all_other_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each check-in over HTTP does so, and went through all open tasks: a submitter hands over any number of them."""

    async def scene(stage: Stage) -> None:
        lease = await holding(stage)
        await lease.send_request("oracle", "collaboration", "server access", blocks=False)
        await stage.watch.submit_many([{"name": f"task {number}", "role": "none"} for number in range(1_200)])
        engine = engine_of(stage.watch)
        gate = Gate(engine, Ids(stage.clock.wall, random.Random(7).getrandbits))
        key = Key("oracle", "", (Right.AGENT,), Millis(0), roles=("any",), agents=("oracle",))
        pages: list[int] = []
        look = engine.store.view_tasks

        async def counted(which: TaskFilter) -> list[TaskRow]:
            pages.append(len(rows := await look(which)))
            return rows

        monkeypatch.setattr(engine.store, "view_tasks", counted)
        (asked,) = await gate.watch_for(key).inbox("oracle")
        assert (asked.summary, pages) == ("server access", [1])

    play(scene)
