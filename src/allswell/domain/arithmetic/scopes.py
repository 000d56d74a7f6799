"""Limits of nested scopes: what is inside can only fire if it comes before what is around it (F1, F3, F12)."""

from __future__ import annotations

from collections.abc import Iterator

from allswell.domain.arithmetic.figure import Figure
from allswell.domain.arithmetic.finding import Finding, Rule, Severity
from allswell.domain.arithmetic.sum import Sum, exact, one

ABOVE_HARD_LIMIT = Rule("above_hard_limit", Severity.ERROR, "A limit is at most the hard limit of its kind.")
OVERRIDE = Rule("override", Severity.NOTE, "A timeout_override may go beyond the hard limit, and is announced.")
NEVER_FIRES = Rule("never_fires", Severity.ERROR, "A limit is less than that of the scope around it.")


def above_hard_limit(own: Figure, hard: Figure) -> Iterator[Finding]:
    """A limit above the hard limit of its kind is refused at run time."""
    if own.value > hard.value:
        yield ABOVE_HARD_LIMIT.broken(
            f"{own.name} is above its hard limit, {hard.name}; it will be refused.",
            (own, hard),
            sum=Sum((one(own.length),), ">", hard.length),
            fix=f"Lower it to {exact(hard.length)}, or give the steps that need more a timeout_override.",
        )


def override_announced(override: Figure, hard: Figure) -> Iterator[Finding]:
    """An override is the one figure that may be above the hard limit; who reads the flow shall know (F12)."""
    if override.value > hard.value:
        yield OVERRIDE.broken(
            f"{override.name} replaces {hard.name} for this one step, as an override may.",
            (override, hard),
            sum=Sum((one(override.length),), ">", hard.length),
            fix=f"Nothing, if it is meant; otherwise lower it to {exact(hard.length)}.",
        )


def never_fires(inner: Figure, outer: Figure) -> Iterator[Finding]:
    """Whatever runs inside begins later, so at equal limits it is already the outer one that fires.

    A limit that nobody chose and a limit that is merely equal do no harm: these are warnings.
    """
    if inner.value >= outer.value:
        above = inner.value > outer.value
        yield NEVER_FIRES.broken(
            f"{inner.name} can never fire: {outer.name} is over first.",
            (inner, outer) if inner.written else (outer, inner),
            sum=Sum((one(inner.length),), ">" if above else "≥", outer.length),
            fix=f"Make {inner.name} less than {exact(outer.length)}, or {outer.name} more than {exact(inner.length)}.",
            severity=Severity.ERROR if above and inner.written else Severity.WARNING,
        )
