"""Which version of Allswell answers."""

from __future__ import annotations

from msgspec import Struct


class VersionShape(Struct, frozen=True):
    """Which version this is."""

    version: str
