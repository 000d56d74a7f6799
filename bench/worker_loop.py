"""A plain loop over a PGMQ queue, as one writes it in an afternoon: what the worker is measured against (`worker.py`).

Threads with a connection each read ten messages at a time; each message is handled and deleted in a transaction of its
own. It limits no statement, sees no handler that hangs, retries nothing, and asks nobody. When the server goes away it
connects again twice a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Self

import psycopg

READ = "SELECT msg_id, message FROM pgmq.read(%s, 30, 10)"
DELETE = "SELECT pgmq.delete(%s, %s::bigint)"
Handle = Callable[[int, Any, psycopg.Connection[Any]], None]


class PlainLoop:
    """So many threads that handle the messages of a queue."""

    def __init__(self, url: str, queue: str, handle: Handle, threads: int) -> None:
        self._url, self._queue, self._handle = url, queue, handle
        self._over = threading.Event()
        self._counts = [0] * threads
        self._threads = [threading.Thread(target=self._run, args=(place,), daemon=True) for place in range(threads)]

    @property
    def handled(self) -> int:
        """Messages that were handled."""
        return sum(self._counts)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(10)

    def _run(self, place: int) -> None:
        while not self._over.is_set():
            try:
                with psycopg.connect(self._url, prepare_threshold=None) as connection:
                    self._work(connection, place)
            except psycopg.OperationalError:
                time.sleep(0.5)

    def _work(self, connection: psycopg.Connection[Any], place: int) -> None:
        while not self._over.is_set():
            rows = connection.execute(READ, (self._queue,)).fetchall()
            connection.commit()
            for id_, message in rows:
                self._handle(id_, message, connection)
                connection.execute(DELETE, (self._queue, id_))
                connection.commit()
                self._counts[place] += 1
            if not rows:
                self._over.wait(0.1)
