"""Nearly every test of a scope runs in asyncio's own order and in some drawn ones: the promises hold in all of them."""

from __future__ import annotations

import pytest

from allswell.testing.loop import run
from tests.timing.scope.stage import Run


@pytest.fixture(name="go", params=[None, 0, 1, 2], ids=lambda seed: f"seed={seed}")
def _go(request: pytest.FixtureRequest) -> Run:
    return lambda main: run(main, seed=request.param, max_steps=20_000)
