"""The server on standard input and output: on a store that this process opens, or inside a supervised attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from allswell.app import make_gate
from allswell.domain.key import ANY_ROLE, Key, Right
from allswell.domain.names import Millis
from allswell.doors.mcp.attempt_desk import OwnLease
from allswell.doors.mcp.desk import WatchDesk
from allswell.doors.mcp.server import own_server, server_of
from allswell.settings import Settings
from allswell.timing.tracing import gone_on_with

STDIO = "(stdio)"
"""What is done without a key is signed with this: no key is called so."""


def caller(agent: str | None, roles: Sequence[str]) -> Key:
    """What somebody at this machine may do who shows no key: under a name, what an agent may, and to look.

    Without a name any name will do, as on the command line. It is kept nowhere, and no secret fits it.
    """
    if agent is None:
        return Key(STDIO, "", (Right.ADMIN,), Millis(0))
    rights = (Right.AGENT, Right.SUBMITTER, Right.VIEWER)
    return Key(STDIO, "", rights, Millis(0), roles=tuple(roles) or (ANY_ROLE,), agents=(agent,))


def serve_store(url: str, settings: Settings, home: Path, key: Key, tell: Callable[[str], None]) -> None:
    """Serve a store until standard input ends."""

    async def live() -> None:
        async with make_gate(url, settings, tell_of_wait=tell) as gate:
            closing = asyncio.Event()
            await _serve(server_of(lambda _: WatchDesk(gate, key, home, closing)))

    asyncio.run(live())


def serve_attempt(own: OwnLease) -> None:
    """Serve one lease until standard input ends."""
    asyncio.run(_serve(own_server(own)))


async def _serve(server: Server[Any]) -> None:
    async with stdio_server() as (reads, writes):
        with gone_on_with():  # the SDK makes a span of each call, under what the call brings, or else under this
            await server.run(reads, writes, server.create_initialization_options())
