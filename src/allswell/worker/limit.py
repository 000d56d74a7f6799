"""How long the next statement of a handler may take: its own limit, or what is left of the message's visibility."""

from __future__ import annotations

import time

from allswell.domain.layers import Layers, statement_cap
from allswell.worker.failures import OutOfTime


class Limit:
    """The limit on the statements of one handling of one message."""

    def __init__(self, layers: Layers, ends: float) -> None:
        self._layers = layers
        self.ends = ends
        """When the message becomes visible to others, on the monotonic clock; moves when it is hidden for longer."""
        self.in_force: int | None = None
        """What `statement_timeout` was last set to in this transaction; None: no statement was made yet."""
        self.asked = 0.0
        """When the last statement was begun."""

    def begin_anew(self) -> None:
        """A whole visibility more, for the worker's own last statement: there the token is the fence, not the clock."""
        self.ends = time.monotonic() + self._layers.visibility_timeout
        if self.in_force is not None and self.in_force < self._layers.statement_timeout:
            self.in_force = None

    def next_cap(self) -> int | None:
        """What `statement_timeout` must be set to before the next statement; None: what is set still holds."""
        now = time.monotonic()
        cap = statement_cap(self._layers, self.ends - now)
        if cap < 1:  # never 0, which PostgreSQL takes for "no limit"
            raise OutOfTime
        self.asked = now
        if self.in_force is not None and cap >= self.in_force:
            return None
        self.in_force = cap
        return cap
