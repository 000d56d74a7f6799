"""Fixtures of the command line's tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from allswell.store.trusted import trust_folder
from tests.interfaces.cli.console import Console
from tests.interfaces.cli.shell import Shell
from tests.interfaces.http.served import serving
from tests.runtime.attempt.stage import git
from tests.runtime.process.stage import until


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
    trust_folder(tmp_path)
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "kept").write_text("as it was\n")
    git("init", "-q", "-b", "main", cwd=folder)
    git("add", "-A", cwd=folder)
    git("commit", "-q", "-m", "first", cwd=folder)
    made = Shell(folder, os.urandom(8).hex())
    yield made
    until(lambda: made.living() == [])


@pytest.fixture
def store(request: pytest.FixtureRequest, shell: Shell, tmp_path: Path) -> Iterator[str]:
    """Which store they use, by the test's parameter: their own, PostgreSQL, or one that is served over HTTP."""
    if request.param == "postgres":
        shell.variables["ALLSWELL_STORE"] = request.getfixturevalue("pg_url")
    if request.param != "server":
        yield request.param
        return
    folder = tmp_path / "server"
    folder.mkdir()
    with serving(folder) as served:
        shell.variables |= {"ALLSWELL_STORE": served.url, "ALLSWELL_KEY": served.keys["admin"]}
        yield request.param
