"""A guard under the real SDKs, against the fake provider: real HTTP, tiny real times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

import anthropic
import httpx
import httpx2
import openai
import pytest

from allswell.domain.agents.cost import Tokens
from allswell.domain.service.breaker import BreakerPolicy, BreakerState
from allswell.domain.service.guard import GuardPolicy
from allswell.domain.service.incident import Incident, SdkRepeats
from allswell.domain.service.retry import RetryPolicy
from allswell.errors import BreakerOpen, ServiceParked
from allswell.runtime.guard import Guard, GuardEnvironment, MemoryBreakers
from allswell.runtime.guard.transport import ExchangeLedger, in_ledger
from allswell.testing.provider import (
    AnyAct,
    BreakOff,
    Drip,
    Fail,
    FailInStream,
    Garble,
    Hang,
    Provider,
    Reply,
    Reset,
    context_overflow,
    overloaded,
    quota_used_up,
    rate_limited,
    unauthorized,
)

HELLO: Any = [{"role": "user", "content": "Hello?"}]
QUICK = RetryPolicy(backoff=1, retry_after_default=2)
POLICY = GuardPolicy(attempt_timeout=2_000, retry=QUICK, breaker=None)
WELL = "All's well."


class Desk(NamedTuple):
    """A guard of its own for each test, and what it told."""

    guard: Guard
    told: list[Incident]
    breakers: MemoryBreakers


def desk(policy: GuardPolicy = POLICY) -> Desk:
    told: list[Incident] = []
    breakers = MemoryBreakers()
    return Desk(Guard("p", policy, on_incident=told.append, around=GuardEnvironment(breakers=breakers)), told, breakers)


Ask = Callable[[Provider, Guard], str]


@contextmanager
def openai_client(provider: Provider, guard: Guard, **more: Any) -> Iterator[openai.OpenAI]:  # noqa: ANN401
    http = httpx2.Client(transport=guard.transport(httpx2.HTTPTransport(verify=False)))
    told = {"max_retries": 0, **more}
    with openai.OpenAI(base_url=provider.openai_url, api_key="k", http_client=http, **told) as client:
        yield client


@contextmanager
def anthropic_client(provider: Provider, guard: Guard, **more: Any) -> Iterator[anthropic.Anthropic]:  # noqa: ANN401
    http = httpx2.Client(transport=guard.transport(httpx2.HTTPTransport(verify=False)))
    told = {"max_retries": 0, **more}
    with anthropic.Anthropic(base_url=provider.url, api_key="k", http_client=http, **told) as client:
        yield client


def ask_openai(provider: Provider, guard: Guard) -> str:
    with openai_client(provider, guard) as client:
        return client.chat.completions.create(model="m", messages=HELLO).choices[0].message.content or ""


def ask_anthropic(provider: Provider, guard: Guard) -> str:
    with anthropic_client(provider, guard) as client:
        (block,) = client.messages.create(model="m", max_tokens=9, messages=HELLO).content
        return block.text


def stream_openai(provider: Provider, guard: Guard) -> str:
    with openai_client(provider, guard) as client:
        events = client.chat.completions.create(model="m", messages=HELLO, stream=True)
        return "".join(one.choices[0].delta.content or "" for one in events)


def stream_anthropic(provider: Provider, guard: Guard) -> str:
    with (
        anthropic_client(provider, guard) as client,
        client.messages.stream(model="m", max_tokens=9, messages=HELLO) as events,
    ):
        return "".join(events.text_stream)


@asynccontextmanager
async def async_http(guard: Guard) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(transport=guard.transport(httpx2.AsyncHTTPTransport(verify=False))) as http:
        yield http


async def _aask_openai(provider: Provider, guard: Guard) -> str:
    async with async_http(guard) as http:
        client = openai.AsyncOpenAI(base_url=provider.openai_url, api_key="k", http_client=http, max_retries=0)
        return (await client.chat.completions.create(model="m", messages=HELLO)).choices[0].message.content or ""


async def _aask_anthropic(provider: Provider, guard: Guard) -> str:
    async with async_http(guard) as http:
        client = anthropic.AsyncAnthropic(base_url=provider.url, api_key="k", http_client=http, max_retries=0)
        (block,) = (await client.messages.create(model="m", max_tokens=9, messages=HELLO)).content
        return block.text


async def _astream_openai(provider: Provider, guard: Guard) -> str:
    async with async_http(guard) as http:
        client = openai.AsyncOpenAI(base_url=provider.openai_url, api_key="k", http_client=http, max_retries=0)
        events = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
        return "".join([one.choices[0].delta.content or "" async for one in events])


async def _astream_anthropic(provider: Provider, guard: Guard) -> str:
    async with async_http(guard) as http:
        client = anthropic.AsyncAnthropic(base_url=provider.url, api_key="k", http_client=http, max_retries=0)
        async with client.messages.stream(model="m", max_tokens=9, messages=HELLO) as events:
            return "".join([text async for text in events.text_stream])


def on_a_loop(ask: Callable[[Provider, Guard], Awaitable[str]]) -> Ask:
    async def main(provider: Provider, guard: Guard) -> str:
        return await ask(provider, guard)

    return lambda provider, guard: asyncio.run(main(provider, guard))


WHOLE: dict[str, Ask] = {
    "openai": ask_openai,
    "anthropic": ask_anthropic,
    "async openai": on_a_loop(_aask_openai),
    "async anthropic": on_a_loop(_aask_anthropic),
}
STREAMS: dict[str, Ask] = {
    "openai": stream_openai,
    "anthropic": stream_anthropic,
    "async openai": on_a_loop(_astream_openai),
    "async anthropic": on_a_loop(_astream_anthropic),
}
SDK_ERRORS = (openai.OpenAIError, anthropic.AnthropicError)


@pytest.mark.row("F4")
@pytest.mark.parametrize("client", WHOLE)
def test_every_passing_trouble_is_retried_and_the_sdk_sees_nothing_of_it(provider: Provider, client: str) -> None:
    for act in (
        Fail(500),
        Reset(),
        BreakOff(),
        Garble(),
        overloaded(),
        rate_limited("0"),
        rate_limited(ms=1),
        Fail(408),
    ):
        provider.script(act)
        assert WHOLE[client](provider, desk().guard) == WELL, act
    assert len(provider.requests) == 2 * 8
    bodies = {str(one.body) for one in provider.requests}
    assert len(bodies) == 1  # repeated with the same parameters


@pytest.mark.parametrize("asks", [WHOLE, STREAMS], ids=["whole", "stream"])
@pytest.mark.parametrize("client", WHOLE)
def test_who_keeps_a_ledger_finds_each_answer_once_and_no_key_in_it(
    provider: Provider, client: str, asks: dict[str, Ask]
) -> None:
    ledger = ExchangeLedger()
    provider.script(Fail(500))
    in_ledger.set(ledger)
    try:
        assert asks[client](provider, desk().guard) == WELL
    finally:
        in_ledger.set(None)
    (one,) = ledger.exchanges
    assert (one.status, one.request["messages"]) == (200, HELLO)
    assert "All" in str(one.answer)
    if asks is WHOLE or "anthropic" in client:  # OpenAI's streams tell it only when they are asked to
        assert ledger.tokens == one.tokens == Tokens(1, 1, 2)
    assert b"api-key" not in ledger.lines()[0].lower()


@pytest.mark.row("F4")
@pytest.mark.parametrize("client", WHOLE)
def test_a_provider_that_hangs_is_given_up_by_the_attempts_own_timeout(provider: Provider, client: str) -> None:
    provider.script(Hang(), Drip(every=30))
    policy = GuardPolicy(attempt_timeout=400, retry=QUICK, breaker=None)
    assert WHOLE[client](provider, desk(policy).guard) == WELL
    assert len(provider.requests) == 3


@pytest.mark.parametrize("client", WHOLE)
def test_what_hangs_for_good_is_the_sdks_own_timeout_error(provider: Provider, client: str) -> None:
    provider.always(Hang())
    policy = GuardPolicy(attempt_timeout=50, retry=QUICK, breaker=None)
    with pytest.raises((openai.APITimeoutError, anthropic.APITimeoutError)):
        WHOLE[client](provider, desk(policy).guard)
    assert len(provider.requests) == 4


@pytest.mark.row("F7")
@pytest.mark.parametrize("client", WHOLE)
@pytest.mark.parametrize(
    "act, escalates",
    [
        (Fail(400), False),
        (Fail(404), False),
        (Fail(422), False),
        (context_overflow("openai"), False),
        (context_overflow("anthropic"), False),
        (unauthorized(), True),
        (Fail(403), True),
        (quota_used_up("openai"), True),
        (quota_used_up("anthropic"), True),
    ],
)
def test_what_cannot_get_better_is_sent_once(provider: Provider, client: str, act: AnyAct, escalates: bool) -> None:
    provider.always(act)
    standing = desk()
    with pytest.raises(SDK_ERRORS) as caught:
        WHOLE[client](provider, standing.guard)
    assert len(provider.requests) == 1
    assert isinstance(act, Fail)
    assert getattr(caught.value, "status_code", None) == act.status
    assert act.message in str(caught.value)  # the provider's own words
    assert standing.told[-1].serious == escalates


@pytest.mark.parametrize("client", WHOLE)
def test_the_last_answer_is_handed_to_the_sdk(provider: Provider, client: str) -> None:
    provider.always(Fail(503, message="down for good"))
    with pytest.raises(SDK_ERRORS, match="down for good"):
        WHOLE[client](provider, desk().guard)
    assert len(provider.requests) == 4


@pytest.mark.row("F5")
@pytest.mark.parametrize("client", WHOLE)
def test_a_limit_beyond_the_cap_parks_the_service_and_is_not_waited_for(provider: Provider, client: str) -> None:
    provider.script(rate_limited("36000"))
    standing = desk()
    for _ in range(2):
        with pytest.raises((ServiceParked, *SDK_ERRORS)) as caught:
            WHOLE[client](provider, standing.guard)
        found = caught.value if isinstance(caught.value, ServiceParked) else caught.value.__cause__
        assert isinstance(found, ServiceParked)
    assert len(provider.requests) == 1


@pytest.mark.row("F8")
@pytest.mark.parametrize("client", ["anthropic", "async openai"])
def test_the_breaker_opens_and_the_sdk_does_not_call(provider: Provider, client: str) -> None:
    provider.always(Fail(500))
    standing = desk(GuardPolicy(retry=RetryPolicy(backoff=1, retries=0)))
    for _ in range(3):
        with pytest.raises(SDK_ERRORS):
            WHOLE[client](provider, standing.guard)
    provider.recover()
    with pytest.raises((BreakerOpen, *SDK_ERRORS)):
        WHOLE[client](provider, standing.guard)
    assert len(provider.requests) == 3
    assert standing.breakers.standing("p")[0] is BreakerState.OPEN


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", STREAMS)
def test_a_stream_arrives_whole(provider: Provider, client: str) -> None:
    provider.script(Reply("Good night,  and good luck."))
    assert STREAMS[client](provider, desk().guard) == "Good night,  and good luck."


@pytest.mark.row("F7")
@pytest.mark.parametrize("client", STREAMS)
def test_a_stream_is_begun_again_before_its_first_byte_and_never_after(provider: Provider, client: str) -> None:
    provider.script(Fail(500), Reset(), BreakOff(after=0))
    assert STREAMS[client](provider, desk().guard) == WELL
    assert len(provider.requests) == 4
    for act in (BreakOff(after=3), FailInStream(after=3)):
        provider.requests.clear()
        provider.script(act)
        with pytest.raises((*SDK_ERRORS, httpx2.HTTPError)):
            STREAMS[client](provider, desk().guard)
        assert len(provider.requests) == 1


@pytest.mark.row("F8")
@pytest.mark.parametrize("client", STREAMS)
def test_a_stream_that_breaks_off_counts_against_its_service(provider: Provider, client: str) -> None:
    standing = desk(GuardPolicy(retry=QUICK, breaker=BreakerPolicy()))
    provider.script(BreakOff(after=3))
    with pytest.raises((*SDK_ERRORS, httpx2.HTTPError)):
        STREAMS[client](provider, standing.guard)
    assert standing.breakers.standing("p")[1].failures == 1
    assert STREAMS[client](provider, standing.guard) == WELL
    assert standing.breakers.standing("p")[1].failures == 0


@pytest.mark.parametrize("client", STREAMS)
def test_a_stream_that_drips_ends_with_its_attempt(provider: Provider, client: str) -> None:
    """Every byte is in time for the client's own timeout, which knows single reads only."""
    provider.always(Drip(every=20))
    began = time.monotonic()
    with pytest.raises((*SDK_ERRORS, httpx2.HTTPError)):
        STREAMS[client](provider, desk(GuardPolicy(attempt_timeout=300, retry=QUICK, breaker=None)).guard)
    assert time.monotonic() - began < 10
    assert len(provider.requests) <= 4


def test_a_stream_that_is_left_in_the_middle_was_answering(provider: Provider) -> None:
    standing = desk(GuardPolicy(retry=QUICK))
    provider.script(Fail(500))
    with (
        openai_client(provider, standing.guard) as client,
        client.chat.completions.create(model="m", messages=HELLO, stream=True) as events,
    ):
        next(iter(events))
    assert standing.breakers.standing("p")[1].failures == 0


# --- the SDK's own retries --------------------------------------------------------------------------------------------


def test_answers_that_were_given_up_are_not_retried_by_the_sdk_either(provider: Provider) -> None:
    """4 attempts, not 4 x 4, even where `max_retries=0` was forgotten."""
    provider.always(Fail(500))
    with openai_client(provider, desk().guard, max_retries=3) as client, pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model="m", messages=HELLO)
    assert len(provider.requests) == 4
    provider.requests.clear()
    with anthropic_client(provider, desk().guard, max_retries=3) as other, pytest.raises(anthropic.InternalServerError):
        other.messages.create(model="m", max_tokens=9, messages=HELLO)
    assert len(provider.requests) == 4


def test_a_request_that_the_sdk_repeats_is_not_repeated_again(provider: Provider) -> None:
    """A forgotten `max_retries=0` is told, and the first time warned of."""
    provider.always(Reset())
    made = desk()
    with openai_client(provider, made.guard, max_retries=2) as client, pytest.raises(openai.APIConnectionError):
        client.chat.completions.create(model="m", messages=HELLO)
    assert len(provider.requests) == 4 + 2
    told = [incident for incident in made.told if isinstance(incident, SdkRepeats)]
    assert [(one.count, one.serious) for one in told] == [(1, True), (2, False)]
    assert "make its client with max_retries=0" in told[0].words()


def test_a_guard_around_an_sdk_with_a_guard_under_it_does_not_multiply(provider: Provider) -> None:
    provider.always(Fail(500))
    under, around = desk(), desk()

    @around.guard
    def ask() -> str:
        return ask_anthropic(provider, under.guard)

    with pytest.raises(anthropic.InternalServerError):
        ask()
    assert len(provider.requests) == 4


# --- plain httpx, of both kinds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("flavour", [httpx, httpx2])
def test_both_kinds_of_httpx_work_by_themselves(provider: Provider, flavour: Any) -> None:  # noqa: ANN401
    provider.script(Fail(500))
    with flavour.Client(transport=desk().guard.transport(flavour.HTTPTransport(verify=False))) as client:
        assert client.post(f"{provider.url}/v1/messages", json={}).json()["type"] == "message"

    async def scene() -> None:
        transport = desk().guard.transport(flavour.AsyncHTTPTransport(verify=False))
        async with flavour.AsyncClient(transport=transport) as client:
            assert (await client.post(f"{provider.url}/v1/messages", json={})).json()["type"] == "message"

    provider.script(Fail(500))
    asyncio.run(scene())
    assert len(provider.requests) == 4


def test_a_body_that_can_be_read_only_once_is_sent_once(provider: Provider) -> None:
    provider.script(Fail(500))
    with httpx.Client(transport=desk().guard.transport(httpx.HTTPTransport(verify=False))) as client:
        answer = client.post(f"{provider.url}/v1/messages", content=iter([b"{", b"}"]))
    assert answer.status_code == 500
    assert len(provider.requests) == 1
