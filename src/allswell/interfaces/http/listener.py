"""Listening: where a server can be reached, connections that dawdle, and a stop in good order.

A server listens on loopback, or on a unix socket that only its user can open (0600). Any other address is refused
unless TLS is given, or it is said that a proxy in front of it speaks TLS: keys must not travel in the open. `localhost`
stands for two addresses, and browsers try `[::1]` first. So the port of the one at which it does not listen is kept
from other programs: one of another user's would be shown keys, cookies and links that are meant for us.

uvicorn waits for ever for the head of a request that never comes (it bounds the head's size and the pause between two
requests, not how long one takes): so a few thousand connections that each send a byte now and then would take all there
are. `PromptConnection` ends them. Bodies have a time of their own (`request_context.py`), and so has every answer that
waits.

Connections are fewer than the files that the process may open (`connections_for`), and one address gets a share.
When there are too many, a new connection takes the place of the oldest one that has no request running; where all have
one, of the oldest whose caller lets us wait: for its body, or by not taking its answer. So callers that connect and say
nothing, or begin and do not go on, cannot keep out a caller that does. An answer that is not taken is given up after a
while. A connection with TLS counts from its first moment, before both sides have agreed on keys (`TlsConnection`).

A request that two servers could read differently is refused (`StrictConnection`): a proxy in front of us must not see
one request where we see two.

`H11Protocol` and `capture_signals` are uvicorn's own; pyproject.toml bounds its version for that reason. `SSLProtocol`
is asyncio's own: its public `start_tls` hands on what a caller says before the protocol has its transport.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import socket
import ssl
import time
from asyncio.sslproto import SSLProtocol
from collections.abc import Awaitable, Callable, Iterable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Protocol

import h11
import msgspec
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.protocols.utils import get_remote_addr

from allswell.errors import Refused
from allswell.interfaces.http.security import KEY
from allswell.runtime.host import raise_limit

PORT = 8420
HEAD_SECONDS = 5.0
"""How long the head of a request may take."""
IDLE_SECONDS = 75
"""How long a connection is kept without a request; longer than clients keep theirs."""
CALLER_SECONDS = 2.0
"""How long a caller may let us wait before its connection can be ended for another one, where there are too many."""
TAKE_SECONDS = 30.0
"""How long a caller may take nothing of its answer."""
HEAD_MOST = 32_768
"""Bytes of a head."""
CONNECTIONS_MOST = 8_000
ADDRESS_SHARE = 4
"""An address other than this machine's gets this fraction of all connections."""
ACCEPTED_AT_ONCE = 64
"""Connections that are accepted in one turn of the loop, before any of them can be counted."""
_OTHER_FILES = 6 * ACCEPTED_AT_ONCE + 64
"""Files for the store, for folders, and for connections that were accepted and are not counted yet."""
QUEUED = 1_024
"""Connections that the system holds until they are accepted."""
HEAD_LINES_MOST = 100
HEAD_PIECES_MOST = 64
"""Pieces in which a head may come: one of the largest comes in two dozen from across a network."""
TARGET_MOST = 8_192
"""Bytes of an address, with its query."""
FIELDS_MOST = 200
"""Fields of a query, and cookies."""
READ_AT_ONCE = 16 << 10
"""Bytes that are handed to h11 at a time: what is left of them is copied for each chunk that is read."""
PARTS_FREE = 256
"""Pieces of a body, in chunks or as it comes, that may have any size."""
PART_LEAST = 256
"""Bytes that the pieces of a body with more of them have on average: each takes as long to read as many bytes do."""
STRANGERS_RATE = 500.0
"""Answers a second for all callers without a key, over time."""
STRANGERS_SPARE = 2.0
"""Seconds of that rate that may come at once, after a quiet while."""
STRANGERS_PAUSE = 15.0
"""Seconds that such a caller waits at most before its next request is read."""
STOP_SECONDS = 10
LOCAL = ("localhost", "allswell.localhost", "127.0.0.1", "[::1]")
"""Names of this machine; browsers show the cookie of `localhost` to every program that serves a page there."""
_OTHER_LOOPBACK = {"127.0.0.1": "::1", "0.0.0.0": "::1", "::1": "127.0.0.1"}  # noqa: S104 - what may be listened on
"""By where a server listens: where else `localhost` leads, and browsers look first or next."""
_PORTS_TRIED = 20
"""Free ports that are tried until one is free at both addresses."""


class ListenAddress(msgspec.Struct, frozen=True):
    """Where a server listens, and how it is called there."""

    host: str = "127.0.0.1"
    port: int = PORT
    unix: str | None = None
    certificate: str | None = None
    private_key: str | None = None
    behind_proxy: bool = False
    names: tuple[str, ...] = ()
    """More names that it is called by."""
    open_metrics: bool = False
    """Whether `/metrics` needs no key: for this machine alone."""

    @property
    def secure(self) -> bool:
        """Whether it is reached over TLS."""
        return self.certificate is not None or self.behind_proxy

    @property
    def hosts(self) -> frozenset[str] | None:
        """The names that it answers to; None: any, since nobody but its user reaches it."""
        if self.unix is not None:
            return None
        own = f"[{self.host}]" if ":" in self.host else self.host
        return frozenset(name.lower() for name in (*LOCAL, own, *self.names))

    @property
    def url(self) -> str:
        """Where it is to be found."""
        if self.unix is not None:
            return f"http+unix://{self.unix}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate is not None else 'http'}://{host}:{self.port}"

    @property
    def page(self) -> str:
        """Where a browser finds it: under the first name it was given, if it was given one."""
        if not self.names:
            return self.url
        port = "" if self.behind_proxy else f":{self.port}"  # which one the proxy has is not known here
        return f"{'https' if self.secure else 'http'}://{self.names[0]}{port}"


def check_address(address: ListenAddress) -> None:
    """Refuse to send keys over a network in the open, and what cannot be meant."""
    if (address.certificate is None) != (address.private_key is None):
        raise Refused("bad_tls", "--tls-cert and --tls-key belong together", where="--tls-cert")
    if address.open_metrics and address.unix is None and not _is_loopback(address.host):
        text = f"metrics without a key are for this machine alone, and {address.host} can be reached from elsewhere"
        raise Refused("open_network", text, where="--open-metrics", hint="give Prometheus a viewer's key instead")
    if address.unix is not None or address.secure or _is_loopback(address.host):
        return
    text = f"{address.host} can be reached from elsewhere, and keys would travel in the open"
    hint = "give --tls-cert and --tls-key, or --behind-proxy where a proxy speaks TLS in front of it"
    raise Refused("open_network", text, where="--listen", hint=hint)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ip_address(host).is_loopback
    return False


@contextlib.contextmanager
def listening(address: ListenAddress) -> Iterator[tuple[socket.socket, ListenAddress]]:
    """A socket that listens, and where that is: a port of 0 is whichever is free."""
    check_address(address)
    try:
        if address.unix is not None:
            with _unix(Path(address.unix)) as made:
                yield made, address
            return
        made, kept = _tcp(address)
        with made, kept:
            yield made, msgspec.structs.replace(address, port=made.getsockname()[1])
    except OSError as error:
        text = f"cannot listen on {address.url}: {error.strerror or error}"
        raise Refused("cannot_listen", text, where="--listen") from None


def _tcp(address: ListenAddress) -> tuple[socket.socket, contextlib.ExitStack]:
    """A socket that listens, and what keeps its port at the other address of `localhost` from other programs."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    tries = 1 if address.port else _PORTS_TRIED
    while True:
        # asyncio turns Nagle's delay off where it can see that this is TCP; an answer would take 40 ms otherwise.
        made, kept = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP), contextlib.ExitStack()
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((address.host, address.port))
            made.listen(QUEUED)
            place, port = made.getsockname()[:2]
            other = None if address.certificate is not None else _OTHER_LOOPBACK.get(place)
            if other is None or _keep(kept, other, port):
                return made, kept
        except BaseException:
            made.close()
            raise
        made.close()
        tries -= 1
        if not tries:
            text = f"another program has the port {port} at {other}, where browsers look for `localhost` too"
            raise Refused("cannot_listen", text, where="--listen", hint="choose another port, or stop that program")


def _keep(kept: contextlib.ExitStack, place: str, port: int) -> bool:
    """Take a port without listening there: who calls `localhost` is refused, and tries the next address.

    False where another program has it. A machine may have no IPv6: then no program has it.
    """
    try:
        other = socket.socket(socket.AF_INET6 if ":" in place else socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return True
    try:
        other.bind((place, port))  # without SO_REUSEADDR, or another program could take it beside us
    except OSError as error:
        other.close()
        return error.errno != errno.EADDRINUSE
    kept.callback(other.close)
    return True


@contextlib.contextmanager
def _unix(path: Path) -> Iterator[socket.socket]:
    """A unix socket of mode 0600; one that nobody listens on any more is taken over."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        if path.is_socket():
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
                if other.connect_ex(str(path)) == 0:
                    raise Refused("cannot_listen", f"another process listens on {path}", where="--unix")
            path.unlink()
        before = os.umask(0o177)
        try:
            made.bind(str(path))
        finally:
            os.umask(before)
        made.listen(QUEUED)
        try:
            yield made
        finally:
            path.unlink(missing_ok=True)


class StrictConnection(h11.Connection):
    """HTTP/1.1 without its ambiguities: bare line feeds, folded lines, two lengths of one body, trailers behind it.

    A request that would take long to read for its size is refused too, because nothing else is served meanwhile: a head
    of very many lines, fields or pieces, and a body in very many very small pieces.
    """

    _in_chunks = False
    _looked_at = _lines = _pieces = 0
    """Of a head that is still coming: bytes looked at so far, line feeds in them, and in how many pieces they came."""
    _parts = _bytes_in_parts = 0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        """The next part of a request; `RemoteProtocolError` for what another server might read differently."""
        if self.their_state is h11.IDLE:
            self._check_head(self.trailing_data[0])
        before = self.trailing_data[0] if self._in_chunks else b""
        event = super().next_event()
        if self._in_chunks and isinstance(event, h11.EndOfMessage):
            self._in_chunks = False
            after = self.trailing_data[0]
            if event.headers or not before[: len(before) - len(after)].endswith(b"\r\n"):
                raise h11.RemoteProtocolError("a body in chunks ends with an empty line, and has no trailers")
        if isinstance(event, h11.Request):
            self._check_request(event)
            self._in_chunks = any(name == b"transfer-encoding" for name, _ in event.headers)
            self._looked_at = self._lines = self._pieces = 0
            self._parts = self._bytes_in_parts = 0
        elif isinstance(event, h11.Data):
            self._parts += 1
            self._bytes_in_parts += len(event.data)
            if self._parts > max(PARTS_FREE, self._bytes_in_parts // PART_LEAST + 1):
                raise h11.RemoteProtocolError("a body in pieces of a few bytes each")
        return event

    def _check_head(self, unread: bytes) -> None:
        """Look at what has come of a head since the last time: it may come byte by byte."""
        end = _HEAD_END.search(unread, max(self._looked_at - 2, 0))
        stop = len(unread) if end is None else end.end()
        if _AMBIGUOUS.search(unread, max(self._looked_at - 1, 0), stop):
            raise h11.RemoteProtocolError("a line of the head ends without a carriage return, or is folded")
        self._lines += unread.count(b"\n", self._looked_at, stop)
        self._looked_at = stop
        self._pieces += 1
        if stop > HEAD_MOST or self._lines > HEAD_LINES_MOST or self._pieces > HEAD_PIECES_MOST:
            raise h11.RemoteProtocolError("a head of too many bytes, lines or pieces")

    def _check_request(self, request: h11.Request) -> None:
        names = {name for name, _ in request.headers}
        if b"transfer-encoding" in names and (b"content-length" in names or request.http_version < b"1.1"):
            raise h11.RemoteProtocolError(
                "a body has either a Content-Length or a Transfer-Encoding, which HTTP/1.0 has not"
            )
        cookies = sum(value.count(b";") for name, value in request.headers if name == b"cookie")
        if len(request.target) > TARGET_MOST or max(cookies, request.target.count(b"&")) > FIELDS_MOST:
            raise h11.RemoteProtocolError("an address or a cookie of too many bytes or fields")


_HEAD_END = re.compile(rb"\n\r?\n")
_AMBIGUOUS = re.compile(rb"(?<!\r)\n|\n[ \t]")


def connections_for(files: int) -> int:
    """How many connections a process may hold that can open so many files."""
    return min(CONNECTIONS_MOST, max(files - _OTHER_FILES, files // 4, 1))


class LimitedConnection(Protocol):
    """A connection that is counted, and may have to give way to another one."""

    @property
    def is_busy(self) -> bool:
        """Whether a request is being carried out."""
        ...

    @property
    def waits_for_caller(self) -> bool:
        """Whether a request is held up by its caller."""
        ...

    def end(self) -> None:
        """Close it at once."""
        ...


class ConnectionLimit:
    """The connections that are open, the oldest first: so many in all, and so many of one address."""

    def __init__(self, most: int, most_of_an_address: int) -> None:
        self._most = most
        self._most_of_an_address = most_of_an_address
        self._open: dict[LimitedConnection, str] = {}
        self._by_address: dict[str, dict[LimitedConnection, None]] = {}

    def admit(self, connection: LimitedConnection, address: str) -> bool:
        """Count a connection if there is room, or an idle one to end for it; an empty address is this machine's."""
        same = self._by_address.get(address, {})
        if address and len(same) >= self._most_of_an_address and not self._end_idle(same):
            return False
        if len(self._open) >= self._most and not self._end_idle(self._open):
            return False
        self._open[connection] = address
        self._by_address.setdefault(address, {})[connection] = None
        return True

    def leave(self, connection: LimitedConnection) -> None:
        """A connection is closed; one that was never admitted is no mistake."""
        address = self._open.pop(connection, None)
        if address is not None:
            same = self._by_address[address]
            del same[connection]
            if not same:
                del self._by_address[address]

    def _end_idle(self, among: Iterable[LimitedConnection]) -> bool:
        idle = next((connection for connection in among if not connection.is_busy), None)
        idle = idle or next((connection for connection in among if connection.waits_for_caller), None)
        if idle is None:
            return False
        self.leave(idle)
        idle.end()
        return True


class StrangersPace:
    """How long a caller without a key is not heard after an answer; `clock` is in seconds.

    However many connections such callers have, they are answered so often a second together, with some to spare: as
    all calls share one loop, they would take it from callers with keys.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._paid_until = 0.0

    def pause(self) -> float:
        """One was answered: how many seconds it waits before it is heard again; 0 in quiet times."""
        now = self._clock()
        paid = max(self._paid_until, now - STRANGERS_SPARE) + 1 / STRANGERS_RATE
        self._paid_until = min(paid, now + STRANGERS_PAUSE)
        return max(self._paid_until - now, 0.0)


class PromptConnection(H11Protocol):
    """A connection of uvicorn's that is closed when a head does not come, or an answer is not taken, in time."""

    open_connections = ConnectionLimit(CONNECTIONS_MOST, CONNECTIONS_MOST)
    """Shared by all connections of a server."""
    strangers = StrangersPace(time.monotonic)
    """Shared likewise."""
    behind_proxy = False
    """Whether all callers come from the address of a proxy."""
    _waits: asyncio.TimerHandle | None = None
    _gives_up: asyncio.TimerHandle | None = None
    """While its caller takes nothing of an answer."""
    _began: float | None = None
    """When the request began that is being carried out."""
    _paused: asyncio.TimerHandle | None = None
    """While its caller, who has no key, is not heard."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The clock runs from the first moment."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self.conn = StrictConnection(h11.SERVER, HEAD_MOST)
        if self.scheme == "https" or self.open_connections.admit(self, self.address_of(self.transport)):
            self._wait()
        else:
            self.end()

    @classmethod
    def address_of(cls, transport: asyncio.Transport) -> str:
        """The address whose share a connection counts against; an empty one has no share."""
        client = get_remote_addr(transport)
        host = "" if client is None else client[0]
        return "" if not host or cls.behind_proxy or _is_loopback(host) else host

    def end(self) -> None:
        """Close it at once."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """The clock stands while a request is carried out, and begins again with the first byte of the next one."""
        for at in range(0, len(data), READ_AT_ONCE):
            if at and self.transport.is_closing():
                return
            super().data_received(data[at : at + READ_AT_ONCE])
        if self.is_busy:
            self._stop_waiting()
            self._began = self._began or self.loop.time()
        elif self._waits is None:
            self._wait()

    @property
    def is_busy(self) -> bool:
        """Whether a request is being carried out."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    @property
    def waits_for_caller(self) -> bool:
        """Whether a request is held up by its caller: its body does not come, or its answer is not taken."""
        long_ago = self.loop.time() - CALLER_SECONDS
        if self._gives_up is not None:
            return self._gives_up.when() - TAKE_SECONDS < long_ago
        return self.conn.their_state is h11.SEND_BODY and (self._began or long_ago) < long_ago

    def pause_writing(self) -> None:
        """Its caller takes its answer more slowly than it comes."""
        super().pause_writing()
        self._gives_up = self.loop.call_later(TAKE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Its caller has taken some of it."""
        super().resume_writing()
        self._stop_giving_up()

    def on_response_complete(self) -> None:
        """Between two requests uvicorn itself has a limit; a caller without a key may have to wait for the next one."""
        self._stop_waiting()
        # The connection of a proxy is shared by many callers.
        known = self.behind_proxy or KEY in self.cycle.scope
        pause = 0.0 if known else self.strangers.pause()
        if pause and self.conn.trailing_data[0]:  # it has sent the next one without waiting for the answer
            self.transport.close()
        super().on_response_complete()
        self._began = self.loop.time() if self.is_busy else None  # the next one may have come already
        if pause and not self.transport.is_closing():
            self.transport.pause_reading()
            self._paused = self.loop.call_later(pause, self.transport.resume_reading)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self.open_connections.leave(self)
        self._stop_waiting()
        self._stop_giving_up()
        if self._paused is not None:
            self._paused.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._waits = asyncio.get_running_loop().call_later(HEAD_SECONDS, self.transport.abort)

    def _stop_giving_up(self) -> None:
        if self._gives_up is not None:
            self._gives_up.cancel()
            self._gives_up = None

    def _stop_waiting(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None


class TlsConnection(SSLProtocol):
    """TLS beneath a connection; it is the one that counts, since a caller may never agree on keys."""

    def __init__(self, inner: PromptConnection, context: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            loop,
            inner,
            context,
            waiter=None,  # type: ignore[arg-type]
            server_side=True,
            ssl_handshake_timeout=HEAD_SECONDS,  # type: ignore[arg-type]
            ssl_shutdown_timeout=HEAD_SECONDS,
        )
        self._inner = inner
        self._beneath: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A caller has connected, and said nothing yet."""
        self._beneath = transport  # type: ignore[assignment]
        if self._inner.open_connections.admit(self, self._inner.address_of(self._beneath)):
            super().connection_made(transport)
        else:
            self.end()

    def connection_lost(self, exc: BaseException | None) -> None:
        """It is over."""
        self._inner.open_connections.leave(self)
        super().connection_lost(exc)

    @property
    def is_busy(self) -> bool:
        """Whether a request is being carried out."""
        return self._inner.is_busy

    @property
    def waits_for_caller(self) -> bool:
        """Whether a request is held up by its caller."""
        return self._inner.waits_for_caller

    def end(self) -> None:
        """Close it at once."""
        self._beneath.abort()


class HttpServer(uvicorn.Server):
    """A server of uvicorn's that leaves signals to its caller."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; asyncio makes the queue as short as what it accepts at once, so it is made long again."""
        await super().startup(sockets)
        for listens in sockets or ():
            listens.listen(QUEUED)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing is caught."""
        yield


async def serve(
    app: ASGIApp, made: socket.socket, address: ListenAddress, stop: Awaitable[object], let_go: Callable[[], None]
) -> None:
    """Serve until `stop` is done; then `let_go` is called, and whoever is being answered gets the answer."""
    most = connections_for(raise_limit())

    class ServedConnection(PromptConnection):
        open_connections = ConnectionLimit(most, max(most // ADDRESS_SHARE, 1))
        strangers = StrangersPace(time.monotonic)
        behind_proxy = address.behind_proxy

    config = uvicorn.Config(
        app,
        http=ServedConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # not a line for each nonsense that comes: who reads them slowly would hold up the server
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
        backlog=ACCEPTED_AT_ONCE,
        ssl_certfile=address.certificate,
        ssl_keyfile=address.private_key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise Refused("bad_tls", f"the certificate or its key cannot be used: {error}", where="--tls-cert") from None
    if config.ssl is not None:
        config.http_protocol_class = _over_tls(ServedConnection, config.ssl)  # type: ignore[assignment]
        config.ssl = None  # or asyncio counted nothing before the keys are agreed upon
    server = HttpServer(config)

    async def end() -> None:
        await stop
        let_go()
        server.should_exit = True

    ending = asyncio.ensure_future(end())
    try:
        await server.serve(sockets=[made])
    finally:
        ending.cancel()


def _over_tls(made: Callable[..., PromptConnection], context: ssl.SSLContext) -> Callable[..., TlsConnection]:
    def over_tls(**given: Any) -> TlsConnection:  # noqa: ANN401 - what uvicorn makes a connection of
        return TlsConnection(made(**given), context)

    return over_tls
