"""A task that is cancelled while a command works on it: the command stands still within two seconds."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import patience
from tests.interfaces.cli.shell import ALLSWELL, Shell
from tests.runtime.process.stage import until

pytestmark = [pytest.mark.realtime]
AT_ONCE = 2.0
WRITES = "while :; do echo x >> log; sleep 0.02; done"
COMMAND = ["run", "--name", "work", "--grace", "100ms", "--", "sh", "-c", WRITES]
FLOW = f"""
name: nightly
steps:
  - id: work
    run: ["sh", "-c", "{WRITES}"]
"""


def _begins(log: Path) -> None:
    until(lambda: log.exists() and log.stat().st_size > 0)


def _still(log: Path) -> Callable[[], bool]:
    """Whether nothing was written since the last look; a look is 2 ms after the one before, a line 20 ms."""
    sizes: list[int] = []

    def unchanged() -> bool:
        sizes.append(log.stat().st_size)
        return len(sizes) > 100 and sizes[-100] == sizes[-1]

    return unchanged


@pytest.mark.row("F2")
@pytest.mark.parametrize(
    "words, store",
    [
        (COMMAND, "sqlite"),
        (COMMAND, "postgres"),
        (COMMAND, "server"),
        (["run", "--name", "work", "--verify", f"sh -c '{WRITES}'", "--", "true"], "sqlite"),
        (["run", "flow.yaml"], "sqlite"),
    ],
    ids=["command", "command-postgres", "command-server", "verification", "flow"],
    indirect=["store"],
)
@pytest.mark.usefixtures("store")
def test_a_cancelled_command_stands_still_at_once(shell: Shell, words: list[str]) -> None:
    (shell.folder / "flow.yaml").write_text(FLOW)
    log = shell.folder / "log"
    process = subprocess.Popen([*ALLSWELL, *words], cwd=shell.folder, env=shell.env, stderr=subprocess.PIPE, text=True)
    try:
        _begins(log)
        shell("cancel", "work")
        assert until(_still(log)) < AT_ONCE + 0.3, "it goes on writing although its task is cancelled"
        _, told = process.communicate(timeout=patience.SECONDS)
    finally:
        process.kill()
        process.communicate()
    assert "the task was cancelled" in told or words == ["run", "flow.yaml"], told


def test_a_task_cancelled_between_two_attempts_ends_with_what_the_last_one_said(shell: Shell) -> None:
    process = shell.start("--name", "work", "--retries", "6", "--", "sh", "-c", "echo x >> log; exit 7")
    log = shell.folder / "log"
    until(lambda: log.exists() and len(log.read_text()) >= 3)  # more than a second to the next one
    shell("cancel", "work")
    _, told = process.communicate(timeout=patience.SECONDS)
    assert process.returncode == 7, told
    assert "work failed after" in told
