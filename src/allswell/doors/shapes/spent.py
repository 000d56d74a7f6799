"""What attempts have cost, in money and in tokens; null is unknown, never nought."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.domain.expense import usd

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
