"""A model provider for tests: a real HTTP server on this machine that misbehaves as it is told.

    with Provider() as provider:
        provider.script(rate_limited("2"), Fail(503), Reply("Hello."))
        client = anthropic.Anthropic(base_url=provider.url, api_key="test", max_retries=0)

Requests take the acts of the script, one each, in the order in which they arrive; when it is used up, `usually` holds,
which is a good answer until it is told otherwise (`always`, and `recover` to end that). A single request can bring its
own act along in the header `x-provider-act`, as JSON.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from allswell.testing.local_server import LocalServer, Read, reset
from allswell.testing.provider.acts import (
    AnyAct,
    BreakOff,
    CallTool,
    Drip,
    Fail,
    FailInStream,
    Garble,
    Hang,
    Reply,
    Reset,
)
from allswell.testing.provider.dialects import DIALECTS, Completions, Dialect

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
    """A provider on 127.0.0.1; `with Provider() as provider:`. Its `url` is the base of Anthropic's API."""

    def __init__(self) -> None:
        super().__init__(Reply())

    @property
    def openai_url(self) -> str:
        """The base of OpenAI's API."""
        return f"{self.url}/v1"

    def understand(self, read: Read) -> Request:
        """A request with its body as JSON."""
        try:
            body = msgspec.json.decode(read.body, type=dict[str, Any]) if read.body else {}
        except msgspec.DecodeError:
            body = {}
        return Request(read.method, read.path, read.headers, body, time.monotonic())

    def own_act(self, request: Request) -> AnyAct | None:
        """What the request's own header says; what is asked for elsewhere is not there, and takes no act away."""
        if request.path not in DIALECTS:
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
        self._dialect: Dialect = DIALECTS.get(request.path, Completions())
        self._streams = request.body.get("stream") is True

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
        body = msgspec.json.encode(self._dialect.error(act.status, act.code, act.message))
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
