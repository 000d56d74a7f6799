"""The event loop that something lives in, for those who come from other loops and from threads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from allswell.timing.running_loop import running_loop

T = TypeVar("T")


class OwnLoop:
    """The loop in which this was made."""

    __slots__ = ("_loop", "_process")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()

    def is_here(self) -> bool:
        """Whether the caller runs in it."""
        return running_loop() is self._loop

    def carry(self, work: Coroutine[Any, Any, T]) -> Future[T] | None:
        """Begin something in it; None if it is closed, or runs in the process that this one was forked from."""
        if os.getpid() == self._process:
            try:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
            except RuntimeError:  # it is closed
                pass
        work.close()
        return None
