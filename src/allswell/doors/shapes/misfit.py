"""Figures that do not fit into each other, as `check` finds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.domain.arithmetic.finding import Severity

if TYPE_CHECKING:
    from allswell.domain.arithmetic.figure import Place
    from allswell.domain.arithmetic.finding import Finding


class PlaceShape(Struct, frozen=True):
    """Where something is written: a file with line and column, a variable of the environment, or a flag."""

    source: str
    line: int | None
    column: int | None

    @classmethod
    def of(cls, place: Place) -> PlaceShape:
        """One place."""
        return cls(place.source, place.line, place.column)


class MisfitShape(Struct, frozen=True):
    """Figures that do not fit: which rule is broken, the sum that shows it, and what to do.

    `numbers` are the figures it follows from, under their names in the file; lengths of time are milliseconds there.
    """

    rule: str
    severity: Severity
    says: str
    sum: str | None
    total_ms: int | None
    limit_ms: int | None
    fix: str
    key: str
    place: PlaceShape | None
    numbers: dict[str, int | float]

    @classmethod
    def of(cls, found: Finding) -> MisfitShape:
        """One of them."""
        return cls(
            rule=found.rule,
            severity=found.severity,
            says=found.says,
            sum=None if found.sum is None else str(found.sum),
            total_ms=None if found.sum is None else found.sum.total,
            limit_ms=None if found.sum is None else found.sum.limit,
            fix=found.fix,
            key=found.key,
            place=None if found.place is None else PlaceShape.of(found.place),
            numbers={figure.name: figure.value for figure in found.figures},
        )


class CheckedShape(Struct, frozen=True):
    """All that does not fit, how much of each kind, and what the command ends with."""

    exit: int
    errors: int
    warnings: int
    notes: int
    findings: list[MisfitShape]

    @classmethod
    def of(cls, code: int, found: Sequence[Finding]) -> CheckedShape:
        """What was found."""
        errors, warnings, notes = (sum(one.severity is kind for one in found) for kind in Severity)
        return cls(code, errors, warnings, notes, [MisfitShape.of(one) for one in found])
