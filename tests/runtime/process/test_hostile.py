"""A tree that turns against those who are to end it: it ends all the same, or who is left is named.

Who lives is known by files in which each process writes its number: a hostile one clears its environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from allswell.runtime.attempt.progress import look_at
from allswell.runtime.process import EndCause, Handle, ProcessResult, leftovers, working_in
from tests import patience
from tests.runtime.process.stage import Scene, parent, state, until

GRACE_MS = 200
WARDEN = "warden=$(cut -d' ' -f4 /proc/$PPID/stat);"
HIDDEN = "env -i setsid sh -c 'trap \"\" TERM; echo $$ > hidden; while :; do sleep 600; done' &"
STOPS = {
    "stops its reaper": "kill -STOP $PPID; touch ready; while :; do sleep 600; done",
    "stops its reaper again and again": "touch ready; while :; do kill -STOP $PPID; done",
    "stops both": f"{WARDEN} kill -STOP $warden; kill -STOP $PPID; touch ready; while :; do sleep 600; done",
    "stops both again and again": (
        f"{WARDEN} (while :; do kill -STOP $warden; done) & touch ready; while :; do kill -STOP $PPID; done"
    ),
}


def pid_in(file: Path) -> int:
    until(lambda: file.exists() and file.read_text().endswith("\n"))
    return int(file.read_text())


def ended(handle: Handle) -> ProcessResult:
    result = handle.end_now(GRACE_MS)
    assert handle.result is result
    return result


@pytest.mark.row("O8", "F2")
@pytest.mark.parametrize("kind", STOPS)
def test_who_stops_its_reaper_is_ended_all_the_same(stage: Scene, kind: str) -> None:
    handle = stage.shell(f"trap '' TERM; {STOPS[kind]}")
    warden = parent(handle.record.reaper)
    result = ended(handle)
    assert (result.ending, result.survivors, result.proven) == (EndCause.STOPPED, (), True)
    assert stage.living() == []
    until(lambda: state(handle.record.reaper) in "ZX")
    os.kill(warden, signal.SIGCONT)


@pytest.mark.row("O8")
def test_a_stopped_reaper_is_continued_at_once_and_its_output_goes_on(stage: Scene) -> None:
    result = stage.start("sh", "-c", "kill -STOP $PPID; echo still heard; exit 3").wait()
    assert result is not None
    assert (result.ending, result.exit_code) == (EndCause.EXITED, 3)
    assert stage.stdout.read() == b"still heard\n"


@pytest.mark.row("O8")
def test_who_stops_the_warden_and_kills_its_reaper_is_found_although_it_hides(stage: Scene) -> None:
    script = (
        f"{WARDEN} {HIDDEN} until [ -s hidden ]; do sleep 0.01; done; kill -STOP $warden; kill -KILL $PPID; sleep 600"
    )
    handle = stage.start("sh", "-c", script)
    hidden = pid_in(stage.folder / "hidden")
    result = handle.wait()
    assert result is not None
    assert (result.ending, result.survivors, result.proven) == (EndCause.LOST, (), True)
    assert state(hidden) in "ZX"
    assert stage.living() == []


@pytest.mark.row("O8")
def test_who_kills_both_is_found_by_what_was_seen_before(stage: Scene) -> None:
    handle = stage.start("sh", "-c", f"{HIDDEN} while :; do sleep 600; done")
    hidden = pid_in(stage.folder / "hidden")
    until(lambda: len(look_at(handle.record.reaper)) >= 3)
    handle.remember(look_at(handle.record.reaper))
    both = (parent(handle.record.reaper), handle.record.reaper)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in both:
            os.kill(pid, number)
    result = handle.wait()
    assert result is not None
    assert (result.ending, result.survivors) == (EndCause.LOST, ())
    assert not result.proven, "nobody is left who would know"
    assert state(hidden) in "ZX"
    assert stage.living() == []


@pytest.mark.row("O8")
def test_who_cannot_be_killed_is_named_with_its_command(stage: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in a device, or of another user: the kernel takes the signal and nothing happens."""
    handle = stage.start(sys.executable, "-c", "import time; time.sleep(600)")
    reaper = handle.record.reaper
    os.kill(reaper, signal.SIGSTOP)
    for module in ("leftovers", "handle"):
        monkeypatch.setattr(f"allswell.runtime.process.{module}.send", lambda *_: True)
    monkeypatch.setattr("allswell.runtime.process.leftovers._KILLING", 0.1)
    os.kill(parent(reaper), signal.SIGSTOP)
    try:
        result = handle.give_up()
        (left,) = result.running
        assert (left.pid, result.survivors, result.proven) == (handle.pid, (handle.pid,), False)
        assert left.command.endswith("-c import time; time.sleep(600)")
    finally:
        for pid in (parent(reaper), reaper):
            with contextlib.suppress(ProcessLookupError):  # it may have ended by now
                os.kill(pid, signal.SIGCONT)
    until(lambda: stage.living() == [])


def test_who_works_in_the_folder_is_told_as_a_remark(stage: Scene) -> None:
    handle = stage.start("sh", "-c", "exec sleep 600")
    beside = subprocess.Popen(["sleep", "600"], cwd=stage.folder)
    elsewhere = subprocess.Popen(["sleep", "600"], cwd=stage.folder.parent)
    try:
        assert beside.pid in [one.pid for one in working_in(str(stage.folder), handle.record)]
        assert elsewhere.pid not in [one.pid for one in working_in(str(stage.folder), handle.record)]
    finally:
        for process in (beside, elsewhere):
            process.kill()
            process.wait()


def test_a_stopped_warden_is_continued_for_the_next_command(stage: Scene) -> None:
    first = stage.start("sleep", "600")
    os.kill(parent(first.record.reaper), signal.SIGSTOP)
    result = stage.start("sh", "-c", "exit 4").wait()
    assert result is not None
    assert result.exit_code == 4


def test_who_stops_both_before_its_start_was_told_is_started_and_ended(stage: Scene) -> None:
    script = "trap '' TERM; read -r _ _ _ warden _ < /proc/$PPID/stat; kill -STOP $warden $PPID; sleep 600"
    for _ in range(8):  # whether its reaper has told of the start by then is a race
        assert ended(stage.start("sh", "-c", script)).proven
    assert stage.living() == []


class _Noted:
    """A lock that says when somebody has to wait for it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.waited = threading.Event()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.waited.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.mark.row("F2")
def test_a_copy_of_the_process_does_not_keep_a_program_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is made while another thread starts a program would hold the end of a pipe that the start waits for."""
    lock, starts = _Noted(), threading.Event()
    order: list[str] = []
    monkeypatch.setattr(leftovers, "_STARTING", lock)

    def start(_: object) -> None:
        starts.set()
        assert lock.waited.wait(patience.SECONDS), "the copy was made meanwhile"
        order.append("program")

    def fork() -> int:
        order.append("copy")
        return 1

    begin = leftovers._tagged_popen(start)
    program = threading.Thread(target=begin, args=(object(),))
    program.start()
    assert starts.wait(patience.SECONDS)
    assert leftovers._forking(fork)() == 1
    program.join()
    assert order == ["program", "copy"]
