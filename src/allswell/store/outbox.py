"""The part of a store that keeps what sinks still have to deliver. Plain rows: what becomes of them, others decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from allswell.domain.delivery import Delivery, DeliveryFilter
from allswell.domain.journal import Position


class OutboxViews(Protocol):
    """The part that shows it."""

    async def view_deliveries(self, which: DeliveryFilter) -> list[Delivery]:
        """What is still to be delivered or was given up, in its order."""
        ...


class Outbox(OutboxViews, Protocol):
    """Deliveries, beside the cursors of those who make them."""

    async def enlist(
        self, follower: str, after: Position, upto: Position, deliveries: Sequence[Delivery], memory: str = ""
    ) -> bool:
        """Keep new deliveries, move a follower's cursor and keep its memory: all of it or nothing.

        False, and nothing is changed, if the cursor is not where the follower believes it is (`after`): somebody else
        follows in its name, or an answer was lost. So no event is taken in twice. The memory is a word under
        `memory_key(follower)`; an empty one leaves that as it was.
        """
        ...

    async def forget(self, follower: str, sink: str) -> None:
        """Forget a follower: its cursor, what its sink still had to deliver, and every word under its name."""
        ...

    async def revise(self, changed: Sequence[Delivery], gone: Sequence[Delivery] = ()) -> None:
        """Write deliveries as they are now, and forget those that are gone; what is not there any more stays away."""
        ...
