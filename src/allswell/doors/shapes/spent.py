"""What attempts have cost, in money and in tokens; null is unknown, never nought."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.domain.expense import SpentBy, usd
from allswell.doors.shapes.moment import Moment, moment

if TYPE_CHECKING:
    from allswell.domain.expense import Spent


class SpentShape(Struct, frozen=True):
    """Sums of what agents reported: of `attempts` that said anything, `priced` said what they cost."""

    cost_usd: float | None
    tokens_in: int | None
    tokens_out: int | None
    attempts: int
    priced: int

    @classmethod
    def of(cls, spent: Spent) -> SpentShape:
        """A sum."""
        return cls(usd(spent.cost), spent.given, spent.written, spent.attempts, spent.priced)


class CostShape(Struct, frozen=True):
    """What one task, run, role or agent has cost; of all together the name is empty."""

    name: str
    spent: SpentShape


class CostsShape(Struct, frozen=True):
    """Sums of what agents reported since a moment (null: ever), by what they are told of."""

    by: SpentBy
    since_at: Moment | None
    costs: list[CostShape]

    @classmethod
    def of(cls, by: SpentBy, since: int, sums: Mapping[str, Spent]) -> CostsShape:
        """All of them."""
        costs = [CostShape(name, SpentShape.of(spent)) for name, spent in sorted(sums.items())]
        return cls(by, moment(since or None), costs)
