"""What the children of a nursery do in its tests, and how a test runs its main."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

Run = Callable[[Coroutine[Any, Any, Any]], Any]


async def note_cancel(log: list[str], name: str) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        log.append(name)
        raise


async def fail(error: BaseException, after: float = 1) -> None:
    await asyncio.sleep(after)
    raise error
