"""Guards: retries, breakers and limits around calls to services, in memory or with a store behind them.

`guard` is what users meet, `trial` one call as it is lived through, `attempts` and `streams` blocks and generators,
`transport` the guard under an SDK, `breakers` where breakers live, `stored` those of a watch. The rules stand in
`allswell.domain`.
"""

from allswell.runtime.guard.attempts import Attempt
from allswell.runtime.guard.breakers import SHARED, Admission, AsyncBreakers, Breakers, MemoryBreakers
from allswell.runtime.guard.guard import Guard, Surroundings, guard

__all__ = [
    "SHARED",
    "Admission",
    "AsyncBreakers",
    "Attempt",
    "Breakers",
    "Guard",
    "MemoryBreakers",
    "Surroundings",
    "guard",
]
