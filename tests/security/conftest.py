"""Fixtures of the tests that look at Allswell as an attacker would."""

from pathlib import Path

import pytest

from tests.doors.cli.console import Console


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Console:
    """The command line, in a folder of its own."""
    return Console(tmp_path, monkeypatch)
