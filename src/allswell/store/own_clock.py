"""What a store offers that goes by this machine's clock: the clocks as they are, and a walk over all that runs.

A machine's wall clock can be set; a server's is the server's business. What a store of the first kind lets a unit of
work do about it stands here (docs/adr/0033).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from allswell.domain.lease import Lease
from allswell.domain.names import AgentId, Millis
from allswell.domain.set_back import Settling
from allswell.domain.task import Task
from allswell.errors import AllswellError

SETTLING = "clock_settling"
"""Under which word a watch keeps how far settling has got."""
DISTANCE = "clock_set"
"""Under which word it keeps how far the wall of a machine is ahead of its boottime (ADR 9)."""
_AT_REST = Settling()
_decode = msgspec.json.Decoder(Settling).decode


class SetBack(AllswellError):
    """The time cannot be told: the wall is behind what was told or stored, and that is not settled yet."""


class ClockReading(msgspec.Struct, frozen=True):
    """The clocks as a unit of work finds them."""

    wall: Millis
    latest: Millis
    """The latest moment that was told or stored, and in this process what has passed since."""
    settling: str | None
    """The word about settling, as it is kept."""
    distance: str | None
    """The word about how far the clocks are apart, as it is kept."""


class Moved(msgspec.Struct):
    """What settling writes beside the rows that every unit of work may write."""

    settling: tuple[str | None, str]
    """The word as it was read, and as it shall be; `Conflict` where it is not that any more."""
    distance: str | None = None
    tasks: list[Task] = msgspec.field(default_factory=list)
    """Only the limit in their spec changes."""
    leases: list[Lease] = msgspec.field(default_factory=list)
    """All their moments change."""


class Due(msgspec.Struct, frozen=True):
    """Whose timer it is; `agent` holds the lease, if there is one."""

    owner: str
    agent: AgentId | None


@runtime_checkable
class OwnClock(Protocol):
    """What a unit of work offers on a store that goes by this machine's clock."""

    async def clocks(self) -> ClockReading:
        """The clocks, whatever they say."""
        ...

    async def find_timers(self, after: str, limit: int) -> Sequence[Due]:
        """All timers by owner, for a walk over them."""
        ...


def settling_of(word: str | None) -> Settling:
    """How far settling has got."""
    return _AT_REST if word is None else _decode(word)
