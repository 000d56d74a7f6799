"""Planted bugs: each breaks one rule, lock or read, and the simulator must notice.

`pins.toml` says which seed finds each one and which promise it breaks there; `test_mutants.py` runs them.
"""

from tests.sim import mutants_of_clocks, mutants_of_flows, mutants_of_rules, mutants_of_the_engine
from tests.sim.planting import MUTANTS

__all__ = ["MUTANTS", "mutants_of_clocks", "mutants_of_flows", "mutants_of_rules", "mutants_of_the_engine"]
