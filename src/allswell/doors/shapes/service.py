"""A service that guards call: how its breaker stands, and what has been asked about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.domain.breaker import Stand, stand
from allswell.domain.service import open_question
from allswell.doors.shapes.moment import Moment, moment

if TYPE_CHECKING:
    from allswell.domain.service import ServiceRow


class ServiceShape(Struct, frozen=True):
    """One service; it said that it is back at `parked_until_at`, and our own pause ends at `open_until_at`."""

    service: str
    breaker: Stand
    failures: int
    open_until_at: Moment | None
    parked_until_at: Moment | None
    since_at: Moment | None
    question_id: str | None

    @classmethod
    def of(cls, row: ServiceRow, now: int) -> ServiceShape:
        """How it stands now."""
        state = row.state
        parked = state.parked_until if state.parked_until is not None and state.parked_until > now else None
        return cls(
            service=row.id,
            breaker=stand(state, now),
            failures=state.failures,
            open_until_at=moment(state.open_until),
            parked_until_at=moment(parked),
            since_at=moment(row.since or None),
            question_id=open_question(row),
        )


class ServicesShape(Struct, frozen=True):
    """Every service that something is or was held against."""

    services: list[ServiceShape]

    @classmethod
    def of(cls, rows: Mapping[str, ServiceRow], now: int) -> ServicesShape:
        """All of them, by name."""
        return cls([ServiceShape.of(row, now) for _, row in sorted(rows.items())])
