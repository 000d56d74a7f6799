"""Listening: where a server can be reached, connections that dawdle, and a stop in good order.

A server listens on loopback, or on a unix socket that only its user can open (0600). Any other address is refused
unless TLS is given, or it is said that a proxy in front of it speaks TLS: keys must not travel in the open.

uvicorn waits for ever for the head of a request that never comes (it bounds the head's size and the pause between two
requests, not how long one takes): so a few thousand connections that each send a byte now and then would take all there
are. `Prompt` ends them. Bodies have a time of their own (`call.py`), and so has every answer that waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from ipaddress import ip_address
from pathlib import Path

import msgspec
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from allswell.errors import Refused

PORT = 8420
HEAD_SECONDS = 5.0
"""How long the head of a request may take."""
IDLE_SECONDS = 75
"""How long a connection is kept without a request; longer than clients keep theirs."""
HEAD_MOST = 32_768
"""Bytes of a head."""
CONNECTIONS_MOST = 8_000
STOP_SECONDS = 10
LOCAL = ("localhost", "127.0.0.1", "[::1]")


class Address(msgspec.Struct, frozen=True):
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


def check_address(address: Address) -> None:
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
def listening(address: Address) -> Iterator[tuple[socket.socket, Address]]:
    """A socket that listens, and where that is: a port of 0 is whichever is free."""
    check_address(address)
    try:
        if address.unix is not None:
            with _unix(Path(address.unix)) as made:
                yield made, address
            return
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        # asyncio turns Nagle's delay off where it can see that this is TCP; an answer would take 40 ms otherwise.
        with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as made:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((address.host, address.port))
            made.listen(1_024)
            yield made, msgspec.structs.replace(address, port=made.getsockname()[1])
    except OSError as error:
        text = f"cannot listen on {address.url}: {error.strerror or error}"
        raise Refused("cannot_listen", text, where="--listen") from None


@contextlib.contextmanager
def _unix(path: Path) -> Iterator[socket.socket]:
    """A unix socket of mode 0600; one that nobody listens on any more is taken over."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        if path.is_socket():
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
                if other.connect_ex(str(path)) == 0:
                    raise Refused("cannot_listen", f"somebody listens on {path} already", where="--unix")
            path.unlink()
        before = os.umask(0o177)
        try:
            made.bind(str(path))
        finally:
            os.umask(before)
        made.listen(1_024)
        try:
            yield made
        finally:
            path.unlink(missing_ok=True)


class Prompt(H11Protocol):
    """A connection of uvicorn's that is closed when the head of a request does not come in time."""

    _waits: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The clock runs from the first moment."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._wait()

    def data_received(self, data: bytes) -> None:
        """The clock stands while a request is carried out, and begins again with the first byte of the next one."""
        super().data_received(data)
        if self.is_busy:
            self._stop_waiting()
        elif self._waits is None:
            self._wait()

    @property
    def is_busy(self) -> bool:
        """Whether a request is being carried out."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def on_response_complete(self) -> None:
        """Between two requests uvicorn itself has a limit."""
        self._stop_waiting()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._waits = asyncio.get_running_loop().call_later(HEAD_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None


class Server(uvicorn.Server):
    """A server of uvicorn's that leaves signals to whoever runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing is caught."""
        yield


async def serve(
    app: ASGIApp, made: socket.socket, address: Address, stop: Awaitable[object], let_go: Callable[[], None]
) -> None:
    """Serve until `stop` is done; then `let_go` is called, and whoever is being answered gets the answer."""
    config = uvicorn.Config(
        app,
        http=Prompt,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # not a line for each nonsense that comes: who reads them slowly would hold up the server
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
        limit_concurrency=CONNECTIONS_MOST,
        h11_max_incomplete_event_size=HEAD_MOST,
        ssl_certfile=address.certificate,
        ssl_keyfile=address.private_key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise Refused("bad_tls", f"the certificate or its key cannot be used: {error}", where="--tls-cert") from None
    server = Server(config)

    async def end() -> None:
        await stop
        let_go()
        server.should_exit = True

    ending = asyncio.ensure_future(end())
    try:
        await server.serve(sockets=[made])
    finally:
        ending.cancel()
