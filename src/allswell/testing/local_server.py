"""A small HTTP server on this machine that does with each request what it is told: the base of all stand-ins.

It runs in a thread with a loop of its own, so that sync and async clients can be tried, and a test whose loop is
blocked still gets its answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from abc import ABC, abstractmethod
from collections import deque
from typing import Generic, Self, TypeVar

import msgspec

A = TypeVar("A")
R = TypeVar("R")
_MOST = 16 * 1024 * 1024


class Read(msgspec.Struct, frozen=True):
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
    def understand(self, read: Read) -> R:
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


async def _read(reader: asyncio.StreamReader) -> Read:
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
    return Read(method, path, query, headers, body)
