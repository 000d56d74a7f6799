"""Where `allswell run` or its command is stopped (Ctrl-Z, SIGSTOP), both are, limits stand, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from allswell.interfaces.cli import renewer
from tests import patience
from tests.interfaces.cli.shell import STORES, Shell
from tests.interfaces.cli.sitting import Sitting

SCRIPT = "echo $$ > pid.new; mv pid.new pid; echo ready; read line < go; echo went on: $line"
"""Says who it is, and goes on when it is told a line through a pipe with a name."""


def until(what: Callable[[], bool], about: Callable[[], object] = str) -> None:
    end = time.monotonic() + patience.SECONDS
    while not what():
        assert time.monotonic() < end, about()
        time.sleep(0.01)


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def stands(pid: int) -> Callable[[], bool]:
    return lambda: state(pid) == "T"


def goes_on(pid: int) -> Callable[[], bool]:
    return lambda: state(pid) in "RSD"


def command_of(shell: Shell) -> int:
    """The process of the command, once it runs."""
    until((shell.folder / "pid").exists)
    return int((shell.folder / "pid").read_text())


def health(shell: Shell) -> tuple[str, str]:
    (agent,) = shell.json("agents")["agents"]
    return agent["health"], agent["evidence"]


@pytest.fixture
def piped(shell: Shell) -> Iterator[subprocess.Popen[str]]:
    """A command in front of which there is no terminal."""
    os.mkfifo(shell.folder / "go")
    running = shell.start("--", "sh", "-c", SCRIPT)
    yield running
    running.kill()
    running.communicate()


@pytest.fixture
def terminal(shell: Shell) -> Iterator[Sitting]:
    """A shell with jobs, at a terminal."""
    os.mkfifo(shell.folder / "go")
    sitting = Sitting(shell, "--norc", "--noprofile", program=["bash"])
    sitting.types("PS1='$ '; alias allswell='python -m allswell'\r")
    yield sitting
    sitting.close()


def let_go(shell: Shell) -> None:
    with (shell.folder / "go").open("w") as go:
        go.write("now\n")


@pytest.mark.parametrize("store", STORES, indirect=True)
@pytest.mark.usefixtures("store")
def test_a_stop_of_us_stops_the_command_and_both_come_back(shell: Shell, piped: subprocess.Popen[str]) -> None:
    command = command_of(shell)
    os.kill(piped.pid, signal.SIGSTOP)
    until(stands(command))
    until(lambda: health(shell) == ("stopped", "stopped (SIGSTOP); its limits are paused"), lambda: health(shell))
    assert "It was stopped (SIGSTOP)" in shell("why", piped_task(shell)).stdout
    os.kill(piped.pid, signal.SIGCONT)
    until(goes_on(command))
    let_go(shell)
    assert piped.communicate(timeout=patience.SECONDS) == ("ready\nwent on: now\n", "")
    assert piped.returncode == 0
    assert [kind for kind in shell.kinds() if kind in ("task_suspended", "task_continued", "task_completed")] == [
        "task_suspended",
        "task_continued",
        "task_completed",
    ]


def test_a_stop_of_the_command_stops_us_and_its_continuing_us_too(shell: Shell, piped: subprocess.Popen[str]) -> None:
    command = command_of(shell)
    os.kill(command, signal.SIGSTOP)
    until(stands(piped.pid))
    assert health(shell) == ("stopped", "stopped (SIGSTOP); its limits are paused")
    os.kill(command, signal.SIGCONT)
    until(goes_on(piped.pid))
    let_go(shell)
    assert piped.communicate(timeout=patience.SECONDS)[0] == "ready\nwent on: now\n"
    assert piped.returncode == 0


def test_who_is_killed_while_stopped_leaves_nobody(shell: Shell, piped: subprocess.Popen[str]) -> None:
    command = command_of(shell)
    os.kill(piped.pid, signal.SIGSTOP)
    until(stands(command))
    os.kill(piped.pid, signal.SIGKILL)
    until(lambda: state(command) in ("", "Z"))


@pytest.mark.realtime
@pytest.mark.row("O4")
def test_ctrl_z_stops_both_and_limits_stand(shell: Shell, terminal: Sitting) -> None:
    terminal.types("allswell run --timeout 6s -- sh -c '" + SCRIPT + "'\r")
    command = command_of(shell)
    began = time.monotonic()
    terminal.sees("\rready")
    terminal.types("\x1a")
    terminal.sees("Stopped")
    assert state(command) == "T"
    assert health(shell) == ("stopped", "stopped (SIGTSTP); its limits are paused")
    until(lambda: time.monotonic() - began > 6.5)
    assert state(command) == "T", "its limit is long over on every clock but its own"
    terminal.types("fg\r")
    until(goes_on(command))
    let_go(shell)
    terminal.sees("went on: now")
    terminal.seen = terminal.seen.partition("went on: now")[2]
    terminal.sees("\x1b[?2004h$ ")  # of a shell that has its terminal again
    terminal.types("echo code $?\r")
    terminal.sees("code 0")
    assert shell.kinds()[-1] == "task_completed"


@pytest.mark.realtime
def test_after_a_stop_the_rest_of_the_limit_holds(shell: Shell, terminal: Sitting) -> None:
    terminal.types("allswell run --no-tty --timeout 2s --grace 0s -- sh -c '" + SCRIPT + "'\r")
    command = command_of(shell)
    terminal.types("\x1a")
    terminal.sees("Stopped")
    until(stands(command))
    terminal.types("bg\r")
    terminal.sees("its limit of 2s was reached")
    assert "agent_timeout" in shell.kinds()


def test_jobs_that_a_shell_has_stopped_stay_so(shell: Shell, terminal: Sitting) -> None:
    terminal.types("allswell run -- bash --norc --noprofile\r")
    terminal.types("PS1='inner> '\r")
    terminal.sees("hinner> ")
    terminal.types("cat\r")
    terminal.sees("inner> cat\r\n")
    terminal.types("it answers\r")
    terminal.sees("it answers\r\nit answers")  # earlier, Ctrl-Z would come to the shell
    terminal.types("\x1a")
    terminal.sees("Stopped")
    terminal.types("echo $$ $(jobs -p) > pids\r")
    until(lambda: (shell.folder / "pids").exists() and bool((shell.folder / "pids").read_text()))
    inner, job = map(int, (shell.folder / "pids").read_text().split())
    terminal.seen = ""
    terminal.types("kill -STOP $$\r")
    terminal.sees("Stopped")  # which the outer shell says; what is typed earlier goes to a shell that stands
    assert state(inner) == "T"
    terminal.types("fg\r")
    until(goes_on(inner))
    assert state(job) == "T"
    terminal.types("kill %1; kill -CONT %1; exit 5\r")
    terminal.types("exit 5\r")
    terminal.sees("exit code 5")


IMPATIENT = """
import sys
from allswell.domain.lease import suspension
suspension.LONGEST_STOP = 1
from allswell.interfaces.cli.app import run
sys.exit(run(sys.argv[1:]))
"""
"""`allswell`, for which a millisecond is as long as anything may be stopped."""


def test_what_was_stopped_for_too_long_is_given_back_with_its_work(shell: Shell) -> None:
    os.mkfifo(shell.folder / "go")
    words = [sys.executable, "-c", IMPATIENT, "run", "--", "sh", "-c", 'echo half > work; exec sh -c "$0"', SCRIPT]
    with subprocess.Popen(words, cwd=shell.folder, env=shell.env, stderr=subprocess.PIPE, text=True) as running:
        command = command_of(shell)
        os.kill(running.pid, signal.SIGSTOP)
        until(stands(command))
        os.kill(running.pid, signal.SIGCONT)
        _, told = running.communicate(timeout=patience.SECONDS)
    assert running.returncode == 128 + signal.SIGTERM
    assert "it had been stopped for 1ms" in told
    assert "kept in refs/allswell/" in told
    assert "task_returned" in shell.kinds()
    assert shell.living() == []


def test_who_renews_the_lease_continues_the_supervisor_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALLSWELL_STORE", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.setattr(renewer, "LONGEST_STOP", 0)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as supervisor:
        os.kill(supervisor.pid, signal.SIGSTOP)
        until(stands(supervisor.pid))
        asyncio.run(renewer.renew_while_stopped("t_1", 1, "run-1", 300_000, supervisor.pid))
        assert goes_on(supervisor.pid)()


def piped_task(shell: Shell) -> str:
    (task,) = shell.json("tasks")["tasks"]
    return str(task["task_id"])
