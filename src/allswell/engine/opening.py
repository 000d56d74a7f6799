"""Opening a store whose server may be away: it is tried again, as long as a command would be (`pace.store_patience`).

A server is restarted, or is still starting up, when a program or a single command comes; that is no reason to fail it.
A store that is a file is there or is not, and is not waited for. An attempt that is under way is not cut off: a server
that does not even answer costs its `connect_timeout` more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from allswell.engine.pace import Pace
from allswell.errors import Unavailable
from allswell.store.port import Store

log = logging.getLogger("allswell.engine")
TellsOfWait = Callable[[str], None]


def log_wait(says: str) -> None:
    """Tell of a wait where nobody else does."""
    log.warning("%s", says)


async def open_patiently(store: Store, pace: Pace, tell: TellsOfWait = log_wait) -> None:
    """Open a store; `tell` hears once, in a sentence, that it is waited for."""
    if not store.shared_clock:  # it has no clock of its own, so nobody serves it
        await store.open()
        return
    loop = asyncio.get_running_loop()
    until = loop.time() + pace.store_patience
    pause, told = pace.retry_first, False
    while True:
        try:
            await store.open()
        except Unavailable as error:
            left = until - loop.time()
            if left <= 0:
                gave_up = f"{error.message}; gave up after store_patience {pace.store_patience:g} s"
                raise Unavailable(gave_up, hint=error.hint) from error
            if not told:
                tell(f"Waiting up to {pace.store_patience:g} s for the store: {error.message}")
                told = True
        else:
            return
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 2, pace.retry_most)
