"""The orchestrator's rows, one scenario each, as the original document tells them; in virtual time."""

import asyncio
import random

import pytest

from allswell import LeaseLost, Policy, make_watch
from allswell.domain.agents.fleet import CompactionSpec, UsageSpec
from allswell.domain.agents.usage import Act, Thresholds, Usage, UsageLevel
from allswell.domain.ids import Millis
from allswell.domain.task.model import DELEGATION_TIMEOUT
from allswell.engine.status.agents import Counters, track
from allswell.runtime.supervisor.usage import UsageMonitor
from allswell.settings import SETTINGS
from allswell.store.memory import MemoryStore
from allswell.testing.loop import VirtualClock, run
from tests.engine.stage import MINUTE, Stage, play

LEFT: list[dict[str, float]] = []
"""What the usage source of O6 says, one reading after the other; the last one stays."""


@pytest.mark.row("O1")
def test_o1_the_figures() -> None:
    seconds = {
        "agent_timeout": 900,
        "checkpoint_interval": 300,
        "checkpoint_timeout": 30,
        "delegation_timeout": 600,
    }
    assert {name: SETTINGS[name].default for name in seconds} == {name: s * 1_000 for name, s in seconds.items()}
    counts = {"stall_threshold": 3, "timeout_escalation": 3, "context_threshold": 10, "session_threshold": 10}
    assert {name: SETTINGS[name].default for name in counts} == counts

    async def scene(stage: Stage) -> None:
        await stage.watch.submit("asks")
        lease = await stage.watch.claim(agent="ann")
        assert lease is not None
        assert lease.remaining == 900_000
        await lease.ask("which?")
        await asyncio.sleep(12 * 60 * MINUTE)
        (question,) = await stage.watch.questions()
        assert question.closed_at is None, "human answers never expire"

    play(scene)


@pytest.mark.row("O2")
def test_o2_asked_at_five_and_ten_minutes_and_the_clock_goes_on() -> None:
    async def scene(stage: Stage) -> None:
        id_ = await stage.watch.submit("works")
        lease = await stage.watch.claim(agent="ann")
        assert lease is not None
        await asyncio.sleep(5 * MINUTE + 29)
        assert await stage.told("checkpoint_timeout") == []
        assert (await lease.renew()).asked
        await asyncio.sleep(2)
        (missed,) = await stage.told("checkpoint_timeout")
        assert (missed.agent, missed.task, missed.data) == ("ann", id_, {"checkpoint_count": 1})
        await asyncio.sleep(4 * MINUTE + 30)
        assert not (await lease.checkin("CHECKPOINT: x\nEstimated Progress: 80%")).asked
        await asyncio.sleep(4 * MINUTE + 58)
        assert len(await stage.told("checkpoint_timeout")) == 1, "answered: the second is no miss"
        assert lease.remaining > 0
        await asyncio.sleep(2)
        (ended,) = await stage.told("agent_timeout")
        assert ended.data["elapsed_ms"] == 900_000, "neither paused nor extended"
        row = await stage.watch.task(id_)
        assert row is not None
        assert row.task.record.handover is not None
        assert row.task.record.handover.progress == 0.8

    play(scene)


@pytest.mark.row("O3", "O8")
def test_o3_and_o8_silent_over_two_runs_found_stalled_and_recovered() -> None:
    async def scene(stage: Stage) -> None:
        id_ = await stage.watch.submit("silent")
        assert await stage.watch.claim(agent="ann") is not None
        await asyncio.sleep(15 * MINUTE + 1)
        assert [event.data["checkpoint_count"] for event in await stage.told("checkpoint_timeout")] == [1, 2]
        lease = await stage.watch.claim(agent="ann")
        assert lease is not None
        await asyncio.sleep(5 * MINUTE + 31)
        (stalled,) = await stage.told("agent_stalled")
        assert (stalled.agent, stalled.task, stalled.data) == ("ann", id_, {"action": "marked_for_restart"})
        assert [agent.id for agent in await stage.watch.agents() if agent.stalled] == ["ann"]
        await lease.recover()  # its supervisor has ended it
        (recovered,) = await stage.told("stalled_agent_recovered")
        assert (recovered.agent, recovered.task) == ("ann", id_)
        assert await stage.watch.agents() == []
        row = await stage.watch.task(id_)
        assert row is not None
        assert (row.ready, row.task.record.stalls, row.task.record.timeouts) == (True, 1, 1)
        assert [event.data["reason"] for event in await stage.told("task_returned")] == [
            "agent_timeout",
            "agent_stalled",
        ]

    play(scene)


@pytest.mark.row("O4", "O9")
def test_o4_and_o9_the_third_timeout_asks_and_each_option_acts() -> None:
    async def scene(stage: Stage) -> None:
        id_ = await stage.watch.submit("slow")
        after = await stage.watch.submit("after", needs=[id_])
        for agent in ("ann", "bob", "cy"):
            assert await stage.watch.claim(agent=agent, wait="1s") is not None
            await asyncio.sleep(15 * MINUTE + 1)
        (repeated,) = await stage.told("task_repeated_timeout")
        assert repeated.data == {"count": 3, "action": "divine_intervention"}
        (question,) = await stage.watch.questions()
        assert f"{id_} (slow) has timed out 3 times" in question.text
        assert [option.label for option in question.options] == [
            "Split task into smaller subtasks",
            "Clarify requirements",
            "Increase timeout for this task",
            "Skip task and continue",
        ]
        assert await stage.watch.claim(agent="ann") is None, "it waits, and is not dispatched meanwhile"
        await stage.watch.answer(question.id, "increase_timeout", timeout="1h")
        lease = await stage.watch.claim(agent="ann")
        assert lease is not None
        assert lease.remaining == 60 * MINUTE * 1_000
        row = await stage.watch.task(id_)
        assert row is not None
        assert row.task.record.timeouts == 0
        await lease.complete()
        done = await stage.watch.claim(agent="ann", wait="1s")
        assert done is not None
        assert done.task == after

    play(scene)


@pytest.mark.row("O5")
def test_o5_an_expert_has_ten_minutes_of_what_is_left() -> None:
    async def scene(stage: Stage) -> None:
        id_ = await stage.watch.submit("build", role="builder")
        ann = await stage.watch.claim(agent="ann", roles=["builder"])
        assert ann is not None
        request = await ann.delegate("expert", "which index?")
        eve = await stage.watch.claim(agent="eve", roles=["expert"])
        assert eve is not None
        assert eve.remaining == DELEGATION_TIMEOUT
        await asyncio.sleep(10 * MINUTE + 0.001)
        assert await ann.requested(request) == ("failed", '"delegation_timeout"')
        row = await stage.watch.task(id_)
        assert row is not None
        assert row.lease is not None, "its expiry fails the request, not the task"

    play(scene)


async def left() -> dict[str, float]:
    """The usage source of the next scenario."""
    return LEFT.pop(0) if len(LEFT) > 1 else LEFT[0]


@pytest.mark.row("O6")
def test_o6_at_ten_percent_it_compacts_pauses_and_goes_on_by_itself() -> None:
    told: list[tuple[float, Act]] = []

    async def scene() -> None:
        clock = VirtualClock()
        reset = (clock.wall() + 30 * 60_000) / 1_000
        LEFT[:] = [
            {"context_remaining": 50, "session_remaining": 50},
            {"context_remaining": 10, "session_remaining": 50},
            {"context_remaining": 90, "session_remaining": 10, "resets_at": reset},
        ]

        async def now() -> Millis:
            return Millis(clock.wall())

        async def act(act: Act, _: Usage) -> None:
            told.append((asyncio.get_running_loop().time(), act))

        usage = UsageSpec(function=f"{__name__}:left", every=60_000)
        gauge = UsageMonitor(usage, CompactionSpec(), Thresholds(), level=UsageLevel(), now=now, act=act, tell=print)
        working = asyncio.ensure_future(gauge.work())
        await asyncio.sleep(34 * MINUTE + 58)
        paused = [gauge.level.paused]
        await asyncio.sleep(4)
        assert [*paused, gauge.level.paused] == [True, False]
        working.cancel()

    run(scene(), seed=1)
    assert [act for _, act in told] == ["compact", "pause", "resume"]
    assert told[2][0] == pytest.approx(35 * MINUTE, abs=1.5), "five minutes after the reset"


@pytest.mark.row("O7")
def test_o7_tracking_is_what_decisions_use() -> None:
    async def scene(stage: Stage) -> None:
        id_ = await stage.watch.submit("silent")
        assert await stage.watch.claim(agent="ann") is not None
        assert await track(stage.store) == Counters({}, [], {})
        await asyncio.sleep(15 * MINUTE + 1)
        assert await track(stage.store) == Counters({"ann": 2}, [], {id_: 1})
        lease = await stage.watch.claim(agent="ann")
        assert lease is not None
        await asyncio.sleep(5 * MINUTE + 31)
        assert await track(stage.store) == Counters({"ann": 3}, ["ann"], {id_: 1})
        await lease.checkin()
        assert await track(stage.store) == Counters({}, [], {id_: 1})
        await lease.complete()
        assert await track(stage.store) == Counters({}, [], {})

    play(scene)


@pytest.mark.row("O9")
def test_o9_questions_survive_a_restart_and_are_shown_again() -> None:
    async def scene() -> None:
        clock = VirtualClock()
        store = MemoryStore(clock=clock)
        async with make_watch(store, clock=clock, chance=random.Random(1)) as watch:
            await watch.submit("slow", policy=Policy(timeout_escalation=1))
            assert await watch.claim(agent="ann") is not None
            await asyncio.sleep(15 * MINUTE + 1)
            (asked,) = await watch.questions()
        async with make_watch(store.another(), clock=clock, chance=random.Random(2)) as watch:
            assert await watch.questions() == [asked]
            await watch.answer(asked.id, "clarify", "only the first page")
            lease = await watch.claim(agent="bob")
            assert lease is not None
            assert list(lease.notes) == ["only the first page"]

    run(scene(), seed=1)


@pytest.mark.row("O10")
def test_o10_what_a_late_agent_sends_is_refused_recorded_and_kept() -> None:
    async def scene(stage: Stage) -> None:
        id_ = await stage.watch.submit("slow")
        late = await stage.watch.claim(agent="ann")
        assert late is not None
        await asyncio.sleep(15 * MINUTE + 1)
        new = await stage.watch.claim(agent="bob")
        assert new is not None
        with pytest.raises(LeaseLost):
            await late.complete("old work")
        (told,) = await stage.told("late_result")
        assert (told.agent, told.token) == ("ann", late.token)
        await new.complete("new work")
        assert await stage.watch.result(id_) == "new work"
        first, _ = await stage.watch.attempts(id_)
        assert first.late == '"old work"'

    play(scene)
