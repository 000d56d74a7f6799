"""What a rule finds: what is wrong, the sum that shows it, what to do, and the figures it is about."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from allswell.domain.arithmetic.figure import Figure, Place
from allswell.domain.arithmetic.sum import Sum


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """What is written cannot be: it will be refused, or something that was asked for can never happen."""
    WARNING = "warning"
    """It will run, but not as the figures say."""
    NOTE = "note"
    """Allowed, and worth knowing. Never changes the exit code."""


class Rule(msgspec.Struct, frozen=True):
    """One rule of the arithmetic."""

    id: str
    severity: Severity
    """What a finding is, unless it is milder."""
    holds: str
    """What must hold, in a sentence."""

    def broken(
        self,
        says: str,
        figures: Iterable[Figure],
        *,
        fix: str,
        sum: Sum | None = None,  # noqa: A002 - it is one
        severity: Severity | None = None,
        place: Place | None = None,
    ) -> Finding:
        """A finding of this rule."""
        return Finding(self.id, severity or self.severity, says, fix, tuple(figures), sum, place)


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong."""

    rule: str
    severity: Severity
    says: str
    fix: str
    """What to do, in a sentence."""
    figures: tuple[Figure, ...] = ()
    """The numbers it follows from, the one at fault first."""
    sum: Sum | None = None
    at: Place | None = None
    """Where it is, if no figure's place says so."""

    @property
    def place(self) -> Place | None:
        """Where to look: the first of its figures that somebody wrote."""
        return self.at or next((figure.place for figure in self.figures if figure.place is not None), None)

    @property
    def key(self) -> str:
        """The path of the figure that the place is about."""
        here = self.place
        return next((figure.name for figure in self.figures if figure.place == here), "")


def worth_telling(finding: Finding) -> bool:
    """Whether somebody can be meant: what follows from defaults alone is nobody's mistake, unless it is an error."""
    return finding.severity is Severity.ERROR or finding.place is not None
