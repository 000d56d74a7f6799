"""Listening for new messages: PGMQ notifies `pgmq.q_NAME.INSERT`, and the reader then looks at once.

Only a hint. Behind a pooler in transaction mode nothing ever comes, and nothing is lost: the reader polls anyway.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import psycopg
from psycopg import sql

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
                    channel = sql.Identifier(Queue(self._plan.queue).channel)
                    connection.execute(sql.SQL("LISTEN {}").format(channel))
                    self._tell()  # of what came before
                    pause = FIRST_PAUSE
                    while not self._over.is_set():
                        for _ in connection.notifies(timeout=TURN, stop_after=1):
                            self._tell()
            except psycopg.Error as error:
                log.info("cannot listen for messages, polling goes on: %s", str(error).strip())
                self._over.wait(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
