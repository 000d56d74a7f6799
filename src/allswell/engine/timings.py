"""Every pause and every bound inside the engine, each with a name, so that an error can say which one it was."""

from __future__ import annotations

import msgspec

from allswell.domain.values import Requirement, require


class Timings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How patient the engine is; seconds."""

    store_patience: float = 30.0
    """How long a command waits for a store that cannot be reached before its caller gets `Unavailable`."""
    retry_first: float = 0.05
    """The first pause before a store that failed is tried again; each further one is twice the last."""
    retry_most: float = 1.0
    claim_poll: float = 0.25
    """How often a waiting claim looks again by itself; news from this process wakes it at once."""
    sweep_most: float = 1.0
    """The longest a sweeper sleeps when nothing is due: what other processes arm is seen within this time."""
    sweep_busy: float = 0.02
    """The pause when what is due is locked by another process."""
    set_aside: float = 30.0
    """How long a timer that could not be handled is left alone before it is tried again."""
    follow_poll: float = 0.25
    service_trust: float = 1.0
    """How long a guard goes by what it last heard of a service that nothing is held against."""
    service_patience: float = 2.0
    """How long a guard waits for the store; after that it goes by this process's own breakers."""
    clock_jump: float = 5.0
    """Wall clock and monotonic clock drifting apart by more than this is a jump: the machine slept."""


def pace_rules(pace: Timings) -> list[Requirement]:
    """Every rule that this pace must keep, with the names that `allswell config` knows."""
    figures = {name: (f"pace.{name}", f"{getattr(pace, name):g} s") for name in pace.__struct_fields__}
    first, most = figures["retry_first"], figures["retry_most"]
    return [
        *(require(getattr(pace, name) > 0, "{} must be positive", figure) for name, figure in figures.items()),
        require(pace.retry_first <= pace.retry_most, "{} must be at most {}", first, most),
    ]


DEFAULT_PACE = Timings()


# How much may be amiss before a check-up says so, each figure with a name; lengths of time are milliseconds.


class HealthThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a check-up draws the line between quiet and trouble."""

    overdue: int = 10_000
    """How long something may be due before it counts as overdue: sweepers look about once a second."""
    unclaimed: int = 300_000
    """How long a task may be ready without an agent that takes it."""
    behind: int = 300_000
    """How old the first event that a follower has not read yet may be."""
    shut: int = 900_000
    """How long a service's breaker may stay open."""
    parked: int = 21_600_000
    """How long a service or an account may be parked: the usual window of an account is five hours."""
    clock_skew: int = 5_000
    """How far the store's clock and this machine's may differ."""
    disk_free: int = 500_000_000
    """Bytes that should be free on the disk of an SQLite store; below a tenth of it, writing is in danger."""


DEFAULT_TOLERANCE = HealthThresholds()
