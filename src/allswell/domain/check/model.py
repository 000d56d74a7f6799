"""What a rule finds: what is wrong, the sum that shows it, what to do, and the figures it is about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Literal

import msgspec

# A figure that somebody wrote down, or that nobody did: its name, its value and its place.


class Location(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where something is written: a file with line and column, a variable of the environment, or a flag."""

    source: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return ":".join(str(part) for part in (self.source, self.line, self.column) if part is not None)


class CheckFigure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One number of a description; lengths of time are milliseconds."""

    name: str
    """Its path, as its file has it: `timeouts.step`, `steps.build.timeout_override`."""
    value: int | float
    place: Location | None = None
    """None: nobody wrote it; it is a default."""

    @property
    def length(self) -> int:
        """The value of a figure that is a length of time or a count."""
        return int(self.value)

    @property
    def written(self) -> bool:
        """Whether somebody chose this figure."""
        return self.place is not None


# The sum behind a finding, so that a reader can check it: `4 × 2m + 1s + 2s + 4s = 8m 7s > 5m`.

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000))
_LISTED = 6
"""How many pauses are written out; of more, the first ones and the last."""

_ROUNDED = 10_000
"""From here on, advice is given in whole seconds."""

Relation = Literal[">", "≥", "<", "≤"]


def exact(length: int) -> str:
    """A length of time to the millisecond, in the units that settings take: `8m 10.5s`, `400ms`, `0s`."""
    if 0 < length < 1_000:
        return f"{length}ms"
    words = []
    rest = length
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            words.append(f"{count}{unit}")
    if rest or not words:
        words.append(f"{rest / 1_000:g}s")
    return " ".join(words)


def at_most(length: int) -> str:
    """A length to keep below, in figures that one would write down."""
    return exact(length - length % 1_000 if length >= _ROUNDED else length)


def at_least(length: int) -> str:
    """A length to reach, in figures that one would write down."""
    return exact(length + -length % 1_000 if length >= _ROUNDED else length)


class SumTerm(msgspec.Struct, frozen=True):
    """One part of a sum: how it is written, and what it comes to."""

    text: str
    total: int


class SumCheck(msgspec.Struct, frozen=True):
    """What is added up, and what it is held against."""

    terms: tuple[SumTerm, ...]
    relation: Relation
    limit: int

    @property
    def total(self) -> int:
        """What it comes to."""
        return sum(term.total for term in self.terms)

    def __str__(self) -> str:
        left = " + ".join(term.text for term in self.terms)
        total = exact(self.total)
        made = left if left == total else f"{left} = {total}"
        return f"{made} {self.relation} {exact(self.limit)}"


def one(length: int, name: str = "") -> SumTerm:
    """One length of time."""
    return SumTerm(f"{name} {exact(length)}" if name else exact(length), length)


def times(count: int, length: int, *, inside: int = 1) -> SumTerm:
    """The same length several times; each may be several tries inside."""
    counts = [f"{number} × " for number in (count, inside) if number != 1]
    return SumTerm("".join(counts) + exact(length), count * inside * length)


def pauses(bases: Sequence[int], worst: Sequence[int], jitter: float) -> SumTerm:
    """Pauses that double, each with all the jitter that chance can add."""
    shown = [exact(base) for base in bases]
    if len(shown) > _LISTED:
        shown = [*shown[:3], "…", shown[-1]]
    if len(set(bases)) == 1 and len(bases) > 1:
        text = f"{len(bases)} × {shown[0]}"
    else:
        text = " + ".join(shown)
        text = f"({text})" if jitter and len(bases) > 1 else text
    return SumTerm(f"{1 + jitter:g} × {text}" if jitter else text, sum(worst))


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """What is written cannot be: it will be refused, or something that was asked for can never happen."""
    WARNING = "warning"
    """It will run, but not as the figures say."""
    NOTE = "note"
    """Allowed, and worth knowing. Never changes the exit code."""


class CheckRule(msgspec.Struct, frozen=True):
    """One rule of the arithmetic."""

    id: str
    severity: Severity
    """What a finding is, unless it is milder."""
    holds: str
    """What must hold, in a sentence."""

    def broken(
        self,
        says: str,
        figures: Iterable[CheckFigure],
        *,
        fix: str,
        sum: SumCheck | None = None,  # noqa: A002 - it is one
        severity: Severity | None = None,
        place: Location | None = None,
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
    figures: tuple[CheckFigure, ...] = ()
    """The numbers it follows from, the one at fault first."""
    sum: SumCheck | None = None
    at: Location | None = None
    """Where it is, if no figure's place says so."""

    @property
    def place(self) -> Location | None:
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
