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

from enum import StrEnum
from math import inf

import msgspec

from allswell.domain import duration
from allswell.domain.duration import Duration
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


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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


DEFAULT = Limits()


def broken_rules(limits: Limits) -> tuple[str, ...]:
    """The rules that these limits break, each told with the names that `allswell config` knows."""
    rules = [(limits.grace >= 0, f"scope_grace ({limits.grace} ms) must not be negative")]
    for kind in ScopeKind:
        usual, most = limits.timeout(kind), limits.hard_limit(kind)
        rules.append((usual > 0, f"timeouts.{kind} ({usual} ms) must be positive"))
        rules.append(
            (usual <= most, f"timeouts.{kind} ({usual} ms) must be at most hard_limits.{kind} ({most} ms)"),
        )
    return tuple(text for holds, text in rules if not holds)


def own_limit(
    kind: ScopeKind,
    timeout: float | Duration | None = None,
    timeout_override: float | Duration | None = None,
    *,
    limits: Limits = DEFAULT,
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
