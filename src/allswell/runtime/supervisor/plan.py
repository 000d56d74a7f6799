"""What a supervisor is told to do: its fleet and its figures, all of them settings."""

from __future__ import annotations

import socket
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field

from allswell.domain.fleet import MAIN, AgentSpec, Fleet
from allswell.domain.names import AgentId
from allswell.domain.quota import DEFAULT as QUOTA
from allswell.domain.quota import Quota
from allswell.domain.usage import USAGE_LIMIT_PAUSE, Thresholds
from allswell.engine.budgeting import NO_BUDGETS, Budgets
from allswell.engine.watch import Watch
from allswell.runtime.receipts import Home
from allswell.timing.clock import Clock, SystemClock


@dataclass(frozen=True)
class Plan:
    """How one supervisor works; lengths of time are milliseconds."""

    fleet: Fleet
    home: Home
    name: str = MAIN
    host: str = field(default_factory=socket.gethostname)
    lease: int = 30_000
    stop: int = 30_000
    thresholds: Thresholds = field(default_factory=Thresholds)
    park_limits: bool = True
    limit_pause: int = USAGE_LIMIT_PAUSE
    quota: Quota = QUOTA
    """What each attempt may put into the store."""
    budgets: Budgets = NO_BUDGETS
    """What may be spent in a day."""
    reminder: int | None = 3_600_000
    drain: bool = False
    """Stop when nothing is left that this fleet could do."""
    clock: Clock = field(default_factory=SystemClock)
    beside: Sequence[Callable[[Watch], Coroutine[object, object, None]]] = ()
    """What is done beside the fleet for as long as it is watched, such as telling sinks; it must not fail."""
    tell: Callable[[str], None] = lambda _: None
    """Takes a line for whoever watches the supervisor itself."""


@dataclass
class Slot:
    """One place in the fleet: an agent that can hold one task at a time."""

    spec: AgentSpec
    holder: AgentId
    rests_until: float = 0.0
    """On the loop's clock: it could not be started, and is not tried at once again."""
