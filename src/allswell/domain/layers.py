"""The five time limits around one message, each a little longer than the one inside it (W2).

    statement < visibility < visibility + grace

PostgreSQL ends a statement first, then the message becomes visible to others, then the handler counts as stuck, then
the worker is restarted, then its process. The wait for a connection stands beside them: it is over before a message is
read. A set of limits in another order cannot work, and is refused when a worker is made with it.
"""

from __future__ import annotations

import msgspec

from allswell.domain.duration import LONGEST
from allswell.domain.health import HealthRules

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


def drawing(layers: Layers, health: HealthRules) -> str:
    """The five layers as one drawing, with the limits in force."""
    critical = (
        f"{health.critical_stuck} stuck or {health.critical_exhausted} waits in vain in {health.window // 1_000} s"
    )
    visibility, stuck = f"{layers.visibility_timeout} s", f"{layers.stuck_after:g} s"
    rows = [
        (
            "1 statement",
            f"{layers.statement_timeout:,} ms",
            "PostgreSQL ends the statement; the message is tried again",
        ),
        (
            "2 connection",
            f"{layers.pool_timeout:g} s",
            "no connection is free: counted, and no message is read meanwhile",
        ),
        ("3 visibility", visibility, "the message shows again; who had it can commit nothing any more"),
        ("4 handler", stuck, "stuck: stack logged, connection cut, a new thread takes its place"),
        ("5 worker", critical, "restarted in its process; then the process itself"),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    edge = "─" * (sum(widths) + 8)
    lines = [f"│ {name:<{widths[0]}}   {limit:>{widths[1]}}   {then:<{widths[2]}} │" for name, limit, then in rows]
    return "\n".join([f"┌{edge}┐", *lines, f"└{edge}┘"])


def whole(number: object) -> bool:
    """Whether it is a whole number, whatever a caller without types gave."""
    return isinstance(number, int) and not isinstance(number, bool)
