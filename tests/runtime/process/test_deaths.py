"""Kill -9 of whoever stands above a tree: it ends all the same, or is found by whoever comes next."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import msgspec
import pytest

from allswell.runtime.process import EndCause, TreeRecord, end_left_over, find_left_over
from tests.runtime.process.stage import IGNORING, ROOT, Scene, parent, state, tagged, until

GRACE_MS = 300
# Starts trees that do not want to end, one after the other, and says so after each.
SUPERVISOR = """
    import sys
    from pathlib import Path
    from tests.runtime.process.stage import BOMB, DOUBLE, IGNORING, Scene
    scene = Scene(Path(sys.argv[1]), sys.argv[2])
    if "fork" in sys.argv:
        import os, time
        scene.shell(IGNORING)
        if os.fork() == 0:
            time.sleep(600)  # holds a copy of every descriptor of its parent
    for script in (IGNORING, DOUBLE, BOMB):
        scene.shell(script)
        print("one more", flush=True)
    sys.stdin.read()
"""


def supervisor(stage: Scene, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(SUPERVISOR), str(stage.folder), stage.tag, *more]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.mark.row("F2")
@pytest.mark.realtime
@pytest.mark.alone
def test_trees_end_in_time_when_their_supervisor_is_killed(stage: Scene) -> None:
    process = supervisor(stage)
    try:
        until(lambda: len(stage.living()) > 35)
    finally:
        kill(process)
    assert until(lambda: stage.living() == []) < GRACE_MS / 1_000 + 1


@pytest.mark.row("F2")
@pytest.mark.parametrize("seed", range(6))
def test_a_supervisor_may_be_killed_at_any_moment(stage: Scene, seed: int) -> None:
    """Between two steps of starting a tree, too: there is no moment in which nobody knows of it."""
    process = supervisor(stage)
    moment = time.monotonic() + random.Random(seed).uniform(0.2, 1.5)
    until(lambda: time.monotonic() >= moment)
    kill(process)
    until(lambda: stage.living() == [])


@pytest.mark.row("F2")
def test_trees_end_although_a_forked_child_still_holds_their_sockets(stage: Scene) -> None:
    process = supervisor(stage, "fork")
    assert process.stdout is not None
    process.stdout.readline()
    (child,) = (pid for pid in _children(process.pid) if "allswell" not in _name(pid))
    try:
        process.kill()
        process.wait()
        until(lambda: stage.living() == [])
        assert state(child) == "S"
    finally:
        os.kill(child, signal.SIGKILL)
        process.communicate()


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text()


def test_a_killed_warden_takes_no_tree_with_it_and_is_replaced(stage: Scene) -> None:
    os.mkfifo(stage.folder / "fifo")
    handle = stage.start("sh", "-c", "read line < fifo; exit 7")
    warden = parent(handle.record.reaper)
    assert _name(warden) == "allswell-warden\n"
    os.kill(warden, signal.SIGKILL)
    again = stage.start("sh", "-c", "exit 3")
    result = again.wait()
    assert result is not None
    assert result.exit_code == 3
    (stage.folder / "fifo").write_text("go on\n")
    result = handle.wait()
    assert result is not None
    assert (result.ending, result.exit_code) == (EndCause.EXITED, 7)


def test_a_warden_killed_with_an_order_in_its_hands_costs_nothing(stage: Scene) -> None:
    """Stopped, it takes no order; killed then, the order goes to the next one."""
    first = stage.start("sleep", "600")
    warden = parent(first.record.reaper)
    os.kill(warden, signal.SIGSTOP)
    from allswell.runtime.process import Handle

    handle = Handle(stage.command("sh", "-c", "exit 4"))
    assert not handle.wait_started(0.05)
    os.kill(warden, signal.SIGKILL)
    result = handle.wait()
    assert result is not None
    assert result.exit_code == 4


@pytest.mark.row("O8")
def test_what_a_killed_reaper_leaves_is_killed_by_the_warden(stage: Scene) -> None:
    handle = stage.shell(IGNORING)
    other = stage.shell(IGNORING)
    os.kill(handle.record.reaper, signal.SIGKILL)
    result = handle.wait()
    assert result is not None
    assert (result.ending, result.exit_code) == (EndCause.LOST, None)
    until(lambda: len(stage.living()) == 3)  # those of the other one: nobody touched them
    assert other.wait(0.0) is None


def orphaned(stage: Scene) -> TreeRecord:
    """A tree above which everybody was killed at once."""
    handle = stage.shell(IGNORING)
    reaper = handle.record.reaper
    warden = parent(reaper)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (warden, reaper):
            os.kill(pid, number)
    until(lambda: state(warden) == state(reaper) == "X" or state(reaper) == "Z")
    stage.handles.remove(handle)
    handle.close()
    assert stage.living()
    return msgspec.json.decode(msgspec.json.encode(handle.record), type=TreeRecord)  # as a store would have kept it


def test_a_later_supervisor_finds_and_ends_what_is_left(stage: Scene) -> None:
    record = orphaned(stage)
    left = find_left_over(record)
    assert set(left.processes) == set(stage.living())
    assert left.doubts == ()
    assert end_left_over(record, grace_ms=50).nothing
    assert stage.living() == []
    assert find_left_over(record).nothing


def test_in_doubt_nothing_is_killed(stage: Scene) -> None:
    record = orphaned(stage)
    stranger = msgspec.structs.replace(record, marker="0" * 32)
    left = end_left_over(stranger, grace_ms=0)
    assert left.processes == ()
    assert f"ps -p {record.pid}" in left.doubts[0]
    elsewhere = end_left_over(msgspec.structs.replace(record, pid_namespace="pid:[1]"), grace_ms=0)
    assert "another pid namespace" in elsewhere.doubts[0]
    assert end_left_over(msgspec.structs.replace(record, boot_id="before"), grace_ms=0).nothing
    reused = msgspec.structs.replace(stranger, start=record.start + 1)
    assert end_left_over(reused, grace_ms=0).nothing  # the number is somebody else's by now
    assert record.pid in stage.living()
    assert end_left_over(record, grace_ms=0).nothing


def test_a_process_does_not_end_itself(stage: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that is started inside the very tree it is to clean up."""
    script = """
        import os, sys
        from allswell.runtime.process import MARKER, end_left_over
        from allswell.runtime.process.identity import new_record
        left = end_left_over(new_record(os.environ[MARKER]), grace_ms=0)
        print(left.processes == () and "is this process" in left.doubts[0])
    """
    handle = stage.start(sys.executable, "-c", textwrap.dedent(script))
    result = handle.wait()
    assert result is not None
    assert stage.stdout.read() == b"True\n", stage.stderr.read()


def test_tags_are_found_by_the_tests_themselves(stage: Scene) -> None:
    stage.start("sleep", "600")
    assert len(tagged(stage.tag)) == 1
