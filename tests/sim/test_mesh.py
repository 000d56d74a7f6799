"""A hundred agents that ask each other: every promise held, and every planted bug found (M2, M5, M6)."""

import os

import pytest

from allswell.testing.sim.mesh import simulate_mesh
from tests.sim.mutants_of_the_mesh import MESH_MUTANTS

REQUESTS = int(os.environ.get("ALLSWELL_MESH_REQUESTS", "2000"))


@pytest.mark.row("M2", "M5")
@pytest.mark.timeout(3_600)
def test_no_request_is_open_past_its_schedule_and_late_answers_count_once() -> None:
    report = simulate_mesh(1, requests=REQUESTS)
    assert report.broken == []
    assert report.sent >= REQUESTS
    assert report.blocked == report.resolved + report.still_blocked
    assert min(report.answered, report.blocked, report.resolved, report.refused_circles, report.refused_strangers) > 0


def test_the_same_seed_has_the_same_history() -> None:
    assert simulate_mesh(5, agents=12, requests=60) == simulate_mesh(5, agents=12, requests=60)


@pytest.mark.parametrize("name", MESH_MUTANTS)
def test_the_planted_bug_is_found(name: str) -> None:
    planted, breaks = MESH_MUTANTS[name]
    told: list[str] = []
    with planted():
        for seed in range(1, 6):
            told += simulate_mesh(seed, agents=15, requests=150).broken
            if any(one.startswith(breaks) for one in told):
                return
    raise AssertionError(f"not found; it said {told[:3]}")
