"""Thresholds at work (O6): check-ins are collected, compaction is called, dispatch pauses and goes on by itself."""

import asyncio
import json
import sys
import time
from pathlib import Path

import msgspec
import pytest

from allswell import Policy
from allswell.domain.agents.fleet import CompactionSpec, UsageSpec
from allswell.domain.agents.usage import Thresholds, Usage, UsageLevel
from allswell.domain.ids import Millis
from allswell.runtime.supervisor import Supervisor
from allswell.runtime.supervisor.usage import UsageMonitor
from allswell.testing.loop import run
from tests import patience
from tests.runtime.supervisor.stage import Night, night, standin

SOURCE = "import sys; sys.stdout.write(open('usage.json').read())"


def usage(folder: Path, **said: float) -> None:
    made = folder / "usage.json.new"
    made.write_text(json.dumps(said))
    made.rename(folder / "usage.json")


def source(folder: Path) -> UsageSpec:
    script = SOURCE.replace("usage.json", str(folder / "usage.json"))
    return UsageSpec(command=(sys.executable, "-I", "-S", "-c", script), every=200)


@pytest.mark.row("O6")
def test_at_the_context_threshold_check_ins_are_collected_and_compaction_is_called_with_them(tmp_path: Path) -> None:
    usage(tmp_path, context_remaining=50)
    kept = tmp_path / "compacted.json"
    hook = f"import sys; open({str(kept)!r}, 'w').write(sys.stdin.read())"
    compaction = CompactionSpec(command=(sys.executable, "-I", "-S", "-c", hook))

    async def scene(night: Night) -> None:
        answers = await night.watch.submit("answers", payload="obey:60", role="a")
        silent = await night.watch.submit("silent", payload="hang", role="b")

        async def both() -> bool:
            return len(await night.told("task_claimed")) == 2

        await night.until(both)
        usage(tmp_path, context_remaining=10)
        collected = await night.event("checkpoints_collected")
        assert collected.data["answered"] == ["one"]
        assert collected.data["silent"] == ["two"], "it goes on without the silent ones"
        done = await night.event("context_compacted")
        assert done.data["outcome"] == "done"
        await asyncio.sleep(1.0)
        assert len(await night.told("context_compacted")) == 1, "once, until there is room again"
        for id_ in (answers, silent):
            await night.watch.cancel(id_)

    policies = {"": Policy(checkpoint_interval=60_000, checkpoint_timeout=1_000)}
    agents = [standin("one", role="a"), standin("two", role="b")]
    night(tmp_path, scene, *agents, policies=policies, usage=source(tmp_path), compaction=compaction)
    (found,) = json.loads(kept.read_text())["checkpoints"]
    assert (found["agent_id"], found["name"], found["checkpoint"]) == ("one", "answers", "as you asked")


@pytest.mark.row("O6")
def test_at_the_session_threshold_nothing_new_is_dispatched_until_the_reset_and_a_restart_changes_nothing(
    tmp_path: Path,
) -> None:
    usage(tmp_path, session_remaining=80)
    limits = Thresholds(margin=500)

    async def scene(night: Night) -> None:
        first = await night.watch.submit("first", payload="claude")
        assert (await night.ended(first)).state == "done"
        usage(tmp_path, session_remaining=9.5, resets_at=time.time() + 4)
        paused = await night.event("session_paused")
        assert paused.data["remaining"] == 9.5
        second = await night.watch.submit("second", payload="claude")
        assert night.supervisor is not None
        night.supervisor.stop()
        await night.event("supervisor_stopped")

        usage(tmp_path, session_remaining=9.5, resets_at=time.time() + 3)
        again = Supervisor(night.watch, night.plan(standin(), usage=source(tmp_path), thresholds=limits))
        running = asyncio.ensure_future(again.run())
        await asyncio.sleep(1.5)
        row = await night.watch.task(second)
        assert row is not None
        assert row.ready, "still paused"
        usage(tmp_path, session_remaining=100)
        assert (await night.ended(second)).state == "done"
        assert len(await night.told("session_paused")) == 1
        assert len(await night.told("session_resumed")) == 1
        again.stop()
        await running

    night(tmp_path, scene, standin(), usage=source(tmp_path), thresholds=limits)


@pytest.mark.row("O6")
def test_what_agents_say_of_themselves_is_a_source_too(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        await night.watch.submit("warned", payload="claude:init,claude:used:0.93,claude:result")
        paused = await night.event("session_paused")
        assert round(paused.data["remaining"]) == 7

    night(tmp_path, scene, standin())


def hangs() -> object:
    """A usage source that never comes back."""
    time.sleep(3_600)
    return {}


def test_a_function_that_hangs_is_given_up_each_time(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        await asyncio.sleep(2.0)
        id_ = await night.watch.submit("works on", payload="claude")
        assert (await night.ended(id_)).state == "done"
        assert sum("did not answer within 100ms" in line for line in night.lines) == 1

    night(tmp_path, scene, standin(), usage=UsageSpec(function=f"{__name__}:hangs", every=100, timeout=100))


@pytest.mark.parametrize(
    "script, says",
    [
        ("import time; time.sleep(60)", "did not answer within 1s"),
        ("raise SystemExit(3)", "ended with 3"),
        ("print('soon')", "printed no JSON"),
        ("print('{\"context_remaining\": 500}')", "from 0 to 100"),
    ],
)
def test_a_source_that_fails_or_hangs_is_bounded_and_told_of_once(tmp_path: Path, script: str, says: str) -> None:
    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("works on", payload="sleep:1,claude")
        assert (await night.ended(id_)).state == "done"

        async def complained() -> bool:
            return any(says in line for line in night.lines)

        await night.until(complained)
        before = asked.stat().st_size if asked.exists() else 0

        async def asked_again() -> bool:
            return asked.exists() and asked.stat().st_size > before + 1

        await night.until(asked_again)
        assert sum(says in line for line in night.lines) == 1

    asked = tmp_path / "asked"
    noted = f"open({str(asked)!r}, 'a').write('.')\n{script}"
    timeout = 1_000 if "sleep" in script else round(patience.SECONDS * 1_000)  # a Python may take long to start
    spec = UsageSpec(command=(sys.executable, "-I", "-S", "-c", noted), every=100, timeout=timeout)
    night(tmp_path, scene, standin(), usage=spec)


@pytest.mark.row("O6")
def test_of_several_contexts_the_smallest_counts_while_its_agent_is_at_work() -> None:
    async def main() -> None:
        acts: list[tuple[str, float | None]] = []

        async def now() -> Millis:
            return Millis(0)

        async def act(what: str, usage: Usage) -> None:
            acts.append((what, usage.context))

        level, thresholds = UsageLevel(), Thresholds()
        gauge = UsageMonitor(UsageSpec(), CompactionSpec(), thresholds, level=level, now=now, act=act, tell=acts.append)  # type: ignore[arg-type]
        working = asyncio.ensure_future(gauge.work())
        for agent, left in (("one", 50.0), ("two", 9.0), ("one", 45.0), ("two", 8.0), ("one", 40.0)):
            gauge.report(agent, Usage(left))
            await asyncio.sleep(0.1)
        assert acts == [("compact", 9.0)], "once; that another one has room says nothing"
        gauge.report("two", None)
        await asyncio.sleep(0.1)
        assert not gauge.level.low_context, "its context has ended with it"
        gauge.report("two", Usage(7.0))
        await asyncio.sleep(0.1)
        assert acts[1:] == [("compact", 7.0)], "and the next one is another"
        gauge.report("three", None)
        working.cancel()
        await asyncio.wait([working])

    run(main(), seed=1)


@pytest.mark.row("O6")
def test_nothing_is_dispatched_while_check_ins_are_collected(tmp_path: Path) -> None:
    usage(tmp_path, context_remaining=50)

    async def scene(night: Night) -> None:
        silent = await night.watch.submit("silent", payload="hang", role="a")
        await night.event("task_claimed")
        usage(tmp_path, context_remaining=10)
        await night.event("checkin_asked")
        late = await night.watch.submit("late", payload="sleep", role="b")
        await night.ended(late)
        kinds = [event.kind for event in await night.told("task_claimed", "checkpoints_collected")]
        assert kinds == ["task_claimed", "checkpoints_collected", "task_claimed"]
        await night.watch.cancel(silent)

    policies = {"": Policy(checkpoint_interval=60_000, checkpoint_timeout=1_000)}
    agents = [standin("one", role="a"), standin("two", role="b")]
    night(tmp_path, scene, *agents, policies=policies, usage=source(tmp_path))


@pytest.mark.row("O6")
def test_a_session_that_runs_out_pauses_the_agents_of_its_account_alone(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        warned = await night.watch.submit("warned", payload="claude:init,claude:used:0.93,obey:60", role="a")
        paused = await night.event("session_paused")
        assert (round(paused.data["remaining"]), paused.data["account"]) == (7, "ada")
        assert paused.data["until"] > await night.watch.now() + 3_600_000, "the reset, and five minutes more"
        (collected,) = await night.told("checkpoints_collected")
        assert (collected.data["answered"], collected.data["silent"]) == (["one"], [])
        await night.watch.cancel(warned)
        waits = await night.watch.submit("waits", payload="sleep", role="a")
        other = await night.watch.submit("other", payload="sleep", role="b")
        assert (await night.ended(other)).state == "done"
        assert (await night.task(waits)).ended_at is None
        assert {event.agent for event in await night.told("task_claimed")} == {"one", "two"}
        (parked,) = await night.watch.services()
        assert parked.id == "ada"
        assert abs((parked.state.parked_until or 0) - paused.data["until"]) < 5_000
        await night.watch.cancel(waits)

    agents = [standin("one", role="a", account="ada"), standin("two", role="b", account="grace")]
    night(tmp_path, scene, *agents, policies={"": Policy(checkpoint_interval=60_000, checkpoint_timeout=5_000)})


@pytest.mark.row("O6")
def test_a_source_that_names_no_account_pauses_the_only_one_and_goes_on_with_what_it_says_later(tmp_path: Path) -> None:
    usage(tmp_path, session_remaining=5)

    async def scene(night: Night) -> None:
        paused = await night.event("session_paused")
        assert (paused.data["account"], paused.data["remaining"]) == ("ada", 5)

        async def parked_for(least: float) -> bool:
            (row,) = await night.watch.services()
            return (row.state.parked_until or 0) - await night.watch.now() > least * 1_000

        assert await parked_for(600)
        waits = await night.watch.submit("waits", payload="sleep")
        usage(tmp_path, session_remaining=60)
        resumed = await night.event("session_resumed")
        assert resumed.data["account"] == "ada"
        assert (await night.ended(waits)).state == "done", "nobody had said when it is reset: room is enough"
        usage(tmp_path, session_remaining=5)

        async def again() -> bool:
            return len(await night.told("session_paused")) == 2

        await night.until(again)
        usage(tmp_path, session_remaining=5, resets_at=time.time() + 7_200)
        await night.until(lambda: parked_for(7_200))

    agents = [standin("one", account="ada"), standin("two", account="ada")]
    night(tmp_path, scene, *agents, usage=source(tmp_path))


@pytest.mark.row("O6")
@pytest.mark.parametrize("named", [False, True])
def test_a_source_for_several_accounts_pauses_the_one_that_the_settings_name_or_all_and_says_so(
    tmp_path: Path, named: bool
) -> None:
    usage(tmp_path, session_remaining=5)

    async def scene(night: Night) -> None:
        paused = await night.event("session_paused")
        assert paused.data["account"] == ("ada" if named else "")
        other = await night.watch.submit("other", payload="sleep", role="b")
        if named:
            assert (await night.ended(other)).state == "done", "agents of other accounts go on"
        assert any("[usage] account" in line for line in night.lines) is not named

    agents = [standin("one", role="a", account="ada"), standin("two", role="b", account="grace")]
    spec = msgspec.structs.replace(source(tmp_path), account="ada" if named else "")
    night(tmp_path, scene, *agents, usage=spec)
