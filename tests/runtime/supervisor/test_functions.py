"""Functions as agents: async ones in the supervisor's loop, sync ones in a process of their own; the same rules."""

from pathlib import Path

import pytest

from allswell import Policy
from allswell.domain.retry import IN_WORDS, ErrorClass, RetryPolicy
from tests.runtime.supervisor.stage import Night, night, standin

CREW = """
import asyncio, os, time

async def gentle(work):
    await work.checkin("begun", progress=0.1)
    return {"pid": os.getpid(), "payload": work.payload, "attempt": work.attempt}

async def breaks(work):
    raise ConnectionResetError("the line went dead")

async def hangs(work):
    await asyncio.sleep(3600)

async def deaf(work):
    for _ in range(3):  # for ever, as far as its supervisor is concerned
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass
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

async def quits(work):
    raise SystemExit(0)

def plain_quits(work):
    raise SystemExit(0)

def plain_nan(work):
    return [float("nan")]

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
    import os

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
