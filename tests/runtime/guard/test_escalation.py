"""With a watch, what only a human can mend is asked once, and each rate limit is in the journal (F4, F5, F7)."""

from __future__ import annotations

import asyncio

import pytest

import allswell
from allswell import Watch, guard
from allswell.domain.service.breaker import BreakerPolicy
from allswell.domain.service.guard import GuardPolicy
from allswell.domain.service.retry import RetryPolicy
from allswell.runtime.guard import Guard
from tests.engine.stage import Stage, Weather, play
from tests.runtime.guard.stage import Service, Status

PLAIN = GuardPolicy(breaker=None)
FAILING = GuardPolicy(retry=RetryPolicy(retries=0), breaker=BreakerPolicy(open_after=1, escalate_after=1, pause=1_000))


def api(watch: Watch, policy: GuardPolicy = PLAIN) -> Guard:
    return guard("api", policy, watch=watch)


async def fails(one: Guard, *errors: Exception) -> None:
    with pytest.raises(Status):
        await one.call(Service(errors))


async def told(watch: Watch, kind: str) -> list[dict[str, object]]:
    return [dict(event.event.data) async for event in watch.events() if event.event.kind == kind]


@pytest.mark.row("F4", "F5", "F7")
@pytest.mark.parametrize("policy", [GuardPolicy(), PLAIN])
def test_a_human_is_asked_once_per_service_and_cause_by_however_many_calls(policy: GuardPolicy) -> None:
    async def scene(stage: Stage) -> None:
        async with stage.another(seed=2) as other:
            fleet = [api(stage.watch, policy), api(other, policy)]
            await asyncio.gather(*(fails(fleet[n % 2], Status(401 if n % 3 else 403)) for n in range(20)))
            (question,) = await stage.watch.questions()
            assert (question.id, question.kind, question.service) == ("q_@api.1", "service_needs_help", "api")
            assert "Service api refuses who we say we are (Status: HTTP 40" in question.text
            # Another cause is another question, another service too.
            await fails(fleet[0], Status(402))
            await fails(guard("other", policy, watch=other), Status(401))
            assert {one.id for one in await stage.watch.questions()} == {"q_@api.1", "q_@api.2", "q_@other.1"}
            # Who puts it off has an hour of peace; who has mended it is asked when it happens again.
            await stage.watch.answer(question.id, "later")
            await fails(fleet[1], Status(401))
            assert len(await stage.watch.questions()) == 2
            await asyncio.sleep(3_601)
            await fails(fleet[1], Status(401))
            assert "q_@api.3" in {one.id for one in await stage.watch.questions()}
            await stage.watch.answer(allswell.QuestionId("q_@api.3"), "mended")
            await fails(fleet[1], Status(401))
            assert "q_@api.4" in {one.id for one in await stage.watch.questions()}

    play(scene)


@pytest.mark.row("F5")
def test_each_rate_limit_is_in_the_journal_and_the_sixth_asks() -> None:
    async def scene(stage: Stage) -> None:
        limits = [Status(429, "7"), Status(429), *[Status(429, "1")] * 4]
        await fails(api(stage.watch), *limits)
        seen = await told(stage.watch, "rate_limited")
        assert [one["count"] for one in seen] == [1, 2, 3, 4, 5, 6]
        assert [one["retry_after_ms"] for one in seen] == [7_000, None, *[1_000] * 4]
        (asked,) = await told(stage.watch, "service_escalated")
        assert asked == {
            "service": "api",
            "cause": "rate_limit",
            "reason": "a rate limit after 5 retries",
            "question": "q_@api.1",
        }
        # One that parks the service is told as well.
        with pytest.raises(allswell.ServiceParked):
            await api(stage.watch).call(Service([Status(429, "36000")]))
        assert (await told(stage.watch, "rate_limited"))[-1]["retry_after_ms"] == 36_000_000

    play(scene)


@pytest.mark.row("F7", "F8")
def test_a_cause_and_the_breaker_have_a_question_each_and_do_not_meddle() -> None:
    async def scene(stage: Stage) -> None:
        one = api(stage.watch, FAILING)
        await fails(one, Status(500))
        await asyncio.sleep(1)
        await fails(one, Status(401))  # it answers, so the breaker's own question is withdrawn
        kinds = {question.id: question.kind for question in await stage.watch.questions()}
        assert kinds == {"q_@api.2": "service_needs_help"}
        await fails(one, Status(500))
        await asyncio.sleep(1)
        kinds = {question.id: question.kind for question in await stage.watch.questions()}
        assert kinds == {"q_@api.2": "service_needs_help", "q_@api.3": "service_failing"}
        await stage.watch.answer(allswell.QuestionId("q_@api.2"), "mended")
        assert await one.call(Service()) == "answer"
        assert await stage.watch.questions() == []

    play(scene)


def test_without_the_store_the_calls_error_is_what_is_raised() -> None:
    weather = Weather()

    async def scene(stage: Stage) -> None:
        one = api(stage.watch)
        weather.down = True
        await fails(one, Status(401))
        weather.down = False
        await asyncio.sleep(5)
        await fails(one, Status(401))
        assert len(await stage.watch.questions()) == 1

    play(scene, faults=weather)
