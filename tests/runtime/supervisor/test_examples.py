"""Every example runs as it stands; stand-ins take the places of Claude Code and Codex, and speak as they do."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
STANDIN = Path(__file__).with_name("standin.py")
SPEAKING = {
    "claude": "claude:init,claude:tool,write:made.txt,claude:text:CHECKPOINT; {}|Estimated Progress; 50%,claude:result",
    "codex": "codex:done",
}


class Place:
    """A copy of an example, with our command and the stand-ins on PATH."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / name
        shutil.copytree(EXAMPLES / name, self.folder)
        tools = folder / "bin"
        tools.mkdir()
        for agent, part in SPEAKING.items():
            script = tools / agent
            script.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {STANDIN} "{part}"\n')
            script.chmod(0o755)
        clean = {key: value for key, value in os.environ.items() if not key.startswith("ALLSWELL_")}
        own = str(Path(sys.executable).parent)
        self.env = {**clean, "PATH": os.pathsep.join((str(tools), own, clean["PATH"]))}

    def __call__(self, *words: str) -> str:
        done = subprocess.run(words, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def worked_off(self, *submit: str) -> object:
        """What a task came to, once the fleet has worked everything off."""
        id_ = self("allswell", "submit", *submit).strip()
        self("allswell", "up", "--drain")
        told = msgspec.json.decode(self("allswell", "show", id_, "--json"))
        assert told["task"]["state"] == "done", told
        result: object = told["result"]
        return result


def test_every_fleet_is_tried() -> None:
    fleets = {folder.name for folder in EXAMPLES.iterdir() if (folder / "allswell.toml").is_file()}
    flows = {folder.name for folder in EXAMPLES.iterdir() if list(folder.glob("*.yaml"))}
    assert fleets - flows == {"claude-code", "codex", "shell", "function"}


def test_claude_code(tmp_path: Path) -> None:
    place = Place(tmp_path, "claude-code")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        place("git", "-c", "user.name=x", "-c", "user.email=x@example.com", *words)
    result = place.worked_off("make it", "--role", "builder")
    assert isinstance(result, dict)
    assert result.pop("session").startswith("session-")
    assert result == {"exit_code": 0, "message": "done", "changed": 1}
    assert "  allswell/" in place("git", "branch")
    assert not (place.folder / "made.txt").exists(), "it worked in a tree of its own"


def test_codex(tmp_path: Path) -> None:
    result = Place(tmp_path, "codex").worked_off("make it", "--role", "builder")
    assert isinstance(result, dict)
    assert (result["exit_code"], result["message"]) == (0, "done")


def test_shell(tmp_path: Path) -> None:
    place = Place(tmp_path, "shell")
    (place.folder / "text.txt").write_text("three small words")
    done = place.worked_off("count", "--role", "shell", "--payload", '"text.txt"')
    assert done == {"file": "text.txt", "words": 3}
    assert "counted" in place("allswell", "events", "-n", "100")


@pytest.mark.parametrize("role, result", [("reader", {"characters": 17}), ("counter", {"words": 3})])
def test_functions(tmp_path: Path, role: str, result: dict[str, int]) -> None:
    place = Place(tmp_path, "function")
    (place.folder / "text.txt").write_text("three small words")
    assert place.worked_off("look", "--role", role, "--payload", '"text.txt"') == result
