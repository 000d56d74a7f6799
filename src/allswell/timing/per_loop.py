"""What each event loop has one of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class PerLoop(dict[asyncio.AbstractEventLoop, T]):
    """One for each loop, made when it is first asked for; those of closed loops are let go when a new one comes."""

    def __init__(self, make: Callable[[asyncio.AbstractEventLoop], T]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, loop: asyncio.AbstractEventLoop) -> T:
        for closed in [known for known in list(self) if known.is_closed()]:
            self.pop(closed, None)
        made = self[loop] = self._make(loop)
        return made
