"""The simulator: the real engine in a world where everything goes wrong, and every promise is checked.

`simulate(seed)` lives through a day of crashes, pauses, lost answers and hostile agents in about a second, and reports
which promises held. A seed is a history: run it again and the same happens.
"""

from allswell.testing.sim.report import CALM, Broken, Levels, SimReport
from allswell.testing.sim.world import simulate

__all__ = ["CALM", "Broken", "Levels", "SimReport", "simulate"]
