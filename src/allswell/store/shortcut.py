"""The short way to record a step of a flow: one commit, and hardly anything around it.

A unit of work locks, reads, decides and writes, each by calls of its own. A recorded step needs one row to decide on,
the flow's lease, and writes two: that much a store can do at once, on a connection of its own. The core decides here as
everywhere. Where the lease is at hand (SQLite), it is read under the write lock. Where it is a round trip away
(PostgreSQL), the core decides on the lease as the caller last saw it, and one statement writes what was decided if the
row is still that one: it compares, and knows no rule.

What makes it safe is that it may always decline: whatever is not plain (a lease that is not what it was, a row that is
there already, a connection that breaks) is left to the long way, which says who is refused, and why, and recognises a
step that was recorded after all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import msgspec

from allswell.domain.event import Event
from allswell.domain.lease import Lease
from allswell.domain.names import Millis
from allswell.domain.task import Finished


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """A finished task and its event."""

    made: Finished
    event: Event
    at: Millis


Decide = Callable[[Lease, Millis], Recorded | None]
"""A decision on a flow's lease alone; None where more must be known."""


@runtime_checkable
class ShortWay(Protocol):
    """A store that knows one."""

    async def record(self, believed: Lease, decide: Decide) -> bool:
        """As `record_here`, for an event loop, which waits for a thread of the store's; it waits for nobody else."""
        ...

    def record_here(self, believed: Lease, decide: Decide, patience: float) -> bool:
        """Whether what was decided is committed, durably; otherwise, and after any error, go the long way.

        For a thread that has no event loop. It is decided on the lease as it is, or on the one that the caller believes
        in, and committed only if that still stands. One that has waited so many seconds for others goes the long way.
        """
        ...
