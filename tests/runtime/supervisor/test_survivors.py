"""Agents that turn against those who are to end them: "ended" is said with proof, and who still runs keeps its slot.

No process can be made that the kernel does not let us kill, so where one is wanted, this process sends no signals: the
agent has stopped its reaper and the warden, and nobody continues them.
"""

from __future__ import annotations

import os
import signal
from functools import partialmethod
from pathlib import Path

import pytest

from allswell import Policy
from allswell.domain.agents.fleet import AgentSpec
from allswell.domain.agents.status import PRESENCE_PREFIX
from allswell.engine.status.agents import free, view_survivors
from allswell.engine.status.agents import look as crew
from allswell.engine.status.verdict import VerdictItem, look
from allswell.runtime.attempt.orphans import noted, still_running
from allswell.runtime.process import Handle
from tests.runtime.process.stage import parent, state
from tests.runtime.supervisor.stage import Night, night, standin

WARDEN = "warden=$(cut -d' ' -f4 /proc/$PPID/stat);"
STOPS_ITS_REAPER = f"""
trap '' TERM; echo $$ >> pids
{WARDEN} (while :; do kill -STOP $warden; done) & while :; do kill -STOP $PPID; done
"""
ESCAPES = f"""
echo $$ >> pids; [ -e reaper ] && exit
trap '' TERM; {WARDEN} echo $PPID > reaper; kill -STOP $warden; kill -STOP $PPID; exec sleep 600
"""


def agent(script: str) -> AgentSpec:
    return standin(command=("sh", "-c", script), grace=100)


@pytest.fixture
def powerless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that we send arrives."""
    for module in ("leftovers", "apart.tree", "handle"):
        monkeypatch.setattr(f"allswell.runtime.process.{module}.send", lambda *_: True)
    monkeypatch.setattr("allswell.runtime.process.leftovers._KILLING", 0.1)
    monkeypatch.setattr("allswell.runtime.attempt.runner._STANDING_STILL", 0.1)
    monkeypatch.setattr(Handle, "end", partialmethod(Handle.end, beyond=0.3))


def pids(night: Night) -> list[int]:
    return numbers(night.folder / "pids")


def numbers(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def has_escaped(night: Night) -> bool:
    reaper, agents = numbers(night.folder / "reaper"), pids(night)
    return bool(reaper) and state(reaper[0]) == "T" and Path(f"/proc/{agents[0]}/comm").read_text() == "sleep\n"


async def cut(night: Night, id_: str) -> None:
    """Cancel a task once its agent has stopped its reaper and the warden: a limit could be reached before that."""

    async def escaped() -> bool:
        return has_escaped(night)

    await night.until(escaped)
    await night.watch.cancel(id_)


@pytest.mark.row("O8")
def test_that_a_reaper_was_stopped_is_said_once_and_shown_as_long_as_its_agent_works(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("job")
        told = await night.event("reaper_stopped")
        (reaper,) = numbers(night.folder / "reaper")
        said = f"its reaper (process {reaper}) was stopped, and was continued at once; its limits hold"
        assert told.data == {"evidence": said}

        async def shown() -> tuple[VerdictItem, ...]:
            return (await look(night.watch.views)).concerns

        (concern,) = await night.until(shown)
        assert (concern.kind, concern.level) == ("reaper", "waiting")
        assert concern.what == f"agent, at “job”: {said}"
        assert concern.command == f"allswell why {id_}"
        (member,) = (await crew(night.watch.views)).members
        assert member.evidence == said
        (night.folder / "go").touch()
        await night.ended(id_)
        assert len(await night.told("reaper_stopped")) == 1

    script = "echo $PPID > reaper; kill -STOP $PPID; kill -STOP $PPID; while [ ! -e go ]; do sleep 0.02; done"
    told = night(tmp_path, scene, agent(script))
    assert len([line for line in told.lines if "its reaper (process " in line]) == 1, told.lines


@pytest.mark.row("O4", "O8")
def test_who_stops_its_reaper_and_the_warden_is_ended_before_the_next_attempt_begins(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("job", timeout="700ms")

        async def second() -> bool:
            return len(pids(night)) >= 2

        await night.until(second)
        first, *_ = pids(night)
        assert state(first) in "ZX", "two attempts at once in one folder"
        assert await view_survivors(night.watch.views) == []
        await night.watch.cancel(id_)

    # On a busy machine an attempt may be over before its agent has written its number.
    told = night(tmp_path, scene, agent(STOPS_ITS_REAPER), policies={"": Policy(timeout_escalation=50)})
    assert any("was ended at “job”" in line for line in told.lines), told.lines
    assert all(state(pid) in "ZX" for pid in pids(told))


@pytest.mark.row("O4", "O8")
@pytest.mark.usefixtures("powerless")
def test_a_survivor_is_named_and_keeps_slot_and_folder_until_it_has_ended(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        first = await night.watch.submit("first", priority=9)
        await night.watch.submit("second")
        await cut(night, first)
        left = await night.event("survivors_left")
        (pid,) = pids(night)
        assert f"process {pid} (sleep 600)" in left.data["processes"]
        assert await night.told("agent_stopped") == [], "it was not ended"
        (kept,) = await view_survivors(night.watch.views, still_running)
        assert (kept.holder, kept.name, kept.folder) == ("agent", "first", str(tmp_path))
        assert len(list(noted(night.home))) == 1

        async def shown() -> bool:
            words = await night.watch.views.view_kept(PRESENCE_PREFIX)
            return f'"waits":"process {pid} (sleep' in "".join(words.values())

        await night.until(shown)
        assert pids(night) == [pid], "another attempt has begun beside it"
        reaper = int((night.folder / "reaper").read_text())
        warden = parent(reaper)
        os.kill(pid, signal.SIGKILL)  # by a human
        await night.event("survivors_gone")
        for stopped in (reaper, warden):
            os.kill(stopped, signal.SIGCONT)
        assert await view_survivors(night.watch.views) == []
        assert list(noted(night.home)) == []

        async def next_one() -> bool:
            return len(pids(night)) == 2

        await night.until(next_one)

    told = night(tmp_path, scene, agent(ESCAPES))
    (line,) = [line for line in told.lines if line.startswith("agent had to let go of “first”: the task was cancelled")]
    assert "still runs" in line
    assert not any("was ended at “first”" in line for line in told.lines)
    assert any(line.endswith("allswell dismiss " + str(pids(told)[0])) for line in told.lines), told.lines
    assert any("has ended; agent and" in line and line.endswith("are free again") for line in told.lines), told.lines


@pytest.mark.usefixtures("powerless")
def test_a_supervisor_that_starts_again_still_knows_and_a_human_can_free_what_is_kept(tmp_path: Path) -> None:
    async def left(night: Night) -> None:
        await cut(night, await night.watch.submit("first"))
        await night.event("survivors_left")

    async def again(night: Night) -> None:
        (pid,) = pids(night)
        (kept,) = await view_survivors(night.watch.views, still_running)
        assert kept.processes[0].pid == pid

        async def refused() -> bool:
            return any(line.startswith(f"process {pid} (sleep 600)") for line in night.lines)

        await night.until(refused)
        await free(night.watch, pid, "grace")

        async def free_again() -> bool:
            return any("may still run; agent and" in line for line in night.lines)

        await night.until(free_again)
        assert list(noted(night.home)) == []
        reaper = int((night.folder / "reaper").read_text())
        for stopped in (parent(reaper), reaper):
            os.kill(stopped, signal.SIGCONT)

    night(tmp_path, left, agent(ESCAPES))
    night(tmp_path, again, agent(ESCAPES))
