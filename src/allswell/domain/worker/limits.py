"""The five time limits around one message, each a little longer than the one inside it (W2).

    statement < visibility < visibility + grace

PostgreSQL ends a statement first, then the message becomes visible to others, then the handler counts as stuck, then
the worker is restarted, then its process. The wait for a connection stands beside them: it is over before a message is
read. A set of limits in another order cannot work, and is refused when a worker is made with it.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from allswell.domain.duration import LONGEST

# How a worker is: healthy, degraded or critical, from what it has been through lately (W6).
#
# Ten failures in a row degrade it: it works on, and whoever looks is told. Three stuck handlers or five waits in vain
# for a connection within five minutes are critical: it is restarted, which clears all of this. A business failure is
# an answer and no failure of the worker. Moments are milliseconds of any clock that only goes forward.


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
    stuck: tuple[tuple[int, int], ...] = ()
    """When handlers got stuck, as far back as it counts, and with which message; 0: it does not matter.

    A message whose handler hangs each time counts once: it is poison, and no sign that the worker is ill."""
    exhausted: tuple[int, ...] = ()
    """When no connection could be had."""

    def after_success(self) -> Health:
        """A message was handled."""
        return Health(0, self.stuck, self.exhausted) if self.failures else self

    def after_failure(self) -> Health:
        """A message was not."""
        return Health(self.failures + 1, self.stuck, self.exhausted)

    def after_stuck(self, now: int, rules: HealthRules = HEALTH, *, message: int = 0) -> Health:
        """A handler got stuck."""
        others = (one for one in self.stuck if not message or one[1] != message)
        return Health(self.failures, _recent_stuck((*others, (now, message)), now, rules), self.exhausted)

    def after_exhaustion(self, now: int, rules: HealthRules = HEALTH) -> Health:
        """A connection was waited for in vain."""
        return Health(self.failures, self.stuck, _recent((*self.exhausted, now), now, rules))


def condition(health: Health, now: int, rules: HealthRules = HEALTH) -> tuple[WorkerCondition, str]:
    """How a worker is, and why in words."""
    stuck, exhausted = len(_recent_stuck(health.stuck, now, rules)), len(_recent(health.exhausted, now, rules))
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


def _recent_stuck(stuck: tuple[tuple[int, int], ...], now: int, rules: HealthRules) -> tuple[tuple[int, int], ...]:
    return tuple(one for one in stuck if one[0] > now - rules.window)


def _recent(moments: tuple[int, ...], now: int, rules: HealthRules) -> tuple[int, ...]:
    return tuple(moment for moment in moments if moment > now - rules.window)


LONGEST_SECONDS = LONGEST // 1_000
MOST_MILLISECONDS = 2**31 - 1
STUCK_GRACE = 5
"""So many seconds after its message became visible to others a handler counts as stuck."""


class Layers(msgspec.Struct, frozen=True):
    """The limits that a worker goes by; seconds, except for the statement timeout, as PostgreSQL and PGMQ have them."""

    statement_timeout: int = 25_000
    """Milliseconds that one statement of a handler may take."""
    visibility_timeout: int = 30
    """How long a message that was read is hidden from others; PGMQ takes whole seconds."""
    pool_timeout: float = 30.0
    """How long is waited for a connection when all are in use."""
    stuck_grace: float = STUCK_GRACE
    concurrency: int = 10
    """How many messages are handled at a time."""

    @property
    def stuck_after(self) -> float:
        """How long a handler may run before it counts as stuck."""
        return self.visibility_timeout + self.stuck_grace


def layer_rules(layers: Layers) -> list[tuple[bool, str]]:
    """Every rule that these limits must keep, with whether they do."""
    statement, visibility = layers.statement_timeout, layers.visibility_timeout
    kinds = [
        (whole(statement), f"statement_timeout ({statement!r}) must be a whole number of milliseconds"),
        (
            whole(visibility),
            f"visibility_timeout ({visibility!r}) must be a whole number of seconds: PGMQ takes no other",
        ),
    ]
    if not all(holds for holds, _ in kinds):
        return kinds  # what is no number cannot be compared
    return [
        *kinds,
        (statement > 0, f"statement_timeout ({statement}ms) must be more than 0, which PostgreSQL takes for no limit"),
        (
            0 < visibility <= LONGEST_SECONDS,
            f"visibility_timeout ({visibility}s) must be more than 0 and at most 366 days",
        ),
        (
            statement <= MOST_MILLISECONDS,
            f"statement_timeout ({statement}ms) must be at most {MOST_MILLISECONDS}ms: PostgreSQL knows no longer one",
        ),
        (
            statement < visibility * 1_000,
            (
                f"statement_timeout ({statement}ms) must be less than"
                f" visibility_timeout ({visibility}s = {visibility * 1_000}ms)"
            ),
        ),
        (
            0 < layers.pool_timeout <= LONGEST_SECONDS,
            f"pool_timeout ({layers.pool_timeout}s) must be more than 0 and at most 366 days",
        ),
        (
            0 <= layers.stuck_grace <= LONGEST_SECONDS,
            f"stuck_grace ({layers.stuck_grace}s) must be at least 0 and at most 366 days",
        ),
        (
            whole(layers.concurrency) and layers.concurrency >= 1,
            f"concurrency ({layers.concurrency!r}) must be a whole number of at least 1",
        ),
    ]


def checked_layers(layers: Layers) -> Layers:
    """These limits, or a `ValueError` with the arithmetic of the first rule that they break."""
    for holds, text in layer_rules(layers):
        if not holds:
            raise ValueError(text)
    return layers


def statement_cap(layers: Layers, left: float) -> int:
    """How many milliseconds the next statement may take, with so many seconds left of the visibility; 0: none."""
    return max(min(layers.statement_timeout, int(left * 1_000)), 0)


def whole(number: object) -> bool:
    """Whether it is a whole number, whatever a caller without types gave."""
    return isinstance(number, int) and not isinstance(number, bool)
