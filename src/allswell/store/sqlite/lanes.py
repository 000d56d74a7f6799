"""The lanes that a process has read: they are never changed or removed, so each is read once."""

from __future__ import annotations

from allswell.domain.task import Lane


class KnownLanes:
    """Lanes already read, and the id of the last of them."""

    def __init__(self) -> None:
        self.lanes: list[Lane] = []
        self.last = 0
