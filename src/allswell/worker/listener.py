"""Listening for new messages: PGMQ notifies `pgmq.q_NAME.INSERT`, and the reader then looks at once.

Only a hint: the reader polls anyway. Behind a pooler nothing is listened for. Nothing would come, and the session that
said LISTEN would be somebody else's afterwards, who then hears of our messages.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import psycopg
from psycopg import sql

from allswell.errors import Unavailable
from allswell.store.postgres.connection import is_pooled
from allswell.worker.failures import sentence
from allswell.worker.plan import WorkerPlan
from allswell.worker.queue import Queue

log = logging.getLogger("allswell.worker")
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
TURN = 1.0
"""How often it looks whether to stop."""


class Listener:
    """The thread that listens, on a connection of its own."""

    def __init__(self, plan: WorkerPlan, tell: Callable[[], None]) -> None:
        self._plan = plan
        self._tell = tell
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="allswell-listener", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Listen no more."""
        self._over.set()

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while not self._over.is_set():
            try:
                with psycopg.connect(self._plan.conninfo, autocommit=True, **self._plan.connecting()) as connection:
                    if is_pooled(connection, self._plan.queue):
                        log.info("a pooler stands before the database: messages are polled for, not listened for")
                        return
                    channel = sql.Identifier(Queue(self._plan.queue).channel)
                    connection.execute(sql.SQL("LISTEN {}").format(channel))
                    self._tell()  # of what came before
                    pause = FIRST_PAUSE
                    while not self._over.is_set():
                        for _ in connection.notifies(timeout=TURN, stop_after=1):
                            self._tell()
            except (psycopg.Error, Unavailable) as error:
                why = sentence(error) if isinstance(error, psycopg.Error) else str(error)
                log.info("cannot listen for messages, polling goes on: %s", why)
                self._over.wait(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
