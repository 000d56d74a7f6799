"""Fixtures of the command line's tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.cli.console import Console
from tests.doors.cli.shell import Shell
from tests.runtime.attempt.stage import git
from tests.runtime.warden.stage import until


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Console:
    """The command line, in a folder of its own."""
    return Console(tmp_path, monkeypatch)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """Somebody in a repository of their own; whoever they started has ended in the end."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "kept").write_text("as it was\n")
    git("init", "-q", "-b", "main", cwd=folder)
    git("add", "-A", cwd=folder)
    git("commit", "-q", "-m", "first", cwd=folder)
    made = Shell(folder, os.urandom(8).hex())
    yield made
    until(lambda: made.living() == [])
