"""A fleet at work: real processes, a real store, and every way in which an agent can end."""

import asyncio
import subprocess
from pathlib import Path

import msgspec
import pytest

from allswell import Policy
from allswell.domain.agents.status import PRESENCE_PREFIX, AgentSlot, Presence
from allswell.domain.rules.event import Event
from allswell.domain.service.retry import RetryPolicy
from tests.runtime.supervisor.stage import STANDIN, Night, night, standin

QUICK = Policy(checkpoint_interval=1_000, checkpoint_timeout=300, recovery_grace=2_000, retry=RetryPolicy(backoff=50))


def test_work_is_done_and_the_slots_are_used_again(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        ids = [await night.watch.submit(f"n{number}", payload="claude:init,claude:result") for number in range(6)]
        for id_ in ids:
            assert (await night.ended(id_)).state == "done"
        agents = {event.agent for event in await night.told("task_claimed")}
        assert agents <= {"agent.1", "agent.2"}

    told = night(tmp_path, scene, standin(concurrency=2))
    assert not list((told.home.folder / "attempts").glob("*"))
    assert not list((told.home.folder / "briefs").glob("*"))


def test_a_task_is_only_for_its_role(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        build = await night.watch.submit("build", payload="claude", role="builder")
        other = await night.watch.submit("other", payload="claude", role="critic")
        assert (await night.ended(build)).state == "done"
        row = await night.watch.task(other)
        assert row is not None
        assert row.ready

    night(tmp_path, scene, standin(role="builder"))


def test_a_crash_is_tried_again_with_what_the_last_attempt_left(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts"
    command = (
        "sh",
        "-c",
        'printf "%s\\n---\\n" "$1" >> prompts; [ "$(grep -c -- --- prompts)" -ge 2 ]',
        "sh",
        "{prompt}",
    )

    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("write it", payload="all of it")
        assert (await night.ended(id_)).state == "done"

    night(tmp_path, scene, standin(command=command), policies={"": QUICK})
    first, second, _ = prompts.read_text().split("---")
    assert first.strip() == "write it\n\nall of it"
    assert "This is attempt 2. The last one, by agent, ended because it failed (transient)." in second
    assert "It said:\n> exit code 1" in second
    assert "allswell recover" in second


@pytest.mark.row("O4")
def test_at_its_limit_an_agent_is_ended_for_real_and_its_task_returns(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("slow", payload="write:work.txt,stubborn,hang", timeout="1s")
        timeout = await night.event("agent_timeout")
        assert timeout.task == id_
        assert timeout.data["elapsed_ms"] >= 1_000
        receipt = await night.event("receipt_written")
        assert (receipt.task, receipt.data["status"]) == (id_, "timeout")
        await night.until(lambda: _gone("standin.py"))
        assert "agent_timeout" in {event.data["reason"] for event in await night.told("task_returned")}
        await night.watch.cancel(id_)

    told = night(tmp_path, scene, standin(grace=300))
    (found, *_) = told.home.receipts.all()
    assert found.receipt.snapshot is not None
    assert any(change.path == "work.txt" for change in found.receipt.changed)


@pytest.mark.row("O4", "O8")
def test_the_next_attempt_begins_when_the_last_is_gone_and_is_watched_like_any_other(tmp_path: Path) -> None:
    policy = Policy(timeout=700, timeout_escalation=1)

    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("slow", payload="plain:here,stubborn,hang")
        asked = await night.event("question_asked")
        # Back in the pool at once, with a slot free: its first agent ignores SIGTERM, and is still being ended.
        await night.watch.answer(asked.data["question"], "increase_timeout", timeout="10m")
        first, second = await night.until(lambda: _exactly(night, "task_claimed", 2))
        assert first.agent != second.agent

        async def begun() -> bool:
            return (night.home.transcripts / f"{id_}.2.stdout").exists()

        assert await night.until(begun)
        (found,) = night.home.receipts.of_task(id_)
        assert not found.receipt.partial, "all is kept of the first, and nobody of it is left"
        await night.event("receipt_written")

    told = night(tmp_path, scene, standin(concurrency=2, grace=600), policies={"": policy}, stop=100)
    assert [line for line in told.lines if "was stopped at “slow”" in line], (
        "the second one was ended with its supervisor"
    )


@pytest.mark.row("O2", "O3", "O8")
def test_a_silent_agent_is_asked_found_stalled_ended_and_its_task_taken_back(tmp_path: Path) -> None:
    policy = Policy(checkpoint_interval=500, checkpoint_timeout=100, recovery_grace=5_000, stall_threshold=3)

    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("silent", payload="daemon,spin")
        stalled = await night.event("agent_stalled")
        assert (stalled.task, stalled.agent, stalled.data) == (id_, "agent", {"action": "marked_for_restart"})
        misses = [event.data["checkpoint_count"] for event in await night.told("checkpoint_timeout")]
        assert misses[:3] == [1, 2, 3]
        asked = await night.told("checkin_asked")
        assert len(asked) >= 3
        assert {event.data["heard_by"] for event in asked} == {"socket"}
        recovered = await night.event("stalled_agent_recovered")
        assert (recovered.task, recovered.agent) == (id_, "agent")
        stopped = await night.event("agent_stopped")
        assert "check-ins" in stopped.data["reason"]
        task = await night.task(id_)
        assert (task.record.stalls >= 1, task.record.timeouts) == (True, 0)
        await night.watch.cancel(id_)

    told = night(tmp_path, scene, standin(), policies={"": policy})
    assert told.home.receipts.all()[0].receipt.status == "stalled"
    assert any("agent did not answer when asked for a check-in on “silent” (1 of 3)" in line for line in told.lines)


@pytest.mark.row("O2")
@pytest.mark.parametrize(
    "hears, part, way",
    [
        ("socket", "obey:60", "socket"),
        ("stdin", "listen:60", "socket, stdin"),
        ("file", "read:60", "socket, file"),
    ],
)
def test_who_hears_and_answers_is_never_missed(tmp_path: Path, hears: str, part: str, way: str) -> None:
    policy = Policy(checkpoint_interval=1_500, checkpoint_timeout=1_000, stall_threshold=1)

    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("works", payload=part)

        async def heard_twice() -> bool:
            return len(await night.told("task_checked_in")) >= 2

        await night.until(heard_twice)
        assert {event.data["heard_by"] for event in await night.told("checkin_asked")} == {way}
        assert await night.told("checkpoint_timeout") == []
        (row,) = await night.watch.tasks()
        assert row.lease is not None
        assert row.lease.progress in (0.3, 0.4)
        await night.watch.cancel(id_)

    agent = standin(hears=hears, command=(*STANDIN, "{orders_file}"))
    night(tmp_path, scene, agent, policies={"": policy})


@pytest.mark.row("O2")
def test_a_checkpoint_in_the_output_is_an_answer(tmp_path: Path) -> None:
    text = "CHECKPOINT: it|Progress: 60%|Current Activity: tests|Blockers: none|Estimated Remaining: 2 min"

    async def scene(night: Night) -> None:
        for part in (f"plain:{text},plain:more,hang", f"claude:init,claude:text:{text},hang"):
            id_ = await night.watch.submit("works", payload=part)

            async def progress(id_: str = id_) -> bool:
                row = await night.watch.task(id_)
                return row is not None and row.lease is not None and row.lease.progress == 0.6

            await night.until(progress)
            await night.watch.cancel(id_)

    night(tmp_path, scene, standin())


@pytest.mark.parametrize(
    "part",
    [
        "claude:init,claude:limit:3,hang",
        "codex:limit:3",
        "plain:x,plain:You've hit your usage limit. Try again in 3 seconds.,crash:1",
    ],
)
def test_a_usage_limit_parks_the_account_and_costs_no_attempt(tmp_path: Path, part: str) -> None:
    async def scene(night: Night) -> None:
        first = await night.watch.submit("first", payload=part, retries=0)
        limit = await night.event("usage_limit")
        assert limit.data["account"] == "acme"
        second = await night.watch.submit("second", payload="claude")
        (service,) = await night.watch.services()
        assert service.id == "acme"
        assert service.state.parked_until is not None
        await asyncio.sleep(1.0)
        assert {post.account for post in await _posts(night)} <= {"acme", ""}
        assert not (await night.watch.task(second)).lease  # type: ignore[union-attr]
        assert (await night.task(first)).record.failures == {}
        await night.watch.cancel(first)
        assert (await night.ended(second)).state == "done", "it goes on by itself"

    night(tmp_path, scene, standin("one", account="acme"), standin("two", account="acme"))


def test_with_limits_off_it_is_an_error_like_any_other(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("first", payload="codex:limit:300", retries=0)
        await night.until(night.watch.questions)  # a rate limit whose retries are used up is asked about (F4)
        assert (await night.task(id_)).record.failures == {"rate_limit": 1}
        assert await night.watch.services() == [], "no account is parked"

    night(tmp_path, scene, standin(), park_limits=False)


@pytest.mark.parametrize(
    "part, state",
    [("ask:which one?:hold,hang", "waiting for a human"), ("request:expert,hang", "waiting for an agent")],
)
def test_who_waits_is_told_from_who_is_silent(tmp_path: Path, part: str, state: str) -> None:
    policy = Policy(checkpoint_interval=1_500, checkpoint_timeout=500, stall_threshold=1)

    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("waits", payload=part)

        async def seen() -> bool:
            return state in [event.data["state"] for event in await night.told("agent_state")]

        await night.until(seen)
        await asyncio.sleep(3.5)
        assert await night.told("checkpoint_timeout") == [], "it has asked, and cannot do more than wait"
        await night.watch.cancel(id_)

    night(tmp_path, scene, standin(role=""), policies={"": policy})


def test_who_becomes_quiet_is_nudged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from allswell.domain.agents import status

    monkeypatch.setattr(status, "SPAWNING", 500)

    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("quiet", payload="spin")
        nudged = await night.event("agent_nudged")
        assert (nudged.task, nudged.data["heard_by"]) == (id_, "socket")
        assert "no sign of progress in" in nudged.data["evidence"]
        states = [event.data["state"] for event in await night.told("agent_state")]
        assert states[-1] == "quiet"
        await asyncio.sleep(1.5)
        assert len(await night.told("agent_nudged")) == 1, "and neither ended nor nudged again"
        row = await night.watch.task(id_)
        assert row is not None
        assert row.lease is not None
        await night.watch.cancel(id_)

    night(tmp_path, scene, standin())


def test_on_postgresql(tmp_path: Path, pg_url: str) -> None:
    async def scene(night: Night) -> None:
        ids = [await night.watch.submit(f"n{number}", payload="claude:init,checkin,claude") for number in range(4)]
        for id_ in ids:
            assert (await night.ended(id_)).state == "done"
        await night.watch.submit("slow", payload="hang", timeout="1s")
        await night.event("agent_timeout")

    night(tmp_path, scene, standin(concurrency=2), url=pg_url, stop=500)


def test_a_cancelled_task_ends_its_agent(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("unwanted", payload="hang")
        await night.event("task_claimed")
        await night.watch.cancel(id_)
        await night.until(lambda: _gone("standin.py"))
        again = await night.watch.submit("next", payload="claude")
        assert (await night.ended(again)).state == "done"

    night(tmp_path, scene, standin())


def test_stopping_lets_agents_finish_and_gives_the_others_back(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        quick = await night.watch.submit("quick", payload="sleep:0.5,claude")
        slow = await night.watch.submit("slow", payload="hang")

        supervisor = night.supervisor
        assert supervisor is not None

        async def both() -> bool:
            # That both are claimed is told a moment before the supervisor hears of it; it would give them back then.
            return len(supervisor._attended) == 2

        await night.until(both)
        supervisor.stop()
        assert (await night.ended(quick)).state == "done"
        await night.event("supervisor_stopped")
        row = await night.watch.task(slow)
        assert row is not None
        assert row.ready
        (returned,) = await night.told("task_returned")
        assert returned.data["reason"] == "supervisor_stopped"
        assert await night.watch.attempts(slow)

    night(tmp_path, scene, standin(concurrency=2), stop=1_500)


def test_a_second_order_is_immediate(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        await night.watch.submit("slow", payload="stubborn,hang")
        await night.event("task_claimed")
        began = asyncio.get_running_loop().time()
        assert night.supervisor is not None
        night.supervisor.stop()
        night.supervisor.stop()
        await night.event("supervisor_stopped")
        assert asyncio.get_running_loop().time() - began < 15

    night(tmp_path, scene, standin(grace=60_000), stop=600_000)


def test_a_worktree_for_each_task(tmp_path: Path) -> None:
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@example.com", *words], cwd=tmp_path, check=True)

    async def scene(night: Night) -> None:
        good = await night.watch.submit("good", payload="write:new.txt,claude")
        assert (await night.ended(good)).state == "done"
        bad = await night.watch.submit("bad", payload="write:half.txt,crash:3", retries=0)
        assert (await night.ended(bad)).state == "failed"
        await night.event("receipt_written")
        assert (night.home.worktrees / bad / "half.txt").exists(), "kept: nobody has looked at it yet"
        assert not (tmp_path / "half.txt").exists()

        async def put_away() -> bool:
            return not (night.home.worktrees / good).exists()

        await night.until(put_away)
        names.append(good)

    names: list[str] = []
    night(tmp_path, scene, standin(worktree=True))
    show = ["git", "show", f"allswell/good-{names[0][-4:]}:new.txt"]
    assert subprocess.run(show, cwd=tmp_path, capture_output=True, check=True).stdout == b"half of it"


def test_drain_stops_when_nothing_is_left(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        tasks = [{"name": f"n{number}", "payload": "claude"} for number in range(3)]
        # One of them is somebody's own command: not for a fleet, whatever roles it takes.
        await night.watch.submit_many([*tasks, {"name": "run", "role": "run"}])
        await night.event("supervisor_stopped")
        assert (await night.watch.counts()) == {"done": 3, "ready": 1}

    night(tmp_path, scene, standin(), drain=True)


async def _posts(night: Night) -> tuple[AgentSlot, ...]:
    (kept,) = (await night.watch._engine.store.view_kept(PRESENCE_PREFIX)).values()
    return msgspec.json.decode(kept, type=Presence).posts


async def _exactly(night: Night, kind: str, count: int) -> list[Event]:
    found = await night.told(kind)
    return found if len(found) == count else []


async def _gone(name: str) -> bool:
    return _no_process_runs(name)


def _no_process_runs(name: str) -> bool:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if name.encode() in words and STANDIN[3].encode() in words:
                return False
    return True
