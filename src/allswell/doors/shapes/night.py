"""What became of the night that the demo plays."""

from __future__ import annotations

from msgspec import Struct


class NightShape(Struct, frozen=True):
    """How many tasks, what was lost or saved, and where to look at it."""

    well: bool
    tasks: int
    lost: int
    duplicated: int
    unaccounted: int
    killed: int
    refused: int
    rescued: tuple[str, ...]
    timeline: str
    store: str
