"""A deadline around a guarded call: once it has passed nothing is repeated, and the service is blamed for nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Literal

import pytest

import allswell
from allswell.domain.service.breaker import CLEAN
from allswell.domain.service.guard import GuardPolicy
from allswell.domain.service.retry import RetryPolicy
from allswell.runtime.guard import Guard, GuardEnvironment, MemoryBreakers
from allswell.timing import scopes
from allswell.timing.scopes import ScopeTimeout, check_deadline, within
from tests.runtime.guard.stage import Stage, now, play


class Hand:
    """The clock of sync scopes, moved by hand."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(name="clock")
def _clock(monkeypatch: pytest.MonkeyPatch) -> Hand:
    hand = Hand()
    monkeypatch.setattr(scopes, "_monotonic", hand)
    return hand


@pytest.mark.row("F3", "F8")
def test_sync_code_that_is_told_that_its_time_is_up_is_not_called_again_in_the_grace(clock: Hand) -> None:
    breakers, slept, calls = MemoryBreakers(), list[float](), list[float]()
    guard = Guard("s", on="here", around=GuardEnvironment(breakers=breakers, sleep=slept.append))

    def work() -> None:
        calls.append(clock.now)
        clock.now += 11
        check_deadline()

    def block() -> None:
        with within("10s", kind="step"):
            guard.call_sync(work)

    with pytest.raises(ScopeTimeout, match="step reached its limit of 10s"):
        block()
    assert (len(calls), slept) == (1, [])
    assert breakers.standing("s")[1] == CLEAN


@pytest.mark.row("F3")
def test_a_body_that_answers_its_cancel_with_an_error_is_not_called_again_in_the_grace() -> None:
    async def main() -> None:
        stage, calls = Stage(), list[int]()

        async def stubborn() -> None:
            calls.append(now())
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                raise ConnectionResetError from None

        async def block() -> None:
            async with within("10s", kind="step"):
                await stage.guard().call(stubborn)

        with pytest.raises(ConnectionResetError) as caught:
            await block()
        assert (calls, now()) == ([0], 10_000)
        assert "step had reached its limit when this was raised." in caught.value.__notes__
        assert stage.breakers.standing("s")[1] == CLEAN

    play(main())


@pytest.mark.row("F8")
def test_a_thread_that_is_cut_off_by_a_scope_outside_tells_nothing_about_its_service() -> None:
    breakers, let_go = MemoryBreakers(), threading.Event()
    guard = Guard("s", around=GuardEnvironment(breakers=breakers))
    for _ in range(4):
        with pytest.raises(ScopeTimeout, match=r"attempt 's' \(2m of its own\) reached the .* that step had left"):
            _within_20_ms(guard, let_go)
    assert breakers.standing("s")[1] == CLEAN
    once = GuardPolicy(attempt_timeout=20, retry=RetryPolicy(retries=0))
    with pytest.raises(ScopeTimeout), allswell.step(timeout="1m"):
        Guard("s", once, around=GuardEnvironment(breakers=breakers)).call_sync(let_go.wait, 30)
    assert breakers.standing("s")[1].failures == 1, "its own limit does"
    let_go.set()


def _within_20_ms(guard: Guard, let_go: threading.Event) -> None:
    with within(20, kind="step"):
        guard.call_sync(let_go.wait, 30)


def test_a_call_in_the_clean_up_has_its_grace_and_one_try() -> None:
    async def main() -> None:
        stage, calls = Stage(), list[int]()

        async def save(error: Exception | None) -> None:
            calls.append(now())
            await asyncio.sleep(1)
            if error is not None:
                raise error

        async def block(error: Exception | None) -> None:
            async with within("10s", kind="step"):
                try:
                    await asyncio.sleep(60)
                finally:
                    await stage.guard().call(save, error)

        with pytest.raises(ScopeTimeout):
            await block(None)
        assert (calls, now()) == ([10_000], 11_000)
        with pytest.raises(ConnectionResetError):
            await block(ConnectionResetError())
        assert (calls, now()) == ([10_000, 21_000], 22_000)

    play(main())


@pytest.mark.row("F2", "F3")
@pytest.mark.parametrize("on", ["thread", "here"])
def test_a_plain_generator_that_drips_ends_with_its_scope_and_with_its_attempt(on: Literal["thread", "here"]) -> None:
    def drip() -> Iterator[int]:
        while True:
            yield 1

    def inside(scope: allswell.Scope, policy: GuardPolicy) -> None:
        guard = Guard("s", policy, on=on, around=GuardEnvironment(breakers=MemoryBreakers()))
        with scope:
            for _ in guard(drip)():
                pass

    with pytest.raises(ScopeTimeout, match=r"step (reached its limit of 30ms|had left for it)"):
        inside(within(30, kind="step"), GuardPolicy())
    with pytest.raises(ScopeTimeout, match="attempt 's'"):
        inside(within(None), GuardPolicy(attempt_timeout=30))


@pytest.mark.row("F2")
def test_a_plain_generator_that_hangs_is_given_up_at_its_limit_and_begun_again_before_its_first_item() -> None:
    breakers, let_go, begun = MemoryBreakers(), threading.Event(), list[int]()
    policy = GuardPolicy(attempt_timeout=400, retry=RetryPolicy(backoff=0))
    guard = Guard("s", policy, around=GuardEnvironment(breakers=breakers))

    @guard
    def stream() -> Iterator[int]:
        begun.append(1)
        if len(begun) == 1:
            let_go.wait(30)
        yield 1
        let_go.wait(30)
        yield 2

    items = stream()
    assert next(items) == 1
    assert len(begun) == 2
    with pytest.raises(ScopeTimeout, match=r"attempt 's' .*did not stop within the grace and was given up"):
        next(items)
    assert breakers.standing("s")[1].failures == 2
    let_go.set()
