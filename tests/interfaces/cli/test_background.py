"""What a command leaves in the background when it ends well: ended with a word, or left running where that is asked."""

from __future__ import annotations

import os
import signal

from tests.interfaces.cli.shell import Shell
from tests.runtime.process.stage import state, until


def test_what_is_ended_in_the_background_is_named(shell: Shell) -> None:
    told = shell("run", "--", "sh", "-c", "sleep 611 & echo $! > pid; echo fine")
    pid = (shell.folder / "pid").read_text().strip()
    assert told.stdout == "fine\n"
    assert told.stderr == f"allswell: 1 background process was still running: ended: sleep 611 (pid {pid})\n"
    assert state(int(pid)) in "ZX"


def test_what_is_waited_for_is_said_while_it_is_waited_for(shell: Shell) -> None:
    script = "sh -c \"trap '' TERM; touch ready; exec sleep 612\" & until [ -e ready ]; do sleep 0.01; done"
    waiting, ended = shell("run", "--grace", "1500ms", "--", "sh", "-c", script).stderr.splitlines()
    assert waiting.startswith("allswell: the command has ended; waiting up to 1.5s for process ")
    assert "--keep-children" in waiting
    assert ended.startswith("allswell: 1 background process was still running: killed after the grace: sleep 612 (pid ")


def test_keep_children_leaves_them_running(shell: Shell) -> None:
    script = "sleep 613 > /dev/null 2>&1 & echo $! > pid"
    told = shell("run", "--keep-children", "--", "sh", "-c", script).stderr
    pid = int((shell.folder / "pid").read_text())
    assert told == f"allswell: 1 background process was still running: left running: sleep 613 (pid {pid})\n"
    assert state(pid) == "S"
    assert [one for one in shell.json(code=None)["needs"] if one["kind"] == "survivor"] == []
    os.kill(pid, signal.SIGKILL)
    until(lambda: state(pid) in "ZX")
