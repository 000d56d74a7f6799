"""A wake-up call within one process. It is only ever a hint: every waiter also looks again by itself.

Every loop of an open store waits here, thousands of times an hour, nearly always with a limit. So a wait with a
limit is one future with a timer, and not an `asyncio.Event` within an `asyncio.timeout`, which cancels the waiting task
each time that the limit comes first.
"""

from __future__ import annotations

import asyncio


class Waiter:
    """Rings once: its waiters are woken, and one that comes later does not wait."""

    __slots__ = ("rung", "waiting")

    def __init__(self) -> None:
        self.rung = False
        self.waiting: dict[asyncio.Future[None], None] = {}

    def ring(self) -> None:
        """Wake all waiters."""
        self.rung = True
        for waiter in self.waiting:
            _wake(waiter)

    async def wait(self) -> None:
        """Return when it rings."""
        await either(self, None)


async def either(bell: Waiter, seconds: float | None) -> None:
    """Return when it rings, or after so many seconds."""
    if bell.rung:
        return
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    timer = None if seconds is None else loop.call_later(seconds, _wake, waiter)
    bell.waiting[waiter] = None
    try:
        await waiter
    finally:
        del bell.waiting[waiter]
        if timer is not None:
            timer.cancel()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Signal:
    """Fires for all who listened before it; listen first, then look, then wait, and no call is lost."""

    def __init__(self) -> None:
        self._bell: Waiter | None = None

    def fire(self) -> None:
        """Wake all listeners."""
        bell, self._bell = self._bell, None
        if bell is not None:
            bell.ring()

    def listen(self) -> Waiter:
        """What will ring at the next call."""
        if self._bell is None:
            self._bell = Waiter()
        return self._bell
