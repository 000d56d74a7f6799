"""Standard input and output to the `/mcp` of a server, without the SDK: it starts in a fraction of the SDK's second.

Clients give up on servers that start slowly, and start one for each of their sessions. So what comes on a line is
posted as it is, and what is answered is written on a line; the tools are the server's. What the protocol wants in
headers over HTTP is read off each message: its version, its method, and the name of what is called.

A server that cannot be reached is waited for as long as nothing can have been done twice: while nothing has been sent,
or where a call may simply be made again. Otherwise the model is told what to do.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any, BinaryIO

import msgspec
from msgspec import UNSET, UnsetType

from allswell.errors import Refused, Unavailable
from allswell.interfaces.mcp.arguments import HINTS
from allswell.remote.connection import ConnectionPool, HttpAnswer, NotSent

PATH = "/mcp"
LINE_MOST = 8 << 20
"""Bytes of one message; the server takes no larger one."""
AWAY_SECONDS = 15.0
"""How long a server that cannot be reached is waited for: with a call's own wait, still less than clients wait."""
_PAUSE = 0.25
_WAIT = 50.0
"""Seconds that an answer may take."""
_LAST_SECONDS = 5.0
"""How long what is being answered is waited for when the client says no more."""
_VERSION = "io.modelcontextprotocol/protocolVersion"
_NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_CANCELLED = "notifications/cancelled"
_FAILED = -32_000
Id = int | str


class _Params(msgspec.Struct, rename={"meta": "_meta", "request": "requestId"}):
    meta: dict[str, Any] = {}
    name: str = ""
    uri: str = ""
    request: Id | None = None


class _ProxyMessage(msgspec.Struct):
    """What is looked at of a message; the server looks at all of it."""

    method: str = ""
    id: Id | UnsetType | None = UNSET
    params: _Params | UnsetType = UNSET


class _Problem(msgspec.Struct):
    """What is looked at of a problem (http/errors.py); to import all of it would take as long as the rest."""

    detail: str
    hint: str | None = None


class _ProxyStart(msgspec.Struct, rename="camel"):
    protocol_version: str


class _Reply(msgspec.Struct):
    result: _ProxyStart


class StdioProxy:
    """One client's conversation with a server."""

    def __init__(
        self, post: Callable[[bytes, dict[str, str]], Awaitable[HttpAnswer]], write: Callable[[bytes], None]
    ) -> None:
        self._post = post
        self._write = write
        self._version: str | None = None
        """What was agreed upon in an older protocol's handshake."""
        self._running: dict[Id, asyncio.Task[None]] = {}

    def hear(self, line: bytes) -> None:
        """A line from the client; what it asks is answered when it is answered."""
        try:
            message = _read(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            problem = {"code": -32_700, "message": f"This is not a message: {error}"}
            self._say({"jsonrpc": "2.0", "id": None, "error": problem})
            return
        if message.method == _CANCELLED and message.params is not UNSET and message.params.request is not None:
            running = self._running.get(message.params.request)
            if running is not None:
                running.cancel()  # hangs up, and so the server knows
        elif isinstance(message.id, Id) and message.method:
            id_ = message.id
            task = self._running[id_] = asyncio.ensure_future(self._carry(message, id_, line))
            task.add_done_callback(lambda _: self._running.pop(id_, None))

    async def finish(self) -> None:
        """The client says no more: what is being answered is, and nobody waits for anything else."""
        running = list(self._running.values())
        if running:
            _, left = await asyncio.wait(running, timeout=_LAST_SECONDS)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _carry(self, message: _ProxyMessage, id_: Id, line: bytes) -> None:
        try:
            answer = await self._answered(message, line)
        except (Unavailable, Refused) as error:
            self._failed(message, id_, _in_words(error))
            return
        kind = answer.headers.get("content-type", "")
        if kind.startswith("text/event-stream"):
            for data in events(answer.body):
                self._pass(message, data)
        elif kind.startswith("application/json") and b'"jsonrpc"' in answer.body:
            self._pass(message, answer.body)
        else:
            self._failed(message, id_, _of_problem(answer))

    async def _answered(self, message: _ProxyMessage, line: bytes) -> HttpAnswer:
        """The server's answer; where that can do no harm, asked for again while it cannot be reached."""
        loop = asyncio.get_running_loop()
        until = loop.time() + AWAY_SECONDS
        headers = self._headers(message)
        while True:
            try:
                return await self._post(line, headers)
            except Unavailable as error:
                if not (_is_repeatable(message) or isinstance(error, NotSent)) or loop.time() >= until:
                    raise
            await asyncio.sleep(_PAUSE)

    def _headers(self, message: _ProxyMessage) -> dict[str, str]:
        params = _Params() if message.params is UNSET else message.params
        headers = {"Accept": "application/json, text/event-stream"}
        version = params.meta.get(_VERSION)
        if isinstance(version, str):
            headers |= {"MCP-Protocol-Version": version[:100], "Mcp-Method": _safe(message.method)}
            if message.method in _NAMES:
                headers["Mcp-Name"] = _safe(getattr(params, _NAMES[message.method]))
        elif self._version is not None and message.method != "initialize":
            headers["MCP-Protocol-Version"] = self._version
        return headers

    def _pass(self, message: _ProxyMessage, data: bytes) -> None:
        if message.method == "initialize":
            with contextlib.suppress(msgspec.DecodeError):
                self._version = msgspec.json.decode(data, type=_Reply).result.protocol_version
        self._write(data.replace(b"\n", b" ") + b"\n")

    def _failed(self, message: _ProxyMessage, id_: Id, text: str) -> None:
        """A tool's failure is an answer, which a model gets to read; anything else is an error of the protocol's."""
        if message.method == "tools/call":
            result = {"content": [{"type": "text", "text": text}], "isError": True, "resultType": "complete"}
            self._say({"jsonrpc": "2.0", "id": id_, "result": result})
        else:
            self._say({"jsonrpc": "2.0", "id": id_, "error": {"code": _FAILED, "message": text}})

    def _say(self, message: dict[str, Any]) -> None:
        self._write(msgspec.json.encode(message) + b"\n")


def _read(line: bytes) -> _ProxyMessage:
    if len(line) > LINE_MOST:
        raise msgspec.DecodeError(f"it has more than {LINE_MOST:,} bytes")
    return msgspec.json.decode(line, type=_ProxyMessage)


def _is_repeatable(message: _ProxyMessage) -> bool:
    if message.method != "tools/call" or message.params is UNSET:
        return True
    hints = HINTS.get(message.params.name)
    return hints is not None and hints.is_repeatable


def _safe(value: str) -> str:
    """A header's value as the protocol writes what a header cannot hold."""
    plain = value.isascii() and value.isprintable() and value == value.strip() and not value.startswith("=?base64?")
    return value if plain else f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def events(body: bytes) -> list[bytes]:
    """The data of each event in a stream of them."""
    found = []
    for event in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        data = [line.removeprefix(b"data:").strip() for line in event.split(b"\n") if line.startswith(b"data:")]
        if data:
            found.append(b"\n".join(data))
    return found


def _in_words(error: Refused | Unavailable) -> str:
    hint = f" {error.hint[0].upper()}{error.hint[1:]}." if error.hint else ""
    if isinstance(error, Refused):
        return f"Refused: {error.message}.{hint}"
    return (
        f"Allswell gave no answer: {error.message}.{hint} What was asked may have been done. Go on with your work, "
        "and look with status or answers before you repeat this call."
    )


def _of_problem(answer: HttpAnswer) -> str:
    try:
        problem = msgspec.json.decode(answer.body, type=_Problem)
    except msgspec.DecodeError:
        return f"The answer ({answer.status}) did not come from Allswell. Is this the address of `allswell serve`?"
    hint = f" {problem.hint[0].upper()}{problem.hint[1:]}." if problem.hint else ""
    return f"Refused: {problem.detail}.{hint}"


def run(url: str, key: str) -> None:
    """Speak for a client with a server until standard input ends."""
    asyncio.run(_live(ConnectionPool(url, key), sys.stdin.buffer, sys.stdout.buffer))


async def _live(connections: ConnectionPool, reads: BinaryIO, writes: BinaryIO) -> None:
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes | None] = asyncio.Queue()

    def read() -> None:
        while line := reads.readline(LINE_MOST + 1):
            more = line
            while more and not more.endswith(b"\n") and len(more) > LINE_MOST:  # the rest of it is not kept
                more = reads.readline(LINE_MOST + 1)
            loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, None)

    def write(line: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):
            writes.write(line)
            writes.flush()

    # A thread that waits for a line cannot be ended, and must not keep the process.
    threading.Thread(target=read, daemon=True, name="allswell mcp stdin").start()
    proxy = StdioProxy(lambda body, headers: connections.call(PATH, body, wait=_WAIT, headers=headers), write)
    try:
        while (line := await lines.get()) is not None:
            if line.strip():
                proxy.hear(line)
    finally:
        await proxy.finish()
        connections.close()
