"""`/mcp`: the tools of `interfaces/mcp` on the same port, for agents that speak the Model Context Protocol.

By the time a call comes here, the doorkeeper has looked at its Host, its Origin, its key and its limits; what its tools
do passes the rules of access like any other command. It is stateless: each call stands for itself, and there is no
stream that a client could hold open.

The SDK is imported in a thread, since it takes most of a second, in which others are answered: with the first call, or
when the server has run for a moment, so that a client's first call is not slow: clients go on without slow servers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from allswell.errors import AllswellError, Bug, Refused
from allswell.interfaces.http.request_context import BODY_MOST, RequestContext, ServerState, check_values
from allswell.interfaces.http.routing import answer_to
from allswell.interfaces.http.security import KEY

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

PATH = "/mcp"
_MOMENT = 1.0
_VALUES_MOST = 20_000
"""Values of JSON in one call: a model writes few, and each is looked at several times."""
"""Seconds after which what the first call would need is made without one."""


class McpRoute:
    """The route; what it needs of the SDK is made when it is first called, and ends with the server."""

    def __init__(self, house: Callable[[], ServerState]) -> None:
        self._house = house
        self._making: asyncio.Task[ASGIApp] | None = None
        self._living: asyncio.Task[None] | None = None
        self._warming: asyncio.Task[None] | None = None

    def start(self) -> None:
        """The server has begun to serve."""
        self._warming = asyncio.ensure_future(self._warm())

    async def _warm(self) -> None:
        await asyncio.sleep(_MOMENT)
        with contextlib.suppress(AllswellError):  # told to whoever calls
            await self._inner()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One call."""
        call = RequestContext(Request(scope, receive), self._house(), scope[KEY])
        try:
            if scope["method"] != "POST":
                text = "MCP is spoken here by POST: no streams are held open"
                raise Refused("bad_method", text, where="method")
            body = await call.body()
            check_values(body, _VALUES_MOST)
            inner = await self._inner()
        except AllswellError as error:
            await answer_to(error)(scope, receive, send)
            return
        await inner(scope, _after(body, receive), send)

    async def _inner(self) -> ASGIApp:
        if self._making is None:
            self._making = asyncio.ensure_future(self._make())
        return await asyncio.shield(self._making)

    async def _make(self) -> ASGIApp:
        try:
            manager = await asyncio.to_thread(self._manager)
        except ImportError:
            self._making = None
            hint = "install Allswell with the extra `mcp` where the server runs, as in `uv tool install '.[mcp]'`"
            raise Refused("no_mcp", "this server does not speak MCP", where="path", hint=hint) from None
        ready = asyncio.Event()
        self._living = asyncio.ensure_future(_live(manager, ready))
        await ready.wait()
        return manager.asgi_app

    def _manager(self) -> StreamableHTTPSessionManager:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from allswell.interfaces.mcp.handlers import WatchTools
        from allswell.interfaces.mcp.server import Asked, server_of

        def desk_for(asked: Asked) -> WatchTools:
            house, request = self._house(), asked.request
            if request is None:
                raise Bug("a call came without its request")
            return WatchTools(
                house.gate, request.scope[KEY], house.artifacts_for(request.scope[KEY]), house.closing, house.place
            )

        return StreamableHTTPSessionManager(server_of(desk_for), stateless=True, max_request_body_size=BODY_MOST)

    async def end(self) -> None:
        """The server has stopped."""
        for task in (self._warming, self._making, self._living):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, AllswellError):
                    await task


async def _live(manager: StreamableHTTPSessionManager, ready: asyncio.Event) -> None:
    """For as long as it is not ended: calls that are being answered when the server stops get their answers."""
    async with manager.run():
        ready.set()
        await asyncio.Event().wait()


def _after(body: bytes, receive: Receive) -> Receive:
    """What comes after a body that was read already; first the body itself."""
    said = False

    async def receives() -> Message:
        nonlocal said
        if not said:
            said = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return receives
