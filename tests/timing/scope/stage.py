"""What the tests of scopes stand on: a clock that obeys, and a body that does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from allswell.testing.loop import running_loop

Run = Callable[[Coroutine[Any, Any, Any]], Any]
GRACE = 5.0


def now() -> float:
    return running_loop().time()


def stubborn(log: list[float], until: float) -> Callable[[], Coroutine[Any, Any, None]]:
    """A body that swallows its cancels."""

    async def body() -> None:
        while now() < until:
            try:
                await asyncio.sleep(until - now())
            except asyncio.CancelledError:
                log.append(round(now(), 3))

    return body
