"""The storm in its short form; `make chaos` runs it for ten minutes on each store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash.storm import storm

SECONDS = {"postgres": 20.0, "sqlite": 6.0}
SEED = int(os.environ.get("ALLSWELL_STORM_SEED", "11"))


@pytest.mark.realtime
@pytest.mark.timeout(300)
@pytest.mark.parametrize("store", SECONDS)
@pytest.mark.row("O10")
def test_everything_adds_up_after_a_storm(store: str, tmp_path: Path) -> None:
    """Promises 1, 2, 3, 4, 6 and 10: lost 0, doubled 0, stale 0, early 0, unaccounted 0, and work goes on in time."""
    verdict = storm(store, SECONDS[store], SEED, tmp_path)
    assert verdict.troubles == [], verdict.told()
    assert verdict.asked["complete"] > 50, verdict.told()
    assert verdict.recoveries, verdict.told()
