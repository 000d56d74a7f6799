"""Posting over HTTP to an address that was checked when it was connected to.

The usual clients look a host up by themselves, after any check that we could make, and go through whatever proxy the
environment names. So `httpcore`, on which httpx is built, is given a network backend of ours: the host is looked up,
every address that it has is checked (domain/mesh/routing.py), and one of those is connected to; TLS still asks for the
host's own name. There is no proxy and no decompression, and redirects are not followed: they would lead to an address
that nobody has set up.

Importing this takes as long as the rest of a command's start, so `webhook.py` does it when something is posted.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from collections.abc import AsyncIterable, Collection, Iterable, Mapping
from urllib.parse import SplitResult

import httpcore
import msgspec

from allswell.domain.mesh.routing import why_not
from allswell.domain.notify.delivery import DeliveryFailure
from allswell.domain.service.classify import asked_wait
from allswell.interfaces.notifications.sink import NotDelivered

_BODY_MOST = 65_536
"""What is read of an answer."""
_SHOWN = 200
"""Characters of an answer that are told."""
_NOT_CONNECTED = (httpcore.ConnectError, httpcore.ConnectTimeout)
_BROKEN_OFF = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException)


class HttpResponse(msgspec.Struct, frozen=True):
    """An answer."""

    status: int
    headers: Mapping[str, str]
    """Under lower-case names."""
    body: bytes
    """Its beginning."""
    lacks: str = ""
    """Why the body is not all of the answer: it was cut off, or is too long; empty where it is."""


async def post(url: SplitResult, body: bytes, headers: Mapping[str, str], *, private: bool) -> HttpResponse:
    """Post once, and return the answer whatever its status; `NotDelivered` if there is none."""
    host = url.hostname or ""
    name = f"[{host}]" if ":" in host else host
    sent = {"host": name + (f":{url.port}" if url.port else ""), **headers, "connection": "close"}
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    place = httpcore.URL(scheme=_raw(url.scheme), host=_raw(host), port=url.port, target=_raw(target))
    lines = [(_raw(key), _raw(value)) for key, value in sent.items()]
    pool = httpcore.AsyncConnectionPool(_tls(), network_backend=CheckedBackend(private=private))
    try:
        async with pool, pool.stream("POST", place, headers=lines, content=body) as answer:
            found = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in answer.headers}
            return HttpResponse(answer.status, found, *await _beginning(answer.aiter_stream()))
    except _NOT_CONNECTED as error:
        raise NotDelivered(DeliveryFailure(f"{host} cannot be reached: {_reason(error)}")) from None
    except _BROKEN_OFF as error:
        raise NotDelivered(DeliveryFailure(f"the connection to {host} broke off: {_reason(error)}")) from None


def failure_of(answer: HttpResponse, now: int, never: Collection[int]) -> DeliveryFailure:
    """What went wrong, of an answer that is no 2xx; those of `never` are final. `now` is the wall clock."""
    text = answer.body[:_SHOWN].decode("utf-8", "replace").strip()
    shown = "".join(char if char.isprintable() else " " for char in text)
    if 300 <= answer.status < 400:
        shown = "redirects are not followed; set the URL that it leads to"
    reason = f"answered {answer.status}" + (f": {shown}" if shown else "")
    return DeliveryFailure(reason, final=answer.status in never, retry_after=asked_wait(answer.headers, now))


async def checked_addresses(host: str, port: int, *, private: bool) -> list[str]:
    """The addresses of a host; `NotDelivered` if there are none, or one of them may not be reached."""
    try:
        entries = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotDelivered(DeliveryFailure(f"{host} is not known: {_reason(error)}")) from None
    addresses = list(dict.fromkeys(str(address[0]) for *_, address in entries))
    for address in addresses:
        reason = why_not(address, private=private)
        if reason is not None:
            raise NotDelivered(DeliveryFailure(f"{host} leads to {address}, which {reason}"))
    return addresses


class CheckedBackend(httpcore.AnyIOBackend):
    """Connects to addresses that may be reached, and to no other."""

    def __init__(self, *, private: bool) -> None:
        self._private = private

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """A connection to the first address of a host that takes one."""
        refused: Exception = httpcore.ConnectError("it has no address")
        for address in await checked_addresses(host, port, private=self._private):
            try:
                return await super().connect_tcp(address, port, timeout, local_address, socket_options)
            except _NOT_CONNECTED as error:
                refused = error
        raise refused


async def _beginning(chunks: AsyncIterable[bytes]) -> tuple[bytes, str]:
    """What is read of a body, and why that is not all of it."""
    body = b""
    try:
        async for chunk in chunks:
            body += chunk
            if len(body) > _BODY_MOST:
                return body[:_BODY_MOST], f"has more than {_BODY_MOST:,} bytes"
    except _BROKEN_OFF:
        return b"", "was cut off"  # for many callers the status alone will do
    return body, ""


@functools.cache
def _tls() -> ssl.SSLContext:
    """Made once: reading all certificates of a system takes tens of milliseconds, in which nothing else would move."""
    return ssl.create_default_context()


def _raw(text: str) -> bytes:
    return text.encode("ascii", "backslashreplace")


def _reason(error: BaseException) -> str:
    """What the first of the errors says that led to this one."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(getattr(error, "strerror", None) or "") or str(error) or type(error).__name__
