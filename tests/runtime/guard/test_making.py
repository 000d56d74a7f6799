"""Making a guard: figures as people write them, the settings, and what is refused where it is made."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

import pytest

import allswell
from allswell.domain.service.breaker import BreakerPolicy
from allswell.domain.service.guard import GuardPolicy
from allswell.domain.service.retry import RetryPolicy
from allswell.errors import Refused
from allswell.runtime.guard import Guard, GuardEnvironment, MemoryBreakers

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
    monkeypatch.setenv("ALLSWELL_BREAKER_THEN", "wait")
    monkeypatch.setenv("ALLSWELL_BREAKER_FIRST_CALL", "wait")
    monkeypatch.setattr(import_module("allswell.runtime.guard.guard"), "_in_force", None)
    made = allswell.guard("s", retries=1).policy
    # A probe's lease is never shorter than the attempt that it is.
    assert made.breaker == BreakerPolicy(open_after=2, probe_lease=120_000, then="wait")
    assert (made.patient, allswell.guard("s", patient=False).policy.patient) == (True, False)
    assert made.retry == RetryPolicy(backoff=2_000, retries=1)


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


def test_a_plain_function_where_an_async_one_belongs_is_refused_and_called_once() -> None:
    calls: list[int] = []
    made = Guard("s", around=GuardEnvironment(breakers=MemoryBreakers()))
    blocks: Any = lambda: calls.append(1)  # noqa: E731 - any plain function
    with pytest.raises(Refused, match=r"returned NoneType, which cannot be awaited; use guard\.call_sync") as caught:
        asyncio.run(made.call(blocks))
    assert (caught.value.code, calls) == ("not_async", [1])


@pytest.mark.parametrize("on", ["thread", "here"])
def test_an_async_function_where_a_plain_one_belongs_is_refused(on: Any) -> None:  # noqa: ANN401
    made = Guard("s", on=on, around=GuardEnvironment(breakers=MemoryBreakers()))
    sleep: Any = asyncio.sleep
    with pytest.raises(Refused) as caught:
        made.call_sync(sleep, 0)
    assert caught.value.code == "not_sync"


def test_an_object_whose_call_is_async_is_awaited() -> None:
    class Client:
        tries = 0

        async def __call__(self) -> int:
            self.tries += 1
            if self.tries == 1:
                raise ConnectionResetError
            return self.tries

    policy = GuardPolicy(retry=RetryPolicy(backoff=0))
    guarded = Guard("s", policy, around=GuardEnvironment(breakers=MemoryBreakers()))(Client())
    assert asyncio.run(guarded()) == 2


def test_what_is_no_transport_is_refused() -> None:
    with pytest.raises(Refused) as caught:
        allswell.guard("p").transport("http://example.org")
    assert caught.value.code == "bad_transport"
