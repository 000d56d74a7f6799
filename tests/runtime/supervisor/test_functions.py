"""Functions as agents: async ones in the supervisor's loop, sync ones in a process of their own; the same rules."""

import asyncio
import importlib
import os
from pathlib import Path

import pytest

from allswell import Policy
from allswell.domain.ids import TaskId
from allswell.domain.mesh.request import InboxItem
from allswell.domain.receipts.receipt import End, receipt_id
from allswell.domain.service.retry import IN_WORDS, ErrorClass, RetryPolicy
from allswell.runtime.agents import FunctionRun
from allswell.runtime.attempt.launch import brief_for
from allswell.timing.clock import SystemClock
from allswell.timing.scopes import abandoned
from tests import patience
from tests.runtime.attempt.stage import stage
from tests.runtime.process.stage import tagged
from tests.runtime.supervisor.stage import Night, night, standin

CREW = """
import asyncio, os, subprocess, time

async def gentle(work):
    await work.checkin("begun", progress=0.1)
    return {"pid": os.getpid(), "payload": work.payload, "attempt": work.attempt}

async def breaks(work):
    raise ConnectionResetError("the line went dead")

async def hangs(work):
    await asyncio.sleep(3600)

told = asyncio.Event()

async def deaf(work):
    for _ in range(3):  # for ever, as far as its supervisor is concerned
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            told.set()
    await asyncio.sleep(3600)

async def answers(work):
    heard = asyncio.Event()
    work.on_asked(lambda words: heard.set())
    for _ in range(2):
        await heard.wait()
        heard.clear()
        await work.checkin("as you asked")
    return "fine"

async def unsure(work):
    await work.ask("which one?")

def plain(work):
    work.checkin("begun", progress=0.2)
    assert work.remaining > 0
    return {"pid": os.getpid(), "payload": work.payload, "handover": work.handover}

def plain_breaks(work):
    raise TypeError("no such page")

def plain_hangs(work):
    time.sleep(3600)

async def leaves(work):
    async def start(*words):
        return await asyncio.create_subprocess_exec(*words)
    await start("sleep", "600")
    await asyncio.to_thread(subprocess.run, ["sh", "-c", "setsid sleep 600 &"])
    if work.payload == "hang":
        await asyncio.get_running_loop().run_in_executor(None, os.system, "sleep 600")

async def quits(work):
    raise SystemExit(0)

def plain_quits(work):
    raise SystemExit(0)

def plain_nan(work):
    return [float("nan")]

async def asks(work):
    got = await work.request("oracle", "handoff", "which one?", payload=[1], timeout="20s", retries=0)
    return [got.state, got.answer, got.blocked]

def plain_asks(work):
    got = work.request("oracle", "handoff", "which one?", payload=[1], timeout="20s", retries=0)
    return [got.state, got.answer, got.blocked]

async def asks_in_vain(work):
    got = await work.request("silent", "handoff", "which one?", timeout="300ms", retries=0)
    return [got.state, got.answer, got.blocked]

def plain_asks_in_vain(work):
    got = work.request("silent", "handoff", "which one?", timeout="300ms", retries=0)
    return [got.state, got.answer, got.blocked]

async def declines(work):
    await work.decline(work.task, "not mine")

def plain_declines(work):
    work.decline(work.task, "not mine")

async def is_overtaken(work):
    if work.attempt == 1:
        await take_away(work.task)

async def cancels_itself(work):
    waiting = asyncio.get_running_loop().create_future()
    waiting.cancel()
    await waiting
"""
QUICK = Policy(retry=RetryPolicy(backoff=50, retries=1))


@pytest.fixture(autouse=True)
def crew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    (tmp_path / "nightcrew.py").write_text(CREW)
    monkeypatch.delitem(sys.modules, "nightcrew", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])


def test_an_async_function_works_in_our_loop_and_a_sync_one_in_its_own_process(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        one = await night.watch.submit("one", role="async", payload={"n": 1})
        two = await night.watch.submit("two", role="sync", payload={"n": 2})
        assert (await night.ended(one)).state == (await night.ended(two)).state == "done"
        first, second = await night.watch.result(one), await night.watch.result(two)
        assert first == {"pid": os.getpid(), "payload": {"n": 1}, "attempt": 1}
        assert second["payload"] == {"n": 2}
        assert second["pid"] != os.getpid()
        assert len(await night.told("task_checked_in")) == 2

    agents = [
        standin("gentle", command=(), function="nightcrew:gentle", role="async"),
        standin("plain", command=(), function="nightcrew:plain", role="sync"),
    ]
    night(tmp_path, scene, *agents)


def test_a_function_whose_caller_is_cancelled_is_ended_with_a_receipt_as_a_command_is(tmp_path: Path) -> None:
    """Its end is one like any other: what it was at is known afterwards, and only then the cancel is passed on."""

    async def main() -> None:
        async with stage(tmp_path) as here:
            lease, begun = await here.lease(), asyncio.Event()
            spec = standin("hangs", command=(), function="nightcrew:hangs", cwd=str(tmp_path))
            brief = brief_for(spec, lease, here.home, str(tmp_path))
            attempt = FunctionRun(spec, brief, lease, here.home, begun.set, SystemClock())
            running = asyncio.ensure_future(attempt.run())
            await begun.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert attempt.outcome is not None
            assert (attempt.outcome.end, attempt.outcome.reason) == (End.INTERRUPTED, "its caller was cancelled")
            assert attempt.outcome.receipt_path is not None
            assert attempt.outcome.receipt_path.exists()

    asyncio.run(main())


def test_a_second_order_gives_a_function_that_will_not_stop_no_more_grace(tmp_path: Path) -> None:
    """As it does for a command: whoever presses Ctrl-C twice does not wait until it has ended."""

    async def main() -> None:
        async with stage(tmp_path) as here:
            lease, begun = await here.lease(), asyncio.Event()
            spec = standin("deaf", command=(), function="nightcrew:deaf", cwd=str(tmp_path), grace=3_600_000)
            brief = brief_for(spec, lease, here.home, str(tmp_path))
            attempt = FunctionRun(spec, brief, lease, here.home, begun.set, SystemClock())
            running = asyncio.ensure_future(attempt.run())
            await begun.wait()
            attempt.stop("its supervisor was told to stop")
            async with asyncio.timeout(patience.SECONDS):
                await importlib.import_module("nightcrew").told.wait()
            attempt.stop("its supervisor was told to stop at once", grace=0)
            async with asyncio.timeout(patience.SECONDS):
                outcome = await running
            assert (outcome.end, outcome.reason) == (End.INTERRUPTED, "its supervisor was told to stop")
            assert [scope.name for scope in abandoned()] == ["nightcrew:deaf"]

    asyncio.run(main())


def test_what_is_done_after_the_store_has_taken_the_task_away_leaves_a_receipt(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        async def take_away(task: TaskId) -> None:
            row = await night.watch.task(task)
            assert row is not None
            assert row.lease is not None
            await night.watch.held(task, row.lease.token, row.lease.agent).release("taken from it")

        setattr(importlib.import_module("nightcrew"), "take_away", take_away)  # noqa: B010 - of a module of the test's
        id_ = TaskId(await night.watch.submit("mend"))
        assert (await night.ended(id_)).state == "done"
        kept = night.home.receipts.find(receipt_id(id_, 1))
        assert kept is not None
        assert kept.receipt.status is End.LEASE_LOST

    night(tmp_path, scene, standin("overtaken", command=(), function="nightcrew:is_overtaken"))


@pytest.mark.parametrize(
    "name, error",
    [
        ("breaks", "network"),
        ("plain_breaks", "bug"),
        ("quits", "bug"),
        ("plain_quits", "bug"),
        ("cancels_itself", "transient"),
        ("plain_nan", "validation"),
    ],
)
def test_what_it_raises_is_its_failure(tmp_path: Path, name: str, error: str) -> None:
    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("bad")
        task = await night.ended(id_)
        assert task.state == "failed"
        assert IN_WORDS[ErrorClass(error)] in task.record.reason
        assert set(task.record.failures) == {error}

    night(tmp_path, scene, standin("agent", command=(), function=f"nightcrew:{name}"), policies={"": QUICK})


@pytest.mark.row("O4")
@pytest.mark.parametrize("name", ["hangs", "deaf", "plain_hangs"])
def test_at_its_limit_it_is_over_and_leaves_a_receipt(tmp_path: Path, name: str) -> None:
    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("slow", timeout="700ms")
        timeout = await night.event("agent_timeout")
        assert timeout.task == id_
        receipt = await night.event("receipt_written")
        assert receipt.data["status"] == "timeout"
        found = night.home.receipts.find(receipt.data["receipt"])
        assert found is not None
        kept = found.receipt
        assert kept.limit_ms == 700
        assert "its limit of 700ms was reached" in kept.reason, "and not what was left of it when the function began"
        await night.watch.cancel(id_)

    night(tmp_path, scene, standin("agent", command=(), function=f"nightcrew:{name}", grace=300))


@pytest.mark.row("O2")
def test_it_is_asked_by_its_callback(tmp_path: Path) -> None:
    policy = Policy(checkpoint_interval=600, checkpoint_timeout=400, stall_threshold=1)

    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("works")
        assert (await night.ended(id_)).state == "done"
        assert {event.data["heard_by"] for event in await night.told("checkin_asked")} == {"callback"}
        assert await night.told("checkpoint_timeout") == []

    night(tmp_path, scene, standin("agent", command=(), function="nightcrew:answers"), policies={"": policy})


@pytest.mark.row("O9")
def test_it_can_ask_a_human_and_another_attempt_gets_the_answer(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("unsure")
        (question,) = await night.until(night.watch.questions)
        assert question.text == "which one?"
        row = await night.watch.task(id_)
        assert row is not None
        assert row.lease is None
        await night.watch.answer(question.id, "skip")
        assert (await night.ended(id_)).state == "skipped"

    night(tmp_path, scene, standin("agent", command=(), function="nightcrew:unsure"))


@pytest.mark.row("O8")
@pytest.mark.parametrize("payload", ["", "hang"])
def test_what_a_function_started_ends_with_its_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, payload: str
) -> None:
    """A child of its own, one in a session of its own whose parent is gone, and one that a thread waits for."""
    tag = os.urandom(8).hex()
    monkeypatch.setenv("TAG", tag)

    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("leave", payload=payload, timeout="1s")
        if payload:
            await night.event("receipt_written")
            await night.watch.cancel(id_)
        assert (await night.ended(id_)).state == ("cancelled" if payload else "done")
        async with asyncio.timeout(patience.SECONDS):
            while tagged(tag):
                await asyncio.sleep(0.02)

    night(tmp_path, scene, standin("agent", command=(), function="nightcrew:leaves", grace=300))


@pytest.mark.realtime
@pytest.mark.row("M2", "M8")
def test_waiting_for_an_answer_is_neither_idle_nor_silence(tmp_path: Path) -> None:
    """Its limit of idleness is shorter than the answer takes, and than the interval of check-ins."""
    policy = Policy(idle=2_000, checkpoint_interval=60_000, timeout_escalation=1)

    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("asks", payload={"n": 1})
        (asked,) = await night.until(lambda: night.watch.inbox("oracle"))
        assert asked.payload == [1]
        loop = asyncio.get_running_loop()
        until = loop.time() + 3  # longer than it may be idle
        while loop.time() < until:
            assert await night.told("agent_idle", "task_returned") == []
            await asyncio.sleep(0.1)
        await night.watch.respond(asked.request_id, "this", agent="oracle")
        assert (await night.ended(id_)).state == "done"
        assert await night.watch.result(id_) == ["done", "this", False]

    night(tmp_path, scene, standin("agent", command=(), function="nightcrew:asks", idle=2_000), policies={"": policy})


@pytest.mark.row("M2", "M8")
def test_a_process_that_waits_for_an_answer_is_checked_in_for(tmp_path: Path) -> None:
    """It says nothing itself; what keeps it from being idle is told to the store, as what its protocol shows is."""

    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("asks")
        (asked,) = await night.until(lambda: night.watch.inbox("oracle"))

        async def waits() -> bool:
            row = await night.watch.task(id_)
            assert row is not None
            assert row.lease is not None
            return row.lease.checkin_at is not None

        await night.until(waits)
        await night.watch.respond(asked.request_id, "this", agent="oracle")
        assert (await night.ended(id_)).state == "done"
        assert await night.watch.result(id_) == ["done", "this", False]

    policy = Policy(checkpoint_timeout=400)
    night(tmp_path, scene, standin("agent", command=(), function="nightcrew:plain_asks"), policies={"": policy})


@pytest.mark.row("M2")
def test_a_sync_function_is_told_what_came_of_its_request_as_an_async_one_is(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        tasks = [await night.watch.submit("asks", role=role) for role in ("async", "sync")]
        both = await night.until(lambda: two_of(night))
        for asked in both:
            await night.watch.cancel(asked.request_id)
        assert [(await night.ended(task)).state for task in tasks] == ["done", "done"]
        assert [await night.watch.result(task) for task in tasks] == [["cancelled", None, False]] * 2

    async def two_of(night: Night) -> list[InboxItem]:
        items = await night.watch.inbox("oracle")
        return items if len(items) == 2 else []

    agents = [
        standin("one", command=(), function="nightcrew:asks", role="async"),
        standin("two", command=(), function="nightcrew:plain_asks", role="sync"),
    ]
    night(tmp_path, scene, *agents)


@pytest.mark.row("M2")
@pytest.mark.parametrize("function", ["asks_in_vain", "plain_asks_in_vain", "unsure"])
def test_a_function_whose_task_is_blocked_is_not_said_to_have_done_it(tmp_path: Path, function: str) -> None:
    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("asks")

        async def told() -> list[str]:
            return [line for line in night.lines if "“asks”" in line and " takes " not in line]

        lines = await night.until(told)
        assert not any("has done" in line for line in lines), lines
        row = await night.watch.task(id_)
        assert row is not None
        assert row.task.state == "open"
        if function != "unsure":
            assert [wait.kind for wait in row.waits] == ["request"]
            assert lines[0].partition(": ")[2].startswith("blocked: no answer to m_"), lines

    night(tmp_path, scene, standin("agent", command=(), function=f"nightcrew:{function}"))


@pytest.mark.row("M2")
@pytest.mark.parametrize("function", ["declines", "plain_declines"])
def test_a_function_that_was_started_for_a_request_declines_it(tmp_path: Path, function: str) -> None:
    async def scene(night: Night) -> None:
        await night.watch.submit("asks", role="other")
        lease = await night.watch.claim(agent="ann", roles=["other"])
        assert lease is not None
        ended = await lease.request("agent", "handoff", "which one?", timeout="1m", retries=0)
        assert (ended.state, ended.reason.endswith("agent declined it: not mine")) == ("failed", True)
        told = await night.until(lambda: declined(night))
        assert [line.partition(": ")[0] for line in told] == ["agent gave “which one?” back"]
        await lease.complete()

    async def declined(night: Night) -> list[str]:
        return [line for line in night.lines if "“which one?”" in line and " takes " not in line]

    night(tmp_path, scene, standin("agent", command=(), function=f"nightcrew:{function}"))
