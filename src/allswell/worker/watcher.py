"""Finding handlers that are stuck: a thread that needs neither the queue, nor the pool, nor the handler's thread (W4).

A handler is stuck when it has run for the visibility timeout and 5 s more, counted from its start or from when its
message was last hidden for longer. It is logged once with its stack, counted once, its statement is cancelled on the
server and its connection cut, and its slot is taken by a new thread. The watcher itself only looks and decides: the
cutting, which may take time, is done by a thread of its own.

When the whole process stood still (SIGSTOP, a machine that was suspended), every handler seems to be stuck in the
moment in which it goes on. So a look that comes late judges nobody, and the next one does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from allswell.domain.health import WorkerCondition
from allswell.worker.reader import Reader
from allswell.worker.shift import Shift

log = logging.getLogger("allswell.worker")
LOOK_SECONDS = 0.2
"""How often it looks."""
LATE_SECONDS = 1.0
"""A look that comes so late comes after a pause of the whole process: that is no handler's fault."""


class Watcher:
    """The thread that looks."""

    def __init__(self, shift: Shift, reader: Reader, on_critical: Callable[[str], None]) -> None:
        self._shift = shift
        self._reader = reader
        self._on_critical = on_critical
        self._looked = time.monotonic()
        self._slept = False
        """Whether the last look came so late that it judged nobody."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="allswell-watcher", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                self._look()
            except Exception:
                log.exception("the watcher failed, and goes on")

    def _look(self) -> None:
        layers = self._shift.plan.layers
        now = time.monotonic()
        late, self._looked = now - self._looked > LATE_SECONDS, now
        self._slept = late and not self._slept
        if self._slept:
            return
        for attempt in self._shift.attempts():
            elapsed = now - attempt.began
            if elapsed <= layers.stuck_after:
                continue
            stack = attempt.stack()
            if self._shift.give_up(attempt):
                log.error(
                    "Thread stuck for %.1fs processing %s - abandoning\n%s", elapsed, attempt.taken.token.id, stack
                )
                self._shift.figures.stuck()
        condition, why = self._shift.figures.condition()
        silent = now - self._reader.seen
        if silent > layers.pool_timeout + layers.stuck_after:
            condition, why = WorkerCondition.CRITICAL, f"the reader has stood still for {silent:.0f} s"
        if condition is WorkerCondition.CRITICAL and not self._shift.stopping:
            self._on_critical(why)
