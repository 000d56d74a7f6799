"""Those outside who are told, and how that goes."""

from __future__ import annotations

from msgspec import Struct


class SinkShape(Struct, frozen=True):
    """One sink: what waits for it, and why the first of that was not delivered, if it was tried.

    One that is not `set_up` here any more has no kind; what it was told last is kept until it is forgotten.
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


class SinkCheckedShape(Struct, frozen=True):
    """Whether a sink can be told anything; `says` is what is wrong, or what is right."""

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
