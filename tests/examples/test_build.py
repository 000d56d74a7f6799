"""`examples/build`: a project of four components is built over a chat server, and on standard input and output."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "build"


@pytest.mark.row("C2", "C3", "C5", "C8")
def test_the_talk_builds_the_project_on_standard_input_and_output(tmp_path: Path) -> None:
    with (EXAMPLE / "talk.txt").open() as talk:
        done = subprocess.run(
            [sys.executable, "-m", "allswell", "coordinate", str(EXAMPLE / "components"), "--stdio"],
            cwd=tmp_path,
            stdin=talk,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
    said = [line.removeprefix("coordinator: ").partition(" (PROGRESS")[0] for line in done.stdout.splitlines()]
    assert [line for line in said if line.startswith("MERGED")] == [
        f"MERGED {name}" for name in ("store", "api", "mail", "web")
    ]
    assert 'REJECT store bob "already claimed"' in said
    assert 'REJECT api bob "an agent cannot audit its own build"' in said
    assert "AUDIT web FAIL there are no tests" in said
    assert {"ACK mail bob", "ACK mail cat"} <= set(said)
    assert said[-1] == "BUILD COMPLETE components"


@pytest.mark.row("C2", "C8")
def test_scripted_builders_and_an_auditor_build_it_over_a_chat(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "over_chat.py"), str(tmp_path / "x")],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line.split("  ", 1)[1] for line in done.stdout.splitlines()]
    assert [sum(line == f"MERGED {name}" for line in said) for name in ("store", "api", "web", "mail")] == [1] * 4
    assert sum(line.startswith("ACK ") for line in said) == 4
    about_web = [line for line in said if line.startswith("AUDIT web FAIL")]
    assert [line.split()[-4:] for line in about_web] == [["there", "are", "no", "tests"]] * 2
    assert about_web[1] == "AUDIT web FAIL there are no tests"  # after the auditor's, the coordinator's: it counts
    assert (tmp_path / "x" / "trees" / "web" / "web.test").exists()
    assert said[-1] == "BUILD COMPLETE components"
