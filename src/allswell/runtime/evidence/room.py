"""A room for pumps: one thread reads any number of streams, for watchers who never block.

It lets a little time pass between two rounds, so that what two hundred agents print, a few bytes at a time, wakes it
ten times a second and not four thousand times. Whoever prints much is not held up: after a round in which anybody had
much to say, the next one begins at once. The pipes hold what is printed meanwhile.
"""

from __future__ import annotations

import select
import sys
import threading

from allswell.runtime.evidence.lines import Pump

_TOGETHER = 0.1
"""Seconds between two rounds."""
_MUCH = 32_768
"""Bytes in one piece, from which on a stream is read again at once."""


class Room:
    """Pumps that share a thread; it begins with the first of them, and ends with `close`."""

    def __init__(self) -> None:
        self._pumps: dict[int, Pump] = {}
        self._poll: select.epoll | None = None
        self._hurry = threading.Event()
        self._closed = False

    def take(self, pump: Pump) -> None:
        """Read this one too."""
        if self._poll is None:
            self._poll = select.epoll()
            threading.Thread(target=self._run, args=(self._poll,), name="allswell outputs", daemon=True).start()
        self._pumps[pump.source] = pump
        self._poll.register(pump.source, select.EPOLLIN)

    def hurry(self) -> None:
        """Somebody waits for the rest: let no time pass before the next round."""
        self._hurry.set()

    def close(self) -> None:
        """End the thread; what it still reads is given up."""
        self._closed = True
        self.hurry()

    def _run(self, poll: select.epoll) -> None:
        while not self._closed:
            much = False
            # Bounded, so that it ends soon after the room is closed, with nobody to wake it.
            for source, _ in poll.poll(1.0):
                much |= self._turn(poll, self._pumps[source]) >= _MUCH
            if not much:
                self._hurry.wait(_TOGETHER)
            self._hurry.clear()
        for pump in self._pumps.values():
            pump.close()
        poll.close()

    def _turn(self, poll: select.epoll, pump: Pump) -> int:
        try:
            taken = pump.turn()
        except Exception:  # noqa: BLE001 - a bug in one watcher must not make all the others deaf
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
            taken = 0
        if not taken:  # closed last: somebody else may have its number at once, and come in with it
            poll.unregister(pump.source)
            del self._pumps[pump.source]
            pump.close()
        return taken
