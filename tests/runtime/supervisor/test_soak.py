"""Scaled forms of the fleet's proofs; `make soak` runs the full ones."""

import os
import sys
from pathlib import Path

import pytest

from tests.runtime.supervisor.soak import soak

AGENTS = int(os.environ.get("ALLSWELL_SOAK_AGENTS", "20"))
SECONDS = float(os.environ.get("ALLSWELL_SOAK_SECONDS", "12"))
KILLS = int(os.environ.get("ALLSWELL_SOAK_KILLS", "3"))


@pytest.mark.realtime
@pytest.mark.timeout(SECONDS * 2 + 240)
def test_a_fleet_with_one_in_five_misbehaving_loses_nothing(tmp_path: Path) -> None:
    found = soak(tmp_path, agents=AGENTS, seconds=SECONDS)
    sys.stdout.write(f"{found}\n")  # for those who look with -s
    assert found.tasks > AGENTS
    assert not found.would_not_stop
    assert found.bad_ends > 0
    assert (found.lost, found.duplicated, found.orphans, found.without_receipt, found.unfinished) == (0, 0, 0, 0, 0), (
        found
    )
    assert found.memory_mb < 250, found
    assert found.cpu_share < 0.25, found


@pytest.mark.realtime
@pytest.mark.timeout(KILLS * 10 + 240)
@pytest.mark.row("O8")
def test_its_supervisor_killed_at_random_leaves_nothing_unwatched_and_nothing_twice(tmp_path: Path) -> None:
    found = soak(tmp_path, agents=10, kills=KILLS)
    assert found.kills == KILLS
    assert found.done == found.tasks
    assert (found.lost, found.duplicated, found.orphans, found.twice_at_once, found.unfinished) == (0, 0, 0, 0, 0), (
        found
    )
