"""What the tests of wake-up calls on SQLite are made of: who hears, and waiting for what another thread does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from allswell.store.call import LOOK_AGAIN, Call
from allswell.store.sqlite import SqliteStore
from allswell.store.sqlite.carrier import DatagramCarrier


async def until(happened: Callable[[], bool]) -> None:
    """What another thread does can only be waited for."""
    async with asyncio.timeout(20):
        while not happened():
            await asyncio.sleep(0.005)


async def until_told(tell: Callable[[], None], happened: Callable[[], bool]) -> None:
    """Tell again and again: what is told right after something else is left to the herald either way."""
    async with asyncio.timeout(20):
        while not happened():
            tell()
            await asyncio.sleep(0.02)


async def heard_by(store: SqliteStore) -> list[Call]:
    calls: list[Call] = []
    store.hear(calls.append)
    await until(lambda: LOOK_AGAIN in calls)
    calls.clear()
    return calls


def open_carrier(database: Path, *, hearing: bool = True) -> DatagramCarrier:
    carrier = DatagramCarrier(database)
    carrier.open(hearing=hearing)
    return carrier
