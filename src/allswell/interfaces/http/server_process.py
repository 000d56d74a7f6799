"""The process of a server that somebody else keeps: `allswell up --serve` (`sidecar.py`).

It is told what to serve by one line on its standard input, and serves for as long as that stays open: a keeper that is
gone, however it went, has closed it. So no server is left behind, and none needs a signal. Signals of the terminal are
not for it; it belongs to a session of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import socket
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

from allswell.errors import AllswellError
from allswell.interfaces.http.listener import ListenAddress
from allswell.interfaces.http.server import Served, serve_on
from allswell.runtime.host import keep_to_ourselves, take_over
from allswell.settings import Settings
from allswell.views.fields import ErrorShape


class ServeOrder(Struct, frozen=True):
    """What to serve, and the socket that listens for it."""

    url: str
    home: str
    address: ListenAddress
    listens: int
    """The socket's number in this process."""
    settings: bytes
    """As its keeper has read them at its own start, pickled: what is written into a file since then is not read."""
    environment: bytes
    """Its environment: it began with what everybody may know."""


def main() -> int:
    """Serve until standard input ends."""
    keep_to_ourselves()
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=ServeOrder)
    take_over(order.environment)
    try:
        settings: Settings = pickle.loads(order.settings)  # noqa: S301 - by a pipe, from the process that started this
        served = Served(order.url, settings, Path(order.home), _tell)
        asyncio.run(_live(served, order))
    except AllswellError as error:
        told = ErrorShape.of(error).error
        _tell(told.message if told.hint is None else f"{told.message} ({told.hint})")
        return 1
    return 0


async def _live(served: Served, order: ServeOrder) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), ended.set)  # nothing more is said: it can only end
    with socket.socket(fileno=order.listens) as made:
        await serve_on(served, made, order.address, ended)


def _tell(line: str) -> None:
    with contextlib.suppress(OSError):  # nobody hears it any more
        sys.stdout.write(line.replace("\n", " ") + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
