"""Fixtures of durable flows."""

from pathlib import Path

import pytest

from tests.runtime.durable.scene import ran


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    """No step has run when a test begins."""
    ran.clear()


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store of the test's own."""
    return f"sqlite:///{tmp_path / 'watch.db'}"
