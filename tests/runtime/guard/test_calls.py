"""Guarded calls: what is retried, when, and what is not (F3 to F7)."""

import asyncio

import pytest

from allswell.domain.service.breaker import BreakerPolicy, BreakerState
from allswell.domain.service.guard import GuardPolicy, RetryBudget
from allswell.domain.service.incident import GaveUp, Parked, RateLimited, RetryScheduled
from allswell.domain.service.retry import ErrorClass, RetryPolicy
from allswell.errors import ServiceParked
from allswell.timing.scopes import ScopeTimeout, within
from tests.runtime.guard.stage import Service, Stage, Status, now, play

NO_BREAKER = GuardPolicy(breaker=None)


def test_a_call_that_goes_well_is_made_once_and_tells_nothing() -> None:
    async def scene() -> None:
        stage, service = Stage(), Service()
        assert await stage.guard().call(service, 1) == "answer"
        assert (service.calls, stage.told) == ([0], [])

    play(scene())


@pytest.mark.row("F4")
@pytest.mark.parametrize("status", [500, 502, 503, 504, 408])
def test_server_errors_are_retried_after_1_2_and_4_seconds(status: int) -> None:
    async def scene() -> None:
        stage, service = Stage(), Service([Status(status)] * 9)
        with pytest.raises(Status) as caught:
            await stage.guard(NO_BREAKER).call(service)
        assert service.calls == [0, 1_000, 3_000, 7_000]
        assert "given up after 4 attempts" in "".join(caught.value.__notes__)
        assert stage.kinds() == ["RetryScheduled"] * 3 + ["GaveUp"]

    play(scene())


@pytest.mark.row("F4")
def test_the_third_retry_may_go_well() -> None:
    async def scene() -> None:
        stage, service = Stage(), Service([ConnectionResetError(), TimeoutError(), Status(502)])
        assert await stage.guard(NO_BREAKER).call(service) == "answer"
        assert len(service.calls) == 4
        assert stage.kinds()[-1] == "Recovered"

    play(scene())


@pytest.mark.row("F4", "F5")
def test_a_rate_limit_is_retried_five_times_after_retry_after_each_told_and_then_escalated() -> None:
    async def scene() -> None:
        stage, service = Stage(), Service([Status(429, "7")] * 9)
        with pytest.raises(Status):
            await stage.guard().call(service)
        assert service.calls == [0, 7_000, 14_000, 21_000, 28_000, 35_000]
        assert [one.retry_after for one in stage.told if isinstance(one, RateLimited)] == [7_000] * 6
        assert isinstance(stage.told[-1], GaveUp)
        assert stage.told[-1].escalate
        assert stage.breakers.standing("s")[0] is BreakerState.CLOSED

    play(scene())


@pytest.mark.row("F6")
@pytest.mark.parametrize("draw, calls", [(0.0, [0, 1_000, 3_000, 7_000]), (0.999999, [0, 1_499, 4_498, 10_497])])
def test_jitter_adds_up_to_half_of_the_pause(draw: float, calls: list[int]) -> None:
    async def scene() -> None:
        stage, service = Stage(draw=draw), Service([Status(500)] * 9)
        with pytest.raises(Status):
            await stage.guard(NO_BREAKER).call(service)
        assert service.calls == calls

    play(scene())


@pytest.mark.row("F7")
@pytest.mark.parametrize("error", [Status(400), Status(404), Status(422), Status(401), Status(403), TypeError("x")])
def test_what_cannot_get_better_is_called_once(error: Exception) -> None:
    async def scene() -> None:
        stage, service = Stage(), Service([error] * 9)
        with pytest.raises(type(error)):
            await stage.guard().call(service)
        assert service.calls == [0]
        told = stage.told[-1]
        assert isinstance(told, GaveUp)
        assert told.escalate == (getattr(error, "status_code", 0) in (401, 403))

    play(scene())


@pytest.mark.row("F7")
def test_six_attempts_are_the_most_whatever_the_classes() -> None:
    async def scene() -> None:
        stage = Stage()
        errors = [
            Status(500),
            ConnectionError(),
            RuntimeError("?"),
            Status(529),
            Status(500),
            ConnectionError(),
            Status(500),
        ]
        service = Service(errors)
        with pytest.raises(ConnectionError):
            await stage.guard(NO_BREAKER).call(service)
        assert len(service.calls) == 6

    play(scene())


@pytest.mark.row("F3")
def test_a_retry_that_cannot_fit_is_not_waited_for() -> None:
    async def scene() -> None:
        stage, service = Stage(), Service([Status(500)] * 9)
        async with within(3_500):
            with pytest.raises(Status) as caught:
                await stage.guard(NO_BREAKER).call(service)
        assert service.calls == [0, 1_000, 3_000]
        assert now() == 3_000
        assert "would not fit" in "".join(caught.value.__notes__)

    play(scene())


@pytest.mark.row("F3")
def test_the_guards_own_timeout_bounds_attempts_and_waits_together() -> None:
    async def sleeps() -> None:
        stage, service = Stage(), Service([Status(500)] * 9, takes=2.0)
        with pytest.raises(Status):
            await stage.guard(GuardPolicy(timeout=6_500, breaker=None)).call(service)
        assert (service.calls, now()) == ([0, 3_000], 5_000)  # 1.5 s are left, and the next pause is 2 s

    async def works() -> None:
        stage, service = Stage(), Service([Status(500)], takes=2.0)
        with pytest.raises(ScopeTimeout):
            await stage.guard(GuardPolicy(timeout=4_500, breaker=None)).call(service)
        assert (service.calls, now()) == ([0, 3_000], 4_500)

    play(sleeps())
    play(works())


@pytest.mark.row("F4")
def test_an_attempt_that_hangs_is_a_network_error_and_retried() -> None:
    async def scene() -> None:
        stage, service = Stage(), Service(takes=60.0)
        with pytest.raises(ScopeTimeout) as caught:
            await stage.guard(GuardPolicy(attempt_timeout=5_000, breaker=None)).call(service)
        assert service.calls == [0, 6_000, 13_000, 22_000]
        assert caught.value.scope.kind == "attempt"
        assert all(one.error is ErrorClass.NETWORK for one in stage.told if isinstance(one, RetryScheduled))

    play(scene())


@pytest.mark.row("F3")
def test_an_outer_scope_ends_the_call_and_its_own_error_is_seen() -> None:
    async def scene() -> None:
        stage, service = Stage(), Service(takes=60.0)
        with pytest.raises(ScopeTimeout) as caught:
            async with within(8_000, kind="step", name="outer"):
                await stage.guard(GuardPolicy(attempt_timeout=5_000, breaker=None)).call(service)
        assert (service.calls, now()) == ([0, 6_000], 8_000)
        assert caught.value.scope.name == "outer"

    play(scene())


@pytest.mark.row("F5")
def test_beyond_the_cap_parks_the_service_for_everybody_and_spends_no_attempt() -> None:
    async def scene() -> None:
        stage = Stage()
        first, second = Service([Status(429, "36000")]), Service()
        guard = stage.guard()
        with pytest.raises(ServiceParked) as caught:
            await guard.call(first)
        assert caught.value.until == stage.clock.wall() + 36_000_000
        assert isinstance(caught.value.__cause__, Status)
        assert Parked("s", 36_000_000) in stage.told  # type: ignore[arg-type]
        with pytest.raises(ServiceParked):
            await guard.call(second)
        assert (first.calls, second.calls, now()) == ([0], [], 0)
        # Near the end it is waited for, and all come back staggered.
        await asyncio.sleep(35_800)
        stage.draw = 0.5
        assert await guard.call(second) == "answer"
        assert second.calls == [36_000_000 + 5_000]

    play(scene())


@pytest.mark.row("F4", "F5")
@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 529])
def test_whoever_says_when_is_asked_then_and_never_later_than_the_cap(status: int) -> None:
    async def scene() -> None:
        stage, service = Stage(), Service([Status(status, "7"), Status(status, "250")])
        guard = stage.guard(GuardPolicy(breaker=None))
        stage.draw = 0.999
        assert await guard.call(service) == "answer"
        first, second = service.calls[1], service.calls[2] - service.calls[1]
        assert 7_000 <= first < 10_500
        assert second == 300_000
        # The rest of a pause for everybody is waited out within the cap as well.
        stage.breakers.park("s", 295_000)
        began = now()
        assert await guard.call(service) == "answer"
        assert now() - began == 300_000

    play(scene())


@pytest.mark.row("F5")
def test_a_parked_service_is_not_waited_for_beyond_the_deadline() -> None:
    async def scene() -> None:
        stage, service = Stage(), Service()
        stage.breakers.park("s", 20_000)
        async with within(20_000):
            with pytest.raises(ServiceParked) as caught:
                await stage.guard().call(service)
        assert (service.calls, now(), caught.value.retry_after) == ([], 0, 20_000)

    play(scene())


def test_a_guard_without_a_breaker_heeds_the_rate_limit_pause_too() -> None:
    async def scene() -> None:
        stage, service = Stage(), Service()
        stage.breakers.park("s", 20_000)
        await stage.guard(NO_BREAKER).call(service)
        assert service.calls == [20_000]

    play(scene())


def test_a_user_can_have_more_retries_of_a_class_and_fewer_of_all() -> None:
    async def scene() -> None:
        stage = Stage()
        many, none = Service([Status(500)] * 9), Service([Status(500)] * 9)
        more = GuardPolicy(retries={"server": 5}, breaker=None)
        with pytest.raises(Status):
            await stage.guard(more).call(many)
        with pytest.raises(Status):
            await stage.guard(GuardPolicy(retry=RetryPolicy(retries=0), breaker=None)).call(none)
        assert (len(many.calls), len(none.calls)) == (6, 1)

    play(scene())


def test_a_retry_budget_runs_dry_and_is_earned_back() -> None:
    async def scene() -> None:
        stage = Stage()
        guard = stage.guard(GuardPolicy(budget=RetryBudget(tokens=2, earn=0.5), breaker=None))
        service = Service([Status(500)] * 9)
        with pytest.raises(Status) as caught:
            await guard.call(service)
        assert len(service.calls) == 3
        assert "budget" in "".join(caught.value.__notes__)
        for _ in range(2):
            await guard.call(Service())
        again = Service([Status(500)])
        assert await guard.call(again) == "answer"
        assert len(again.calls) == 2

    play(scene())


def test_a_classifier_decides_and_one_that_breaks_is_told_and_passed_over() -> None:
    async def scene() -> None:
        stage = Stage()
        own = stage.guard(NO_BREAKER, classifier=lambda error: "validation" if "no" in str(error) else None)
        refused, unknown = Service([RuntimeError("no")] * 9), Service([RuntimeError("?")] * 9)
        with pytest.raises(RuntimeError):
            await own.call(refused)
        with pytest.raises(RuntimeError):
            await own.call(unknown)
        assert (len(refused.calls), len(unknown.calls)) == (1, 4)
        for broken in (lambda _: 1 / 0, lambda _: "no such class"):
            service = Service([RuntimeError("?")] * 9)
            with pytest.raises(RuntimeError):
                await stage.guard(NO_BREAKER, classifier=broken).call(service)
            assert len(service.calls) == 4
            assert "ClassifierBroke" in stage.kinds()

    play(scene())


def test_a_hook_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        stage, service = Stage(), Service([Status(500)])
        guard = stage.guard()
        guard.on_incident = lambda _: 1 / 0  # type: ignore[assignment]
        assert await guard.call(service) == "answer"

    play(scene())
    assert "hook" in caplog.text


def test_a_cancel_during_a_backoff_ends_the_call_at_once() -> None:
    async def scene() -> None:
        stage, service = Stage(), Service([Status(500)] * 9)
        task = asyncio.ensure_future(stage.guard().call(service))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (service.calls, now()) == ([0], 500)
        assert stage.breakers.standing("s")[1].failures == 1

    play(scene())


# --- guards inside guards ---------------------------------------------------------------------------------------------


def test_guards_inside_guards_do_not_multiply() -> None:
    """4 x 4 attempts without the mark; the innermost guard owns the loop."""

    async def scene() -> None:
        stage, service = Stage(), Service([Status(500)] * 99)
        inner = stage.guard(GuardPolicy(breaker=BreakerPolicy(open_after=100, escalate_after=100)))
        outer, other = stage.guard(inner.policy), stage.guard(service="other")
        with pytest.raises(Status):
            await outer.call(inner.call, service)
        assert len(service.calls) == 4
        assert stage.breakers.standing("s")[1].failures == 4  # each counted once
        with pytest.raises(Status):
            await other.call(inner.call, service)
        assert len(service.calls) == 8
        assert stage.breakers.standing("other")[1].failures == 0  # and none held against another service

    play(scene())


def test_an_error_that_is_raised_twice_is_no_error_that_a_guard_gave_up_on() -> None:
    """Mocks raise one and the same object again and again."""

    async def scene() -> None:
        stage, error = Stage(), ConnectionError("the same one")
        for _ in range(2):
            service = Service([error] * 9)
            with pytest.raises(ConnectionError):
                await stage.guard(NO_BREAKER).call(service)
            assert len(service.calls) == 4

    play(scene())


def test_a_guard_of_the_same_service_passes_inside_its_own_probe() -> None:
    async def scene() -> None:
        stage = Stage()
        guard = stage.guard()
        for _ in range(3):
            with pytest.raises(Status):
                await stage.guard(GuardPolicy(retry=RetryPolicy(retries=0))).call(Service([Status(500)]))
        await asyncio.sleep(30)
        assert await guard.call(guard.call, Service()) == "answer"
        assert stage.breakers.standing("s")[0] is BreakerState.CLOSED

    play(scene())
