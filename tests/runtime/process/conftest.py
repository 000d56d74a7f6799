"""A folder with commands, for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.process.stage import Scene, scene, until


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as made:
        yield made
    until(lambda: made.living() == [])  # whatever a test was about: to let go of a handle ends its tree
