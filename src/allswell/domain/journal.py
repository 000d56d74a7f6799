"""The journal as it is read: events in their places."""

from __future__ import annotations

import msgspec

from allswell.domain.event import Event
from allswell.domain.names import Millis


class Position(msgspec.Struct, frozen=True, order=True):
    """A place in the journal; the journal's order is this order, and about one task that of what happened."""

    xid: int = 0
    id: int = 0


class Entry(msgspec.Struct, frozen=True):
    """One event in its place in the journal."""

    position: Position
    at: Millis
    event: Event
