"""The breaker as callers meet it: one probe, whoever comes, and however it ends (F8)."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from allswell.domain.check.model import CheckFigure
from allswell.domain.check.retries import Retrying, hanging
from allswell.domain.service.breaker import BreakerPolicy, BreakerState, CallOutcome, CallRefused, FailureAnswer, Permit
from allswell.domain.service.guard import GuardPolicy
from allswell.domain.service.retry import RetryPolicy
from allswell.errors import BreakerOpen
from allswell.runtime.guard import MemoryBreakers
from allswell.timing.scopes import ScopeTimeout, within
from tests.runtime.guard.stage import Service, Stage, Status, now, play

ONCE = GuardPolicy(retry=RetryPolicy(retries=0))
PAUSE = 30.0


async def fail(stage: Stage, times: int = 3, policy: GuardPolicy = ONCE) -> None:
    for _ in range(times):
        with pytest.raises(Status):
            await stage.guard(policy).call(Service([Status(500)]))


async def outcome(call: Awaitable[object]) -> str:
    try:
        await call
    except BreakerOpen:
        return "refused"
    except asyncio.CancelledError:
        return "cancelled"
    except Exception as error:  # noqa: BLE001 - whatever it is, by name
        return type(error).__name__
    return "well"


@pytest.mark.row("F8")
def test_three_failures_in_a_row_open_it_for_30_seconds_and_a_success_closes_it() -> None:
    async def scene() -> None:
        stage = Stage()
        guard = stage.guard(ONCE)
        await fail(stage, 2)
        assert await guard.call(Service()) == "answer"
        await fail(stage, 3)
        for moment in (0.0, PAUSE - 0.001):
            await asyncio.sleep(moment - now() / 1_000)
            with pytest.raises(BreakerOpen) as caught:
                await guard.call(Service())
            assert caught.value.retry_after == PAUSE * 1_000 - now()
        await asyncio.sleep(0.001)
        assert await guard.call(Service()) == "answer"
        assert stage.breakers.standing("s")[0] is BreakerState.CLOSED
        assert stage.breakers.standing("s")[1].failures == 0
        assert [kind for kind in stage.kinds() if kind.startswith("Breaker")] == ["BreakerOpened", "BreakerClosed"]

    play(scene())


@pytest.mark.row("F8")
def test_a_failure_answers_retry_pause_or_escalate() -> None:
    async def scene() -> None:
        stage, policy, answers = Stage(), BreakerPolicy(), []
        for _ in range(7):
            given = stage.breakers.admit("s", policy).given
            assert isinstance(given, Permit)
            answers.append(stage.breakers.report(given, CallOutcome.FAILED, policy).answer)
            if len(answers) >= 3:
                await asyncio.sleep(PAUSE)
        wanted = [FailureAnswer.RETRY] * 2 + [FailureAnswer.PAUSE] * 2 + [FailureAnswer.ESCALATE] * 3
        assert answers == wanted

    play(scene())


@pytest.mark.row("F8")
@pytest.mark.parametrize("seed", range(20))
def test_fifty_callers_on_a_half_open_breaker_send_exactly_one_probe(seed: int) -> None:
    async def scene() -> None:
        stage = Stage()
        await fail(stage)
        await asyncio.sleep(PAUSE)
        service = Service(takes=1.0)
        ends = await asyncio.gather(*(outcome(stage.guard(ONCE).call(service)) for _ in range(50)))
        assert len(service.calls) == 1
        assert sorted(ends) == ["refused"] * 49 + ["well"]
        assert await outcome(stage.guard(ONCE).call(service)) == "well"

    play(scene(), seed=seed)


@pytest.mark.row("F8")
def test_fifty_threads_on_a_half_open_breaker_send_exactly_one_probe() -> None:
    class Hands:
        """A clock that is moved by hand: threads have no virtual one."""

        at = 0

        def monotonic(self) -> int:
            return self.at

        wall = boottime = monotonic

    hands = Hands()
    breakers, policy = MemoryBreakers(hands), BreakerPolicy()
    for _ in range(3):
        breakers.report(breakers.admit("s", policy).given, CallOutcome.FAILED, policy)  # type: ignore[arg-type]
    hands.at = 30_000
    gate, given = threading.Barrier(50), []

    def ask() -> None:
        gate.wait()
        given.append(breakers.admit("s", policy).given)

    threads = [threading.Thread(target=ask) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    probes = [one for one in given if isinstance(one, Permit)]
    assert (len(given), len(probes)) == (50, 1)
    assert all(one.stand is BreakerState.PROBING for one in given if isinstance(one, CallRefused))


Ending = Callable[[Stage, Service], Awaitable[str]]


async def cancelled(stage: Stage, service: Service) -> str:
    task = asyncio.ensure_future(outcome(stage.guard(ONCE).call(service)))
    await asyncio.sleep(0.5)
    task.cancel()
    return await task


async def cut_by_an_outer_scope(stage: Stage, service: Service) -> str:
    async def call() -> None:
        async with within(500):
            await stage.guard(ONCE).call(service)

    return await outcome(call())


async def hung(stage: Stage, service: Service) -> str:
    return await outcome(stage.guard(GuardPolicy(attempt_timeout=500, retry=RetryPolicy(retries=0))).call(service))


@pytest.mark.row("F8")
@pytest.mark.parametrize(
    "ending, ends, failures",
    [(cancelled, "cancelled", 3), (cut_by_an_outer_scope, "ScopeTimeout", 3), (hung, "ScopeTimeout", 4)],
)
def test_a_probe_that_is_cancelled_or_hangs_frees_the_slot_and_reopens(
    ending: Ending, ends: str, failures: int
) -> None:
    """At once, not when its lease runs out; and a cancel says nothing against the service."""

    async def scene() -> None:
        stage = Stage()
        await fail(stage)
        await asyncio.sleep(PAUSE)
        assert await ending(stage, Service(takes=9.0)) == ends
        stand, row = stage.breakers.standing("s")
        assert (stand, row.failures, row.probe_until) == (BreakerState.OPEN, failures, None)
        await asyncio.sleep(PAUSE)
        assert await outcome(stage.guard(ONCE).call(Service())) == "well"

    play(scene())


@pytest.mark.row("F8")
def test_a_probe_whose_caller_died_expires_and_has_no_say_any_more() -> None:
    async def scene() -> None:
        stage, policy = Stage(), BreakerPolicy()
        await fail(stage)
        await asyncio.sleep(PAUSE)
        dead = stage.breakers.admit("s", policy).given
        assert isinstance(dead, Permit)
        await asyncio.sleep(policy.probe_lease / 1_000)
        assert await outcome(stage.guard(ONCE).call(Service())) == "refused"
        assert stage.breakers.standing("s")[1].failures == 4
        stage.breakers.report(dead, CallOutcome.HEALTHY, policy)
        assert stage.breakers.standing("s")[0] is BreakerState.OPEN
        await asyncio.sleep(PAUSE)
        assert await outcome(stage.guard(ONCE).call(Service())) == "well"

    play(scene())


@pytest.mark.row("F8")
def test_calls_admitted_before_it_opened_neither_close_it_nor_count_again() -> None:
    async def scene() -> None:
        stage = Stage()
        good = asyncio.ensure_future(stage.guard(ONCE).call(Service(takes=5.0)))
        bad = [
            asyncio.ensure_future(outcome(stage.guard(ONCE).call(Service([Status(500)], takes=6.0)))) for _ in "1234567"
        ]
        await asyncio.sleep(1)
        await fail(stage)
        await good
        assert stage.breakers.standing("s")[0] is BreakerState.OPEN
        await asyncio.gather(*bad)
        assert stage.breakers.standing("s")[1].failures == 3
        assert "Escalated" not in stage.kinds()

    play(scene())


@pytest.mark.row("F8")
def test_five_in_a_row_ask_a_human_once_and_recovery_withdraws_it() -> None:
    async def scene() -> None:
        stage = Stage()
        await fail(stage)
        for _ in range(6):
            await asyncio.sleep(PAUSE)
            await fail(stage, 1)  # one probe per pause
            assert await outcome(stage.guard(ONCE).call(Service())) == "refused"
        assert stage.kinds().count("Escalated") == 1
        await asyncio.sleep(PAUSE)
        assert await outcome(stage.guard(ONCE).call(Service())) == "well"
        assert stage.kinds()[-2:] == ["BreakerClosed", "Withdrawn"]

    play(scene())


@pytest.mark.row("F8")
def test_it_can_be_set_to_wait_for_the_human_instead() -> None:
    async def scene() -> None:
        stage = Stage()
        policy = GuardPolicy(retry=RetryPolicy(retries=0), breaker=BreakerPolicy(then="wait"))
        await fail(stage, 3, policy)
        for _ in range(2):
            await asyncio.sleep(PAUSE)
            await fail(stage, 1, policy)
        await asyncio.sleep(86_400)
        with pytest.raises(BreakerOpen) as caught:
            await stage.guard(GuardPolicy(breaker=policy.breaker, patient=True)).call(Service())
        assert caught.value.retry_after is None
        stage.breakers.answered("s")
        await fail(stage, 1, policy)  # a probe, which fails: a new question
        assert stage.kinds().count("Escalated") == 2
        stage.breakers.answered("s")
        assert await outcome(stage.guard(policy).call(Service())) == "well"

    play(scene())


@pytest.mark.row("F8")
@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 429])
def test_statuses_that_blame_the_caller_are_no_failures_of_the_service(status: int) -> None:
    async def scene() -> None:
        stage = Stage()
        guard = stage.guard(ONCE)
        for _ in range(10):
            with pytest.raises(Status):
                await guard.call(Service([Status(status, "0")]))
        assert stage.breakers.standing("s")[0] is BreakerState.CLOSED
        await fail(stage)
        await asyncio.sleep(PAUSE)
        with pytest.raises(Status):
            await guard.call(Service([Status(status, "0")]))
        assert stage.breakers.standing("s")[0] is BreakerState.CLOSED  # it answers: that is what a probe asks

    play(scene())


def test_a_bug_of_the_caller_says_nothing_about_the_service() -> None:
    async def scene() -> None:
        stage = Stage()
        await fail(stage, 2)
        with pytest.raises(TypeError):
            await stage.guard(ONCE).call(Service([TypeError("ours")]))
        assert stage.breakers.standing("s")[1].failures == 2
        await fail(stage, 1)
        await asyncio.sleep(PAUSE)
        with pytest.raises(TypeError):
            await stage.guard(ONCE).call(Service([TypeError("ours")]))
        assert stage.breakers.standing("s")[0] is BreakerState.OPEN

    play(scene())


@pytest.mark.row("F8")
def test_a_retry_that_meets_an_open_breaker_waits_out_the_pause_if_its_budget_allows() -> None:
    async def scene() -> None:
        stage, service = Stage(), Service([Status(500)] * 3)
        assert await stage.guard().call(service) == "answer"
        assert service.calls == [0, 1_000, 3_000, 33_000]

    async def short() -> None:
        stage, service = Stage(), Service([Status(500)] * 3)
        async with within(33_000):
            with pytest.raises(Status) as caught:
                await stage.guard().call(service)
        assert (service.calls, now()) == ([0, 1_000, 3_000], 3_000)
        assert "breaker is open" in "".join(caught.value.__notes__)

    play(scene())
    play(short())


@pytest.mark.row("F3", "F8")
@pytest.mark.parametrize(
    "policy",
    [
        GuardPolicy(),
        GuardPolicy(retry=RetryPolicy(retries=5, backoff=7_000), breaker=BreakerPolicy(open_after=2, escalate_after=3)),
        GuardPolicy(retry=RetryPolicy(retries=5), breaker=BreakerPolicy(open_after=1, escalate_after=4, then="wait")),
    ],
)
def test_check_sums_up_what_a_lone_caller_really_waits(policy: GuardPolicy) -> None:
    attempt = CheckFigure("timeouts.llm_call", 120_000)
    made = hanging(
        Retrying("a call", attempt, policy.retry, breaker=policy.breaker), CheckFigure("timeouts.step", 3_600_000)
    )

    async def scene() -> None:
        stage = Stage(draw=0.999_999)
        with pytest.raises(ScopeTimeout):
            await stage.guard(policy).call(Service(takes=1_000))
        assert made is not None
        assert now() == pytest.approx(made.total, abs=20)

    play(scene())


@pytest.mark.row("F8")
@pytest.mark.parametrize("seed", range(10))
def test_retries_that_wait_out_one_pause_go_on_together_after_the_probe(seed: int) -> None:
    async def scene() -> None:
        stage = Stage()
        services = [Service([Status(500)], takes=0.1) for _ in range(20)]
        ends = await asyncio.gather(*(outcome(stage.guard().call(service)) for service in services))
        assert ends == ["well"] * 20
        assert now() < 33_000

    play(scene(), seed=seed)


def test_an_open_breaker_is_waited_out_once_and_not_for_ever() -> None:
    """Without any deadline, too: when the probe fails, only the prober has a retry of its own left to wait for."""

    async def scene() -> None:
        stage = Stage()
        ended: list[int] = []

        async def call() -> None:
            assert await outcome(stage.guard().call(service)) == "Status"
            ended.append(now())

        service = Service([Status(500)] * 99, takes=0.1)
        await asyncio.gather(*(call() for _ in range(10)))
        assert len(service.calls) == 10 + 3
        assert sum(at < 40_000 for at in ended) == 9
        assert max(ended) < 91_000

    play(scene())


def test_a_patient_guard_waits_out_the_pause_with_its_first_attempt() -> None:
    async def scene() -> None:
        stage, service = Stage(), Service()
        await fail(stage)
        assert await stage.guard(GuardPolicy(patient=True)).call(service) == "answer"
        assert service.calls == [30_000]

    play(scene())


def test_a_clock_that_is_set_changes_nothing() -> None:
    async def scene() -> None:
        stage = Stage()
        await fail(stage)
        stage.clock.jump_wall(86_400_000)
        assert await outcome(stage.guard(ONCE).call(Service())) == "refused"
        stage.clock.jump_wall(-2 * 86_400_000)
        await asyncio.sleep(PAUSE)
        assert await outcome(stage.guard(ONCE).call(Service())) == "well"

    play(scene())


def test_a_success_with_a_clean_breaker_writes_nothing() -> None:
    async def scene() -> None:
        stage = Stage()
        permit = stage.breakers.clean("s")
        written: list[object] = []
        stage.breakers.report = lambda *told: written.append(told)  # type: ignore[method-assign,assignment]
        for _ in range(3):
            await stage.guard().call(Service())
        assert written == []
        assert stage.breakers.clean("s") is permit

    play(scene())
