"""The simulator is worth something only if it finds bugs: here are some, and it must find every one."""

import pytest

from allswell.testing.sim import simulate
from tests.sim.mutants import MUTANTS
from tests.sim.repin import HOURS, find, fits, pins

SEEDS_WITHOUT_A_PIN = 60


def test_every_planted_bug_has_its_pin() -> None:
    assert sorted(pins()) == sorted(MUTANTS)
    assert len(MUTANTS) >= 25


@pytest.mark.parametrize("name", MUTANTS)
def test_the_planted_bug_is_found(name: str) -> None:
    """At its pin; where a change to the engine has changed that seed's history, soon after (then pin it again)."""
    pin = pins()[name]
    seed = int(str(pin["seed"]))
    with MUTANTS[name]():
        report = simulate(seed, hours=HOURS)
    if report.broken:
        fits(name, report.broken[0].seen)
        assert report.broken[0].promise == pin["breaks"], "if the engine has changed: python -m tests.sim.repin"
    else:
        assert find(name, most=SEEDS_WITHOUT_A_PIN) is not None, "not even near: python -m tests.sim.repin"


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", MUTANTS)
def test_the_planted_bug_is_found_afresh(name: str) -> None:
    assert find(name) is not None
