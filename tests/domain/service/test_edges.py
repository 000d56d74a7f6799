"""The least and the most that figures may be: the edge itself is allowed, and what lies beyond it is not."""

from __future__ import annotations

import pytest
from msgspec.structs import astuple, replace

from allswell.domain import scopes
from allswell.domain.duration import LONGEST
from allswell.domain.ids import Millis
from allswell.domain.scopes import ScopeLimits, Timeouts, positive
from allswell.domain.service.breaker import (
    PROBE_POLL,
    BreakerPolicy,
    CallOutcome,
    CallRefused,
    Permit,
    Service,
    admit,
    breaker_rules,
    pause_left,
    report,
)
from allswell.domain.service.retry import ErrorClass, Failure, GiveUp, RetryAfter, RetryPolicy, judge, retry_rules
from allswell.domain.task.submit import NAME_MAX, check_name, check_text
from allswell.errors import Refused


@pytest.mark.parametrize(
    "field, allowed, beyond",
    [
        ("backoff", (0, LONGEST), (-1, LONGEST + 1)),
        ("retry_after_cap", (60_000, LONGEST), (LONGEST + 1,)),
        ("jitter", (0, 1), (-0.1, 1.1)),
        ("retry_after_default", (0, 300_000), (-1, 300_001)),
        ("max_attempts", (1,), (0,)),
        ("retries", (0, None), (-1,)),
        ("timeouts", (0, None), (-1,)),
    ],
)
def test_the_figures_of_retries(field: str, allowed: tuple[float, ...], beyond: tuple[float, ...]) -> None:
    def broken(value: float) -> int:
        return sum(not rule.holds for rule in retry_rules(replace(RetryPolicy(), **{field: value})))

    assert [broken(value) for value in allowed] == [0] * len(allowed)
    assert [broken(value) for value in beyond] == [1] * len(beyond)


@pytest.mark.parametrize(
    "field, allowed, beyond",
    [
        ("open_after", (1, 5), (0, 6)),
        ("pause", (1, LONGEST), (0, LONGEST + 1)),
        ("probe_lease", (1, LONGEST), (0, LONGEST + 1)),
    ],
)
def test_the_figures_of_breakers(field: str, allowed: tuple[int, ...], beyond: tuple[int, ...]) -> None:
    def broken(value: int) -> int:
        return sum(not rule.holds for rule in breaker_rules(replace(BreakerPolicy(), **{field: value})))

    assert [broken(value) for value in allowed] == [0] * len(allowed)
    assert [broken(value) for value in beyond] == [1] * len(beyond)


def test_limits_may_be_as_long_as_the_hard_ones_and_a_grace_may_be_none() -> None:
    assert all(rule.holds for rule in scopes.limit_rules(ScopeLimits(grace=0)))
    assert sum(not rule.holds for rule in scopes.limit_rules(ScopeLimits(grace=-1))) == 1
    hard = Timeouts(*astuple(ScopeLimits().hard_limits))
    assert all(rule.holds for rule in scopes.limit_rules(ScopeLimits(timeouts=hard)))
    assert positive(float(LONGEST), where="timeout") == LONGEST
    assert positive(0.5, where="timeout") == 0.5
    for value in (0.0, float(LONGEST) + 1, float("nan")):
        with pytest.raises(Refused, match="more than 0"):
            positive(value, where="timeout")


@pytest.mark.row("F4")
def test_timeouts_count_as_tries_only_where_a_task_says_how_many_it_has() -> None:
    def verdict(timeouts: int | None, timed_out: int) -> object:
        policy = RetryPolicy(retries=2, timeouts=timeouts)
        failure = Failure(ErrorClass.NETWORK)
        return judge(policy, failure, earlier={"network": 1}, remaining=None, draw=0.0, timed_out=timed_out)

    assert verdict(None, 5) == RetryAfter(Millis(2_000))
    assert verdict(2, 0) == RetryAfter(Millis(2_000))
    assert isinstance(verdict(2, 1), GiveUp)


@pytest.mark.row("F8")
def test_whoever_is_refused_is_told_how_long_to_wait() -> None:
    shut = Service(failures=3, generation=1, open_until=Millis(1_000))
    assert pause_left(shut, 400) == 600
    assert pause_left(shut, 1_000) == 0
    for left, told in ((PROBE_POLL + 1, PROBE_POLL), (PROBE_POLL - 1, PROBE_POLL - 1), (0, 1)):
        assert pause_left(replace(shut, probe_until=Millis(5_000 + left)), 5_000) == told


@pytest.mark.row("F8")
def test_no_generation_comes_twice_however_often_a_service_fails_and_recovers() -> None:
    """A permit from before would count again."""
    service, policy, now = Service(), BreakerPolicy(open_after=1), 0
    seen = [service.generation]
    for outcome in (
        CallOutcome.FAILED,
        CallOutcome.FAILED,
        CallOutcome.HEALTHY,
        CallOutcome.FAILED,
        CallOutcome.HEALTHY,
    ):
        permit, change = admit("api", service, policy, now)
        assert isinstance(permit, Permit)
        service = report(change.service, policy, permit, outcome, now).service
        seen += [change.service.generation, service.generation]
        refused = admit("api", service, policy, now)[0]
        assert isinstance(refused, CallRefused) is (outcome is CallOutcome.FAILED)
        now += policy.pause
    assert seen == sorted(seen)
    assert len(set(seen)) >= 8, "and each change of who is admitted begins one"


def test_texts_may_be_as_long_as_they_may_be() -> None:
    check_name("n" * NAME_MAX, "name")
    with pytest.raises(Refused):
        check_name("n" * (NAME_MAX + 1), "name")
    for text in ("n" * 16, "é" * 8, "名" * 5, "\ue000\ud7ff"):
        check_text(text, "note", 16)
    for text in ("n" * 17, "é" * 9, "名" * 6, "a\0", "\ud800", "\udfff"):
        with pytest.raises(Refused):
            check_text(text, "note", 16)
