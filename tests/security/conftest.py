"""Fixtures of the tests that look at Allswell as an attacker would."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interfaces.cli.console import Console
from tests.security.unprivileged import allswell, folder_of_theirs


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A folder of somebody without rights, who trusts what lies in it."""
    made = folder_of_theirs()
    assert allswell("trust", "--below", "--yes", cwd=made).returncode == 0
    yield made
    shutil.rmtree(made)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Console:
    """The command line, in a folder of its own."""
    return Console(tmp_path, monkeypatch)
