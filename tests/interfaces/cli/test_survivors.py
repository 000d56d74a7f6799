"""A process that did not end with its attempt: every screen says so, its folder is kept, and a human can free it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from allswell.domain.ids import AgentId, Millis, TaskId, Token
from allswell.runtime.attempt.orphans import note_survivors
from allswell.runtime.attempt.record import InFlightRecord
from allswell.runtime.process import survivors_of
from allswell.runtime.receipts import StateDir
from tests.interfaces.cli.shell import STORES, Shell
from tests.runtime.process.stage import until


@pytest.fixture
def left(shell: Shell) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs, noted as the survivor of an attempt at the task `work`."""
    shell("submit", "work")
    (task,) = shell.json("tasks")["tasks"]
    flight = InFlightRecord(
        task=TaskId(task["task_id"]),
        name="work",
        attempt=1,
        token=Token(1),
        agent=AgentId("run-7"),
        folder=str(shell.folder),
        began_at=Millis(0),
    )
    with subprocess.Popen(["sleep", "613"]) as process:
        until(lambda: Path(f"/proc/{process.pid}/cmdline").read_bytes() == b"sleep\x00613\x00")
        note_survivors(StateDir(Path(shell.folder, ".allswell")), flight, survivors_of([process.pid]))
        yield process
        process.kill()


@pytest.mark.row("O8")
@pytest.mark.parametrize("store", STORES, indirect=True)
@pytest.mark.usefixtures("store")
def test_every_screen_names_it_until_it_has_ended(shell: Shell, left: subprocess.Popen[bytes]) -> None:
    process = f"process {left.pid} (sleep 613)"
    refused = shell("run", "--", "true", code=2).stderr
    assert process in refused
    assert f"kill -9 {left.pid}" in refused
    assert f"allswell dismiss {left.pid}" in refused
    assert [task["name"] for task in shell.json("tasks")["tasks"]] == ["work"], "no task was made for what never began"
    (need,) = [one for one in shell.json(code=3)["needs"] if one["kind"] == "survivor"]
    assert need["command"].partition(" --store ")[0] == f"allswell dismiss {left.pid}"
    assert process in need["what"].replace("Process", "process")
    assert process in shell("doctor", code=3).stdout.replace("Process", "process")
    assert process in " ".join(shell("why", "work").stdout.split())
    assert "survivors_left" in shell.kinds()
    left.kill()
    left.wait()
    assert [one["kind"] for one in shell.json(code=None)["needs"] if one["kind"] == "survivor"] == []
    shell("run", "--", "true")
    assert "survivors_gone" in shell.kinds()
    assert list(Path(shell.folder, ".allswell", "survivors").iterdir()) == []


def test_a_human_can_free_the_folder_although_it_runs(shell: Shell, left: subprocess.Popen[bytes]) -> None:
    shell("run", "--", "true", code=2)
    assert "no process 1 keeps a folder or a slot" in shell("dismiss", "1", code=2).stderr
    told = shell("dismiss", str(left.pid)).stdout
    assert f"Process {left.pid} (sleep 613) still runs; run-7 and {shell.folder} are free again" in told
    shell("run", "--", "true")
    assert left.poll() is None, "it is not ours to end by that"
    assert "survivors_freed" in shell.kinds()
    assert [one for one in shell.json(code=None)["needs"] if one["kind"] == "survivor"] == []
