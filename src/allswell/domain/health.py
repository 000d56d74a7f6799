"""How a worker is: healthy, degraded or critical, from what it has been through lately (W6).

Ten failures in a row degrade it: it works on, and whoever looks is told. Three stuck handlers or five waits in vain for
a connection within five minutes are critical: it is restarted, which clears all of this. A business failure is
an answer and no failure of the worker. Moments are milliseconds of any clock that only goes forward.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class WorkerCondition(StrEnum):
    """How a worker is."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    CRITICAL = "critical"


class HealthRules(msgspec.Struct, frozen=True):
    """Where the lines are drawn."""

    degraded_after: int = 10
    """Failures in a row."""
    critical_stuck: int = 3
    critical_exhausted: int = 5
    window: int = 300_000
    """Only what happened within so many milliseconds counts as critical."""
    spent_restarts: int = 3
    """After so many restarts within the window the process itself is spent: each may have left threads behind."""


def checked_health(rules: HealthRules) -> HealthRules:
    """These rules, or a `ValueError` that names the first one that is no rule."""
    for name in HealthRules.__struct_fields__:
        if getattr(rules, name) < 1:
            raise ValueError(f"{name} ({getattr(rules, name)}) must be at least 1")
    return rules


HEALTH = HealthRules()


class Health(msgspec.Struct, frozen=True):
    """What a worker has been through since it was started."""

    failures: int = 0
    """In a row."""
    stuck: tuple[int, ...] = ()
    """When handlers got stuck, as far back as it counts."""
    exhausted: tuple[int, ...] = ()
    """When no connection could be had."""

    def after_success(self) -> Health:
        """A message was handled."""
        return Health(0, self.stuck, self.exhausted) if self.failures else self

    def after_failure(self) -> Health:
        """A message was not."""
        return Health(self.failures + 1, self.stuck, self.exhausted)

    def after_stuck(self, now: int, rules: HealthRules = HEALTH) -> Health:
        """A handler got stuck."""
        return Health(self.failures, _recent((*self.stuck, now), now, rules), self.exhausted)

    def after_exhaustion(self, now: int, rules: HealthRules = HEALTH) -> Health:
        """A connection was waited for in vain."""
        return Health(self.failures, self.stuck, _recent((*self.exhausted, now), now, rules))


def condition(health: Health, now: int, rules: HealthRules = HEALTH) -> tuple[WorkerCondition, str]:
    """How a worker is, and why in words."""
    stuck, exhausted = len(_recent(health.stuck, now, rules)), len(_recent(health.exhausted, now, rules))
    if stuck >= rules.critical_stuck:
        return WorkerCondition.CRITICAL, f"{stuck} stuck handlers within {rules.window // 1_000} s"
    if exhausted >= rules.critical_exhausted:
        return WorkerCondition.CRITICAL, f"{exhausted} waits in vain for a connection within {rules.window // 1_000} s"
    if health.failures >= rules.degraded_after:
        return WorkerCondition.DEGRADED, f"{health.failures} failures in a row"
    return WorkerCondition.HEALTHY, ""


def spent(restarts: tuple[int, ...], now: int, rules: HealthRules = HEALTH) -> bool:
    """Whether a worker was restarted so often lately that only a new process helps."""
    return len(_recent(restarts, now, rules)) >= rules.spent_restarts


def _recent(moments: tuple[int, ...], now: int, rules: HealthRules) -> tuple[int, ...]:
    return tuple(moment for moment in moments if moment > now - rules.window)
