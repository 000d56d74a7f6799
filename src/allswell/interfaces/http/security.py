"""Before any route: is this call meant for us, whose is it, and is it too much? Behind it: the headers of each answer.

In this order, and each refusal is a problem like any other:

1.  **Host.** A page that was loaded from elsewhere can have a browser call this port under a name of its own (DNS
    rebinding). Only names that the server was told of are answered; on a unix socket there are none.
2.  **Origin.** A browser says from which page a call comes. Any but our own is refused, and no answer ever allows
    another page to read it: there is no CORS here at all.
3.  **Key.** `Authorization: Bearer awk_…`. Only `/healthz` and `/readyz` need none, and they tell nothing but that. The
    page (`interfaces/web`) asks for a cookie instead, which opens nothing else: no other route looks at cookies.
4.  **Limits.** So many calls a second for each key, with some to spare at once, and so many at a time; of those with
    large bodies only a few, and others wait before anything of theirs is read.

A key in the query is not looked for: addresses are written into logs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Protocol

from msgspec import Struct
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from allswell.domain.access.key import Key
from allswell.domain.rules.event import METHOD, STATUS
from allswell.engine.access.gate import Gate
from allswell.errors import AllswellError, Refused
from allswell.interfaces.http.routing import answer_to
from allswell.timing.tracing import NOTHING, Traced, Value, traced

# How much one key may call: a bucket that fills at a rate, and a number of calls at a time.
#
# One agent that has lost its mind must not take the watch from all others. Waiting claims and followed journals are
# calls too, for as long as they last; a fleet of a thousand with one key fits.

RATE = 500.0
"""Calls a second for each key, over time."""
SPARE = 1_000.0
"""Calls that may come at once, after a quiet while."""
AT_A_TIME = 2_000
KEY_SHARE = 4
"""Calls of one key at a time may take a quarter of all connections, or one key could keep all others out."""
LARGE = 64 << 10
"""Bytes: a call that may bring more of them waits for a place; the server reads about as much ahead of any call."""
LARGE_AT_A_TIME = 8
LARGE_SECONDS = 30.0
"""How long a call with a large body waits for a place."""
_KEPT = 10_000


class _Account(Struct):
    left: float
    seen: float
    large: asyncio.Semaphore
    inside: int = 0


class RequestLimits:
    """What each key has used; `clock` is in seconds."""

    def __init__(
        self, clock: Callable[[], float], *, rate: float = RATE, spare: float = SPARE, at_a_time: int = AT_A_TIME
    ) -> None:
        self._clock = clock
        self._rate = rate
        self._spare = spare
        self._at_a_time = at_a_time
        self._accounts: dict[str, _Account] = {}

    def enter(self, name: str) -> float | None:
        """A call begins: None, or after how many seconds it might."""
        now = self._clock()
        account = self._accounts.get(name)
        if account is None:
            self._tidy()
            account = self._accounts[name] = _Account(self._spare, now, asyncio.Semaphore(LARGE_AT_A_TIME))
        account.left = min(self._spare, account.left + (now - account.seen) * self._rate)
        account.seen = now
        if account.inside >= self._at_a_time:
            return 1.0
        if account.left < 1:
            return (1 - account.left) / self._rate
        account.left -= 1
        account.inside += 1
        return None

    def leave(self, name: str) -> None:
        """A call is over."""
        self._accounts[name].inside -= 1

    @asynccontextmanager
    async def room_for(self, name: str, headers: Headers, receive: Receive) -> AsyncIterator[Receive]:
        """Within a call that has begun: what its body comes by, with a place for as long as that is large."""
        length = headers.get("content-length", "")
        if "transfer-encoding" not in headers and (not length.isdigit() or int(length[:15]) <= LARGE):
            yield receive
            return
        large = self._accounts[name].large
        try:
            async with asyncio.timeout(LARGE_SECONDS):
                await large.acquire()
        except TimeoutError:
            text = f"the key {name} sends too many large bodies at a time"
            raise Refused("too_many_calls", text, where="body", hint="wait, and call again") from None
        came, keeps = 0, True

        async def receives() -> Message:
            nonlocal came, keeps
            message = await receive()
            came += len(message.get("body", b""))
            if keeps and came <= LARGE and not message.get("more_body", False):
                keeps = False
                large.release()
            return message

        try:
            yield receives
        finally:
            if keeps:
                large.release()

    def _tidy(self) -> None:
        if len(self._accounts) >= _KEPT:
            self._accounts = {name: one for name, one in self._accounts.items() if one.inside}


OPEN = ("/healthz", "/readyz")
KEY = "allswell.key"
"""Where routes find the key, in the scope of a call."""
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
_METHODS = ("GET", "HEAD", "POST")


class AllowedHosts(Struct, frozen=True):
    """By which names the server is called; None: by any, as on a unix socket."""

    hosts: Collection[str] | None
    """Without ports, in small letters."""
    secure: bool = False
    """Whether it is reached over TLS, its own or a proxy's."""
    public: str | None = None
    """The name in `public_url`, where that is https: under it calls come over TLS, by a proxy if not our own."""
    open: Collection[str] = OPEN
    """What is answered without a key."""

    def are_known(self, host: str) -> bool:
        """Whether a Host header names this server."""
        return self.hosts is None or (name := host_name(host)) in self.hosts or name == self.public

    def over_tls(self, host: str) -> bool:
        """Whether what comes under this Host header has come over TLS."""
        return self.secure or (self.public is not None and host_name(host) == self.public)


class OwnedPaths(Protocol):
    """What has a door of its own behind this one: the page, and hooks, where a signature is shown and no key."""

    def owns(self, path: str) -> bool:
        """Whether this is a place of its own."""
        ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One call."""
        ...


class SecurityMiddleware:
    """The server's outermost layer."""

    def __init__(
        self,
        inner: ASGIApp,
        gate: Callable[[], Gate],
        meant: AllowedHosts,
        limits: RequestLimits,
        *,
        page: OwnedPaths | None = None,
        hooks: OwnedPaths | None = None,
    ) -> None:
        self._inner = inner
        self._page = page
        self._hooks = hooks
        self._gate = gate
        self._meant = meant
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One call, or the beginning and the end of the server's life."""
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        secure = self._meant.over_tls(headers.get("host", ""))
        if secure:  # or where a path is redirected, its secrets would be sent in the open once
            scope["scheme"] = "https"
        send = self._with_headers(send, secure=secure)
        try:
            of_page = self._page is not None and self._page.owns(scope["path"])
            self._check_meant(scope, headers, visited=of_page)
            if self._page is not None and of_page:
                await self._page(scope, receive, send)
                return
            if self._hooks is not None and self._hooks.owns(scope["path"]):
                await self._hooks(scope, receive, send)
                return
            if scope["path"] in self._meant.open:
                await self._inner(scope, receive, send)
                return
            key = await self._gate().admit(_shown(headers))
        except AllswellError as error:
            await answer_to(error)(scope, receive, send)
            return
        wait = self._limits.enter(key.name)
        if wait is not None:
            await _too_many(key, wait)(scope, receive, send)
            return
        try:
            scope[KEY] = key
            async with self._limits.room_for(key.name, headers, receive) as receives:
                with traced(*_called(scope), carried=headers, serves=True) as seen:
                    await self._inner(scope, receives, _noting(send, seen))
        except Refused as error:  # there was no room: what is wrong inside is answered there
            await answer_to(error)(scope, receive, send)
        finally:
            self._limits.leave(key.name)

    def _check_meant(self, scope: Scope, headers: Headers, *, visited: bool) -> None:
        if scope["method"] not in _METHODS:
            raise Refused("bad_method", f"method {scope['method']} is not allowed here", where="method")
        host = headers.get("host", "")
        if not self._meant.are_known(host):
            text = f"this server is not called {host[:100]!r}"
            raise Refused("foreign_host", text, where="Host", hint="`allswell serve --host NAME` gives it a name")
        origin = headers.get("origin")
        if origin is None:
            # A link somewhere else may lead a person to the page: the browser sends no cookie with it (they are
            # SameSite=Strict), and a GET changes nothing.
            leads_here = visited and scope["method"] == "GET" and headers.get("sec-fetch-dest") == "document"
            if headers.get("sec-fetch-site") in ("cross-site", "same-site") and not leads_here:
                raise _foreign("another page")
            return
        if origin.lower() != f"{scope['scheme']}://{host}".lower():
            raise _foreign(origin[:100])

    def _with_headers(self, send: Send, *, secure: bool) -> Send:
        async def sends(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if secure:
                    headers.setdefault("Strict-Transport-Security", "max-age=31536000")
            await send(message)

        return sends


def _called(scope: Scope) -> tuple[str, dict[str, Value | None]]:
    """The name of a call's span, such as `POST /api/v1/tasks`: without ids, so calls of one kind are found together."""
    place = "/".join(scope["path"].split("/")[:4])
    return f"{scope['method']} {place}", {METHOD: scope["method"]}


def _noting(send: Send, seen: Traced) -> Send:
    if seen is NOTHING:
        return send

    async def sends(message: Message) -> None:
        if message["type"] == "http.response.start":
            seen.note({STATUS: message["status"]})
        await send(message)

    return sends


def _shown(headers: Headers) -> str:
    """The key that a caller shows."""
    kind, _, shown = headers.get("authorization", "").partition(" ")
    if not shown:
        text = "a key is needed: send the header `Authorization: Bearer awk_…`"
        raise Refused("no_key", text, where="Authorization", hint="`allswell key create` makes one, at the store")
    if kind.lower() != "bearer":
        raise Refused("bad_key", f"{kind[:20]!r} is not how a key is shown; send `Bearer awk_…`", where="Authorization")
    return shown.strip()


def host_name(host: str) -> str:
    """The name in a Host header: `[::1]:80` is `[::1]`, and `Watch.:8420` is `watch`."""
    name, colon, port = host.rpartition(":")
    bare = name if colon and port.isdigit() and (not host.startswith("[") or name.endswith("]")) else host
    return bare.lower().removesuffix(".")


def _foreign(origin: str) -> Refused:
    text = f"calls from other pages are not taken (this one comes from {origin})"
    return Refused("foreign_origin", text, where="Origin")


def _too_many(key: Key, wait: float) -> Response:
    text = f"the key {key.name} calls too often, or too much at a time"
    return answer_to(Refused("too_many_calls", text, where="Authorization", hint="wait, and call again"), retry_s=wait)
