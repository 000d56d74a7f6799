"""The herald of a store tells other processes and hears them, whatever carries the calls.

It keeps the promises of `store/port.py` for every carrier: it never makes its store wait, merges what piles up, sends
what matters at once and the rest a little later, comes back after every loss, and proves from time to time by a round
trip that a silent line is quiet and not dead. It has a thread of its own, which begins with the first thing to tell or
the first hearer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import select
import socket
import threading
import time
from typing import Protocol

from allswell.store.port import LOOK_AGAIN, NOTHING, Hearer, Wakeup

log = logging.getLogger(__name__)

_URGENT_GAP = 0.005
_LAZY_GAP = 0.05
"""Seconds between two calls of this process: at once when it was quiet, and a flood becomes a trickle."""
_LAZY_WAIT = 0.005
"""Seconds. Whoever is told of nothing urgent can wait until the caller has its own answer, and those who were told of
something urgent have looked: a thread that is woken at once takes the interpreter away from it."""
_RETRY_FIRST, _RETRY_MOST = 0.05, 2.0
NEVER = float("-inf")
"""Before every moment of the monotonic clock, which may have begun a minute ago."""


class TransportLost(Exception):
    """The carrier does not work, or no longer; it is closed and opened again after a pause."""


class Transport(Protocol):
    """What calls travel by. Used in the herald's thread only; every method is bounded in time or does not wait.

    `alone` and `send_here` are the exceptions: they are asked from any thread, at every call.
    """

    check_every: float
    """How long it may be silent before a round trip proves that it still works, in seconds."""

    def alone(self) -> bool:
        """Whether it is certain that nobody would hear a call now; whoever comes later looks for itself."""
        ...

    def open(self, *, hearing: bool) -> None:
        """Get ready to send and, with `hearing`, to receive."""
        ...

    def fileno(self) -> int | None:
        """What becomes readable when calls come; None where none can be heard."""
        ...

    def send(self, call: Wakeup) -> None:
        """Tell the others."""
        ...

    def send_here(self, call: Wakeup) -> bool:
        """Tell the others from the caller's thread, if that takes no longer than to wake another; whether it did."""
        ...

    def receive(self) -> Wakeup:
        """All that has come from others, merged; does not wait."""
        ...

    def check(self) -> None:
        """Prove by a round trip that calls would be heard."""
        ...

    def close(self) -> None:
        """Let it go; waits for nobody and never fails."""
        ...


class Notifier:
    """Tells and hears for one store in one process."""

    def __init__(self, carrier: Transport, name: str) -> None:
        self._carrier = carrier
        self._name = name
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._knock: tuple[socket.socket, socket.socket] | None = None
        self._knocked = False
        self._closing = False
        self._to_send = NOTHING
        self._sent_at = self._sent_before = self._taken_at = NEVER
        self._deferred = False
        self._hearer: Hearer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heard = NOTHING
        self._hearing = False
        """Whether the carrier is open for hearing."""

    def announce(self, call: Wakeup) -> None:
        """Tell other processes; returns at once, and merges with what is still to be told."""
        if not call:
            return
        if not call.urgent:
            self._announce_later(call)
        elif not self._carrier.alone():  # to wake a thread for nobody would cost the caller more than its own write
            taken = self.take_along(call)
            if not taken or not self._carrier.send_here(taken):
                self._leave_to_the_thread(taken or call, again=bool(taken))

    def _leave_to_the_thread(self, call: Wakeup, *, again: bool = False) -> None:
        """Have it told by the thread; `again` if it counts as sent and was not, after all."""
        with self._guard:
            if self._closing:
                return
            self._to_send = self._to_send.merged(call)
            if again and self._sent_at == self._taken_at:  # unless the thread has told others meanwhile
                self._sent_at = self._sent_before
            self._wake()

    def take_along(self, call: Wakeup) -> Wakeup:
        """What a store is to send along with its commit, merged with what is still to be told; it counts as sent then.

        `NOTHING` where it is not urgent, or others were told a moment ago: announce it once it is committed.
        """
        with self._guard:
            now = time.monotonic()
            if self._closing or not call.urgent or now < self._sent_at + _URGENT_GAP:
                return NOTHING
            call, self._to_send = self._to_send.merged(call), NOTHING
            self._sent_before, self._sent_at, self._taken_at = self._sent_at, now, now
            return call

    def hear(self, hearer: Hearer) -> None:
        """Call `hearer` in this event loop with what others tell, from now on; replaces an earlier one."""
        with self._guard:
            if self._closing:
                return
            takes_over = self._hearing
            self._hearer = hearer
            self._loop = asyncio.get_running_loop()
            self._wake()
        if takes_over:
            self._deliver(LOOK_AGAIN)  # it may have missed what came before it

    def _announce_later(self, call: Wakeup) -> None:
        """Have the thread told a little later, of all that comes until then; at once where no loop can remind us."""
        with self._guard:
            if self._closing:
                return
            self._to_send = self._to_send.merged(call)
            if self._deferred:
                return
            self._deferred = True
        try:
            asyncio.get_running_loop().call_later(_LAZY_WAIT, self._wake_at_last)
        except RuntimeError:
            self._wake_at_last()

    def _wake_at_last(self) -> None:
        with self._guard:
            self._deferred = False
            if self._carrier.alone():
                self._to_send = NOTHING
            elif self._to_send and not self._closing:
                self._wake()

    async def close(self, timeout: float) -> None:
        """Tell what is still to be told, for at most so long, and let everything go."""
        with self._guard:
            self._closing = True
            self._hearer = self._loop = None
            thread = self._thread
            if thread is None and (not self._to_send or self._carrier.alone()):
                return
            self._wake()
            thread = self._thread
        if thread is not None:
            await asyncio.to_thread(thread.join, timeout)

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Make the thread look; the guard is held. Many knocks before it looks are one."""
        if self._thread is None:
            self._knock = socket.socketpair()
            self._thread = threading.Thread(target=self._live, name=self._name, daemon=True)
            self._thread.start()
        if not self._knocked and self._knock is not None:
            self._knocked = True
            self._knock[1].send(b"!")

    def _live(self) -> None:
        pause = _RETRY_FIRST
        try:
            while True:
                began = time.monotonic()
                try:
                    if self._work():
                        return
                    continue
                except TransportLost as lost:
                    log.debug("%s: %s", self._name, lost)
                except Exception:
                    log.exception("%s failed; callers that wait still poll", self._name)
                    pause = _RETRY_MOST
                finally:
                    self._hearing = False
                    self._carrier.close()
                if time.monotonic() - began > _RETRY_MOST:
                    pause = _RETRY_FIRST  # it had worked for a while
                if self._sleep(pause * (0.5 + random.random() / 2)):  # only pacing: no history depends on it
                    return
                pause = min(pause * 2, _RETRY_MOST)
        finally:
            self._end()

    def _work(self) -> bool:
        """Tell and hear until all is over (True), or until it must be opened anew to hear (False)."""
        carrier = self._carrier
        hearing = self._hearer is not None
        carrier.open(hearing=hearing)
        self._hearing = hearing
        if hearing:
            self._deliver(LOOK_AGAIN)
        source = carrier.fileno()
        check_at = time.monotonic() + carrier.check_every * (0.75 + random.random() / 4)
        while True:
            now = time.monotonic()
            if self._closing and not self._to_send:
                return True
            if self._hearer is not None and not hearing:
                return False  # it was opened for telling alone
            send_at = self._sent_at + (_URGENT_GAP if self._to_send.urgent or self._closing else _LAZY_GAP)
            if self._to_send and send_at <= now:
                call = self._take()
                try:
                    carrier.send(call)
                except TransportLost:
                    self._put_back(call)
                    raise
                self._sent_at = time.monotonic()
            elif source is not None and check_at <= now:
                carrier.check()
                check_at = time.monotonic() + carrier.check_every * (0.75 + random.random() / 4)
            else:
                until = min(send_at if self._to_send else now + 3600, check_at if source is not None else now + 3600)
                self._await(source, until - now)
            # After every step: calls may also have come with the answer to one of our own.
            if source is not None and (heard := carrier.receive()):
                self._deliver(heard)
                check_at = time.monotonic() + carrier.check_every

    def _await(self, source: int | None, seconds: float) -> None:
        """Sleep until a knock, a call or so many seconds."""
        if self._knock is None:
            return
        knock = self._knock[0]
        poll = select.poll()
        poll.register(knock, select.POLLIN)
        if source is not None:
            poll.register(source, select.POLLIN)
        if any(file == knock.fileno() for file, _ in poll.poll(max(0, seconds * 1000))):
            with self._guard:
                self._knocked = False
                knock.recv(16)

    def _sleep(self, seconds: float) -> bool:
        """Pause before the carrier is opened again; whether all is over."""
        until = time.monotonic() + seconds
        while not self._closing and (left := until - time.monotonic()) > 0:
            self._await(None, left)
        return self._closing

    def _take(self) -> Wakeup:
        with self._guard:
            call, self._to_send = self._to_send, NOTHING
            return call

    def _put_back(self, call: Wakeup) -> None:
        with self._guard:
            self._to_send = self._to_send.merged(call)

    def _deliver(self, call: Wakeup) -> None:
        """Hand a call to the event loop; what comes before the loop gets to it is one call."""
        with self._guard:
            loop = self._loop
            if loop is None:
                return
            waiting, self._heard = self._heard, self._heard.merged(call)
        if not waiting:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        with self._guard:
            heard, self._heard = self._heard, NOTHING
            hearer = self._hearer
        if hearer is not None:
            hearer(heard)

    def _end(self) -> None:
        with self._guard:
            knock, self._knock = self._knock, None
            self._closing = True
        for end in knock or ():
            end.close()
