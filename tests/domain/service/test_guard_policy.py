"""A guard's policy: refused where it is made, stored and read again, and asked what it would do (F4 to F8)."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from allswell.domain.service.breaker import BreakerPolicy, CallOutcome
from allswell.domain.service.guard import DEFAULT, GuardPolicy, RetryBudget
from allswell.domain.service.retry import ErrorClass, Failure, RetryPolicy
from allswell.errors import Refused

NAN = math.nan
IMPOSSIBLE: list[tuple[str, dict[str, Any]]] = [
    ("timeout (0 ms) must be positive", {"timeout": 0}),
    ("timeout (-1 ms) must be positive", {"timeout": -1}),
    ("timeout (nan) must be a whole number", {"timeout": NAN}),
    ("timeout ('2m') must be a whole number", {"timeout": "2m"}),
    ("timeout (True) must be a whole number", {"timeout": True}),
    ("timeout (1.5) must be a whole number", {"timeout": 1.5}),
    ("timeout (31622400001 ms) must be positive and at most 366 days", {"timeout": 31_622_400_001}),
    ("attempt_timeout (0 ms) must be positive", {"attempt_timeout": 0}),
    ("retry.backoff (-1 ms) must not be negative", {"retry": RetryPolicy(backoff=-1)}),
    ("retry.jitter (nan) must be a number", {"retry": RetryPolicy(jitter=NAN)}),
    ("retry.jitter (-0.1) must be between 0 and 1", {"retry": RetryPolicy(jitter=-0.1)}),
    ("retry.max_attempts (0) must be at least 1", {"retry": RetryPolicy(max_attempts=0)}),
    ("retry.retry_after_cap (inf) must be a whole number", {"retry": RetryPolicy(retry_after_cap=math.inf)}),  # type: ignore[arg-type]
    ("retry must be a RetryPolicy, not 3", {"retry": 3}),
    ("retries must map error classes to numbers, not 3", {"retries": 3}),
    ("retries.flaky names no error class; choose one of: network, server", {"retries": {"flaky": 3}}),
    ("retries.server (-1) must not be negative", {"retries": {"server": -1}}),
    ("retries.server (nan) must be a whole number", {"retries": {"server": NAN}}),
    ("retries.auth (1): auth is never retried", {"retries": {"auth": 1}}),
    ("breaker.open_after (0) must be at least 1", {"breaker": BreakerPolicy(open_after=0)}),
    ("breaker.pause (0 ms) must be positive", {"breaker": BreakerPolicy(pause=0)}),
    ("breaker.pause (nan) must be a whole number", {"breaker": BreakerPolicy(pause=NAN)}),  # type: ignore[arg-type]
    (
        "breaker.escalate_after (2) must be at least breaker.open_after (3)",
        {"breaker": BreakerPolicy(escalate_after=2)},
    ),
    (
        "breaker.probe_lease (-5 ms) must be positive",
        {"breaker": BreakerPolicy(probe_lease=-5), "attempt_timeout": None},
    ),
    ("attempt_timeout (180001 ms) must be at most breaker.probe_lease (180000 ms)", {"attempt_timeout": 180_001}),
    ("breaker.then ('hope') must be 'probe' or 'wait'", {"breaker": BreakerPolicy(then="hope")}),  # type: ignore[arg-type]
    ("budget.tokens (0) must be at least 1", {"budget": RetryBudget(tokens=0)}),
    ("budget.earn (2) must be between 0 and 1", {"budget": RetryBudget(earn=2)}),
    ("budget.earn (inf) must be a number", {"budget": RetryBudget(earn=math.inf)}),
]


@pytest.mark.parametrize("rule, figures", IMPOSSIBLE)
def test_an_impossible_policy_is_refused_where_it_is_made_naming_the_field(rule: str, figures: dict[str, Any]) -> None:
    with pytest.raises(Refused) as caught:
        GuardPolicy(**figures)
    assert caught.value.code == "bad_policy"
    assert rule in caught.value.message
    assert caught.value.where == rule.split(" ", 1)[0]


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(Refused, match=r"timeout \(0 ms\).*; attempt_timeout \(0 ms\)"):
        GuardPolicy(timeout=0, attempt_timeout=0)


@pytest.mark.parametrize(
    "policy",
    [
        DEFAULT,
        GuardPolicy(timeout=1, attempt_timeout=None, breaker=None, budget=RetryBudget(), patient=True),
        GuardPolicy(retries={"server": 0, "auth": 0}, breaker=BreakerPolicy(then="wait", open_after=5)),
    ],
)
def test_a_policy_is_stored_and_read_again(policy: GuardPolicy) -> None:
    assert msgspec.json.decode(msgspec.json.encode(policy), type=GuardPolicy) == policy
    assert msgspec.convert(msgspec.to_builtins(policy), GuardPolicy) == policy


def test_the_default_is_stored_as_nothing_and_a_typing_error_is_found() -> None:
    assert msgspec.json.encode(DEFAULT) == b"{}"
    with pytest.raises(msgspec.ValidationError, match="timout"):
        msgspec.json.decode(b'{"timout": 5}', type=GuardPolicy)


@pytest.mark.row("F8")
def test_the_defaults_of_the_breaker_are_the_seeds_figures() -> None:
    breaker = BreakerPolicy()
    assert (breaker.open_after, breaker.pause, breaker.escalate_after) == (3, 30_000, 5)


# --- decide -----------------------------------------------------------------------------------------------------------


@pytest.mark.row("F4", "F5", "F6", "F7")
@pytest.mark.parametrize(
    "error, told, said",
    [
        (503, {}, "server: attempt 2 follows after 1s to 1.5s"),
        ("network", {"attempt": 3}, "network: attempt 4 follows after 4s to 6s"),
        (ConnectionResetError(), {"attempt": 4}, "fail: a network error after 3 retries"),
        (429, {"attempt": 5, "retry_after": "7s"}, "rate_limit: attempt 6 follows after 7s to 10.5s"),
        (429, {"attempt": 6}, "ask a human: a rate limit after 5 retries"),
        (429, {"retry_after": "10h"}, "rate_limit: the service is parked for all tasks for 10h; no attempt is used up"),
        (500, {"retry_after": "7s"}, "overload: attempt 2 follows after 7s to 10.5s"),
        (502, {"retry_after": "10h"}, "overload: the service is parked for all tasks for 10h; no attempt is used up"),
        (429, {"retry_after": "5m"}, "rate_limit: attempt 2 follows after 5m"),
        (503, {"retry_after": "10h"}, "overload: the service is parked for all tasks for 10h; no attempt is used up"),
        (500, {"remaining": "1s"}, "fail: a server error: the next try in 1s would not fit into the 1s left"),
        (500, {"remaining": 1_200}, "server: attempt 2 follows after 1s to 1.199s"),
        (500, {"remaining": 1_200.9}, "server: attempt 2 follows after 1s to 1.199s"),
        (500, {"remaining": 0.0}, "fail: a server error: the next try in 1s would not fit into the 0ms left"),
        (400, {}, "fail: a bad request is not retried"),
        (401, {}, "ask a human: a refused login is not retried"),
        (TypeError(), {}, "fail: a bug is not retried"),
        (Failure(ErrorClass.OVERLOAD, status=529), {"attempt": 2}, "overload: attempt 3 follows after 2s to 3s"),
    ],
)
def test_decide_explains_without_calling(error: Any, told: dict[str, Any], said: str) -> None:  # noqa: ANN401
    assert DEFAULT.decide(error, **told).explain() == said


def test_decide_says_what_the_breaker_would_be_told() -> None:
    assert DEFAULT.decide(500).tells is CallOutcome.FAILED
    assert DEFAULT.decide(429).tells is CallOutcome.HEALTHY
    assert DEFAULT.decide(TypeError()).tells is CallOutcome.UNTOLD


def test_decide_goes_by_the_policys_own_figures() -> None:
    policy = GuardPolicy(retries={"server": 5}, retry=RetryPolicy(backoff=10, jitter=0))
    assert policy.decide(500, attempt=5).explain() == "server: attempt 6 follows after 160ms"
    assert policy.decide(500, attempt=6).action == "fail"


@pytest.mark.parametrize(
    "error, told, code",
    [
        (200, {}, "bad_status"),
        (True, {}, "bad_status"),
        ("flaky", {}, "bad_class"),
        (500, {"attempt": 0}, "bad_attempt"),
        (500, {"remaining": -1}, "bad_duration"),
        (500, {"remaining": "soon"}, "bad_duration"),
        (500, {"remaining": math.nan}, "bad_duration"),
        (500, {"remaining": -0.5}, "bad_duration"),
        (None, {}, "bad_error"),
        (TimeoutError, {}, "bad_error"),
        (500, {"retry_after": -5}, "bad_duration"),
    ],
)
def test_decide_refuses_what_it_cannot_judge(error: Any, told: dict[str, Any], code: str) -> None:  # noqa: ANN401
    with pytest.raises(Refused) as caught:
        DEFAULT.decide(error, **told)
    assert caught.value.code == code
