"""Scopes: nested deadlines that hold (`async with within("2s"): …`), and what becomes of work that does not obey.

`scope` is the tree and its rules, `deadlines` the one timer of a loop behind it, `timeout` the error, `running` the
calls whose end is promised (`run`). Scopes with a default and a hard limit (`flow`, `step`, …) are made of these in
`allswell.runtime`.
"""

from allswell.timing.scope.running import abandoned, run
from allswell.timing.scope.scope import Scope, check, current, pause, remaining_ms, within
from allswell.timing.scope.timeout import ScopeTimeout

__all__ = ["Scope", "ScopeTimeout", "abandoned", "check", "current", "pause", "remaining_ms", "run", "within"]
