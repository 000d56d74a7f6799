"""What the tests of wake-up calls are made of, whatever carries them: who hears, and waiting for another thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from allswell.store.port import LOOK_AGAIN, Store, Wakeup
from tests import patience


async def until(happened: Callable[[], bool]) -> None:
    """What another thread does can only be waited for."""
    async with asyncio.timeout(patience.SECONDS):
        while not happened():
            await asyncio.sleep(0.005)


async def heard_by(store: Store) -> list[Wakeup]:
    """All that a store hears from now on, which it is certain to."""
    calls: list[Wakeup] = []
    store.hear(calls.append)
    await until(lambda: LOOK_AGAIN in calls)
    calls.clear()
    return calls
