"""Explaining: chains that end where the trouble is, time that adds up, and sentences for every event.

Scenes play on virtual time with nobody sweeping, where that is the point; the pure parts are held to any rows at all.
"""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allswell import ErrorClass, Failure, Policy, Watch, make_watch
from allswell.domain.agents.status import PRESENCE_PREFIX, AgentSlot, Presence
from allswell.domain.ids import AgentId, CommandId, Millis, QuestionId, TaskId, Token
from allswell.domain.lease.claim import RUN_ROLE
from allswell.domain.question import REPLY, Question
from allswell.domain.rules.command import Park
from allswell.domain.task.model import OPEN, Attempt, Spec, Task, TaskHistory, TaskRow, WaitState
from allswell.engine.status.explanation import Explanation
from allswell.engine.status.services import LOOK_MOST, TaskFacts, targets
from allswell.engine.status.timeline import spent
from allswell.engine.status.verdict import look
from allswell.engine.status.why import explain, why
from allswell.errors import Refused
from allswell.store.memory import MemoryStore
from allswell.testing.loop import VirtualClock, run
from allswell.testing.sim.process import engine_of
from allswell.timing.moment import to_json
from tests.engine.stage import Scene, Stage, play
from tests.properties.budget import DETERMINISTIC


def unswept(scene: Scene[None]) -> None:
    """Play a scene in which time passes and nobody sweeps."""

    async def main() -> None:
        clock = VirtualClock()
        stage = Stage.__new__(Stage)
        stage.clock, stage.store = clock, MemoryStore(clock=clock, strict=False)
        stage.watch = make_watch(stage.store, clock=clock, sweeping=False)
        async with stage.watch:
            await scene(stage)

    run(main(), seed=1)


def said(told: Explanation) -> str:
    return " ".join(sentence for link in told.chain for sentence in link.says)


async def asked(watch: Watch, id_: str) -> Explanation:
    return await why(watch._engine.store, id_)


# --- as things stand ------------------------------------------------------------------------------------------------


def test_a_holder_that_works_is_told_with_every_clock_that_could_end_it() -> None:
    async def scene(stage: Stage) -> None:
        task = await stage.watch.submit("a", policy=Policy(idle=400_000))
        lease = await stage.watch.claim(agent="bob", lease="20s")
        assert lease is not None
        await asyncio.sleep(100)
        await lease.checkin("halfway", progress=0.5)
        told = await asked(stage.watch, task)
        assert told.state == "held"
        assert "has been held by bob for 1m 40s." in said(told)
        assert "bob last checked in just now: “halfway” (50%)." in said(told)
        moments = [(one.at or 0) - told.now for one in told.next]
        assert moments == sorted(moments)
        assert moments == [20_000, 200_000, 400_000, 800_000]

    play(scene)


@pytest.mark.row("O3")
def test_silence_is_told_as_it_grows_into_a_stall() -> None:
    async def scene(stage: Stage) -> None:
        policy = Policy(timeout=3_600_000)
        task = await stage.watch.submit("a", policy=policy)
        await stage.watch.claim(agent="bob")
        await asyncio.sleep(340)
        told = await asked(stage.watch, task)
        assert "bob has missed 1 check-in in a row; 3 mean it is stalled." in said(told)
        await asyncio.sleep(591)
        told = await asked(stage.watch, task)
        assert "bob has been stalled for" in said(told)
        assert told.next[0].what.startswith("the task is taken back from bob")
        seen = await look(stage.store)
        assert [(one.kind, one.level) for one in seen.concerns] == [("stalled", "waiting")], (
            "it is taken back by itself"
        )

    play(scene)


@pytest.mark.parametrize(
    "how,sentence",
    [
        ({"lease": "20s"}, "(it was to be renewed every 20s), but it is still with bob"),
        ({}, "(its limit of 15m was reached), but it is still with bob"),
        ({"run": "4m"}, "(the deadline of its run has passed), but it is still with bob"),
    ],
)
def test_what_is_overdue_says_that_nobody_sweeps(how: dict[str, str], sentence: str) -> None:
    async def scene(stage: Stage) -> None:
        run = await stage.watch.open_run("r", timeout=how["run"]) if "run" in how else None
        task = await stage.watch.submit("a", run=run)
        async with make_watch(stage.store.another(), clock=stage.clock, sweeping=False) as dying:
            assert await dying.claim(agent="bob", lease=how.get("lease")) is not None
        await asyncio.sleep(1_000)
        told = await asked(stage.watch, task)
        assert sentence in said(told)
        assert "No process enforces time limits" in said(told)
        assert told.todo[0].command == "allswell watch"
        assert "overdue" in [need.kind for need in (await look(stage.store)).needs]

    unswept(scene)


def test_a_pause_that_is_over_and_a_need_that_has_ended_wait_for_a_sweeper() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        first = await watch.submit("first")
        then = await watch.submit("then", needs=[first])
        lease = await watch.claim(agent="bob")
        assert lease is not None
        await lease.fail(ConnectionError("reset"))
        told = await asked(watch, then)
        assert [link.name for link in told.chain] == ["then", "first"]
        assert "pauses before it is tried again. The last attempt, by bob, failed (a network error)" in said(told)
        assert told.next[0].at is not None
        await asyncio.sleep(60)
        assert "Its pause was over" in said(await asked(watch, first))
        await engine_of(watch).sweeper.sweep()
        lease = await watch.claim(agent="bob")
        assert lease is not None
        await lease.complete()
        assert "are updated in a moment" in said(await asked(watch, then))
        await asyncio.sleep(60)
        told = await asked(watch, then)
        assert "Tasks that wait for it were not updated. No process enforces time limits." in said(told)
        assert told.next[-1].what == "as soon as a process enforces time limits, “then” can be claimed"

    unswept(scene)


def test_a_parked_service_a_role_and_a_run_are_part_of_the_picture() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        nightly = await watch.open_run("nightly", timeout="3h")
        task = await watch.submit("a", services=["api"], role="writer", run=nightly)
        lease = await watch.claim(agent="bob")
        assert lease is not None
        await lease.fail(Failure(ErrorClass.RATE_LIMIT, "429", Millis(3_600_000), ("api",)))
        told = await asked(watch, task)
        assert "it needs “api”, which asked to wait. It is paused for another 1h." in said(told)
        await asyncio.sleep(3_601)
        told = await asked(watch, task)
        assert "any agent that asks for the role “writer” can have it." in said(told)
        assert told.todo[0].command == "allswell claim --agent NAME --role writer"
        told = await asked(watch, nightly)
        assert "The run “nightly” has been open for 1h." in said(told)
        await watch.end_run(nightly, "enough")
        await asyncio.sleep(1)
        assert "was ended 1s ago: enough." in said(await asked(watch, nightly))
        assert "was cancelled 1s ago: enough." in said(await asked(watch, task))

    play(scene)


def test_a_used_up_account_of_those_who_could_take_it_is_named() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        task = await watch.submit("a", role="writer")
        await watch._engine.do(Park(watch._ids.command(), "acme", 3_600_000))
        now = (await watch._engine.store.view_agenda()).now
        writer = AgentSlot("ada", "ada.1", "command", "writer", waits="acme is parked", account="acme")
        others = (AgentSlot("bob", "bob", "command", "critic"), AgentSlot("eve", "eve", "remote", None))
        kept = Presence("main", "m", "here", 1, "boot", "", 0, now, now, 10_000_000, posts=(writer, *others))

        async def say(*posts: AgentSlot) -> None:
            said = msgspec.json.encode(msgspec.structs.replace(kept, posts=(*posts, *others))).decode()
            before = (await watch._engine.store.view_kept(PRESENCE_PREFIX)).get(PRESENCE_PREFIX + "main")
            assert await watch._engine.store.compare_and_set(PRESENCE_PREFIX + "main", before, said)

        await say(writer)
        told = await asked(watch, task)
        assert (
            "“a” is ready, but every agent that could take it is paused:"
            " ada uses “acme”, which asked to wait. It is paused for another 1h." in said(told)
        )
        assert told.next[0].at == now + 3_600_000
        await say(msgspec.structs.replace(writer, waits="the fleet is paused"))
        assert "every agent that could take it is paused: ada: the fleet is paused." in said(await asked(watch, task))
        for free in (msgspec.structs.replace(writer, waits=""), msgspec.structs.replace(writer, task="t_other")):
            await say(free)
            assert "can have it." in said(await asked(watch, task)), "somebody may take it, or is at work"

    play(scene)


def test_an_answer_that_is_awaited_is_the_end_of_the_chain() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        ids = await watch.submit_many([{"name": "0"}, *({"name": str(n), "needs": [str(n - 1)]} for n in range(1, 30))])
        lease = await watch.claim(agent="bob")
        assert lease is not None
        question = await lease.ask("Left or right?")
        told = await asked(watch, ids[-1])
        assert told.chain[-1].id == question
        assert len(told.chain) <= 9, "a long chain is told by its ends"
        assert "24 tasks more, each waiting for the next" in said(told)
        assert told.todo[0].command == f'allswell answer {question} reply "your words"'
        assert told.next[0].what == "after the answer, “0” can be claimed"
        about = await asked(watch, question)
        assert "which waits for the answer" in said(about)
        await watch.answer(question, "reply", "left", by="eve")
        assert "by eve: reply, “left”." in said(await asked(watch, question))

    play(scene)


def test_a_wide_fan_in_is_summed_up_and_bounded() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        ids = await watch.submit_many([{"name": f"part {number}"} for number in range(LOOK_MOST * 2)])
        whole = await watch.submit("whole", needs=ids)
        told = await asked(watch, whole)
        assert f"is waiting for {LOOK_MOST * 2} tasks." in said(told)
        assert "not looked at" in said(told)
        assert any("more are before it" in one for one in told.beside)
        assert len(told.beside) <= 6

    play(scene)


def test_what_was_skipped_leads_to_what_failed() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        first = await watch.submit("first")
        second = await watch.submit("second", needs=[first])
        third = await watch.submit("third", needs=[second])
        lease = await watch.claim(agent="bob")
        assert lease is not None
        await lease.fail(Failure(ErrorClass.VALIDATION, "400"))
        await asyncio.sleep(1)
        told = await asked(watch, third)
        assert [(link.name, link.state) for link in told.chain] == [
            ("third", "skipped"),
            ("second", "skipped"),
            ("first", "failed"),
        ]
        assert told.next == ()

    play(scene)


def test_what_is_not_there_is_refused() -> None:
    async def scene(stage: Stage) -> None:
        for id_ in ("t_x", "q_x.1", "r_x", ""):
            with pytest.raises(Refused):
                await asked(stage.watch, id_)

    play(scene)


# --- any rows at all ------------------------------------------------------------------------------------------------

_NOW = Millis(1_000_000)


def _task(number: int, needs: Sequence[int], state: str = OPEN) -> TaskRow:
    id_ = TaskId(f"t_{number}")
    wanted = tuple(TaskId(f"t_{need}") for need in needs)
    ended = None if state == OPEN else _NOW
    task = Task(id_, f"n{number}", None, "", 1, 0, state, Millis(0), ended, Spec(needs=wanted), TaskHistory(), 0)
    waits = tuple(WaitState(id_, "need", need) for need in wanted) if state == OPEN else ()
    return TaskRow(task, None, not waits and state == OPEN, None, waits)


@DETERMINISTIC
@given(st.lists(st.lists(st.integers(0, 11), max_size=4, unique=True), min_size=1, max_size=10), st.data())
def test_every_graph_is_explained_even_one_that_goes_round(graph: list[list[int]], data: st.DataObject) -> None:
    states = data.draw(st.lists(st.sampled_from([OPEN, OPEN, OPEN, "done", "failed", "skipped"]), min_size=len(graph)))
    rows = [_task(number, needs, states[number]) for number, needs in enumerate(graph)]
    facts = TaskFacts(_NOW, rows[0].task.id, {row.task.id: row for row in rows})
    facts.awaited = {target for row in rows if row.task.state == OPEN for _, target in targets(row)}
    facts.missing = {f"t_{number}" for number in range(len(graph), 12)}
    told = explain(rows[0], facts)
    assert told.chain[0].id == "t_0"
    assert all(link.says for link in told.chain)
    if rows[0].task.state == OPEN:
        assert told.todo, "there is always something a person can do about what is open"
    to_json(told)


def test_a_circle_is_named() -> None:
    rows = [_task(0, [1]), _task(1, [2]), _task(2, [1])]
    facts = TaskFacts(_NOW, rows[0].task.id, {row.task.id: row for row in rows})
    told = explain(rows[0], facts)
    assert told.chain[-1].says == ("It waits in a circle, which does not end by itself: “n1” → “n2” → “n1”.",)


def test_a_task_that_stands_nowhere_is_said_to_be_our_fault() -> None:
    row = msgspec.structs.replace(_task(0, []), ready=False)
    told = explain(row, TaskFacts(_NOW, row.task.id, {row.task.id: row}))
    assert told.state == "nowhere"
    assert "please report it" in said(told)


_MOMENTS = st.lists(st.integers(0, 10_000), min_size=2, max_size=24)
_OUTCOMES = st.sampled_from(["done", "agent_timeout", "failed:network", "asked", "lease_lapsed", "parked", "released"])


@DETERMINISTIC
@given(_MOMENTS, st.lists(_OUTCOMES, min_size=12, max_size=12), _MOMENTS, _MOMENTS, st.booleans())
def test_every_millisecond_of_a_life_is_in_one_span(
    moments: list[int], outcomes: list[str], needs: list[int], asked_at: list[int], is_open: bool
) -> None:
    moments = sorted(moments)
    row = _task(0, [], OPEN if is_open else "done")
    created, end = moments[0], moments[-1]
    ended = None if is_open else Millis(end)
    task = msgspec.structs.replace(row.task, created_at=Millis(created), ended_at=ended)
    row = msgspec.structs.replace(row, task=task)
    facts = TaskFacts(Millis(end), task.id)
    for number, (low, high) in enumerate(zip(moments[1:-1:2], moments[2:-1:2], strict=False)):
        times = Millis(low), Millis(high)
        facts.attempts.append(
            Attempt(task.id, Token(number + 1), AgentId("bob"), *times, outcomes[number], CommandId("c"))
        )
    for number, moment in enumerate(needs[:3]):
        need = _task(number + 1, [], "done")
        facts.needed.append(
            msgspec.structs.replace(need, task=msgspec.structs.replace(need.task, ended_at=Millis(moment)))
        )
    for low, high in pairwise(sorted(asked_at)[:4]):
        times = Millis(low), Millis(high)
        asked_ = Question(
            QuestionId("q_0.1"), task.id, None, "agent", "?", (REPLY,), times[0], "bob", times[1], "reply"
        )
        facts.asked.append(asked_)
    spans = spent(row, facts)
    assert sum(span.end - span.start for span in spans) == end - created
    assert all(one.end == two.start for one, two in pairwise(spans))
    assert [span.token for span in spans if span.kind == "held"] == [one.token for one in facts.attempts]


def test_a_command_that_was_stopped_waits_for_a_human_to_resume_it_and_for_no_agent() -> None:
    async def scene(stage: Stage) -> None:
        task = await stage.watch.submit("nightly", role=RUN_ROLE)
        await asyncio.sleep(1)
        lease = await stage.watch.claim(agent="run-1", roles=[RUN_ROLE], task=task)
        assert lease is not None
        await asyncio.sleep(1)
        await lease.release()
        await asyncio.sleep(1)
        spans = [span.says for span in (await asked(stage.watch, task)).spent]
        assert (spans[0], spans[-1]) == ("until it was started", "until it is resumed")

    play(scene)


def test_what_somebody_said_with_a_full_stop_has_one() -> None:
    async def scene(stage: Stage) -> None:
        task = await stage.watch.submit("a")
        await stage.watch.cancel(task, "Nobody needs it any more.")
        assert "more.." not in said(await asked(stage.watch, task))
        assert "it any more." in said(await asked(stage.watch, task))

    play(scene)
