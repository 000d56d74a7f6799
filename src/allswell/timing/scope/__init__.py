"""Scopes: nested deadlines that hold (`async with within("2s"): …`), and what becomes of work that does not obey.

`scope` is the tree and its rules, `effect` the scope in effect, `expiry` what happens at its end, `deadlines` the one
timer of a loop behind all of them, `timeout` the error, `misuse` what is refused, `running` the calls whose end is
promised (`run`). Scopes with a default and a hard limit (`flow`, `step`, …) are made of these in `allswell.runtime`.
"""

from allswell.timing.scope.effect import check_deadline, current, remaining_ms
from allswell.timing.scope.running import abandoned, run
from allswell.timing.scope.scope import Scope, pause, within
from allswell.timing.scope.timeout import ScopeTimeout

__all__ = ["Scope", "ScopeTimeout", "abandoned", "check_deadline", "current", "pause", "remaining_ms", "run", "within"]
