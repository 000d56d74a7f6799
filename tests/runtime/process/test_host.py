"""The program that uses us: its children, its exit codes and its memory are its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from tests.runtime.process.stage import ROOT, Scene, parent, proportional_kb

HOST = """
    import ctypes, os, signal, subprocess, sys
    import allswell
    seen = []
    signal.signal(signal.SIGCHLD, lambda *_: seen.append(1))

    seven = subprocess.Popen(["sh", "-c", "exit 7"])
    fork = os.fork()
    if fork == 0:
        os._exit(9)
    # A daemon of the host: its parent ends, and it must not become the host's child.
    subprocess.run(["sh", "-c", "(setsid sleep 3 &)"], check=True)

    assert allswell.run_tool_sync(["sh", "-c", "(sleep 600 &); exit 5"]).exit_code == 5

    subreaper = ctypes.c_int(-1)
    ctypes.CDLL(None).prctl(37, ctypes.byref(subreaper), 0, 0, 0)
    assert subreaper.value == 0
    ended = {}
    try:
        while True:  # a host that waits for all of its children
            pid, status = os.wait()
            ended[pid] = os.waitstatus_to_exitcode(status)
    except ChildProcessError:
        pass
    assert ended == {seven.pid: 7, fork: 9}, ended
    assert seen
    assert signal.getsignal(signal.SIGCHLD) is not None
    seven.returncode = 7
    print("untouched")
"""


def run(script: str, *, more: tuple[str, ...] = ()) -> str:
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *more]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_hosts_own_children_and_exit_codes_are_untouched() -> None:
    """`capture_output` proves one thing more: nobody of ours holds the host's output open when it has ended."""
    assert run(HOST) == "untouched\n"


def test_a_host_that_ignores_sigchld_can_run_tools() -> None:
    script = """
        import signal, allswell
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        print(allswell.run_tool_sync(["sh", "-c", "exit 7"]).exit_code)
    """
    assert run(script) == "7\n"


def test_a_forked_child_of_the_host_has_a_warden_of_its_own() -> None:
    script = """
        import os, allswell
        allswell.run_tool_sync(["true"])
        if os.fork() == 0:
            os._exit(allswell.run_tool_sync(["sh", "-c", "exit 6"]).exit_code)
        print(os.waitstatus_to_exitcode(os.wait()[1]), allswell.run_tool_sync(["sh", "-c", "exit 4"]).exit_code)
    """
    assert run(script) == "6 4\n"


def test_a_tool_may_run_tools() -> None:
    inner = "import allswell; print(allswell.run_tool_sync(['sh', '-c', 'exit 8']).exit_code)"
    script = """
        import sys, allswell
        done = allswell.run_tool_sync([sys.executable, "-c", sys.argv[1]])
        print(done.stdout, done.stderr, end="")
    """
    assert run(script, more=(inner,)).split() == ["8"]


def test_the_wardens_process_loads_nothing_but_the_standard_library() -> None:
    folder = ROOT / "src" / "allswell" / "runtime" / "process"
    script = "import sys; sys.path.append(sys.argv[1]); import apart.main; print(*sorted(sys.modules))"
    command = [sys.executable, "-I", "-S", "-c", script, str(folder)]
    modules = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    own = {name for name in modules if name.split(".")[0] not in {"__main__", *sys.stdlib_module_names}}
    parts = ("", ".main", ".output", ".reaper", ".stops", ".tree", ".wire")
    assert own == {f"apart{part}" for part in parts}


def test_two_hundred_reapers_stay_small(stage: Scene) -> None:
    handles = [stage.start("sleep", "600") for _ in range(200)]
    reapers = [handle.record.reaper for handle in handles]
    megabytes = sum(map(proportional_kb, [*reapers, parent(reapers[0])])) / 1_024
    assert megabytes < 250  # 180 on Python 3.11: see docs/adr/0011
    for handle in handles:
        handle.stop(0)
    for handle in handles:
        assert handle.wait() is not None


def test_the_environment_of_the_host_is_not_the_wardens(stage: Scene) -> None:
    """Keys of the host are in no process that outlives it."""
    handle = stage.start("sleep", "600")
    given = Path(f"/proc/{handle.record.reaper}/environ").read_bytes().split(b"\0")
    assert [name for name in given if name and not name.startswith(b"LD_LIBRARY_PATH=")] == []
