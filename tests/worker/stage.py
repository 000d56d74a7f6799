"""A queue seen from outside, by a connection that is no worker's: what is sent, what lies there, what was written."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg

from allswell.worker import Worker, send, setup
from tests import patience


class Stage:
    """One queue and a table `done` that handlers write into."""

    def __init__(self, url: str, queue: str) -> None:
        self.url = url
        self.queue = queue
        setup(url, queue)
        self.outside = psycopg.connect(url, autocommit=True)
        self.table = f"done_{queue}"
        self.execute(f"CREATE TABLE {self.table} (message bigint, said text)")

    def close(self) -> None:
        self.outside.close()

    def execute(self, query: str, *params: object) -> list[Any]:
        """A statement of an outsider."""
        cursor = self.outside.execute(query.encode(), params)
        return cursor.fetchall() if cursor.description else []

    def send(self, type_: str = "work", payload: object = None, **options: Any) -> int:
        return send(self.outside, self.queue, type_, payload, **options)

    def worker(self, url: str | None = None, **settings: Any) -> Worker:
        """A worker that looks often, so that no test waits for a poll."""
        return Worker(url or self.url, self.queue, **{"concurrency": 2, "poll_interval": 0.1, **settings})

    def write(self, connection: psycopg.Connection[Any], message: int, said: str = "") -> None:
        """What a handler does to leave a trace."""
        connection.execute(f"INSERT INTO {self.table} VALUES (%s, %s)".encode(), (message, said))

    def written(self) -> list[tuple[int, str]]:
        return self.execute(f"SELECT message, said FROM {self.table} ORDER BY message, said")

    def messages(self) -> list[tuple[int, int]]:
        """What lies in the queue: (id, count of readings)."""
        return self.execute(f"SELECT msg_id, read_ct FROM pgmq.q_{self.queue} ORDER BY msg_id")

    def archived(self) -> list[int]:
        return [id_ for (id_,) in self.execute(f"SELECT msg_id FROM pgmq.a_{self.queue} ORDER BY msg_id")]

    def trouble(self, message: int) -> tuple[str, str, int] | None:
        """The state, code and retries of a message that did not go through."""
        rows = self.execute(
            "SELECT state, code, retries FROM allswell_worker.trouble WHERE queue = %s AND msg_id = %s",
            self.queue,
            message,
        )
        return rows[0] if rows else None

    def reason(self, message: int) -> str:
        query = "SELECT reason FROM allswell_worker.trouble WHERE queue = %s AND msg_id = %s"
        return str(self.execute(query, self.queue, message)[0][0])

    def shows_in(self, message: int) -> float:
        """In how many seconds a message shows again."""
        query = f"SELECT extract(epoch FROM vt - clock_timestamp())::float8 FROM pgmq.q_{self.queue} WHERE msg_id = %s"
        return float(self.execute(query, message)[0][0])

    def show_now(self, message: int | None = None) -> None:
        """Turn the clock of every message forward, or of one."""
        query = f"UPDATE pgmq.q_{self.queue} SET vt = clock_timestamp() WHERE msg_id = coalesce(%s, msg_id)"
        self.execute(query, message)

    def take_elsewhere(self) -> None:
        """Somebody else reads the message, whose time is over; in one step, or the worker itself might be first."""
        with self.outside.transaction():
            self.show_now()
            assert len(self.execute("SELECT * FROM pgmq.read(%s, 600, 1)", self.queue)) == 1


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for what another thread does."""
    give_up = time.monotonic() + patience.SECONDS
    while not condition():
        assert time.monotonic() < give_up, f"it never came to: {what}"
        time.sleep(0.005)
