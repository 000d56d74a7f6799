"""Guards: retries, breakers and limits around calls to services, in memory or with a store behind them.

`guard` is what users meet, `call` one guarded call, `blocks` blocks of code and generators, `transport` the guard under
an SDK, `model_calls` what models were asked, `breakers` where breakers live, `stored_breakers` those of a watch. The
rules stand in `allswell.domain.service`.
"""

from allswell.runtime.guard.blocks import GuardAttempt
from allswell.runtime.guard.breakers import SHARED, AsyncBreakers, Breakers, CallAdmission, MemoryBreakers
from allswell.runtime.guard.guard import Guard, GuardEnvironment, guard

__all__ = [
    "SHARED",
    "AsyncBreakers",
    "Breakers",
    "CallAdmission",
    "Guard",
    "GuardAttempt",
    "GuardEnvironment",
    "MemoryBreakers",
    "guard",
]
