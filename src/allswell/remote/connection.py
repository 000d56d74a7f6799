"""Calls over HTTP, with nothing but the standard library: each in a thread, on a connection that is kept for the next.

An install with what agents need stays small, and a command line starts as fast as before. A call that its caller gives
up is cut off: its connection is closed under it, so that no thread waits for what nobody wants.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import socket
import ssl
import struct
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import SplitResult, urlsplit

import msgspec

from allswell.errors import Refused, Unavailable
from allswell.store.files import user_name
from allswell.timing.tracing import trace_headers

_CREDENTIALS = struct.Struct("iII")
_THREADS = 64
_ANSWER_MOST = 256 << 20
_SLACK = 15.0
"""Seconds that an answer may take beyond what was to be waited for."""


class NotSent(Unavailable):
    """There was nobody to say it to: nothing was sent, so nothing can have been done."""


class HttpAnswer(msgspec.Struct, frozen=True):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, *, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Open it."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
        _check_listener(self.sock, self._path)


def _check_listener(line: socket.socket, path: str) -> None:
    """`Refused` where another user listens: they may have put a socket into a folder that is open to them (`/tmp`)."""
    _, user, _ = _CREDENTIALS.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if user not in (0, os.geteuid()):
        line.close()
        text = f"{user_name(user)} listens at {path}, and a key is sent only to a server of your own user or of root"
        hint = "let the server listen in a folder that only you can write to: `allswell serve --unix PATH`"
        raise Refused("key_withheld", text, where="store", hint=hint)


class _HttpCall(msgspec.Struct, frozen=True):
    """What one call says, and how long its answer may take; without a body it is a GET."""

    path: str
    body: bytes | None
    headers: Mapping[str, str]
    timeout: float


class _CallState:
    """What one call uses; its caller, in another thread, may give it up."""

    def __init__(self) -> None:
        self.given_up = False
        self._connection: http.client.HTTPConnection | None = None

    def of(self, connection: http.client.HTTPConnection) -> http.client.HTTPConnection:
        """This connection, unless it was given up before anything was sent."""
        self._connection = connection
        if self.given_up:
            raise ConnectionAbortedError("its caller has given it up")
        return connection

    def close(self) -> None:
        """It is of no use any more."""
        if self._connection is not None:
            self._connection.close()

    def give_up(self) -> None:
        """Have the thread that waits for the answer wake up, and not ask again."""
        self.given_up = True
        sock = None if self._connection is None else self._connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


class ConnectionPool:
    """The connections of one watch to its server."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url.rstrip("/")
        self._parts = _checked(url)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._kept: list[http.client.HTTPConnection] = []
        self._threads: ThreadPoolExecutor | None = None
        self._trusts: ssl.SSLContext | None = None

    def close(self) -> None:
        """Let all of them go."""
        while self._kept:
            self._kept.pop().close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    async def call(
        self, path: str, body: bytes | None, *, wait: float = 0.0, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        """One call; `Unavailable` where no answer came, whatever has become of it there. Without a body, a GET."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="allswell http")
        use = _CallState()
        said = _HttpCall(path, body, {**self._headers, **trace_headers(), **(headers or {})}, wait + _SLACK)
        asked = asyncio.get_running_loop().run_in_executor(self._threads, self._call, said, use)
        try:
            return await asked
        except asyncio.CancelledError:
            use.give_up()
            raise

    def _call(self, said: _HttpCall, use: _CallState) -> HttpAnswer:
        """In a thread. A kept connection that the other side has closed meanwhile is replaced, once."""
        kept = self._kept.pop() if self._kept else None
        try:
            return self._said(use.of(kept or self._connection(said.timeout)), said)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
            use.close()
            if kept is None or use.given_up:
                raise self._unavailable(error) from None
        except (OSError, http.client.HTTPException) as error:
            use.close()
            raise self._unavailable(error) from None
        try:
            return self._said(use.of(self._connection(said.timeout)), said)
        except (OSError, http.client.HTTPException) as error:
            use.close()
            raise self._unavailable(error) from None

    def _said(self, connection: http.client.HTTPConnection, said: _HttpCall) -> HttpAnswer:
        if connection.sock is not None:
            connection.sock.settimeout(said.timeout)
        below = self._parts.path.rstrip("/") if self._is_tcp else ""
        method = "GET" if said.body is None else "POST"
        connection.request(method, below + said.path, said.body, dict(said.headers))
        got = connection.getresponse()
        read = got.read(_ANSWER_MOST)
        if got.length:  # it was cut off: what is read up to a length says nothing of that by itself
            raise http.client.IncompleteRead(read, got.length)
        if got.will_close:
            connection.close()
        else:
            self._kept.append(connection)
        return HttpAnswer(got.status, {name.lower(): value for name, value in got.getheaders()}, read)

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        if not self._is_tcp:
            return _UnixConnection(self._parts.path, timeout=timeout)
        host, port = str(self._parts.hostname), self._parts.port
        if self._parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=timeout)
        if self._trusts is None:
            self._trusts = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._trusts)

    @property
    def _is_tcp(self) -> bool:
        return self._parts.scheme != "http+unix"

    @property
    def _where(self) -> str:
        return f"the server {self._parts.netloc or self._parts.path}"

    def _unavailable(self, error: Exception) -> Unavailable:
        if isinstance(error, ssl.SSLCertVerificationError):
            hint = "SSL_CERT_FILE names a file with certificates to trust"
            return Unavailable(f"{self._where} is not who it says: {error.verify_message}", hint=hint)
        if isinstance(error, ConnectionRefusedError | FileNotFoundError | socket.gaierror):
            return NotSent(f"{self._where} cannot be reached: {error}")
        why = "it did not answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        return Unavailable(f"{self._where} cannot be reached: {why}")


def is_there(url: str, *, within: float = 0.5) -> bool:
    """Whether somebody listens where a server is said to be."""
    parts = _checked(url)
    try:
        if parts.scheme == "http+unix":
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
                line.settimeout(within)
                line.connect(parts.path)
        else:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            socket.create_connection((str(parts.hostname), port), within).close()
    except OSError:
        return False
    return True


def _checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Refused("bad_url", f"{url!r} names no server: {error}", where="store") from None
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        text = "the URL of a server has no name, password or query in it; the key comes from ALLSWELL_KEY"
        raise Refused("bad_url", text, where="store")
    if parts.scheme == "http+unix":
        if not parts.path or parts.netloc:
            raise Refused("bad_url", f"write http+unix:///path/of/its.sock, not {url!r}", where="store")
        return parts
    if not parts.hostname or port == 0:
        raise Refused("bad_url", f"{url!r} names no server; write https://host:port", where="store")
    if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        text = "over http:// a key travels in the open; use https:// (http:// is for this machine alone)"
        raise Refused("open_network", text, where="store")
    return parts
