"""Fixtures of the tests that look at Allswell as an attacker would."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.cli.console import Console
from tests.security.unprivileged import folder_of_theirs


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A folder of somebody without rights."""
    made = folder_of_theirs()
    yield made
    shutil.rmtree(made)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Console:
    """The command line, in a folder of its own."""
    return Console(tmp_path, monkeypatch)
