"""Posting over HTTP to an address that was checked.

The usual clients look a host up by themselves, after any check that we could make. Here the host is looked up, every
address it has is checked (domain/reach.py), and one of those is connected to; TLS still asks for the host's own name.
Redirects are not followed: they would lead to an address that nobody has set up.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
import string
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

import msgspec

from allswell.domain.delivery import Failure
from allswell.domain.reach import LEAVE, why_not, wrong_with_url
from allswell.doors.sinks.sink import NotDelivered
from allswell.errors import Refused

_HEAD_MOST = 65_536
_BODY_MOST = 65_536
"""What is read of an answer."""


class Posted(msgspec.Struct, frozen=True):
    """An answer."""

    status: int
    headers: Mapping[str, str]
    """Under lower-case names."""
    body: bytes
    """Its beginning."""


def checked_url(url: str, *, private: bool, where: str, leave: str = LEAVE) -> SplitResult:
    """A URL that can be posted to, as far as that can be told without looking anything up; else `Refused`."""
    wrong = wrong_with_url(url, private=private, leave=leave)
    if wrong is not None:
        raise Refused("bad_webhook_url", f"{where}: {wrong}", where=where)
    return urlsplit(url)


async def post(url: SplitResult, body: bytes, headers: Mapping[str, str], *, private: bool) -> Posted:
    """Post once, and return the answer whatever its status; `NotDelivered` if there is none."""
    host = url.hostname or ""
    secure = url.scheme == "https"
    port = url.port or (443 if secure else 80)
    reader, writer = await _connect(host, port, secure=secure, private=private)
    try:
        writer.write(_request(url, host, body, headers))
        await writer.drain()
        return await _answer(reader)
    except (OSError, ssl.SSLError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
        raise NotDelivered(Failure(f"the connection to {host} broke off: {_said(error)}")) from None
    finally:
        writer.transport.abort()


async def _connect(
    host: str, port: int, *, secure: bool, private: bool
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    addresses = await _checked_addresses(host, port, private=private)
    last: Exception | None = None
    for address in addresses:
        try:
            return await asyncio.open_connection(
                address,
                port,
                ssl=_tls() if secure else None,
                server_hostname=host if secure else None,
                limit=_HEAD_MOST,
            )
        except (OSError, ssl.SSLError) as error:
            last = error
    raise NotDelivered(Failure(f"{host} cannot be reached: {_said(last)}"))


@functools.cache
def _tls() -> ssl.SSLContext:
    """Made once: reading all certificates of a system takes tens of milliseconds, in which nothing else would move."""
    return ssl.create_default_context()


async def reachable(url: SplitResult, *, private: bool) -> list[str]:
    """The addresses of a URL's host; `NotDelivered` if there are none, or one of them may not be reached."""
    return await _checked_addresses(url.hostname or "", url.port or 443, private=private)


async def _checked_addresses(host: str, port: int, *, private: bool) -> list[str]:
    addresses = await _addresses(host, port)
    for address in addresses:
        reason = why_not(address, private=private)
        if reason is not None:
            raise NotDelivered(Failure(f"{host} leads to {address}, which {reason}"))
    return addresses


async def _addresses(host: str, port: int) -> list[str]:
    import socket

    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotDelivered(Failure(f"{host} is not known: {_said(error)}")) from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _request(url: SplitResult, host: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    name = f"[{host}]" if ":" in host else host
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    lines = [
        f"POST {path} HTTP/1.1",
        f"host: {name}" + (f":{url.port}" if url.port else ""),
        *(f"{key}: {value}" for key, value in headers.items()),
        f"content-length: {len(body)}",
        "connection: close",
    ]
    return "\r\n".join(lines).encode("ascii", "backslashreplace") + b"\r\n\r\n" + body


async def _answer(reader: asyncio.StreamReader) -> Posted:
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        version, code, *_ = [*head[0].split(" ", 2), ""]
        if not version.startswith("HTTP/1.") or not code.isdigit():
            raise ValueError("the answer is not HTTP")
        if not code.startswith("1"):
            break
    pairs = (line.partition(":") for line in head[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    body = b""
    # What it says is only for people to read: if it cannot be had, the status alone will do.
    with contextlib.suppress(OSError, EOFError, ValueError, asyncio.LimitOverrunError):
        body = await _body(reader, headers)
    return Posted(int(code), headers, body)


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        whole = b""
        while len(whole) < _BODY_MOST and (size := _chunk_size(await reader.readline())):
            whole += (await reader.readexactly(min(size, _BODY_MOST) + 2))[:-2]
        return whole[:_BODY_MOST]
    if (length := headers.get("content-length", "")).isdigit():
        return await reader.readexactly(min(int(length), _BODY_MOST))
    return await reader.read(_BODY_MOST)


def _chunk_size(line: bytes) -> int:
    digits = line.split(b";")[0].strip().decode("ascii", "replace")
    if not digits or set(digits) - set(string.hexdigits):
        raise ValueError("a chunk has no length")
    return int(digits, 16)


def _said(error: Exception | None) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
