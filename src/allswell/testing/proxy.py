"""A TCP proxy that makes a real network bad: delays, cuts one way or both, resets, refusals; for tests of any client.

    with Proxy("127.0.0.1", 5432) as proxy:
        url = proxy.before(url)             # the same database, through the proxy
        proxy.delay = 0.05                  # everything takes 50 ms longer, each way
        proxy.cut("to_client")              # the server hears us, and we do not hear it
        proxy.mend()                        # what was under way arrives after all, as TCP has it
        proxy.reset()                       # every connection ends with a reset

A cut loses no bytes: it holds them, as a network that drops packets does, while TCP repeats them. So a mended stream
goes on where it was, and is never torn in the middle; `reset` or `hang_up` is how a connection dies. The proxy lives
in a thread with an event loop of its own, and may be told what to do from any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit

Way = Literal["to_server", "to_client"]
WAYS: tuple[Way, Way] = ("to_server", "to_client")
_MOST_HELD = 1 << 20
"""Bytes that one way of a connection holds before its sender is no longer read from, as a full window does."""
_END = b""
_PATIENCE = 10.0


class Proxy:
    """Stands before one server; every connection to `port` is one connection to it."""

    def __init__(self, host: str, port: int) -> None:
        self.server = (host, port)
        self.delay = 0.0
        """Seconds that everything takes longer, each way; holds for what is said from now on."""
        self.refusing = False
        """Whether new connections are reset at once."""
        self.connections = 0
        """How many were accepted so far."""
        self.port = 0
        self._held: set[Way] = set()
        self._pairs: dict[_Pair, None] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="allswell-proxy", daemon=True)
        self._listener: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(_PATIENCE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def before(self, url: str) -> str:
        """The URL of the server, with this proxy in its place."""
        parts = urlsplit(url)
        login, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{login}{at}127.0.0.1:{self.port}").geturl()

    @property
    def open(self) -> int:
        """How many connections there are now."""
        return len(self._pairs)

    def cut(self, *ways: Way) -> None:
        """Let nothing more through these ways, or both; connections stay open and seem merely silent."""
        self._tell(lambda: self._held.update(ways or WAYS))

    def mend(self) -> None:
        """Let everything through again, what was held first."""
        self._tell(self._mend)

    def reset(self) -> None:
        """End every connection with a reset, both ends at once."""
        self._tell(lambda: self._end_all(reset=True))

    def hang_up(self) -> None:
        """End every connection in the ordinary way, without sending what is still held."""
        self._tell(lambda: self._end_all(reset=False))

    def close(self) -> None:
        """End everything; safe to call twice."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(_PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        self._loop.close()

    # --- in the proxy's own loop --------------------------------------------------------------------------------------

    def _tell(self, order: Callable[[], object]) -> None:
        """Have it done in the loop, and return when it is."""

        async def obey() -> None:
            order()

        asyncio.run_coroutine_threadsafe(obey(), self._loop).result(_PATIENCE)

    async def _listen(self) -> None:
        self._listener = await self._loop.create_server(lambda: _Pair(self).near, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._end_all(reset=True)
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # transports tell their loss in the turn after their end

    def _mend(self) -> None:
        self._held.clear()
        for pair in list(self._pairs):
            pair.pump()

    def _end_all(self, *, reset: bool) -> None:
        for pair in list(self._pairs):
            pair.end(reset=reset)

    def holds(self, way: Way) -> bool:
        """Whether nothing may pass this way."""
        return way in self._held

    def keep(self, pair: _Pair) -> None:
        """A connection has begun."""
        self.connections += 1
        self._pairs[pair] = None

    def forget(self, pair: _Pair) -> None:
        """A connection is over."""
        self._pairs.pop(pair, None)


class _Pair:
    """One connection: the client's end, the server's end, and what is on its way between them."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self.near = _End(self, "to_server")
        self.far = _End(self, "to_client")
        self._dialling: asyncio.Task[None] | None = None
        self._unheard: tuple[Way, bool] | None = None
        """An end that went while its way was cut, and whether by a reset: the other does not know yet."""

    def begun(self, end: _End) -> None:
        """One end is there; the client's comes first."""
        if end is self.far:
            self.pump()
            return
        self._proxy.keep(self)
        if self._proxy.refusing:
            self.end(reset=True)
            return
        self._dialling = asyncio.get_running_loop().create_task(self._dial())

    async def _dial(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.far, *self._proxy.server)
        except OSError:
            self.end(reset=True)

    def said(self, end: _End, data: bytes) -> None:
        """One end has said something, or that it will say no more."""
        loop = asyncio.get_running_loop()
        end.queue.append((loop.time() + self._proxy.delay, data))
        end.queued += len(data)
        if end.queued > _MOST_HELD and end.transport is not None:
            end.transport.pause_reading()
        self.pump()

    def pump(self) -> None:
        """Pass on what may pass now; the rest when its time has come."""
        for source, target in ((self.near, self.far), (self.far, self.near)):
            self._pump(source, target)
        if self._unheard is not None and not self._proxy.holds(self._unheard[0]):
            self.end(reset=self._unheard[1])

    def _pump(self, source: _End, target: _End) -> None:
        loop = asyncio.get_running_loop()
        while source.queue and target.transport is not None and not self._proxy.holds(source.way):
            moment, data = source.queue[0]
            if moment > loop.time():
                loop.call_at(moment, self.pump)
                return
            source.queue.popleft()
            source.queued -= len(data)
            if data == _END:
                with contextlib.suppress(OSError, RuntimeError):  # it may be gone already
                    target.transport.write_eof()
                continue
            target.transport.write(data)
            if source.queued <= _MOST_HELD and source.transport is not None and not source.transport.is_closing():
                source.transport.resume_reading()

    def lost(self, end: _End, error: Exception | None) -> None:
        """One end is gone; the other goes too, unless a cut keeps it from hearing of it."""
        end.transport = None
        if self._proxy.holds(end.way):
            self._unheard = (end.way, error is not None)
        else:
            self.end(reset=error is not None)

    def end(self, *, reset: bool) -> None:
        """End both ends now."""
        self._proxy.forget(self)
        if self._dialling is not None:
            self._dialling.cancel()
        for end in (self.near, self.far):
            end.close(reset=reset)


class _End(asyncio.Protocol):
    """One end of a connection; `way` is where what it says is going."""

    def __init__(self, pair: _Pair, way: Way) -> None:
        self._pair = pair
        self.way = way
        self.transport: asyncio.Transport | None = None
        self.queue: deque[tuple[float, bytes]] = deque()
        self.queued = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - for the type checker
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.transport = transport
        self._pair.begun(self)

    def data_received(self, data: bytes) -> None:
        self._pair.said(self, data)

    def eof_received(self) -> bool:
        self._pair.said(self, _END)
        return True  # the other direction may still have something to say

    def connection_lost(self, exc: Exception | None) -> None:
        self._pair.lost(self, exc)

    def close(self, *, reset: bool) -> None:
        """Let the socket go, with a reset if so wanted."""
        transport, self.transport = self.transport, None
        if transport is None:
            return
        if reset:
            with contextlib.suppress(OSError):
                at_once = struct.pack("ii", 1, 0)
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        transport.abort()
