"""Properties of guards around sync code, which nothing can interrupt: the same rules, by a clock that is moved by hand.

The loops of sync and async guards are two; what they promise is one.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allswell.domain.service.guard import GuardPolicy
from allswell.errors import AllswellError
from allswell.runtime.guard import Guard, GuardEnvironment, MemoryBreakers
from allswell.timing import scopes
from allswell.timing.scopes import ScopeTimeout, check_deadline, current, within
from tests.properties.budget import DETERMINISTIC
from tests.properties.test_guards import CALLS, POLICIES, permanent
from tests.runtime.guard.stage import Status


class Hand:
    """A clock, and a service that takes its time by it; asked now and then, it says that its time is up."""

    def __init__(self, calls: list[tuple[Exception | None, int]]) -> None:
        self.ms = 5_000_000
        self.left = list(calls)
        self.calls: list[int] = []
        self.sleeps: list[tuple[int, int]] = []
        self.raised: list[Exception] = []

    def wall(self) -> int:
        return self.ms

    def monotonic(self) -> int:
        return self.ms

    def boottime(self) -> int:
        return self.ms

    def seconds(self) -> float:
        return self.ms / 1_000

    def sleep(self, seconds: float) -> None:
        began = self.ms
        self.ms += round(seconds * 1_000)
        self.sleeps.append((began, self.ms))

    def work(self) -> str:
        self.calls.append(self.ms)
        error, takes = self.left.pop(0) if self.left else (None, 0)
        self.ms += takes
        check_deadline()
        if error is not None:
            self.raised.append(error)
            raise error
        return "answer"


@DETERMINISTIC
@given(POLICIES, CALLS, st.none() | st.integers(1, 90_000), st.floats(0, 1, exclude_max=True))
def test_sync_code_sleeps_past_no_deadline_and_repeats_no_permanent_error(
    policy: GuardPolicy, calls: list[tuple[Exception | None, int]], deadline: int | None, draw: float
) -> None:
    hand = Hand(calls)
    around = GuardEnvironment(MemoryBreakers(hand), clock=hand, draw=lambda: draw, sleep=hand.sleep)
    began, ended = hand.ms, None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scopes, "_monotonic", hand.seconds)
        try:
            with within(deadline):
                Guard("s", policy, on="here", around=around).call_sync(hand.work)
        except (Status, OSError, RuntimeError, TypeError, AllswellError) as error:
            ended = error
        assert current() is None
    limits = [limit for limit in (deadline, policy.timeout) if limit is not None]
    end = began + min(limits, default=10**12)
    assert all(until < end for _, until in hand.sleeps)
    assert all(at < end for at in hand.calls)
    assert not any(permanent(error) for error in hand.raised[:-1])
    assert len(hand.calls) <= policy.retry.max_attempts
    if deadline is not None and hand.ms >= began + deadline and ended is not None:
        late = isinstance(ended, ScopeTimeout) or any("had reached its limit" in note for note in ended.__notes__)
        assert late, "who is late is told so"
