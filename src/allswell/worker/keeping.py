"""Keeping up what must be said to the database again and again, on a connection of its own.

The messages of long handlers are hidden for longer at each third of the visibility timeout (W7), and every few seconds
the worker says how it is, for `allswell worker status`.

A message that turns out to belong to somebody else is lost: its handler is given up, for nothing that it still does can
be kept. While the database cannot be reached nothing is kept hidden, and the watcher's limit holds.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import Any

import psycopg

from allswell.worker.attempt import MessageAttempt
from allswell.worker.connection import SET_CAP
from allswell.worker.failures import sentence
from allswell.worker.presence import be_gone, be_present
from allswell.worker.queue import Token
from allswell.worker.shift import LATE, Shift
from allswell.worker.status import WorkerStatus

TELL_SECONDS = 5.0
"""How often the worker says how it is."""
TELL_LIMIT = 1.0
"""How long that may take, in seconds: long handlers wait meanwhile for their messages to be hidden."""
log = logging.getLogger("allswell.worker")


class Keeper:
    """The thread that hides messages for longer."""

    def __init__(self, shift: Shift, tell: Callable[[], WorkerStatus]) -> None:
        self._shift = shift
        self._tell = tell
        self._name = f"{socket.gethostname()}:{os.getpid()}:{time.time():.3f}"
        self._told = -inf
        self._over = threading.Event()
        self._connection: psycopg.Connection[Any] | None = None
        self._thread = threading.Thread(target=self._run, name="allswell-keeper", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Stop."""
        self._over.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        third = self._shift.plan.layers.visibility_timeout / 3
        while not self._over.wait(min(third / 4, 1.0)):
            now = time.monotonic()
            due = [
                attempt
                for attempt in self._shift.attempts()
                if attempt.handler is not None and attempt.handler.long and now - attempt.began >= third
            ]
            try:
                if due:
                    self._hide(due)
                if now - self._told >= TELL_SECONDS:
                    self._told = now
                    with self._said_within(TELL_LIMIT) as connection:
                        be_present(connection, self._name, self._tell())
            except psycopg.Error as error:
                log.warning("what must be kept up cannot be said to the database: %s", sentence(error))
                self._disconnect()
        with suppress(psycopg.Error), self._said_within(TELL_LIMIT) as connection:
            be_gone(connection, self._name)
        self._disconnect()

    def _hide(self, due: list[MessageAttempt]) -> None:
        visibility = self._shift.plan.layers.visibility_timeout
        since = time.monotonic()
        tokens = [attempt.taken.token for attempt in due]
        with self._said_within(visibility / 3) as connection:
            hidden, locked = self._shift.queue.hide(connection, tokens, visibility)
        lost: list[Token] = []
        for attempt in due:
            token = attempt.taken.token
            if token.id in hidden:
                attempt.hidden_again(since, visibility)
            elif token.id not in locked and self._shift.give_up(attempt):
                log.warning("message %s is somebody else's now: its handler is given up", token.id)
                self._shift.figures.ended(LATE)
                lost.append(token)
        if lost:
            with self._said_within(TELL_LIMIT) as connection:
                self._shift.queue.came_back(connection, lost)

    @contextmanager
    def _said_within(self, seconds: float) -> Iterator[psycopg.Connection[Any]]:
        """A transaction whose statements each end within so long: a lock must not let all others go."""
        connection = self._connected()
        with connection.transaction():
            connection.execute(SET_CAP, (str(max(round(seconds * 1_000), 1)),))
            yield connection

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            plan = self._shift.plan
            self._connection = psycopg.connect(plan.conninfo, autocommit=True, **plan.connecting())
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
