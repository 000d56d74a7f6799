"""A server from its start to its end: the gate is opened, the port listened on, and both are closed in good order."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable
from pathlib import Path

from allswell.app import make_gate
from allswell.domain.key import is_over
from allswell.doors.http.api import api
from allswell.doors.http.call import House
from allswell.doors.http.doorkeeper import Doorkeeper, Meant
from allswell.doors.http.journal import Journal
from allswell.doors.http.limits import Limits
from allswell.doors.http.listening import Address, listening, serve
from allswell.engine.gate import Gate
from allswell.settings import Settings

Tell = Callable[[str], None]


def run(url: str, settings: Settings, home: Path, address: Address, tell: Tell) -> None:
    """Serve a store until a signal comes; `tell` hears what is worth saying."""
    with listening(address) as (made, where):

        async def live() -> None:
            stop = asyncio.Event()
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop.set)
            gate = make_gate(url, settings, tell_of_wait=tell)
            async with gate:
                await _say(gate, where, tell)
                house = House(gate, home, Journal(gate.watch), asyncio.Event())
                reading = asyncio.ensure_future(house.journal.read())
                try:
                    app = app_of(house, where)
                    await serve(app, made, where, stop.wait(), house.closing.set)
                finally:
                    reading.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await reading
            tell("stopped")

        asyncio.run(live())


def app_of(house: House, where: Address) -> Doorkeeper:
    """The whole application, from the doorkeeper inward."""
    limits = Limits(time.monotonic)
    return Doorkeeper(api(lambda: house), lambda: house.gate, Meant(where.hosts, where.secure), limits)


async def _say(gate: Gate, where: Address, tell: Tell) -> None:
    tell(f"serving {where.url}; Ctrl-C stops in good order")
    now = await gate.watch.now()
    if all(is_over(key, now) for key in await gate.keyring.all()):
        tell("nobody has a key yet: `allswell key create NAME --right operator` makes one")
