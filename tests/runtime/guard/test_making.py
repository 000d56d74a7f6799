"""Making a guard: figures as people write them, the settings, and what is refused where it is made."""

from __future__ import annotations

from typing import Any

import pytest

import allswell
from allswell.domain.breaker import BreakerPolicy
from allswell.domain.guard import GuardPolicy
from allswell.domain.retry import RetryPolicy
from allswell.errors import Refused
from allswell.runtime.guard.figures import use_policy

NO_BREAKER = GuardPolicy(breaker=None)
WRONG: Any = 5
ONCE = GuardPolicy(retry=RetryPolicy(retries=0))


def test_allswell_guard_takes_figures_as_people_write_them() -> None:
    made = allswell.guard("anthropic", timeout="2m", attempt_timeout="30s", retries={"server": 5}, patient=True)
    assert made.policy == GuardPolicy(timeout=120_000, attempt_timeout=30_000, retries={"server": 5}, patient=True)
    assert allswell.guard("s", retries=1).policy.retry.retries == 1
    assert allswell.guard("s", breaker=False).policy.breaker is None
    assert allswell.guard("s", GuardPolicy(timeout=5)).policy.timeout == 5


def test_a_guard_that_names_no_policy_goes_by_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLSWELL_BREAKER_OPEN_AFTER", "2")
    monkeypatch.setenv("ALLSWELL_RETRY_BACKOFF", "2s")
    monkeypatch.setenv("ALLSWELL_BREAKER_PROBE_LEASE", "1s")
    use_policy(None)
    try:
        made = allswell.guard("s", retries=1).policy
        # A probe's lease is never shorter than the attempt that it is.
        assert made.breaker == BreakerPolicy(open_after=2, probe_lease=120_000)
        assert made.retry == RetryPolicy(backoff=2_000, retries=1)
    finally:
        monkeypatch.undo()
        use_policy(None)


@pytest.mark.parametrize(
    "made, code",
    [
        (lambda: allswell.guard(""), "bad_service"),
        (lambda: allswell.guard("a\nb"), "bad_service"),
        (lambda: allswell.guard("s", GuardPolicy(), timeout=5), "two_policies"),
        (lambda: allswell.guard("s", timeout="soon"), "bad_duration"),
        (lambda: allswell.guard("s", timeout=0), "bad_policy"),
        (lambda: allswell.guard("s", retries=-1), "bad_policy"),
        (lambda: allswell.guard("s")(WRONG), "bad_function"),
        (lambda: allswell.guard(WRONG), "bad_service"),
        (lambda: allswell.guard("s", WRONG), "bad_policy"),
        (lambda: allswell.guard("s", patient=WRONG), "bad_policy"),
        (lambda: allswell.guard("s", classifier=WRONG), "bad_hook"),
        (lambda: allswell.guard("s", on_incident=WRONG), "bad_hook"),
        (lambda: allswell.guard("s", watch=WRONG), "bad_watch"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_made(made: object, code: str) -> None:
    assert callable(made)
    with pytest.raises(Refused) as caught:
        made()
    assert caught.value.code == code
    assert caught.value.where
