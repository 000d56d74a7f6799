"""What a supervisor says while it watches."""

from __future__ import annotations

from msgspec import Struct

from allswell.doors.shapes.moment import Moment


class SaidShape(Struct, frozen=True):
    """One line of a supervisor's."""

    said_at: Moment
    said: str
