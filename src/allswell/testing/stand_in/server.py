"""A small HTTP server in a thread of its own, so that a test whose loop is blocked still gets its answers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Self

import msgspec

_MOST = 4 * 1024 * 1024


class Asked(msgspec.Struct, frozen=True):
    """A request as it arrived."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    """Under lower-case names."""
    body: bytes
    at: float
    """On the machine's monotonic clock, in seconds."""


class Answered(msgspec.Struct, frozen=True):
    """An answer to give."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}


class Well(msgspec.Struct, frozen=True):
    """Do what is asked, and answer."""


class Status(msgspec.Struct, frozen=True):
    """Answer so, and do nothing."""

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""


class Lose(msgspec.Struct, frozen=True):
    """Do what is asked, and break the connection off instead of answering."""


class Slow(msgspec.Struct, frozen=True):
    """Do what is asked, and answer after so many seconds."""

    seconds: float


class Hang(msgspec.Struct, frozen=True):
    """Never answer, and do nothing."""


Act = Well | Status | Lose | Slow | Hang


class StandIn:
    """A server on 127.0.0.1; `with StandIn() as server:`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="allswell-stand-in", daemon=True)
        self._server: asyncio.Server | None = None
        self._changed = threading.Condition()
        self._script: deque[Act] = deque()
        self._usually: Act = Well()
        self._open: set[asyncio.Task[None]] = set()
        self.port = 0
        self.asked: list[Asked] = []
        """All that has arrived."""

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def answer(self, asked: Asked) -> Answered:
        """Do what is asked; a stand-in for somebody in particular has its own."""
        del asked
        return Answered()

    # --- being told ---------------------------------------------------------------------------------------------------

    def script(self, *acts: Act) -> None:
        """What to do with the next requests, one act for each."""
        with self._changed:
            self._script.extend(acts)

    def always(self, act: Act) -> None:
        """What to do with every request that has no act of its own."""
        with self._changed:
            self._usually = act

    def recover(self) -> None:
        """Answer well from now on."""
        with self._changed:
            self._script.clear()
            self._usually = Well()

    def wait_for(self, count: int, seconds: float = 10.0) -> None:
        """Wait until so many requests have arrived; `TimeoutError` if they do not come."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.asked) >= count, seconds):
                raise TimeoutError(f"{len(self.asked)} requests have arrived after {seconds} s, not {count}")

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
            asked = await _read(reader)
            await self._act(self._take(asked), asked, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ValueError):
            pass  # the client has gone, the test ends, or what came was no request
        finally:
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    def _take(self, asked: Asked) -> Act:
        with self._changed:
            self.asked.append(asked)
            self._changed.notify_all()
            return self._script.popleft() if self._script else self._usually

    async def _act(self, act: Act, asked: Asked, writer: asyncio.StreamWriter) -> None:
        match act:
            case Well():
                await _send(writer, self.answer(asked))
            case Status(status, headers, body):
                await _send(writer, Answered(status, body, headers))
            case Slow(seconds):
                answer = self.answer(asked)
                await asyncio.sleep(seconds)
                await _send(writer, answer)
            case Lose():
                self.answer(asked)
                sock: socket.socket = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            case Hang():
                await asyncio.Event().wait()


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ", 2)
    pairs = (line.partition(":") for line in head[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(min(int(headers.get("content-length", 0)), _MOST))
    path, _, query = target.partition("?")
    return Asked(method, path, query, headers, body, time.monotonic())


async def _send(writer: asyncio.StreamWriter, answer: Answered) -> None:
    headers = {
        "content-type": "application/json",
        "content-length": str(len(answer.body)),
        "connection": "close",
        **answer.headers,
    }
    lines = [f"HTTP/1.1 {answer.status} Status", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + answer.body)
    await writer.drain()
