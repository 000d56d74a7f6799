"""Limits of scopes: defaults, hard limits, overrides, and how long what was told to stop may take."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allswell.domain.scopes import HardLimits, ScopeKind, ScopeLimits, Timeouts, end_of_grace, limit_rules, own_limit
from allswell.errors import Refused
from tests.properties.budget import DETERMINISTIC

MINUTE = 60_000
SEED = {
    ScopeKind.FLOW: (30, 45),
    ScopeKind.STEP: (10, 15),
    ScopeKind.LLM_CALL: (2, 3),
    ScopeKind.TOOL: (5, 10),
}


@pytest.mark.row("F1")
@pytest.mark.parametrize("kind", ScopeKind)
def test_the_seeds_default_and_hard_limit(kind: ScopeKind) -> None:
    default, hard = SEED[kind]
    assert own_limit(kind) == default * MINUTE
    assert own_limit(kind, hard * MINUTE) == hard * MINUTE
    with pytest.raises(
        Refused, match=f"{kind}: timeout .*{hard * MINUTE + 1} ms.* hard limit .{hard * MINUTE} ms"
    ) as no:
        own_limit(kind, hard * MINUTE + 1)
    assert (no.value.code, no.value.where) == ("above_hard_limit", "timeout")


@pytest.mark.row("F12")
def test_an_override_replaces_the_hard_limit_of_one_scope() -> None:
    """The seed's own example: a step of 20 minutes, where the hard limit is 15."""
    assert own_limit(ScopeKind.STEP, timeout_override=1_200_000) == 20 * MINUTE
    assert own_limit(ScopeKind.STEP, "17m", "20m") == 17 * MINUTE
    assert own_limit(ScopeKind.STEP, timeout_override="1m") == MINUTE
    with pytest.raises(Refused, match=r"1200000 ms\) that stands in for its hard limit"):
        own_limit(ScopeKind.STEP, "21m", "20m")


@pytest.mark.parametrize("field", ["timeout", "timeout_override"])
@pytest.mark.parametrize("wrong", [0, -5, "0ms", "never", float("nan"), float("inf"), -1.5, True])
def test_a_limit_that_cannot_be_is_refused_by_name(field: str, wrong: float | str) -> None:
    with pytest.raises(Refused) as caught:
        own_limit(ScopeKind.TOOL, **{field: wrong})  # type: ignore[arg-type]
    assert caught.value.where == field
    assert field in caught.value.message


def test_limits_are_checked_against_each_other() -> None:
    def broken(limits: ScopeLimits) -> list[tuple[str, tuple[str, ...]]]:
        return [(rule.says, rule.figures) for rule in limit_rules(limits) if not rule.holds]

    assert broken(ScopeLimits()) == []
    assert broken(ScopeLimits(Timeouts(tool=20), HardLimits(tool=10), grace=-1)) == [
        ("scope_grace (-1 ms) must not be negative", ("scope_grace",)),
        (
            "timeouts.tool (20 ms) must be at most hard_limits.tool (10 ms)",
            ("timeouts.tool", "hard_limits.tool"),
        ),
    ]
    assert broken(ScopeLimits(Timeouts(flow=0))) == [("timeouts.flow (0 ms) must be positive", ("timeouts.flow",))]


def test_the_grace_lies_inside_the_budget_of_the_scope_around() -> None:
    assert end_of_grace(10.0, 5.0) == 15.0
    assert end_of_grace(10.0, 5.0, 60.0, 65.0) == 15.0
    assert end_of_grace(10.0, 5.0, 13.0, 18.0) == 13.0
    # Where the outer one is what ended it: a third of what that has, so that it can still clean up.
    assert end_of_grace(10.0, 6.0, 10.0, 16.0) == 12.0
    assert end_of_grace(10.0, 6.0, 10.0, 12.0) == pytest.approx(10.0 + 2 / 3)


times = st.floats(0, 1_000)


@DETERMINISTIC
@given(deadline=times, grace=times, later=times, outer_grace=times)
def test_no_level_uses_up_the_grace_of_the_one_around(
    deadline: float, grace: float, later: float, outer_grace: float
) -> None:
    outer_deadline = deadline + later
    outer_end = outer_deadline + outer_grace
    end = end_of_grace(deadline, grace, outer_deadline, outer_end)
    assert deadline <= end <= max(deadline + grace, deadline)
    assert end <= max(outer_deadline, deadline + (outer_end - deadline) / 3) <= outer_end + 1e-9
    assert end_of_grace(deadline, grace, inf, inf) == deadline + grace
