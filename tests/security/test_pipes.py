"""A pipe, or a link to what has no end, in the place of a file that we read: nothing waits for it.

Git carries none, but archives do, and an agent makes one with a word.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from allswell.domain.receipts.step import Artifact
from allswell.flows.run.attempt import git_place
from allswell.flows.run.folder import changed
from allswell.runtime.attempt.output import end_of
from tests import patience

FLOW = """\
name: f
steps:
  - id: a
    run: [sh, -c, "{command}"]
    outputs: [out]
    timeout_override: 300ms
"""


def promptly(call: Callable[[], object]) -> list[object]:
    """What a call answers; a failure if it does not."""
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(call()), daemon=True)
    thread.start()
    thread.join(patience.SECONDS / 3)
    assert not thread.is_alive(), "it waits for a pipe"
    return answers


@pytest.mark.parametrize("command", ["mkfifo out; exec sleep 60", "mkfifo pipe; ln -s pipe out; exec sleep 60"])
def test_a_step_that_is_cut_off_with_a_pipe_for_its_output_ends(tmp_path: Path, command: str) -> None:
    (tmp_path / "flow.yaml").write_text(FLOW.format(command=command))
    words = [sys.executable, "-P", "-m", "allswell", "run", "flow.yaml"]
    environment = {**os.environ, "HOME": str(tmp_path)}
    with subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE) as running:
        try:
            out, _ = running.communicate(timeout=patience.SECONDS / 2)
        finally:
            running.kill()
    assert (running.returncode, b"its limit of 300ms was reached" in out) == (3, True), out


def test_what_stands_in_the_place_of_an_output_is_not_read_for_ever(tmp_path: Path) -> None:
    """When a run goes on, outputs of its steps are looked at again."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        (answer,) = promptly(partial(changed, tmp_path, Artifact(name, name, "0" * 64, 1)))
        assert answer == f"{name} is no file any more"


def test_a_pipe_in_the_place_of_a_head_or_a_transcript_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    os.mkfifo(tmp_path / ".git" / "HEAD")
    assert promptly(lambda: git_place(tmp_path)) == [(None, None)]
    assert promptly(lambda: end_of(tmp_path / ".git" / "HEAD")) == [[]]
