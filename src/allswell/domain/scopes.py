"""Limits of scopes and the arithmetic of nested deadlines (F1, F3, F12); instants are seconds of one monotonic clock.

A scope has a limit of its own, which may be no more than the hard limit of its kind. What it gets is the smaller of
that and what every scope around it has left, worked out anew at each entry:

    effective = min(own, remaining of every outer scope)

An override replaces the hard limit of one scope. It is still capped by what is outside: nothing inside outlives it.

When a scope's time is up, what it bounds is told to stop and has a **grace** to do so. The grace lies inside the budget
of the scope around. Where that has run out too, or is about to (it was what capped the inner one), each level may use a
third of what the level around it has, so that whatever hangs innermost cannot use up the time in which the outer levels
put their things in order.
"""

from __future__ import annotations

import re
from enum import StrEnum
from math import floor, inf
from typing import NewType

import msgspec

from allswell.domain import duration
from allswell.domain.duration import LONGEST, Duration
from allswell.domain.values import Requirement, require
from allswell.errors import Refused


class ScopeKind(StrEnum):
    """The scopes that have a default and a hard limit."""

    FLOW = "flow"
    STEP = "step"
    LLM_CALL = "llm_call"
    TOOL = "tool"


class Timeouts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a scope may take that does not say so itself; milliseconds."""

    flow: int = 1_800_000
    step: int = 600_000
    llm_call: int = 120_000
    tool: int = 300_000


class HardLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a scope may say that it takes; only an override goes beyond. Milliseconds."""

    flow: int = 2_700_000
    step: int = 900_000
    llm_call: int = 180_000
    tool: int = 600_000


class ScopeLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every figure that scopes go by."""

    timeouts: Timeouts = Timeouts()
    hard_limits: HardLimits = HardLimits()
    grace: int = 5_000
    """How long what has been told to stop may take to do so; milliseconds."""

    def timeout(self, kind: ScopeKind) -> int:
        """The limit of a scope of this kind that names none."""
        return int(getattr(self.timeouts, kind))

    def hard_limit(self, kind: ScopeKind) -> int:
        """The most that a scope of this kind may name."""
        return int(getattr(self.hard_limits, kind))


DEFAULT = ScopeLimits()


def limit_rules(limits: ScopeLimits) -> list[Requirement]:
    """Every rule that these limits must keep, with the names that `allswell config` knows."""
    rules = [require(limits.grace >= 0, "{} must not be negative", ("scope_grace", f"{limits.grace} ms"))]
    for kind in ScopeKind:
        usual, most = limits.timeout(kind), limits.hard_limit(kind)
        timeout, hard_limit = (f"timeouts.{kind}", f"{usual} ms"), (f"hard_limits.{kind}", f"{most} ms")
        rules.append(require(usual > 0, "{} must be positive", timeout))
        rules.append(require(usual <= most, "{} must be at most {}", timeout, hard_limit))
    return rules


def own_limit(
    kind: ScopeKind,
    timeout: float | Duration | None = None,
    timeout_override: float | Duration | None = None,
    *,
    limits: ScopeLimits = DEFAULT,
) -> float:
    """The limit that a scope has of its own in milliseconds, or `Refused` with the field and the numbers (F1, F12)."""
    hard = limits.hard_limit(kind)
    most: float = hard
    if timeout_override is not None:
        most = positive(timeout_override, where="timeout_override")
        if timeout is None:
            return most
    own = limits.timeout(kind) if timeout is None else positive(timeout, where="timeout")
    if own > most:
        if timeout_override is None:
            limit = f"its hard limit ({hard} ms); shorten it, or say timeout_override={own}"
        else:
            limit = f"the timeout_override ({most} ms) that stands in for its hard limit; give only one of them"
        said = f"{kind}: timeout ({own} ms) is above {limit}"
        raise Refused("above_hard_limit", said, where="timeout")
    return own


def positive(value: float | Duration, *, where: str) -> float:
    """A length of time in which something can happen, in milliseconds; fractions of one are taken too."""
    if isinstance(value, float):
        if not 0 < value <= duration.LONGEST:  # and no NaN
            raise Refused("bad_duration", f"{where} ({value} ms) must be more than 0 and at most 366 days", where=where)
        return value
    length = duration.parse(value, where=where)
    if length == 0:
        raise Refused("bad_duration", f"{where} must be more than 0 ms", where=where)
    return length


def end_of_grace(deadline: float, grace: float, outer_deadline: float = inf, outer_end: float = inf) -> float:
    """Until when what was told to stop at `deadline` may take, given when the scope around expires and ends."""
    share = deadline + (outer_end - deadline) / 3
    return max(deadline, min(deadline + grace, max(outer_deadline, share)))


# How a deadline is written down to travel: for a child process as an instant, over a network as what is left.
#
# On one machine a child reads the same monotonic clock, so that an instant loses nothing on the way. It means nothing
# after a reboot or on another machine; the boot id in front tells. Between machines no clock is shared: what travels is
# the number of milliseconds left, and the time on the wire is on the receiver's account. Rounded down: the other side
# never believes that it has more time than there is.
#
# Over HTTP it is a header; over MCP, whatever lies below it, an entry of the request's `_meta`. The key has a prefix,
# as that protocol wants it from everybody but itself, and so meets no key of the protocol's own.

VARIABLE = "ALLSWELL_DEADLINE"
HEADER = "Allswell-Remaining-Ms"
META = "allswell/remaining-ms"

BootId = NewType("BootId", str)
_INSTANT = re.compile(r"([0-9A-Za-z-]{1,64}):([0-9]{1,20})", re.ASCII)
_REMAINING = re.compile(r"[0-9]{1,11}", re.ASCII)


def write_instant(boot: BootId, monotonic_ns: int) -> str:
    """The deadline as the environment carries it."""
    return f"{boot}:{monotonic_ns}"


def read_instant(text: str, boot: BootId) -> int:
    """The deadline in nanoseconds of this machine's monotonic clock, or `Refused`."""
    found = _INSTANT.fullmatch(text)
    if found is None:
        said = f"{VARIABLE} must be <boot id>:<nanoseconds>, not {text[:80]!r}; unset it, or let Allswell set it"
        raise Refused("bad_deadline", said, where=VARIABLE)
    if found[1] != boot:
        said = f"{VARIABLE} was written on another machine or before a reboot: its clock is not ours; unset it"
        raise Refused("foreign_deadline", said, where=VARIABLE)
    return int(found[2])


def write_remaining(ms: float) -> int:
    """What is left, as a request carries it: whole milliseconds, never more than there are."""
    return max(floor(min(ms, LONGEST)), 0)


def read_remaining(given: object, where: str) -> int:
    """Milliseconds from a request: a whole number, as text of ASCII digits or as JSON has it, or `Refused`."""
    ms = int(given) if isinstance(given, str) and _REMAINING.fullmatch(given) else given
    if isinstance(ms, bool) or not isinstance(ms, int) or not 0 <= ms <= LONGEST:
        said = f"{where} must be whole milliseconds, at most {LONGEST}, not {str(given)[:80]!r}"
        raise Refused("bad_remaining", said, where=where)
    return ms


# How a scope's time was spent, and the words in which a timeout is explained: one sentence, and a tree.
#
# Time is booked when a scope ends, under its kind and name: the tree stays small however often a step calls a model.
# Scopes that ran beside each other are each booked in full, so that parts may add up to more than the whole.

NAMES_KEPT = 24
"""How many different names are told apart below one scope; what comes later is booked together."""
OTHERS = "others"


class ScopeUse(msgspec.Struct):
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


Book = dict[tuple[str, str], ScopeUse]


def book(into: Book, spent: ScopeUse) -> None:
    """Add what a scope took, with all that was booked inside it."""
    known = into.get((spent.kind, spent.name))
    if known is None and len(into) >= NAMES_KEPT:
        spent = ScopeUse(OTHERS, "", spent.count, spent.seconds, None, spent.cut)
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
    spent: tuple[ScopeUse, ...] = ()

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
        whole = ScopeUse(self.kind, self.name, 1, self.elapsed, self.timeout_ms, 1, inner)
        return "\n".join(_lines(whole, "", ""))


def label(kind: str, name: str) -> str:
    """A scope as it is called in sentences."""
    return f"{kind} {name!r}" if name else kind


def span(seconds: float) -> str:
    """A length of time in words, to the millisecond where it is short."""
    ms = round(seconds * 1_000)
    return duration.show(ms) if ms or seconds <= 0 else "under 1ms"


def _lines(entry: ScopeUse, first: str, rest: str) -> list[str]:
    times = f" ×{entry.count}" if entry.count > 1 else ""
    own = "" if entry.timeout_ms is None else f", limit {span(entry.timeout_ms / 1_000)}"
    cut = ", cut" if entry.cut else ""
    if entry.cut and entry.count > 1:
        cut += f" {entry.cut}×"
    lines = [f"{first}{label(entry.kind, entry.name)}{times}: {span(entry.seconds)}{own}{cut}"]
    parts = sorted((entry.inner or {}).values(), key=lambda part: -part.seconds)
    left = entry.seconds - sum(part.seconds for part in parts)
    if parts and left >= 0.001:
        parts.append(ScopeUse("itself", "", 1, left))
    for part in parts:
        last = part is parts[-1]
        lines += _lines(part, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))
    return lines
