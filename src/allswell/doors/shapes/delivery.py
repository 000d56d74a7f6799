"""What a sink still has to deliver, or has given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from allswell.doors.shapes.moment import Moment, moment

if TYPE_CHECKING:
    from allswell.domain.delivery import Delivery

DeliveryState = Literal["waiting", "failing", "given_up"]


class DeliveryShape(Struct, frozen=True):
    """One message on its way to somebody outside; `tries` have failed so far, `reason` says why the last one did."""

    delivery_id: str
    sink: str
    target: str
    state: DeliveryState
    occurred_at: Moment
    tries: int
    next_at: Moment | None
    reason: str

    @classmethod
    def of(cls, delivery: Delivery) -> DeliveryShape:
        """A delivery as it is kept."""
        state: DeliveryState = "given_up" if delivery.given_up else "failing" if delivery.tries else "waiting"
        return cls(
            delivery_id=delivery.id,
            sink=delivery.sink,
            target=delivery.target,
            state=state,
            occurred_at=moment(delivery.at),
            tries=delivery.tries,
            next_at=None if delivery.given_up or not delivery.next_at else moment(delivery.next_at),
            reason=delivery.reason,
        )


class DeliveriesShape(Struct, frozen=True):
    """Several of them, those of each sink in their order."""

    deliveries: list[DeliveryShape]

    @classmethod
    def of(cls, deliveries: Sequence[Delivery]) -> DeliveriesShape:
        """These."""
        return cls([DeliveryShape.of(one) for one in deliveries])


class RevisedShape(Struct, frozen=True):
    """What was done to deliveries that had been given up or were failing."""

    did: Literal["retried", "dropped"]
    delivery_ids: list[str]
