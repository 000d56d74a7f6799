"""What a worker has done so far, counted; and how it is."""

from __future__ import annotations

import threading
import time
from collections import Counter

from allswell.domain.health import HEALTH, Health, HealthRules, WorkerCondition, condition

COUNTED = ("handled", "retried", "failed", "quarantined", "late", "given_back", "stuck", "exhausted")
"""Every figure: messages by how their handling ended, and what went wrong with the worker."""


class Figures:
    """Counters that any thread may raise, and the health that follows from them."""

    def __init__(self, rules: HealthRules = HEALTH) -> None:
        self._rules = rules
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._health = Health()

    def handled(self, messages: int = 1) -> None:
        """Messages were handled."""
        with self._lock:
            self._counts["handled"] += messages
            self._health = self._health.after_success()

    def ended(self, how: str) -> None:
        """A message was not handled: retried, quarantined, failed, late or given_back."""
        with self._lock:
            self._counts[how] += 1
            if how in ("retried", "quarantined"):
                self._health = self._health.after_failure()
            elif how == "failed":  # the handler's answer is no, and the worker works
                self._health = self._health.after_success()

    def stuck(self) -> None:
        """A handler got stuck."""
        with self._lock:
            self._counts["stuck"] += 1
            self._health = self._health.after_stuck(_now(), self._rules)

    def exhausted(self) -> None:
        """No connection could be had in time."""
        with self._lock:
            self._counts["exhausted"] += 1
            self._health = self._health.after_exhaustion(_now(), self._rules)

    def counts(self) -> dict[str, int]:
        """Every figure."""
        with self._lock:
            return {name: self._counts[name] for name in COUNTED}

    def condition(self) -> tuple[WorkerCondition, str]:
        """How the worker is, and why."""
        with self._lock:
            return condition(self._health, _now(), self._rules)

    def restarted(self) -> None:
        """A restart clears what was held against it; what was counted stays."""
        with self._lock:
            self._health = Health()


def _now() -> int:
    return int(time.monotonic() * 1_000)
