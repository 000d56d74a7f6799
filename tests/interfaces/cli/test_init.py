"""`allswell init`: the first settings of a project."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interfaces.cli.shell import Shell
from tests.interfaces.cli.upkeep import at_terminal, environment


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH with two agents on it, and nothing else that we know."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("claude", "codex"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    return f"{programs}:/usr/bin:/bin"


def typed(shell: Shell, path: str, answers: str, *args: str) -> str:
    said = at_terminal("init", *args, cwd=shell.folder, columns=80, typed=answers, PATH=path, NO_COLOR="1")
    assert said.code == 0, said
    return said.out


def test_two_questions_at_a_terminal_and_what_was_chosen_passes_the_check(shell: Shell, path: str) -> None:
    said = typed(shell, path, "codex\n2\n")
    assert "Which agents should take tasks? claude, codex [all]" in said
    assert "How many of each at once? [1]" in said
    assert "allswell.toml is written: codex" in said
    assert "allswell up" in said
    text = (shell.folder / "allswell.toml").read_text()
    assert "[agents.codex]" in text
    assert "[agents.claude]" not in text
    assert ("concurrency = 2" in text, "worktree = true" in text, 'idle = "10m"' in text) == (True, True, True)
    assert shell.json("config", "bring_needs")["settings"][0]["value"] is True
    assert (shell.folder / ".gitignore").read_text() == ".allswell/\n"
    shell("check")
    assert "nothing is overwritten" in shell("init", "--yes", code=2).stderr
    assert (shell.folder / "allswell.toml").read_text() == text


def test_nothing_is_asked_where_it_is_not_wanted_and_a_dry_run_writes_nothing(shell: Shell, path: str) -> None:
    env = environment(PATH=path, HOME=str(shell.folder.parent))
    command = [sys.executable, "-m", "allswell", "init"]

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *args], cwd=shell.folder, env=env, capture_output=True, text=True, check=True)

    (shell.folder / ".gitignore").write_text("*.o")
    assert "[agents.claude]" in run("--dry-run").stdout
    assert not (shell.folder / "allswell.toml").exists()
    assert (shell.folder / ".gitignore").read_text() == "*.o"
    run("--yes")
    assert (shell.folder / ".gitignore").read_text() == "*.o\n.allswell/\n"
    assert (shell.folder / "allswell.toml").stat().st_mode & 0o777 == 0o644


def test_links_and_folders_of_others_are_not_written_to(shell: Shell) -> None:
    elsewhere = shell.folder.parent / "elsewhere"
    elsewhere.write_text("")
    (shell.folder / ".gitignore").symlink_to(elsewhere)
    said = shell("init", "--agent", "claude")
    assert "is left as it is: it is a link" in said.stderr
    assert elsewhere.read_text() == ""
    (shell.folder / "allswell.toml").unlink()
    (shell.folder / "allswell.toml").symlink_to(elsewhere)
    assert "already" in shell("init", "--agent", "claude", code=2).stderr
    assert elsewhere.read_text() == ""
    (shell.folder / "allswell.toml").unlink()
    os.chmod(shell.folder, 0o777)  # noqa: PTH101, S103 - as somebody careless would
    assert "other users can write to it" in shell("init", "--agent", "claude", code=2).stderr
    assert not (shell.folder / "allswell.toml").exists()
    os.chmod(shell.folder, 0o755)  # noqa: PTH101, S103
    assert "nothing is known of 'clod'" in shell("init", "--agent", "clod", code=2).stderr
