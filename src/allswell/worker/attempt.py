"""One handling of one message: who has it, since when, and whether it was given up."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import traceback

from allswell.domain.worker.limits import Layers
from allswell.domain.worker.message import too_slow
from allswell.runtime.calls import ThreadCall
from allswell.worker.connection import HandlerConnection, Limit
from allswell.worker.event_loop import AsyncCall
from allswell.worker.handlers import Handler
from allswell.worker.queue import QueueMessage, QueueToken

CANCEL_SECONDS = 5.0
"""How long the server is asked to cancel a statement before its connection is cut all the same."""


class MessagesInHand:
    """The messages that a worker has read and that have no end yet, over all its shifts, and until when each is hidden.

    One that shows again meanwhile is not read again by its own worker (`Queue.unread`).
    """

    def __init__(self) -> None:
        self._held: dict[tuple[int, int], tuple[QueueToken, float]] = {}

    def take(self, token: QueueToken, until: float) -> None:
        """A message was read; its handler counts as stuck after so long on the monotonic clock."""
        self._held[token.id, token.sent] = token, until

    def let_go(self, token: QueueToken) -> None:
        """It has an end, or may be read again."""
        key = token.id, token.sent
        held = self._held.get(key)
        if held is not None and held[0] == token:
            self._held.pop(key, None)

    def more(self, token: QueueToken) -> float | None:
        """For how many seconds more a message is to be hidden that was read though it is in hand; None: it is not."""
        held = self._held.get((token.id, token.sent))
        return None if held is None else max(held[1] - time.monotonic(), 1.0)


CALLER = "_perform"
"""The function that calls handlers (session.py): a handler's stack is told from there on."""


class MessageAttempt:
    """A message in a handler's hands. Two threads speak to it: the handler's, and whoever gives it up."""

    def __init__(
        self, taken: QueueMessage, connection: HandlerConnection, handler: Handler | None, layers: Layers, since: float
    ) -> None:
        self.taken = taken
        self.connection = connection
        self.handler = handler
        """None where the message says of no type that has one."""
        self.limit = Limit(layers, since + layers.visibility_timeout)
        self._visibility = layers.visibility_timeout
        self.began = since
        """When its handler began, or when its message was last hidden for longer."""
        self.first_began = since
        self.kept = False
        """Whether its message stays in hand when its handler has ended: its end is written elsewhere."""
        self.call: ThreadCall[None] | None = None
        self.async_call: AsyncCall | None = None
        self.given_up = False
        self._ended = False
        self._thread = 0
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Called in the handler's thread."""
        self._thread = threading.get_ident()
        self.began = self.first_began = time.monotonic()
        self.connection.limit = self.limit

    def hidden_again(self, since: float, visibility: float) -> None:
        """Its message was hidden for longer."""
        self.began = since
        self.limit.ends = since + visibility

    def slept(self, seconds: float) -> None:
        """The whole process stood still for so long: the handler had nothing of it."""
        self.began += seconds
        self.first_began += seconds

    def too_slow(self) -> str:
        """What to do about a handler that takes longer than its message is hidden; empty where it does not."""
        took = time.monotonic() - self.first_began
        if took <= self._visibility or self.handler is None or self.handler.long:
            return ""
        return too_slow(took, self._visibility)

    def give_up(self) -> bool:
        """Count on it no longer: its slot is free at once. False if it has ended, or somebody did so before."""
        with self._lock:
            if self._ended or self.given_up:
                return False
            self.given_up = True
        if self.call is not None:
            self.call.give_up()
        return True

    def end(self) -> bool:
        """It has come back; False if it was given up before."""
        with self._lock:
            self._ended = not self.given_up
            return self._ended

    def stack(self) -> str:
        """Where its handler stands."""
        if self.async_call is not None:
            return self.async_call.stack()
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - the documented way to see another thread's
        if frame is None:
            return "(its thread has ended)\n"
        lines = traceback.extract_stack(frame)
        begin = next((place for place, line in enumerate(lines) if line.name == CALLER), -1)
        return "".join(traceback.format_list(lines[begin + 1 :]))

    def cut(self) -> None:
        """Cancel its statement on the server and cut its connection, in a thread of its own: nobody waits for it."""
        threading.Thread(target=self._cut, name="allswell-cut", daemon=True).start()

    def _cut(self) -> None:
        with contextlib.suppress(Exception):  # the connection is cut in any case
            self.connection.cancel_safe(timeout=CANCEL_SECONDS)
        self.connection.cut()
        while self.async_call is not None and self.async_call.stop():
            time.sleep(1.0)  # by level: a handler may swallow a cancel
