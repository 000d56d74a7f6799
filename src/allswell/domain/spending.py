"""How a scope's time was spent, and the words in which a timeout is explained: one sentence, and a tree.

Time is booked when a scope ends, under its kind and name: the tree stays small however often a step calls a model.
Scopes that ran beside each other are each booked in full, so that parts may add up to more than the whole.
"""

from __future__ import annotations

import msgspec

from allswell.domain import duration

NAMES_KEPT = 24
"""How many different names are told apart below one scope; what comes later is booked together."""
OTHERS = "others"


class Spending(msgspec.Struct):
    """What scopes of one kind and name took, all together."""

    kind: str
    name: str
    count: int = 0
    seconds: float = 0.0
    timeout_ms: float | None = None
    """The limit that the last of them had of its own."""
    cut: int = 0
    """How many of them were ended by a deadline."""
    inner: Book | None = None


Book = dict[tuple[str, str], Spending]


def book(into: Book, spent: Spending) -> None:
    """Add what a scope took, with all that was booked inside it."""
    known = into.get((spent.kind, spent.name))
    if known is None and len(into) >= NAMES_KEPT:
        spent = Spending(OTHERS, "", spent.count, spent.seconds, None, spent.cut)
        known = into.get((OTHERS, ""))
    if known is None:
        into[(spent.kind, spent.name)] = spent
        return
    known.count += spent.count
    known.seconds += spent.seconds
    known.timeout_ms = spent.timeout_ms
    known.cut += spent.cut
    if spent.inner:
        if known.inner is None:
            known.inner = spent.inner
        else:
            for part in spent.inner.values():
                book(known.inner, part)


class TimeoutReport(msgspec.Struct, frozen=True):
    """What is known about a timeout when it is raised."""

    kind: str
    name: str
    elapsed: float
    """Seconds from entry to the moment it was raised."""
    limit: float
    """Seconds that it really had: what the innermost of own limit and outer scopes left it."""
    timeout_ms: float | None
    """The limit it had of its own."""
    capped_by: tuple[str, str] | None = None
    """Kind and name of the outer scope that left it less than that."""
    abandoned: bool = False
    """Whether it did not stop within the grace, and was given up."""
    spent: tuple[Spending, ...] = ()

    def sentence(self) -> str:
        """What happened, in one sentence."""
        who = label(self.kind, self.name)
        if self.limit <= 0:
            return f"{who} had no time left when it was entered."
        if self.capped_by is None:
            said = f"{who} reached its limit of {span(self.limit)}"
        else:
            own = "no limit of its own" if self.timeout_ms is None else f"{span(self.timeout_ms / 1_000)} of its own"
            said = f"{who} ({own}) reached the {span(self.limit)} that {label(*self.capped_by)} had left for it"
        late = self.elapsed - self.limit
        if late >= 0.001:
            said += f", and ended {span(late)} later"
        if self.abandoned:
            said += "; it did not stop within the grace and was given up"
        return said + "."

    def tree(self) -> str:
        """How the time was spent, largest part first."""
        inner = {(part.kind, part.name): part for part in self.spent}
        whole = Spending(self.kind, self.name, 1, self.elapsed, self.timeout_ms, 1, inner)
        return "\n".join(_lines(whole, "", ""))


def label(kind: str, name: str) -> str:
    """A scope as it is called in sentences."""
    return f"{kind} {name!r}" if name else kind


def span(seconds: float) -> str:
    """A length of time in words, to the millisecond where it is short."""
    ms = round(seconds * 1_000)
    return duration.show(ms) if ms or seconds <= 0 else "under 1ms"


def _lines(entry: Spending, first: str, rest: str) -> list[str]:
    times = f" ×{entry.count}" if entry.count > 1 else ""
    own = "" if entry.timeout_ms is None else f", limit {span(entry.timeout_ms / 1_000)}"
    cut = ", cut" if entry.cut else ""
    if entry.cut and entry.count > 1:
        cut += f" {entry.cut}×"
    lines = [f"{first}{label(entry.kind, entry.name)}{times}: {span(entry.seconds)}{own}{cut}"]
    parts = sorted((entry.inner or {}).values(), key=lambda part: -part.seconds)
    left = entry.seconds - sum(part.seconds for part in parts)
    if parts and left >= 0.001:
        parts.append(Spending("itself", "", 1, left))
    for part in parts:
        last = part is parts[-1]
        lines += _lines(part, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))
    return lines
