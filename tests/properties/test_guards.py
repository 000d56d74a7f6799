"""Properties of guards: random policies, random errors, random deadlines (F3 to F8)."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from allswell.domain.service.breaker import BreakerPolicy, BreakerState
from allswell.domain.service.guard import GuardPolicy
from allswell.domain.service.incident import BreakerClosed, BreakerOpened, Escalated, GaveUp, RetryScheduled, Withdrawn
from allswell.domain.service.retry import RULES, RetryPolicy
from allswell.errors import AllswellError, ServiceParked
from allswell.timing.scopes import ScopeTimeout, within
from tests.properties.budget import DETERMINISTIC
from tests.runtime.guard.stage import Stage, Status, now, play

NEVER_RETRIED = (400, 401, 403, 404, 422)
ERRORS = st.one_of(
    st.sampled_from([500, 502, 529, 408, *NEVER_RETRIED]).map(Status),
    st.builds(Status, st.just(429), st.sampled_from([None, "0", "1", "7", "299", "1_0", "36000"])),
    st.sampled_from([ConnectionError, TimeoutError, RuntimeError, TypeError]).map(lambda kind: kind()),
    st.none(),  # it goes well
)
CALLS = st.lists(st.tuples(ERRORS, st.integers(0, 8_000)), min_size=1, max_size=12)
BREAKERS = st.one_of(
    st.none(),
    st.builds(
        lambda opens, more, pause, lease, then: BreakerPolicy(opens, pause, opens + more, lease, then),
        st.integers(1, 3),
        st.integers(0, 2),
        st.integers(1, 40_000),
        st.integers(9_000, 60_000),
        st.sampled_from(["probe", "wait"]),
    ),
)
POLICIES = st.builds(
    GuardPolicy,
    timeout=st.none() | st.integers(1, 60_000),
    attempt_timeout=st.none() | st.integers(1, 9_000),
    retry=st.builds(
        RetryPolicy,
        backoff=st.integers(0, 5_000),
        jitter=st.floats(0, 1),
        max_attempts=st.integers(1, 8),
        retries=st.none() | st.integers(0, 7),
    ),
    breaker=BREAKERS,
    patient=st.booleans(),
)


class Script:
    """A service that does what it is told, call after call, and notes when it was called."""

    def __init__(self, calls: list[tuple[Exception | None, int]]) -> None:
        self.left = list(calls)
        self.calls: list[int] = []
        self.raised: list[Exception] = []

    async def __call__(self) -> str:
        self.calls.append(now())
        error, takes = self.left.pop(0) if self.left else (None, 0)
        await asyncio.sleep(takes / 1_000)
        if error is not None:
            self.raised.append(error)
            raise error
        return "answer"


def permanent(error: Exception) -> bool:
    return isinstance(error, TypeError) or getattr(error, "status_code", 0) in NEVER_RETRIED


@DETERMINISTIC
@given(POLICIES, CALLS, st.none() | st.integers(1, 90_000), st.floats(0, 1, exclude_max=True), st.integers(0, 9))
def test_no_sleep_goes_past_the_deadline_and_no_permanent_error_is_retried(
    policy: GuardPolicy, calls: list[tuple[Exception | None, int]], deadline: int | None, draw: float, seed: int
) -> None:
    async def scene() -> None:
        stage, script = Stage(draw=draw), Script(calls)
        ended: BaseException | None = None
        try:
            async with within(deadline):
                await stage.guard(policy).call(script)
        except (Status, OSError, RuntimeError, TypeError, AllswellError) as error:
            ended = error
        limits = [limit for limit in (deadline, policy.timeout) if limit is not None]
        # 1. nothing lasts longer than the least of the limits, and a sleep never reaches it
        if limits:
            assert now() <= min(limits)
            if not isinstance(ended, ScopeTimeout):
                assert now() < min(limits) or script.calls
        assert all(at < min(limits) for at in script.calls if limits)
        # 2. a permanent error is the last thing that happens
        assert not any(permanent(error) for error in script.raised[:-1])
        if script.raised and permanent(script.raised[-1]):
            assert ended is script.raised[-1]
        # 3. no more attempts than the policy and the classes allow
        assert len(script.calls) <= policy.retry.max_attempts
        for told in (one for one in stage.told if isinstance(one, RetryScheduled)):
            assert RULES[told.error].retries > 0
        # 4. what is raised is the last attempt's error, or says that nothing was called
        if isinstance(ended, ServiceParked):
            assert script.raised == [] or isinstance(ended.__cause__, Status)
        # 5. a deadline that fires is not the guard's doing: it was at work, not asleep
        if isinstance(ended, ScopeTimeout):
            assert script.calls

    play(scene(), seed=seed)


@settings(DETERMINISTIC, max_examples=60)
@given(
    st.lists(st.tuples(POLICIES, CALLS, st.integers(0, 60_000)), min_size=2, max_size=8),
    st.integers(0, 1_000),
)
def test_many_callers_of_one_service_leave_its_breaker_in_order(
    callers: list[tuple[GuardPolicy, list[tuple[Exception | None, int]], int]], seed: int
) -> None:
    """Whatever policies meet on one service: opened before closed, asked at most once at a time, never stuck."""

    async def scene() -> None:
        stage = Stage()

        async def call(policy: GuardPolicy, calls: list[tuple[Exception | None, int]], begins: int) -> None:
            await asyncio.sleep(begins / 1_000)
            try:
                await stage.guard(policy).call(Script(calls))
            except (Status, OSError, RuntimeError, TypeError, AllswellError):
                return

        await asyncio.gather(*(call(*caller) for caller in callers))
        is_open = asked = False
        for told in stage.told:
            if isinstance(told, BreakerOpened | BreakerClosed):
                assert is_open != isinstance(told, BreakerOpened)
                is_open = not is_open
            elif isinstance(told, Escalated | Withdrawn):
                assert asked != isinstance(told, Escalated)
                asked = not asked
        stand, row = stage.breakers.standing("s")
        assert (stand is not BreakerState.CLOSED) == is_open
        assert row.asked == asked
        assert row.probe_until is None  # every probe was given back
        assert sum(isinstance(told, GaveUp) for told in stage.told) <= len(callers)

    play(scene(), seed=seed)
