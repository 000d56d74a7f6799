"""A wake-up call within one process. It is only ever a hint: whoever waits also looks again by itself."""

from __future__ import annotations

import asyncio


class Signal:
    """Fires for all who listened before it; listen first, then look, then wait, and no call is lost."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def fire(self) -> None:
        """Wake everybody who is listening."""
        self._event.set()
        self._event = asyncio.Event()

    def listen(self) -> asyncio.Event:
        """What will be set by the next call."""
        return self._event


async def either(news: asyncio.Event, seconds: float) -> None:
    """Return at the call, or after so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await news.wait()
    except TimeoutError:
        pass
