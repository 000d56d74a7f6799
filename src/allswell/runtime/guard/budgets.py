"""Retry budgets: what the calls of this process may still spend on retries, service by service."""

from __future__ import annotations

import threading

from allswell.domain.guard import RetryBudget


class RetryBudgets:
    """The tokens of each service that has a budget; to be used by any thread."""

    def __init__(self) -> None:
        self._tokens: dict[str, float] = {}
        self._lock = threading.Lock()

    def earn(self, service: str, budget: RetryBudget) -> None:
        """A call went well."""
        with self._lock:
            self._tokens[service] = min(self._left(service, budget) + budget.earn, budget.tokens)

    def spend(self, service: str, budget: RetryBudget) -> bool:
        """Pay for a retry; False if there is nothing left to pay with."""
        with self._lock:
            left = self._left(service, budget)
            if left < 1:
                return False
            self._tokens[service] = left - 1
            return True

    def _left(self, service: str, budget: RetryBudget) -> float:
        return self._tokens.get(service, float(budget.tokens))


SHARED = RetryBudgets()
"""The budgets of every guard that is not given others."""
