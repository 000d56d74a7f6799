"""A server from its start to its end: the gate is opened, the port listened on, and both are closed in good order.

What goes wrong while it serves is logged to standard error, each kind once a minute with a count: a stranger who causes
the same trouble a thousand times a second must not fill a disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from allswell.app import make_gate
from allswell.domain.access.key import Right, is_over
from allswell.engine.access.gate import Gate
from allswell.engine.access.keys import make_link
from allswell.errors import Refused
from allswell.interfaces.http.api import api
from allswell.interfaces.http.events import Journal
from allswell.interfaces.http.listener import ListenAddress, listening, serve
from allswell.interfaces.http.mcp import McpRoute
from allswell.interfaces.http.metrics import PATH as METRICS
from allswell.interfaces.http.metrics import ServerTally
from allswell.interfaces.http.request_context import ServerState
from allswell.interfaces.http.security import OPEN, AllowedHosts, RequestLimits, SecurityMiddleware
from allswell.interfaces.http.webhooks import Hooks, IncomingHook, make_hooks
from allswell.remote.discovery import noted
from allswell.settings import Settings

FIRST = "browser"
"""The key that is made where there is none, an operator's; nobody is told its secret."""
LOG_SECONDS = 60.0
_KINDS_MOST = 1_000
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Served:
    """What is served, and who hears what is worth saying."""

    url: str
    settings: Settings
    home: Path
    tell: Tell


def run(served: Served, address: ListenAddress) -> None:
    """Serve a store until a signal comes."""
    with listening(address) as (made, where):

        async def live() -> None:
            stop = asyncio.Event()
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop.set)
            await serve_on(served, made, where, stop)
            served.tell("stopped")

        asyncio.run(live())


class OncePerMinute(logging.Filter):
    """Lets the first record of a kind pass, and the next one after a minute with the number of those left out."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds = seconds
        self._seen: dict[tuple[str, int, str], tuple[float, int]] = {}
        """When a record of each kind last passed, and how many were left out since."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this record is written; a kind is a logger, a level and the first line of a message's template."""
        kind = (record.name, record.levelno, str(record.msg).partition("\n")[0][:200])
        now = self._seconds()
        passed_at, left_out = self._seen.get(kind, (None, 0))
        if passed_at is not None and now - passed_at < LOG_SECONDS:
            self._seen[kind] = (passed_at, left_out + 1)
            return False
        if len(self._seen) >= _KINDS_MOST:
            self._seen.clear()
        self._seen[kind] = (now, 0)
        if left_out and passed_at is not None:
            record.msg = f"{record.getMessage()} (and {left_out:,} more like it in the last {now - passed_at:.0f} s)"
            record.args = None
        return True


def log_to_stderr() -> None:
    """Write warnings and errors to standard error, unless the process has been told where to log."""
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler()
        handler.setLevel(logging.WARNING)
        handler.addFilter(OncePerMinute())
        root.addHandler(handler)


async def serve_on(served: Served, made: socket.socket, where: ListenAddress, stop: asyncio.Event) -> None:
    """Serve a store on a socket that listens, until `stop` is set."""
    log_to_stderr()
    hooks = make_hooks(served.settings.hooks)
    async with make_gate(served.url, served.settings, tell_of_wait=served.tell) as gate:
        house = ServerState(gate, served.url, served.settings, served.home, Journal(gate.watch), asyncio.Event())
        house.counting = ServerTally(gate.watch)
        mcp = McpRoute(lambda: house)
        with noted(served.home, where.url):
            await _say(gate, where, served.tell)
            reading = asyncio.gather(house.journal.read(), house.counting.count())
            mcp.start()
            try:
                await serve(app_of(house, where, mcp, hooks), made, where, stop.wait(), house.closing.set)
            finally:
                await mcp.end()
                reading.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await reading


def app_of(
    house: ServerState, where: ListenAddress, mcp: McpRoute, hooks: Mapping[str, IncomingHook]
) -> SecurityMiddleware:
    """The whole application, from the doorkeeper inward."""
    from allswell.interfaces.web.app import Page

    limits = RequestLimits(time.monotonic)
    page = Page(lambda: house, limits, secure=where.secure)
    inner = api(lambda: house, mcp)
    shown = (*OPEN, METRICS) if where.open_metrics else OPEN
    taken = Hooks(hooks, lambda: house, limits, lambda: time.time_ns() // 1_000_000)
    return SecurityMiddleware(
        inner, lambda: house.gate, AllowedHosts(where.hosts, where.secure, shown), limits, page=page, hooks=taken
    )


async def _say(gate: Gate, where: ListenAddress, tell: Tell) -> None:
    """Where it is; and on a store that nobody has a key for, a first one, for the browser of whoever started this."""
    tell(f"serving {where.url}; Ctrl-C stops")
    now = await gate.watch.now()
    if not all(is_over(key, now) for key in await gate.keyring.all()):
        tell("`allswell key link NAME` prints a link that opens the page, once")
        return
    if where.unix is not None:  # no browser opens that
        tell("there is no key yet: `allswell key create NAME --right operator` makes one")
        return
    with contextlib.suppress(Refused):  # another server has just made it
        await gate.keyring.create(FIRST, [Right.OPERATOR], by="allswell serve")
    link = await make_link(gate.watch, FIRST, by="allswell serve")
    tell(f"open {where.page}/enter?link={link} (it works once, for ten minutes; then `allswell key link {FIRST}`)")
