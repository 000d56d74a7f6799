"""One handling of one message: who has it, since when, and whether it was given up."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import traceback

from allswell.domain.layers import Layers
from allswell.runtime.threads import ThreadCall
from allswell.worker.connection import HandlerConnection
from allswell.worker.handler_loop import AsyncCall
from allswell.worker.handlers import Handler
from allswell.worker.limit import Limit
from allswell.worker.queue import Taken

CANCEL_SECONDS = 5.0
"""How long the server is asked to cancel a statement before its connection is cut all the same."""


CALLER = "_perform"
"""The function that calls handlers (`shift`): a handler's stack is told from there on."""


class MessageAttempt:
    """A message in a handler's hands. Two threads speak to it: the handler's, and whoever gives it up."""

    def __init__(
        self, taken: Taken, connection: HandlerConnection, handler: Handler | None, layers: Layers, since: float
    ) -> None:
        self.taken = taken
        self.connection = connection
        self.handler = handler
        """None where the message says of no type that has one."""
        self.limit = Limit(layers, since + layers.visibility_timeout)
        self.began = since
        """When its handler began, or when its message was last hidden for longer."""
        self.call: ThreadCall[None] | None = None
        self.async_call: AsyncCall | None = None
        self.given_up = False
        self._ended = False
        self._thread = 0
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Called in the handler's thread."""
        self._thread = threading.get_ident()
        self.began = time.monotonic()
        self.connection.limit = self.limit

    def hidden_again(self, since: float, visibility: float) -> None:
        """Its message was hidden for longer."""
        self.began = since
        self.limit.ends = since + visibility

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
