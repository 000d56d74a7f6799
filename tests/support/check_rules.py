"""Every rule of `allswell check`, for tests that go through all of them."""

from __future__ import annotations

from allswell.domain.check import fleet, retries, scopes
from allswell.domain.check.model import CheckRule

RULES: tuple[CheckRule, ...] = tuple(
    value for module in (scopes, retries, fleet) for value in vars(module).values() if isinstance(value, CheckRule)
)
