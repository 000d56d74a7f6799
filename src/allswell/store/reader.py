"""An event loop that is told when a socket of another thread becomes readable.

The loop watches a handle of its own on the socket: the other thread may close its own at any moment, and the number
could belong to something else by the time the loop hears of it. The loop closes its handle itself, when it has stopped
watching it.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable
from contextlib import suppress


class LoopReader:
    """Calls `read` in the loop whenever there is something to read, from now on until `end`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, source: int, read: Callable[[], None]) -> None:
        """Begin; from any thread."""
        self._loop = loop
        self._read = read
        self._file: int | None = os.dup(source)
        self._paused = False
        _inheritable.add(self)
        self._soon(self._begin)

    def pause(self) -> None:
        """Do not call it for now; in the loop."""
        self._paused = True
        if self._file is not None:
            self._loop.remove_reader(self._file)

    def go_on(self) -> None:
        """Call it again, if it was paused; from any thread."""
        if self._paused:
            self._paused = False
            self._soon(self._begin)

    def end(self) -> None:
        """Stop; from any thread, also twice, and also when the loop is closed."""
        self._soon(self._end)

    def let_go(self) -> None:
        """Close the handle: in a child that was forked, or when the loop is no more."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _soon(self, step: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(step)
        except RuntimeError:  # the loop is closed: nobody watches anything
            self.let_go()

    def _begin(self) -> None:
        if self._file is not None:
            self._loop.add_reader(self._file, self._read)

    def _end(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._loop.remove_reader(self._file)
            self.let_go()


_inheritable: weakref.WeakSet[LoopReader] = weakref.WeakSet()


def _let_go_in_child() -> None:
    # A socket that a forked child still has open looks alive to everybody after its process was killed.
    for reader in list(_inheritable):
        reader.let_go()


os.register_at_fork(after_in_child=_let_go_in_child)
