"""Fixtures of the timing tests."""

from __future__ import annotations

import pytest

from allswell.testing.loop import run
from tests.timing.children import Run


@pytest.fixture(name="go", params=[None, 0, 1, 2, 3], ids=lambda seed: f"seed={seed}")
def _go(request: pytest.FixtureRequest) -> Run:
    return lambda main: run(main, seed=request.param, max_steps=10_000)
