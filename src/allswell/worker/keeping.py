"""Keeping the messages of long handlers hidden: each third of the visibility timeout, on a connection of its own (W7).

A message that turns out to belong to somebody else is lost: its handler is given up, for nothing that it still does can
be kept. While the database cannot be reached nothing is kept hidden, and the watcher's limit holds.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import psycopg

from allswell.worker.attempt import MessageAttempt
from allswell.worker.shift import Shift

log = logging.getLogger("allswell.worker")


class Keeper:
    """The thread that hides messages for longer."""

    def __init__(self, shift: Shift) -> None:
        self._shift = shift
        self._over = threading.Event()
        self._connection: psycopg.Connection[Any] | None = None
        self._thread = threading.Thread(target=self._run, name="allswell-keeper", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Stop."""
        self._over.set()

    def _run(self) -> None:
        third = self._shift.plan.layers.visibility_timeout / 3
        while not self._over.wait(min(third / 4, 1.0)):
            now = time.monotonic()
            due = [
                attempt
                for attempt in self._shift.attempts()
                if attempt.handler is not None and attempt.handler.long and now - attempt.began >= third
            ]
            if not due:
                continue
            try:
                self._hide(due)
            except psycopg.Error as error:
                log.warning("messages of long handlers cannot be kept hidden: %s", str(error).strip())
                self._disconnect()
        self._disconnect()

    def _hide(self, due: list[MessageAttempt]) -> None:
        visibility = self._shift.plan.layers.visibility_timeout
        since = time.monotonic()
        held = self._shift.queue.hide(self._connected(), [attempt.taken.token for attempt in due], visibility)
        for attempt in due:
            if attempt.taken.token.id in held:
                attempt.hidden_again(since, visibility)
            elif self._shift.give_up(attempt):
                log.warning("message %s is somebody else's now: its handler is given up", attempt.taken.token.id)
                self._shift.figures.ended("late")

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            plan = self._shift.plan
            self._connection = psycopg.connect(plan.conninfo, autocommit=True, **plan.connecting())
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
