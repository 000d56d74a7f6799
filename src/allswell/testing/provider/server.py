"""A model provider for tests: a real HTTP server on this machine that misbehaves as it is told.

    with Provider() as provider:
        provider.script(rate_limited("2"), Fail(503), Reply("Hello."))
        client = anthropic.Anthropic(base_url=provider.url, api_key="test", max_retries=0)

Requests take the acts of the script, one each, in the order in which they arrive; when it is used up, `usually` holds,
which is a good answer until it is told otherwise (`always`, and `recover` to end that). A single request can bring its
own act along in the header `x-provider-act`, as JSON.

The server runs in a thread with a loop of its own, so that sync and async clients can be tried, and a test whose loop
is blocked still gets its answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Self

import msgspec

from allswell.testing.provider.acts import (
    AnyAct,
    BreakOff,
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
_MOST = 16 * 1024 * 1024
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


class Provider:
    """A provider on 127.0.0.1; `with Provider() as provider:`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="allswell-fake-provider", daemon=True)
        self._server: asyncio.Server | None = None
        self._changed = threading.Condition()
        self._script: deque[AnyAct] = deque()
        self._usually: AnyAct = Reply()
        self._open: set[asyncio.Task[None]] = set()
        self.port = 0
        self.requests: list[Request] = []
        """All that has arrived."""

    @property
    def url(self) -> str:
        """The base of Anthropic's API."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai_url(self) -> str:
        """The base of OpenAI's API."""
        return f"{self.url}/v1"

    # --- being told -----------------------------------------------------------------------------------------------

    def script(self, *acts: AnyAct) -> None:
        """What to do with the next requests, one act for each."""
        with self._changed:
            self._script.extend(acts)

    def always(self, act: AnyAct) -> None:
        """What to do with every request that has no act of its own."""
        with self._changed:
            self._usually = act

    def recover(self) -> None:
        """Answer well from now on."""
        with self._changed:
            self._script.clear()
            self._usually = Reply()

    def wait_for(self, count: int, seconds: float = 10.0) -> None:
        """Wait until so many requests have arrived; `TimeoutError` if they do not come."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.requests) >= count, seconds):
                raise TimeoutError(f"{len(self.requests)} requests have arrived after {seconds} s, not {count}")

    # --- life -----------------------------------------------------------------------------------------------------

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

    # --- one connection -------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._open.add(task)
            task.add_done_callback(self._open.discard)
        try:
            request = await _read(reader)
            act = self._take(request)
            await _Answer(request, writer).give(act)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ValueError):
            pass  # the client has gone, the provider ends, or what came was no request
        finally:
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    def _take(self, request: Request) -> AnyAct:
        told = request.headers.get(ACT_HEADER)
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
            if told is not None:
                try:
                    return _ACT.decode(told)
                except msgspec.ValidationError as error:
                    return Fail(400, message=f"{ACT_HEADER}: {error}")
            return self._script.popleft() if self._script else self._usually


async def _read(reader: asyncio.StreamReader) -> Request:
    """A request with its whole body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ", 2)
    pairs = (line.partition(":") for line in head[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    raw = b""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int(await reader.readline(), 16):
            raw += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    else:
        raw = await reader.readexactly(min(int(headers.get("content-length", 0)), _MOST))
    try:
        body = msgspec.json.decode(raw, type=dict[str, Any]) if raw else {}
    except msgspec.DecodeError:
        body = {}
    return Request(method, path.partition("?")[0], headers, body, time.monotonic())


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
            case _ if self._request.path not in DIALECTS:
                await self._fail(Fail(404, message=f"nothing is served at {self._request.path}"))
            case Reply(text):
                await self._send(self._whole(text))
            case Fail():
                await self._fail(act)
            case Hang():
                await asyncio.Event().wait()
            case Drip(every, text):
                for byte in b"".join(self._whole(text)):
                    await self._send([bytes([byte])])
                    await asyncio.sleep(every / 1_000)
            case Reset():
                self._reset()
            case BreakOff(after, text):
                await self._send(self._whole(text)[: after + 1] if self._streams else self._half(text))
                self._reset()
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

    def _reset(self) -> None:
        """Close so that the other side sees a reset, not an end."""
        sock: socket.socket = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


def _head(status: int, kind: str, length: int | None, headers: Mapping[str, str] | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}", f"content-type: {kind}", "connection: close"]
    lines += [] if length is None else [f"content-length: {length}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8")
