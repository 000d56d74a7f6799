"""Sinks, how telling them goes, and what they still have to deliver or have given up."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from msgspec import Struct, field

from allswell.domain.mesh.comms import CommStatus
from allswell.domain.notify.delivery import Delivery, follower_name, sink_of
from allswell.domain.rules.event import Entry
from allswell.store.views import Views
from allswell.timing.moment import Moment, moment
from allswell.views.fields import as_shape, outside

DeliveryState = Literal["waiting", "failing", "given_up"]


class DeliveryShape(Struct, frozen=True):
    """One message on its way to a sink; `tries` have failed so far, `reason` says why the last one did."""

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
        next_at = None if delivery.given_up or not delivery.next_at else delivery.next_at
        return as_shape(delivery, cls, delivery_id=delivery.id, state=state, occurred_at=delivery.at, next_at=next_at)


class DeliveriesShape(Struct, frozen=True):
    """Several of them, those of each sink in their order."""

    deliveries: list[DeliveryShape]


class RevisedShape(Struct, frozen=True):
    """What was done to deliveries that had been given up or were failing."""

    did: Literal["retried", "dropped"]
    delivery_ids: list[str]


# The sinks, and how their deliveries go.


class SinkShape(Struct, frozen=True):
    """One sink: what waits for it, and why the first of that was not delivered, if it was tried.

    One that is not `set_up` here any more has no kind; its cursor is kept until it is forgotten.
    """

    sink: str
    kind: str
    set_up: bool
    waiting: int
    given_up: int
    reason: str


class SinksShape(Struct, frozen=True):
    """All that are set up here."""

    sinks: list[SinkShape]


async def removed_sinks(views: Views, set_up: Collection[str]) -> list[str]:
    """The sinks that something is kept of, and that are not set up any more."""
    known = {sink_of(key) or "" for key in await views.view_kept(follower_name(""))}
    return sorted(known - {"", *set_up})


class SinkCheckedShape(Struct, frozen=True):
    """Whether a sink takes messages; `says` is what is wrong, or that all is right."""

    sink: str
    kind: str
    fits: bool
    says: str


class SinksCheckedShape(Struct, frozen=True):
    """All of them, checked."""

    sinks: list[SinkCheckedShape]


class SetUpShape(Struct, frozen=True):
    """The Notion database of a sink; `made` now, or there before and found to fit."""

    sink: str
    database_id: str
    made: bool


class SinkForgottenShape(Struct, frozen=True):
    """A sink that was forgotten, and how many deliveries went with it."""

    sink: str
    dropped: int


class RouteTestedShape(Struct, frozen=True):
    """A test alert on one route; the route itself is a secret, so it has a number."""

    sink: str
    severity: str
    route: int
    delivered: bool
    reason: str


class AlertsTestedShape(Struct, frozen=True):
    """Every route of every alerts sink."""

    routes: list[RouteTestedShape]


# Facts of the journal, with the fields of docs/reference/events.md; and messages of the communication log.


class EventShape(Struct, frozen=True):
    """An event in its place; which fields `data` has depends on its kind."""

    position: tuple[int, int]
    occurred_at: Moment
    kind: str
    task_id: str | None
    run_id: str | None
    agent_id: str | None
    token: int | None
    data: dict[str, Any]

    @classmethod
    def of(cls, entry: Entry) -> EventShape:
        """An entry of the journal."""
        event = entry.event
        return cls(
            position=(entry.position.xid, entry.position.id),
            occurred_at=moment(entry.at),
            kind=event.kind,
            task_id=event.task,
            run_id=event.run,
            agent_id=event.agent,
            token=event.token,
            data=outside(event.data),
        )


# One message between agents, with the nine fields of the protocol's communication log.


class CommShape(Struct, frozen=True):
    """A row of the communication log; `timeout_min` is null unless an agent waited in vain."""

    request: str = field(name="request_id")
    event: str
    source: str = field(name="source_agent")
    target: str = field(name="target_agent")
    status: CommStatus
    timeout_min: float | None
    blocked_task: str
    resolution: str
    at: Moment = field(name="occurred_at")
    retries: int = field(name="retry_count")
    task: str = field(name="task_id")
