"""The sum behind a finding, so that a reader can check it: `4 × 2m + 1s + 2s + 4s = 8m 7s > 5m`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

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


class Term(msgspec.Struct, frozen=True):
    """One part of a sum: how it is written, and what it comes to."""

    text: str
    total: int


class Sum(msgspec.Struct, frozen=True):
    """What is added up, and what it is held against."""

    terms: tuple[Term, ...]
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


def one(length: int, name: str = "") -> Term:
    """One length of time."""
    return Term(f"{name} {exact(length)}" if name else exact(length), length)


def times(count: int, length: int, *, inside: int = 1) -> Term:
    """The same length several times; each may be several tries inside."""
    counts = [f"{number} × " for number in (count, inside) if number != 1]
    return Term("".join(counts) + exact(length), count * inside * length)


def pauses(bases: Sequence[int], worst: Sequence[int], jitter: float) -> Term:
    """Pauses that double, each with all the jitter that chance can add."""
    shown = [exact(base) for base in bases]
    if len(shown) > _LISTED:
        shown = [*shown[:3], "…", shown[-1]]
    if len(set(bases)) == 1 and len(bases) > 1:
        text = f"{len(bases)} × {shown[0]}"
    else:
        text = " + ".join(shown)
        text = f"({text})" if jitter and len(bases) > 1 else text
    return Term(f"{1 + jitter:g} × {text}" if jitter else text, sum(worst))
