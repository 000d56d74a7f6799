"""A model provider for tests of anything that calls one; see `Provider` for how it is used."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

import msgspec

# What the fake provider can be told to do with a request. Each act is a value, so a script of them can be stored.


class Act(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """One way to answer."""


class Reply(Act, frozen=True, tag=True):
    """Answer well, as a stream if one was asked for."""

    text: str = "All's well."


class CallTool(Act, frozen=True, tag=True):
    """Answer well, by having the client call a tool of its own."""

    name: str
    arguments: Mapping[str, Any] = {}
    namespace: str = ""
    """Where OpenAI's responses find the tool, if it stands in a group of them."""


class Fail(Act, frozen=True, tag=True):
    """Answer with an error status, and a body in the words of the API that was called."""

    status: int = 500
    code: str = ""
    """The machine-readable code or type; by default the one that fits the status."""
    message: str = "This is what you asked for."
    headers: Mapping[str, str] = {}
    more: Mapping[str, Any] = {}
    """Further fields of the error in the body, which outweigh those above."""


class Hang(Act, frozen=True, tag=True):
    """Take the request and never answer."""


class Drip(Act, frozen=True, tag=True):
    """Answer well, a byte at a time."""

    every: int = 20
    """Milliseconds between two bytes."""
    text: str = "All's well."


class Reset(Act, frozen=True, tag=True):
    """Take the request and reset the connection."""


class BreakOff(Act, frozen=True, tag=True):
    """Begin to answer well, and reset the connection in the middle."""

    after: int = 2
    """So many events of a stream are sent; of any other answer, half of the body."""
    text: str = "All's well."


class Garble(Act, frozen=True, tag=True):
    """Answer 200 and application/json with something that is no JSON."""


class FailInStream(Act, frozen=True, tag=True):
    """Begin a stream well, and report an error in it."""

    after: int = 2
    code: str = "overloaded_error"
    message: str = "This is what you asked for."
    text: str = "All's well."


AnyAct = Reply | CallTool | Fail | Hang | Drip | Reset | BreakOff | Garble | FailInStream


def rate_limited(retry_after: str | None = None, *, ms: int | None = None) -> Fail:
    """429, with a Retry-After in any form you like, or `retry-after-ms`, or neither."""
    headers = {} if retry_after is None else {"retry-after": retry_after}
    return Fail(429, headers=headers if ms is None else {**headers, "retry-after-ms": str(ms)})


def overloaded() -> Fail:
    """529, as an overloaded provider answers."""
    return Fail(529, "overloaded_error", "Overloaded")


def unauthorized() -> Fail:
    """401: the key is wrong."""
    return Fail(401, message="invalid x-api-key")


def quota_used_up(api: Literal["openai", "anthropic", "google"] = "openai") -> Fail:
    """What a provider says when there is nothing left to pay with."""
    if api == "google":
        return Fail(429, message="You exceeded your current quota, please check your plan and billing details.")
    if api == "openai":
        return Fail(429, "insufficient_quota", "You exceeded your current quota, please check your plan.")
    return Fail(400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API.")


def usage_limit(resets_at: int) -> Fail:
    """What Codex is told whose plan is used up until then, in seconds since 1970."""
    more = {"type": "usage_limit_reached", "plan_type": "plus", "resets_at": resets_at}
    return Fail(429, message="The usage limit has been reached", more=more)


def subscription_limit(resets_at: int) -> Fail:
    """What Claude Code is told whose subscription is used up until then, in seconds since 1970."""
    unified = {"status": "rejected", "reset": str(resets_at), "representative-claim": "five_hour"}
    headers = {f"anthropic-ratelimit-unified-{name}": value for name, value in unified.items()}
    return Fail(429, "rate_limit_error", "This request would exceed your account's rate limit.", headers)


def context_overflow(api: Literal["openai", "anthropic"] = "openai") -> Fail:
    """What a provider says to a prompt that is too long."""
    if api == "openai":
        return Fail(400, "context_length_exceeded", "This model's maximum context length is 8192 tokens.")
    return Fail(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")


# The chat APIs in as many words as their SDKs need: OpenAI's completions and responses, Anthropic's messages, Google's
# contents.

Json = Mapping[str, Any]

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def _type_of(status: int) -> str:
    return _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")


def _pieces(text: str) -> list[str]:
    """A text as it is streamed: word by word, and nothing is lost."""
    words = text.split(" ")
    return [word if place == 0 else " " + word for place, word in enumerate(words)]


def event(data: Json | str, name: str | None = None) -> bytes:
    """One server-sent event."""
    body = data if isinstance(data, str) else msgspec.json.encode(data).decode()
    return (f"event: {name}\n" if name else "").encode() + f"data: {body}\n\n".encode()


class Dialect(Protocol):
    """How one API says things."""

    def reply(self, text: str, asked: Json) -> Json:
        """A whole answer."""
        ...

    def stream(self, text: str, asked: Json) -> Iterator[bytes]:
        """The same answer as a stream of events."""
        ...

    def call(self, tool: CallTool, asked: Json) -> Json:
        """A whole answer that has a tool called."""
        ...

    def stream_call(self, tool: CallTool, asked: Json) -> Iterator[bytes]:
        """The same as a stream of events."""
        ...

    def error(self, status: int, code: str, message: str) -> Json:
        """An error body."""
        ...

    def error_event(self, code: str, message: str) -> bytes:
        """An error inside a stream."""
        ...


_calls = count(1)


def _call_id() -> str:
    """An id for a call, which no other one has: clients take what has the same id for the same."""
    return f"call_{next(_calls)}"


class Completions:
    """OpenAI's chat completions."""

    def reply(self, text: str, asked: Json) -> Json:
        """A whole answer."""
        message = {"role": "assistant", "content": text, "refusal": None}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": asked.get("model", "fake"),
            "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }

    def stream(self, text: str, asked: Json) -> Iterator[bytes]:
        """The same answer as a stream of events."""
        for delta, finish in (
            ({"role": "assistant", "content": ""}, None),
            *(({"content": piece}, None) for piece in _pieces(text)),
            ({}, "stop"),
        ):
            yield event(
                {
                    "id": "chatcmpl-1",
                    "object": "chat.completion.chunk",
                    "created": 1_700_000_000,
                    "model": asked.get("model", "fake"),
                    "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
                }
            )
        yield event("[DONE]")

    def _called(self, tool: CallTool) -> Json:
        said = {"name": tool.name, "arguments": msgspec.json.encode(tool.arguments).decode()}
        return {"index": 0, "id": _call_id(), "type": "function", "function": said}

    def call(self, tool: CallTool, asked: Json) -> Json:
        """A whole answer that has a tool called."""
        message = {"role": "assistant", "content": None, "tool_calls": [self._called(tool)]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls", "logprobs": None}
        return {**self.reply("", asked), "choices": [choice]}

    def stream_call(self, tool: CallTool, asked: Json) -> Iterator[bytes]:
        """The same as a stream of events."""
        called = {"role": "assistant", "content": None, "tool_calls": [self._called(tool)]}
        for delta, finish in ((called, None), ({}, "tool_calls")):
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            yield event({**self.reply("", asked), "object": "chat.completion.chunk", "choices": [choice]})
        yield event("[DONE]")

    def error(self, status: int, code: str, message: str) -> Json:
        """An error body."""
        return {"error": {"message": message, "type": _type_of(status), "param": None, "code": code or None}}

    def error_event(self, code: str, message: str) -> bytes:
        """An error inside a stream."""
        return event({"error": {"message": message, "type": code, "param": None, "code": code}})


class Responses(Completions):
    """OpenAI's responses."""

    def reply(self, text: str, asked: Json) -> Json:
        """A whole answer."""
        content = [{"type": "output_text", "text": text, "annotations": []}]
        message = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": content}
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1_700_000_000,
            "status": "completed",
            "model": asked.get("model", "fake"),
            "output": [message],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 1,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 1,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 2,
            },
        }

    def stream(self, text: str, asked: Json) -> Iterator[bytes]:
        """The same answer as a stream of events."""
        whole = self.reply(text, asked)
        place = {"item_id": "msg_1", "output_index": 0, "content_index": 0, "logprobs": []}
        yield event({"type": "response.created", "sequence_number": 0, "response": whole}, "response.created")
        (message,) = whole["output"]
        begun = {**message, "status": "in_progress", "content": []}
        yield event(_item("added", begun), "response.output_item.added")
        for number, piece in enumerate(_pieces(text), start=1):
            delta = {"type": "response.output_text.delta", "sequence_number": number, "delta": piece, **place}
            yield event(delta, "response.output_text.delta")
        yield event(_item("done", message), "response.output_item.done")
        done = {"type": "response.completed", "sequence_number": 1_000, "response": whole}
        yield event(done, "response.completed")

    def call(self, tool: CallTool, asked: Json) -> Json:
        """A whole answer that has a tool called."""
        said = msgspec.json.encode(tool.arguments).decode()
        id_ = _call_id()
        item = {"type": "function_call", "id": f"fc_{id_}", "call_id": id_, "name": tool.name, "arguments": said}
        item |= {"status": "completed"} | ({"namespace": tool.namespace} if tool.namespace else {})
        return {**self.reply("", asked), "id": f"resp_{id_}", "output": [item]}

    def stream_call(self, tool: CallTool, asked: Json) -> Iterator[bytes]:
        """The same as a stream of events."""
        whole = self.call(tool, asked)
        (item,) = whole["output"]
        begun = {**whole, "status": "in_progress", "output": []}
        yield event({"type": "response.created", "sequence_number": 0, "response": begun}, "response.created")
        yield event(_item("added", {**item, "status": "in_progress"}), "response.output_item.added")
        yield event(_item("done", item), "response.output_item.done")
        done = {"type": "response.completed", "sequence_number": 1_000, "response": whole}
        yield event(done, "response.completed")


def _item(what: str, message: Json) -> Json:
    """An item of an answer begins or is over."""
    return {
        "type": f"response.output_item.{what}",
        "sequence_number": 0 if what == "added" else 999,
        "output_index": 0,
        "item": message,
    }


class Messages:
    """Anthropic's messages."""

    def _message(self, asked: Json, **more: object) -> Json:
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": asked.get("model", "fake"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
            **more,
        }

    def reply(self, text: str, asked: Json) -> Json:
        """A whole answer."""
        return self._message(asked, content=[{"type": "text", "text": text}], stop_reason="end_turn")

    def stream(self, text: str, asked: Json) -> Iterator[bytes]:
        """The same answer as a stream of events."""
        events: list[dict[str, object]] = [
            {"type": "message_start", "message": self._message(asked)},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            *(
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
                for piece in _pieces(text)
            ),
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {"output_tokens": 1},
            },
            {"type": "message_stop"},
        ]
        for one in events:
            yield event(one, str(one["type"]))

    def call(self, tool: CallTool, asked: Json) -> Json:
        """A whole answer that has a tool called."""
        id_ = _call_id()
        used = {"type": "tool_use", "id": id_, "name": tool.name, "input": dict(tool.arguments)}
        return self._message(asked, id=f"msg_{id_}", content=[used], stop_reason="tool_use")

    def stream_call(self, tool: CallTool, asked: Json) -> Iterator[bytes]:
        """The same as a stream of events."""
        said = msgspec.json.encode(tool.arguments).decode()
        id_ = _call_id()
        used = {"type": "tool_use", "id": id_, "name": tool.name, "input": {}}
        part = {"type": "input_json_delta", "partial_json": said}
        stop = {"stop_reason": "tool_use", "stop_sequence": None}
        events: list[dict[str, object]] = [
            {"type": "message_start", "message": self._message(asked, id=f"msg_{id_}")},
            {"type": "content_block_start", "index": 0, "content_block": used},
            {"type": "content_block_delta", "index": 0, "delta": part},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]
        for one in events:
            yield event(one, str(one["type"]))

    def error(self, status: int, code: str, message: str) -> Json:
        """An error body."""
        return {"type": "error", "error": {"type": code or _type_of(status), "message": message}, "request_id": "req_1"}

    def error_event(self, code: str, message: str) -> bytes:
        """An error inside a stream."""
        return event({"type": "error", "error": {"type": code, "message": message}}, "error")


class Contents:
    """Google's contents, as Gemini is asked for them."""

    def _answer(self, part: Json, reason: str | None = "STOP") -> Json:
        candidate = {"index": 0, "content": {"role": "model", "parts": [part]}}
        candidate |= {} if reason is None else {"finishReason": reason}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake", "responseId": "resp_1"}

    def reply(self, text: str, asked: Json) -> Json:
        """A whole answer."""
        del asked
        return self._answer({"text": text})

    def stream(self, text: str, asked: Json) -> Iterator[bytes]:
        """The same answer as a stream of events."""
        del asked
        *pieces, last = _pieces(text)
        for piece in pieces:
            yield event(self._answer({"text": piece}, None))
        yield event(self._answer({"text": last}))

    def call(self, tool: CallTool, asked: Json) -> Json:
        """A whole answer that has a tool called."""
        del asked
        return self._answer({"functionCall": {"id": _call_id(), "name": tool.name, "args": dict(tool.arguments)}})

    def stream_call(self, tool: CallTool, asked: Json) -> Iterator[bytes]:
        """The same as a stream of events."""
        yield event(self.call(tool, asked))

    def error(self, status: int, code: str, message: str) -> Json:
        """An error body."""
        return {"error": {"code": status, "message": message, "status": code or _GOOGLE.get(status, "INTERNAL")}}

    def error_event(self, code: str, message: str) -> bytes:
        """An error inside a stream."""
        return event({"error": {"code": 503, "message": message, "status": code}})


_GOOGLE = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
DIALECTS: Mapping[str, Dialect] = {
    "/v1/chat/completions": Completions(),
    "/v1/responses": Responses(),
    "/v1/messages": Messages(),
}
"""Which API is spoken at which path."""
_GEMINI = re.compile(r"/v1(?:beta|alpha)?/models/[^/:]+:(generateContent|streamGenerateContent)")
"""The paths of Google's API, which name the model and whether the answer is to come as a stream."""


def dialect_at(path: str) -> Dialect | None:
    """The API that is spoken at a path; None where nothing is served."""
    return Contents() if _GEMINI.fullmatch(path) else DIALECTS.get(path)


# A small HTTP server on this machine that does with each request what it is told: the base of all stand-ins.
#
# It runs in a thread with a loop of its own, so that sync and async clients can be tried, and a test whose loop is
# blocked still gets its answers.

A = TypeVar("A")
R = TypeVar("R")
_MOST = 16 * 1024 * 1024


class ParsedRequest(msgspec.Struct, frozen=True):
    """A request as it came over the wire."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    """Under lower-case names."""
    body: bytes


class LocalServer(ABC, Generic[R, A]):
    """A server on 127.0.0.1 whose requests are `R` and whose acts are `A`; for use in `with`."""

    def __init__(self, well: A) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"allswell-{type(self).__name__}", daemon=True
        )
        self._server: asyncio.Server | None = None
        self._changed = threading.Condition()
        self._script: deque[A] = deque()
        self._well = self._usually = well
        self._open: set[asyncio.Task[None]] = set()
        self.port = 0
        self.requests: list[R] = []
        """All that has arrived."""

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @abstractmethod
    def understand(self, read: ParsedRequest) -> R:
        """A request as this server keeps it."""

    @abstractmethod
    async def do(self, act: A, request: R, writer: asyncio.StreamWriter) -> None:
        """Do with a request what the act says."""

    def own_act(self, request: R) -> A | None:
        """The act that a request brings along, if it does."""
        del request
        return None

    # --- being told ---------------------------------------------------------------------------------------------------

    def script(self, *acts: A) -> None:
        """What to do with the next requests, one act for each."""
        with self._changed:
            self._script.extend(acts)

    def always(self, act: A) -> None:
        """What to do with every request that has no act of its own."""
        with self._changed:
            self._usually = act

    def recover(self) -> None:
        """Answer well from now on."""
        with self._changed:
            self._script.clear()
            self._usually = self._well

    def wait_for(self, count: int, seconds: float = 10.0) -> None:
        """Wait until so many requests have arrived; `TimeoutError` if they do not come."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.requests) >= count, seconds):
                raise TimeoutError(f"{len(self.requests)} requests have arrived after {seconds} s, not {count}")

    # --- life ---------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    # --- one connection -----------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._open.add(task)
            task.add_done_callback(self._open.discard)
        try:
            request = self.understand(await _read(reader))
            await self.do(self._take(request), request, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ValueError):
            pass  # the client has gone, the server ends, or what came was no request
        finally:
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    def _take(self, request: R) -> A:
        own = self.own_act(request)
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
            if own is not None:
                return own
            return self._script.popleft() if self._script else self._usually


def reset(writer: asyncio.StreamWriter) -> None:
    """Close so that the other side sees a reset, not an end."""
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> ParsedRequest:
    """A request with its whole body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ", 2)
    pairs = (line.partition(":") for line in head[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    body = b""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    else:
        body = await reader.readexactly(min(int(headers.get("content-length", 0)), _MOST))
    path, _, query = target.partition("?")
    return ParsedRequest(method, path, query, headers, body)


ACT_HEADER = "x-provider-act"
_ACT: msgspec.json.Decoder[AnyAct] = msgspec.json.Decoder(AnyAct)
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


class Request(msgspec.Struct, frozen=True):
    """A request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Under lower-case names."""
    body: Mapping[str, Any]
    at: float
    """On the machine's monotonic clock, in seconds."""


class Provider(LocalServer[Request, AnyAct]):
    """A provider on 127.0.0.1; `with Provider() as provider:`. Its `url` is the base of Anthropic's API.

        with Provider() as provider:
            provider.script(rate_limited("2"), Fail(503), Reply("Hello."))
            client = anthropic.Anthropic(base_url=provider.url, api_key="test", max_retries=0)

    Requests take the acts of the script, one each, in the order in which they arrive; when it is used up, `usually`
    holds,
    which is a good answer until it is told otherwise (`always`, and `recover` to end that). A single request can bring
    its own act along in the header `x-provider-act`, as JSON.
    """

    def __init__(self) -> None:
        super().__init__(Reply())

    @property
    def openai_url(self) -> str:
        """The base of OpenAI's API."""
        return f"{self.url}/v1"

    def understand(self, read: ParsedRequest) -> Request:
        """A request with its body as JSON."""
        try:
            body = msgspec.json.decode(read.body, type=dict[str, Any]) if read.body else {}
        except msgspec.DecodeError:
            body = {}
        return Request(read.method, read.path, read.headers, body, time.monotonic())

    def own_act(self, request: Request) -> AnyAct | None:
        """What the request's own header says; what is asked for elsewhere is not there, and takes no act away."""
        if dialect_at(request.path) is None:
            return Fail(404, message=f"nothing is served at {request.path}")
        told = request.headers.get(ACT_HEADER)
        if told is None:
            return None
        try:
            return _ACT.decode(told)
        except msgspec.ValidationError as error:
            return Fail(400, message=f"{ACT_HEADER}: {error}")

    async def do(self, act: AnyAct, request: Request, writer: asyncio.StreamWriter) -> None:
        """Answer as the act says."""
        await _Answer(request, writer).give(act)


class _Answer:
    """One answer, good or bad."""

    def __init__(self, request: Request, writer: asyncio.StreamWriter) -> None:
        self._request = request
        self._writer = writer
        self._dialect: Dialect = dialect_at(request.path) or Completions()
        self._streams = request.body.get("stream") is True or request.path.endswith(":streamGenerateContent")

    async def give(self, act: AnyAct) -> None:
        """Do what the act says."""
        match act:
            case Reply(text):
                await self._send(self._whole(text))
            case CallTool():
                await self._send(self._call(act))
            case Fail():
                await self._fail(act)
            case Hang():
                await asyncio.Event().wait()
            case Drip(every, text):
                for byte in b"".join(self._whole(text)):
                    await self._send([bytes([byte])])
                    await asyncio.sleep(every / 1_000)
            case Reset():
                reset(self._writer)
            case BreakOff(after, text):
                await self._send(self._whole(text)[: after + 1] if self._streams else self._half(text))
                reset(self._writer)
            case Garble():
                await self._send([_head(200, "application/json", 12), b'{"all": well'])
            case FailInStream(after, code, message, text):
                await self._send([*self._whole(text)[: after + 1], self._dialect.error_event(code, message)])

    def _whole(self, text: str) -> list[bytes]:
        """A good answer: its head, and its body in one piece or event by event."""
        if self._streams:
            return [_head(200, "text/event-stream", None), *self._dialect.stream(text, self._request.body)]
        body = msgspec.json.encode(self._dialect.reply(text, self._request.body))
        return [_head(200, "application/json", len(body)), body]

    def _call(self, act: CallTool) -> list[bytes]:
        """A good answer that has the client call a tool."""
        if self._streams:
            return [_head(200, "text/event-stream", None), *self._dialect.stream_call(act, self._request.body)]
        body = msgspec.json.encode(self._dialect.call(act, self._request.body))
        return [_head(200, "application/json", len(body)), body]

    def _half(self, text: str) -> list[bytes]:
        head, body = self._whole(text)
        return [head, body[: len(body) // 2]]

    async def _fail(self, act: Fail) -> None:
        told = self._dialect.error(act.status, act.code, act.message)
        body = msgspec.json.encode({**told, "error": {**told["error"], **act.more}})
        await self._send([_head(act.status, "application/json", len(body), act.headers), body])

    async def _send(self, parts: list[bytes]) -> None:
        for part in parts:
            self._writer.write(part)
            await self._writer.drain()


def _head(status: int, kind: str, length: int | None, headers: Mapping[str, str] | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}", f"content-type: {kind}", "connection: close"]
    lines += [] if length is None else [f"content-length: {length}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8")


__all__ = [
    "ACT_HEADER",
    "Act",
    "AnyAct",
    "BreakOff",
    "CallTool",
    "Drip",
    "Fail",
    "FailInStream",
    "Garble",
    "Hang",
    "Provider",
    "Reply",
    "Request",
    "Reset",
    "context_overflow",
    "overloaded",
    "quota_used_up",
    "rate_limited",
    "subscription_limit",
    "unauthorized",
    "usage_limit",
]
