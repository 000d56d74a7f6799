"""A turn for everybody else, which every statement of a strict store begins with.

`asyncio.sleep(0)` without its wrapping. An event loop that knows when nobody else is ready can say so instead (the
deterministic one does): then there is nobody to give way to, and the statement goes straight on.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Generator

Turn = Callable[[], Awaitable[None] | None]
"""Gives everybody else who is ready a turn; None where nobody is."""


@types.coroutine
def a_turn() -> Generator[None, None, None]:
    """Let everybody who is ready run before going on."""
    yield
