"""Huey on SQLite with its own consumer: `workers` threads, every change synced to the disk as ours are."""

import logging
import time

from huey import SqliteHuey
from protocol import Contestant, serve

logging.disable(logging.WARNING)


class Racer(Contestant):
    """One Huey."""

    def __init__(self, place: str, settings: dict) -> None:
        super().__init__(place, settings)
        self._huey = huey = SqliteHuey(filename=place.removeprefix("sqlite:///"), fsync=True, results=False)
        self._done = 0

        @huey.task()
        def noop() -> None:
            self._done += 1

        @huey.task()
        def stamped(sent: float) -> None:
            self.picked(sent)

        self._noop, self._stamped = noop, stamped

    def enqueue(self, count: int) -> None:
        """One by one: there is no other way."""
        for _ in range(count):
            self._noop()

    def drain(self) -> float:
        """Its consumer, until every task has run."""
        expected = self._done + self._huey.pending_count()
        consumer = self._huey.create_consumer(
            workers=self.settings["workers"], periodic=False, initial_delay=0.001, max_delay=0.01
        )
        consumer.start()
        while self._done < expected:
            time.sleep(0.002)
        ended = time.time()
        consumer.stop(graceful=True)
        return ended

    def stamp(self) -> None:
        """One task."""
        self._stamped(time.time())

    def watch(self) -> None:
        """Its consumer, which polls with a growing pause."""
        self._huey.create_consumer(workers=1, periodic=False, initial_delay=0.01, max_delay=0.05).run()


if __name__ == "__main__":
    serve(Racer)
