"""Stop means the whole tree: nobody survives, whatever they do, and within the grace and a second."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from pathlib import Path

import pytest

from allswell.runtime.process import KEEPER, EndCause, Handle, find_left_over
from allswell.runtime.process.apart.tree import below
from tests.runtime.process.stage import DOUBLE, KINDS, Scene, hanging, setting, state, until

GRACE_MS = 300
TREES = setting("ALLSWELL_PROCESS_TREES", 50)
AT_ONCE = 50
STANDING = {"T", "D"}
"""The kernel's letters for who is stopped, and for who waits in the kernel for a child that is."""


@pytest.mark.row("F2", "O8")
@pytest.mark.parametrize("kind", KINDS)
def test_nobody_survives_a_stop(stage: Scene, kind: str) -> None:
    handle = stage.shell(KINDS[kind])
    assert stage.living()
    handle.stop(GRACE_MS)
    result = handle.wait()
    assert stage.living() == []
    assert result is not None
    assert result.ending is EndCause.STOPPED
    assert result.killed
    assert result.survivors == ()
    assert find_left_over(handle.record).nothing


@pytest.mark.row("F2", "O8")
def test_a_command_whose_start_hangs_is_ended_too(stage: Scene) -> None:
    with hanging(stage.folder) as program, Handle(stage.command(str(program))) as handle:
        until(lambda: handle.record.reaper or handle.wait(0.01))
        assert not handle.has_started
        result = handle.end_now(GRACE_MS)
    assert (result.ending, result.survivors, result.proven) == (EndCause.STOPPED, (), True)
    assert not (stage.folder / "began").exists()


def test_an_interrupt_from_before_the_start_is_known_reaches_the_command(stage: Scene) -> None:
    """The command may have begun its work before its start is heard here."""
    with Handle(stage.command("sleep", "600")) as handle:
        assert not handle.has_started
        handle.interrupt()
        result = handle.wait()
    assert result is not None
    assert (result.ending, result.signal) == (EndCause.SIGNALLED, signal.SIGINT)


def test_an_order_that_was_let_go_before_the_warden_took_it_starts_nothing(
    stage: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.start("true").wait()
    os.kill(KEEPER.warden, signal.SIGSTOP)
    monkeypatch.setattr("allswell.runtime.process.handle.send", lambda *_: True)
    Handle(stage.command("touch", "began")).close()
    os.kill(KEEPER.warden, signal.SIGCONT)
    stage.start("true").wait()  # taken after the other
    until(lambda: not below(KEEPER.warden))
    assert not (stage.folder / "began").exists()


@pytest.mark.row("F2", "O8")
@pytest.mark.realtime
@pytest.mark.alone
@pytest.mark.timeout(1_200)
def test_many_trees_end_at_once_and_in_time(tmp_path: Path, stage: Scene) -> None:
    """`ALLSWELL_PROCESS_TREES=1000` is the full figure."""
    kinds = list(KINDS.values())
    for first in range(0, TREES, AT_ONCE):
        handles = [stage.shell(kinds[number % len(kinds)]) for number in range(first, min(first + AT_ONCE, TREES))]
        took = _stop_all(handles)
        assert stage.living() == []
        assert max(took) < GRACE_MS / 1_000 + 1, sorted(took)[-5:]


def _stop_all(handles: list[Handle]) -> list[float]:
    """How long each took from its order to its end, which is noted when its socket says so, not when we come to it."""
    began = time.monotonic()
    for handle in handles:
        handle.stop(GRACE_MS)
    took = []
    poll = select.poll()
    waiting = {handle._channel.fileno(): handle for handle in handles}
    for channel in waiting:
        poll.register(channel, select.POLLIN)
    while waiting:
        for ready, _ in poll.poll():
            if waiting[ready].wait(0.001) is not None:
                took.append(time.monotonic() - began)
                poll.unregister(ready)
                del waiting[ready]
    return took


def test_who_obeys_has_time_to_clean_up_and_nobody_is_killed(stage: Scene) -> None:
    script = "trap 'echo cleaned; exit 5' TERM; touch ready; while :; do sleep 0.05; done"
    handle = stage.shell(script, grace_ms=60_000)
    handle.stop(60_000)
    result = handle.wait()
    assert result is not None
    assert (result.exit_code, result.killed, result.ending) == (5, False, EndCause.STOPPED)
    assert stage.stdout.read() == b"cleaned\n"


def test_a_second_order_shortens_the_grace(stage: Scene) -> None:
    handle = stage.shell(KINDS["ignoring"])
    handle.stop(3_600_000)
    assert handle.wait(0.05) is None
    handle.stop(0)
    result = handle.wait()
    assert result is not None
    assert result.killed


def test_whom_a_command_leaves_running_is_ended_with_it(stage: Scene) -> None:
    """The exit code is the command's own, and it does not wait for whoever holds its output open."""
    handle = stage.start("sh", "-c", "(setsid sleep 600 &); sleep 600 & exit 7", grace_ms=60_000)
    result = handle.wait()
    assert result is not None
    assert (result.exit_code, result.ending) == (7, EndCause.EXITED)
    assert result.left_behind == 2
    assert stage.living() == []


def test_a_signal_from_elsewhere_is_told_apart(stage: Scene) -> None:
    result = stage.start("sh", "-c", "kill -SEGV $$").wait()
    assert result is not None
    assert (result.ending, result.signal, result.exit_code) == (EndCause.SIGNALLED, signal.SIGSEGV, None)


def test_a_command_that_kills_its_own_group_does_not_reach_its_reaper(stage: Scene) -> None:
    result = stage.start("sh", "-c", "kill -KILL 0").wait()
    assert result is not None
    assert (result.ending, result.signal) == (EndCause.SIGNALLED, signal.SIGKILL)


def test_a_tree_stands_still_and_goes_on(stage: Scene) -> None:
    """What a snapshot needs: nobody writes while it is taken, and what was printed lies in the file."""
    handle = stage.shell("echo before; " + DOUBLE)
    handle.freeze()
    assert handle.wait_frozen()
    living = stage.living()
    assert handle.frozen == len(living) >= 3
    assert {state(pid) for pid in living} <= STANDING
    assert stage.stdout.read() == b"before\n"
    handle.thaw()
    until(lambda: "T" not in {state(pid) for pid in living})
    handle.freeze()
    handle.stop(GRACE_MS)  # and from there it can be ended
    assert handle.wait() is not None
    assert stage.living() == []


def test_who_is_in_the_middle_of_a_write_ends_it_before_the_tree_stands(stage: Scene) -> None:
    """A stop takes effect when a call of the kernel ends, and a big write takes its time."""
    script = (
        "import os; f = os.open('big', os.O_CREAT | os.O_WRONLY); os.write(f, bytes(1 << 26)); os.write(f, b'more')"
    )
    handle = stage.start(sys.executable, "-c", script)
    big = stage.folder / "big"
    until(lambda: big.exists() and big.stat().st_size > 0)
    handle.freeze()
    assert handle.wait_frozen()
    size = big.stat().st_size
    assert {state(pid) for pid in stage.living()} <= STANDING
    assert big.stat().st_size == size


def test_who_waits_for_a_child_that_has_not_yet_become_its_program_stands_too(stage: Scene) -> None:
    """After `vfork` the kernel lets nobody but SIGKILL wake the parent: it never comes to be stopped, nor to write."""
    script = (
        "import ctypes, os, platform, signal\n"
        "number = {'x86_64': 56, 'aarch64': 220}[platform.machine()]\n"
        "if ctypes.CDLL(None).syscall(number, 0x4000 | signal.SIGCHLD, 0, 0, 0, 0) == 0:\n"  # CLONE_VFORK
        "    open('ready', 'w').close()\n"
        "    signal.pause()\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    handle = stage.start(sys.executable, "-c", script)
    until((stage.folder / "ready").exists)
    began = time.monotonic()
    handle.freeze()
    assert handle.wait_frozen()
    assert time.monotonic() - began < 10
    assert handle.frozen == 2
    assert sorted(state(pid) for pid in stage.living()) == ["D", "T"]
    handle.stop(0)
    assert handle.wait() is not None
    assert stage.living() == []


def test_what_was_used_is_known(stage: Scene) -> None:
    script = "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done & wait"
    result = stage.start("sh", "-c", script).wait()
    assert result is not None
    assert result.user_seconds + result.system_seconds > 0.01  # of the child too, not of the command alone
    assert result.max_rss_kb > 1_000
    assert result.seconds > 0
