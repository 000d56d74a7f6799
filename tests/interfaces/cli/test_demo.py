"""`allswell demo`: real processes, an agent that hangs, and its work brought back."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from allswell import Refused, demo
from tests import patience


@pytest.mark.realtime
def test_an_agent_hangs_its_work_is_kept_comes_back_and_gets_done(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "allswell", "demo", "--keep", str(tmp_path)]
    # As `uvx` starts it: with an environment on PATH that is gone when the demo has ended.
    runner = {**os.environ, "UV": "/usr/bin/uv", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    played = subprocess.run(command, env=runner, capture_output=True, text=True, check=True, timeout=patience.SECONDS)
    story = (
        "waiting for the model",
        "nothing showed progress for 3s; ",
        "+def parse(line):",
        "1 file written to",
        "All's",
    )
    said = played.stdout + played.stderr
    assert [part for part in story if part not in said] == []
    last = played.stdout.splitlines()[-1]
    typed = subprocess.run(
        ["sh", "-c", last],
        cwd="/",
        env={**os.environ, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "“write the parser” is done" in typed.stdout, "its last line is a command that works when it is typed"
    assert (tmp_path / "parser.py").read_text().endswith('for word in line.split(",")]\n')


@pytest.mark.parametrize("name", ["agent", "parser.py"])
def test_a_folder_with_such_files_of_the_users_own_is_refused(tmp_path: Path, name: str) -> None:
    """The agent of the demo was written over theirs, and their parser removed."""
    (tmp_path / "theirs").write_text("mine")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / name).symlink_to(tmp_path / "theirs")
    with pytest.raises(Refused, match="that no demo has made"):
        demo.tell(str(tmp_path / "here"))
    assert (tmp_path / "theirs").read_text() == "mine"
    assert [path.name for path in (tmp_path / "here").iterdir()] == [name]
