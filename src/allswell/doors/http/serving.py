"""A server from its start to its end: the gate is opened, the port listened on, and both are closed in good order."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from allswell.app import make_gate
from allswell.domain.key import Right, is_over
from allswell.doors.http.api import api
from allswell.doors.http.call import House
from allswell.doors.http.counting import Counting
from allswell.doors.http.doorkeeper import OPEN, Doorkeeper, Meant
from allswell.doors.http.hooks import Hook, Hooks, make_hooks
from allswell.doors.http.journal import Journal
from allswell.doors.http.limits import Limits
from allswell.doors.http.listening import Address, listening, serve
from allswell.doors.http.mcp import McpRoute
from allswell.doors.http.metrics import PATH as METRICS
from allswell.engine.gate import Gate
from allswell.engine.sessions import make_link
from allswell.errors import Refused
from allswell.remote.known import noted
from allswell.settings import Settings

FIRST = "browser"
"""The key that is made where there is none, an operator's; nobody is told its secret."""
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Served:
    """What is served, and who hears what is worth saying."""

    url: str
    settings: Settings
    home: Path
    tell: Tell


def run(served: Served, address: Address) -> None:
    """Serve a store until a signal comes."""
    with listening(address) as (made, where):

        async def live() -> None:
            stop = asyncio.Event()
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop.set)
            await serve_on(served, made, where, stop.wait())
            served.tell("stopped")

        asyncio.run(live())


async def serve_on(served: Served, made: socket.socket, where: Address, stop: Awaitable[object]) -> None:
    """Serve a store on a socket that listens, until `stop` is done."""
    hooks = make_hooks(served.settings.hooks)
    async with make_gate(served.url, served.settings, tell_of_wait=served.tell) as gate:
        house = House(gate, served.url, served.settings, served.home, Journal(gate.watch), asyncio.Event())
        house.counting = Counting(gate.watch)
        mcp = McpRoute(lambda: house)
        with noted(served.home, where.url):
            await _say(gate, where, served.tell)
            reading = asyncio.gather(house.journal.read(), house.counting.count())
            mcp.start()
            try:
                await serve(app_of(house, where, mcp, hooks), made, where, stop, house.closing.set)
            finally:
                await mcp.end()
                reading.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await reading


def app_of(house: House, where: Address, mcp: McpRoute, hooks: Mapping[str, Hook]) -> Doorkeeper:
    """The whole application, from the doorkeeper inward."""
    from allswell.doors.page.app import Page

    limits = Limits(time.monotonic)
    page = Page(lambda: house, limits, secure=where.secure)
    inner = api(lambda: house, mcp)
    shown = (*OPEN, METRICS) if where.open_metrics else OPEN
    taken = Hooks(hooks, lambda: house, limits, lambda: time.time_ns() // 1_000_000)
    return Doorkeeper(
        inner, lambda: house.gate, Meant(where.hosts, where.secure, shown), limits, page=page, hooks=taken
    )


async def _say(gate: Gate, where: Address, tell: Tell) -> None:
    """Where it is; and on a store that nobody has a key for, a first one, for the browser of whoever started this."""
    tell(f"serving {where.url}; Ctrl-C stops in good order")
    now = await gate.watch.now()
    if not all(is_over(key, now) for key in await gate.keyring.all()):
        tell("`allswell key link NAME` prints a link that opens the page, once")
        return
    if where.unix is not None:  # no browser opens that
        tell("nobody has a key yet: `allswell key create NAME --right operator` makes one")
        return
    with contextlib.suppress(Refused):  # another server has just made it
        await gate.keyring.create(FIRST, [Right.OPERATOR], by="allswell serve")
    link = await make_link(gate.watch, FIRST, by="allswell serve")
    tell(f"open {where.page}/enter?link={link} (it works once, for ten minutes; then `allswell key link {FIRST}`)")
