"""How much may be amiss before a check-up says so, each figure with a name; lengths of time are milliseconds."""

from __future__ import annotations

import msgspec


class Tolerance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a check-up draws the line between quiet and trouble."""

    overdue: int = 10_000
    """How long something may be due before it counts as overdue: sweepers look about once a second."""
    unclaimed: int = 900_000
    """How long a task may be ready with nobody at work on its role."""
    behind: int = 300_000
    """How old the first event that a follower has not read yet may be."""
    shut: int = 900_000
    """How long a service's breaker may stay open."""
    clock_skew: int = 5_000
    """How far the store's clock and this machine's may differ."""
    disk_free: int = 500_000_000
    """Bytes that should be free on the disk of an SQLite store; below a tenth of it, writing is in danger."""


DEFAULT = Tolerance()
