"""The fake provider speaks both APIs as the real SDKs understand them, and misbehaves as it is told."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import anthropic
import httpx
import msgspec
import openai
import pytest

from allswell.testing.provider import (
    ACT_HEADER,
    AnyAct,
    BreakOff,
    CallTool,
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


class Ask(Protocol):
    """How a test asks one of the SDKs."""

    def __call__(self, clients: "Clients", *, stream: bool = False, timeout: float = 5.0) -> str: ...


HELLO: Any = [{"role": "user", "content": "Hello?"}]


class Clients(NamedTuple):
    """The provider with clients of it: making one costs more than what a test does with it."""

    provider: Provider
    openai: openai.OpenAI
    anthropic: anthropic.Anthropic
    plain: httpx.Client


@pytest.fixture(scope="module")
def running() -> Iterator[Clients]:
    with (
        Provider() as provider,
        openai.OpenAI(base_url=provider.openai_url, api_key="k", max_retries=0) as of_openai,
        anthropic.Anthropic(base_url=provider.url, api_key="k", max_retries=0) as of_anthropic,
        httpx.Client(base_url=provider.url) as plain,
    ):
        yield Clients(provider, of_openai, of_anthropic, plain)


@pytest.fixture
def clients(running: Clients) -> Clients:
    running.provider.recover()
    running.provider.requests.clear()
    return running


def ask_openai(clients: Clients, *, stream: bool = False, timeout: float = 5.0) -> str:
    create = clients.openai.with_options(timeout=timeout).chat.completions.create
    if stream:
        with create(model="m", messages=HELLO, stream=True) as events:
            return "".join(one.choices[0].delta.content or "" for one in events)
    return create(model="m", messages=HELLO).choices[0].message.content or ""


def ask_anthropic(clients: Clients, *, stream: bool = False, timeout: float = 5.0) -> str:
    messages = clients.anthropic.with_options(timeout=timeout).messages
    if stream:
        with messages.stream(model="m", max_tokens=9, messages=HELLO) as events:
            return "".join(events.text_stream)
    (block,) = messages.create(model="m", max_tokens=9, messages=HELLO).content
    return block.text


ASK = [ask_openai, ask_anthropic]


@pytest.mark.parametrize("ask", ASK)
@pytest.mark.parametrize("stream", [False, True])
def test_the_real_sdks_get_their_answer(clients: Clients, ask: Ask, stream: bool) -> None:
    clients.provider.script(Reply("Good night,  and good luck."))
    assert ask(clients, stream=stream) == "Good night,  and good luck."
    assert ask(clients, stream=stream) == "All's well."  # the script is used up
    assert clients.provider.requests[0].body["messages"] == HELLO
    assert clients.provider.requests[0].method == "POST"


def test_the_responses_api_is_spoken_too(clients: Clients) -> None:
    responses = clients.openai.responses
    assert responses.create(model="m", input="Hello?").output_text == "All's well."
    with responses.create(model="m", input="Hello?", stream=True) as events:
        deltas = [one.delta for one in events if one.type == "response.output_text.delta"]
    assert "".join(deltas) == "All's well."


FAILURES: list[tuple[AnyAct, type[Exception], type[Exception]]] = [
    (rate_limited("2"), openai.RateLimitError, anthropic.RateLimitError),
    (Fail(500), openai.InternalServerError, anthropic.InternalServerError),
    (Fail(503), openai.InternalServerError, anthropic.ServiceUnavailableError),
    (overloaded(), openai.InternalServerError, anthropic.OverloadedError),
    (unauthorized(), openai.AuthenticationError, anthropic.AuthenticationError),
    (quota_used_up(), openai.RateLimitError, anthropic.RateLimitError),
    (context_overflow(), openai.BadRequestError, anthropic.BadRequestError),
    (Reset(), openai.APIConnectionError, anthropic.APIConnectionError),
    (BreakOff(), openai.APIConnectionError, anthropic.APIConnectionError),
]


@pytest.mark.parametrize("act, of_openai, of_anthropic", FAILURES)
def test_every_way_to_fail_is_the_sdks_own_error(
    clients: Clients, act: AnyAct, of_openai: type[Exception], of_anthropic: type[Exception]
) -> None:
    clients.provider.always(act)
    with pytest.raises(of_openai):
        ask_openai(clients)
    with pytest.raises(of_anthropic):
        ask_anthropic(clients)


@pytest.mark.parametrize("ask", ASK)
def test_headers_arrive_as_they_were_told(clients: Clients, ask: Ask) -> None:
    clients.provider.script(rate_limited("Sun, 06 Nov 1994 08:49:37 GMT", ms=250))
    with pytest.raises((openai.RateLimitError, anthropic.RateLimitError)) as caught:
        ask(clients)
    headers = caught.value.response.headers
    assert headers["retry-after"] == "Sun, 06 Nov 1994 08:49:37 GMT"
    assert headers["retry-after-ms"] == "250"


@pytest.mark.parametrize("act", [Hang(), Drip(every=20_000)])
@pytest.mark.parametrize("ask", ASK)
def test_who_hangs_or_drips_runs_into_the_clients_timeout(clients: Clients, ask: Ask, act: AnyAct) -> None:
    clients.provider.script(act)
    with pytest.raises((openai.APITimeoutError, anthropic.APITimeoutError)):
        ask(clients, timeout=0.05)


@pytest.mark.parametrize("ask", ASK)
def test_a_dripping_answer_is_whole_in_the_end(clients: Clients, ask: Ask) -> None:
    clients.provider.script(Drip(every=0, text="slow"))
    assert ask(clients) == "slow"


@pytest.mark.parametrize("ask", ASK)
@pytest.mark.parametrize("act", [BreakOff(after=3), FailInStream(after=3)])
def test_a_stream_can_break_in_the_middle(clients: Clients, ask: Ask, act: AnyAct) -> None:
    clients.provider.script(act)
    with pytest.raises((openai.APIError, anthropic.APIError, Exception)) as caught:
        ask(clients, stream=True)
    assert type(caught.value).__module__.partition(".")[0] in ("openai", "anthropic", "httpx2", "httpx")


def test_what_is_no_json_says_that_it_is(clients: Clients) -> None:
    clients.provider.script(Garble())
    answer = clients.plain.post("/v1/chat/completions", json={})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    with pytest.raises(ValueError, match="Expecting"):
        answer.json()


def test_a_request_can_bring_its_own_act(clients: Clients) -> None:
    told = {ACT_HEADER: msgspec.json.encode(Fail(418, message="tea")).decode()}
    answer = clients.plain.post("/v1/messages", json={}, headers=told)
    assert (answer.status_code, answer.json()["error"]["message"]) == (418, "tea")
    wrong = clients.plain.post("/v1/messages", json={}, headers={ACT_HEADER: '{"type": "Dance"}'})
    assert wrong.status_code == 400
    assert ACT_HEADER in wrong.text


def test_it_has_tools_called_in_every_dialect(clients: Clients) -> None:
    """Each call has an id of its own; what is asked for elsewhere takes no act away."""
    clients.provider.script(*(CallTool("add", {"a": number}) for number in range(5)))
    assert clients.plain.get("/").status_code == 404
    used = [clients.anthropic.messages.create(model="m", max_tokens=9, messages=HELLO)]
    with clients.anthropic.messages.stream(model="m", max_tokens=9, messages=HELLO) as stream:
        used.append(stream.get_final_message())
    said = clients.openai.chat.completions.create(model="m", messages=HELLO).model_dump()
    called = [clients.openai.responses.create(model="m", input="Hello?").model_dump()["output"][0]]
    with clients.openai.responses.stream(model="m", input="Hello?") as events:
        called.append(events.get_final_response().model_dump()["output"][0])
    first, second = (one.model_dump()["content"][0] for one in used)
    (third,) = said["choices"][0]["message"]["tool_calls"]
    assert [first["input"], second["input"]] == [{"a": 0}, {"a": 1}]
    texts = [third["function"]["arguments"], *(one["arguments"] for one in called)]
    assert [msgspec.json.decode(text) for text in texts] == [{"a": number} for number in (2, 3, 4)]
    assert len({first["id"], second["id"], third["id"], *(one["call_id"] for one in called)}) == 5


GOOGLE = "/v1beta/models/gemini-2.5-flash:"


def test_google_is_spoken_too_and_the_path_says_whether_it_streams(clients: Clients) -> None:
    clients.provider.script(Reply("So it is."), CallTool("add", {"a": 1}), quota_used_up("google"), Reply("So it is."))
    whole = clients.plain.post(f"{GOOGLE}generateContent", json={}).json()
    assert whole["candidates"][0]["content"]["parts"] == [{"text": "So it is."}]
    (called,) = events_of(clients.plain.post(f"{GOOGLE}streamGenerateContent?alt=sse", json={}))
    assert called["candidates"][0]["content"]["parts"][0]["functionCall"]["args"] == {"a": 1}
    refused = clients.plain.post(f"{GOOGLE}streamGenerateContent", json={})
    assert (refused.status_code, refused.json()["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
    streamed = events_of(clients.plain.post(f"{GOOGLE}streamGenerateContent", json={}))
    assert "".join(one["candidates"][0]["content"]["parts"][0]["text"] for one in streamed) == "So it is."
    assert [one["candidates"][0].get("finishReason") for one in streamed] == [None, None, "STOP"]
    assert clients.plain.post(f"{GOOGLE}countTokens", json={}).status_code == 404


def events_of(answer: httpx.Response) -> list[Any]:
    assert answer.headers["content-type"] == "text/event-stream"
    return [msgspec.json.decode(line.removeprefix("data: ")) for line in answer.text.splitlines() if line]


def test_it_recovers_when_it_is_told(clients: Clients) -> None:
    clients.provider.always(Fail(500))
    clients.provider.script(Fail(503))
    post = clients.plain.post
    assert [post("/v1/messages", json={}).status_code for _ in range(2)] == [503, 500]
    clients.provider.recover()
    assert post("/v1/messages", json={}).status_code == 200
    clients.provider.wait_for(3)


def test_an_unknown_path_is_not_found_and_a_large_body_arrives(clients: Clients) -> None:
    assert clients.plain.get("/nowhere").status_code == 404
    clients.plain.post("/v1/messages", json={"text": "x" * 1_000_000})
    assert len(clients.provider.requests[-1].body["text"]) == 1_000_000


def test_it_ends_while_requests_hang() -> None:
    with Provider() as provider:
        provider.always(Hang())
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{provider.url}/v1/messages", json={}, timeout=0.05)
        provider.wait_for(1)
