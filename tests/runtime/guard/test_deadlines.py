"""A deadline around a guarded call: once it has passed nothing is repeated, and the service is blamed for nothing."""

from __future__ import annotations

import asyncio
import threading

import pytest

import allswell
from allswell.domain.breaker import CLEAN
from allswell.domain.guard import GuardPolicy
from allswell.domain.retry import RetryPolicy
from allswell.runtime.guard import Guard, MemoryBreakers, Surroundings
from allswell.timing.scope import ScopeTimeout, check_deadline, scope, within
from tests.runtime.guard.stage import Stage, now, play


class Hand:
    """The clock of sync scopes, moved by hand."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(name="clock")
def _clock(monkeypatch: pytest.MonkeyPatch) -> Hand:
    hand = Hand()
    monkeypatch.setattr(scope, "_monotonic", hand)
    return hand


@pytest.mark.row("F3", "F8")
def test_sync_code_that_is_told_that_its_time_is_up_is_not_called_again_in_the_grace(clock: Hand) -> None:
    breakers, slept, calls = MemoryBreakers(), list[float](), list[float]()
    guard = Guard("s", on="here", around=Surroundings(breakers=breakers, sleep=slept.append))

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
    guard = Guard("s", around=Surroundings(breakers=breakers))
    for _ in range(4):
        with pytest.raises(ScopeTimeout, match=r"attempt 's' \(2m of its own\) reached the .* that step had left"):
            _within_20_ms(guard, let_go)
    assert breakers.standing("s")[1] == CLEAN
    once = GuardPolicy(attempt_timeout=20, retry=RetryPolicy(retries=0))
    with pytest.raises(ScopeTimeout), allswell.step(timeout="1m"):
        Guard("s", once, around=Surroundings(breakers=breakers)).call_sync(let_go.wait, 30)
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
