"""Every rule of the arithmetic, for those who list them."""

from __future__ import annotations

from allswell.domain.arithmetic import checkins, folders, retries, roles, scopes, steps, worker
from allswell.domain.arithmetic.finding import Rule

RULES: tuple[Rule, ...] = tuple(
    value
    for module in (scopes, retries, checkins, folders, roles, steps, worker)
    for value in vars(module).values()
    if isinstance(value, Rule)
)
