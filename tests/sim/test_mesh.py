"""A hundred agents that ask each other: every promise held, and every planted bug found (M2, M3, M5 to M8)."""

import os

import pytest

from tests.sim.mutants_of_the_mesh import MESH_MUTANTS
from tests.support.sim_mesh import simulate_mesh

REQUESTS = int(os.environ.get("ALLSWELL_MESH_REQUESTS", "400"))
"""In 400 everything there is to meet is met; `make sim` has 100,000."""
SEEDS = (8, 3, 2, 4, 1, 5)
"""Of planted bugs: the first three find those soonest that are rare."""


@pytest.mark.row("M2", "M3", "M5", "M6", "M7", "M8")
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("crashes", [False, True])
def test_no_request_is_open_past_its_schedule_and_late_answers_count_once(crashes: bool) -> None:
    """With crashes, processes die where they stand, and answers of the store are lost."""
    requests = REQUESTS // 4 if crashes else REQUESTS
    report = simulate_mesh(1, requests=requests, agents=25 if crashes else 100, crashes=crashes)
    assert report.broken == []
    assert report.sent >= requests
    assert report.blocked == report.resolved + report.given_up + report.still_blocked
    seen = (report.answered, report.blocked, report.resolved, report.refused_circles, report.refused_strangers)
    assert min(*seen, report.to_roles, report.told_long, report.passed_over, report.degraded) > 0
    assert min(report.posted, report.declined, report.not_waited_for) > 0
    assert (report.crashes > 0) == crashes


def test_the_same_seed_has_the_same_history() -> None:
    assert simulate_mesh(5, agents=12, requests=60) == simulate_mesh(5, agents=12, requests=60)


@pytest.mark.parametrize("name", MESH_MUTANTS)
def test_the_planted_bug_is_found(name: str) -> None:
    planted, breaks = MESH_MUTANTS[name]
    told: list[str] = []
    with planted():
        for seed in SEEDS:
            told += simulate_mesh(seed, agents=15, requests=150, until=breaks).broken
            if any(one.startswith(breaks) for one in told):
                return
    raise AssertionError(f"not found; it said {told[:3]}")
