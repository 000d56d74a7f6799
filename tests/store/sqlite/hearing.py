"""What the tests of wake-up calls on SQLite need beside `tests/store/hearing.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from allswell.store.sqlite.transport import DatagramTransport


async def until_told(tell: Callable[[], None], happened: Callable[[], bool]) -> None:
    """Tell again and again: what is told right after something else is left to the herald either way."""
    async with asyncio.timeout(20):
        while not happened():
            tell()
            await asyncio.sleep(0.02)


_opened: list[DatagramTransport] = []


def open_carrier(database: Path, *, hearing: bool = True) -> DatagramTransport:
    carrier = DatagramTransport(database)
    carrier.open(hearing=hearing)
    _opened.append(carrier)
    return carrier


def close_carriers() -> None:
    """Close what a test has opened; one that fails must not leave sockets for the next to stumble over."""
    while _opened:
        _opened.pop().close()
