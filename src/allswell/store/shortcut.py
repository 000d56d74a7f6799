"""The short way to record a step of a flow: one commit, and hardly anything around it.

A unit of work locks, reads, decides and writes, each by calls of its own. A recorded step needs one row to decide on,
the flow's lease, and writes two: that much a store can do in one statement, which commits by itself and writes nothing
unless the flow is still held under the same token, by one who is not stalled. What makes it safe is that it may always
decline: whatever is not plain (a lease that is not what it was, a row that is there already, a connection that breaks)
is left to the long way, which decides anew and recognises a step that was recorded after all.
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

    def record_here(self, believed: Lease, decide: Decide, patience: float) -> bool:
        """Whether what was decided is committed, durably; otherwise, and after any error, go the long way.

        For a thread that has no event loop. It is decided on what the caller believes, and committed only if that is
        still the holder. One that has waited so many seconds for others goes the long way too.
        """
        ...
