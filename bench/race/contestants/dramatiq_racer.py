"""Dramatiq on Redis with its own worker: `threads` threads in this process."""

import logging
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from protocol import Contestant, serve

logging.disable(logging.WARNING)


class Racer(Contestant):
    """One broker."""

    def __init__(self, place: str, settings: dict) -> None:
        super().__init__(place, settings)
        self._broker = broker = RedisBroker(url=f"unix://{place}", namespace=settings["namespace"])
        dramatiq.set_broker(broker)

        @dramatiq.actor(queue_name="race")
        def noop() -> None:
            pass

        @dramatiq.actor(queue_name="stamped")
        def stamped(sent: float) -> None:
            self.picked(sent)

        self._noop, self._stamped = noop, stamped

    def enqueue(self, count: int) -> None:
        """One by one: there is no other way."""
        for _ in range(count):
            self._noop.send()

    def drain(self) -> float:
        """Its worker, until nothing is queued or unacknowledged."""
        worker = dramatiq.Worker(self._broker, queues={"race"}, worker_threads=self.settings["threads"])
        worker.start()
        while self._broker.do_qsize("race"):
            time.sleep(0.002)
        ended = time.time()
        worker.stop()
        return ended

    def stamp(self) -> None:
        """One message."""
        self._stamped.send(time.time())

    def watch(self) -> None:
        """Its worker."""
        worker = dramatiq.Worker(self._broker, queues={"stamped"}, worker_threads=1)
        worker.start()
        while True:
            time.sleep(1)


if __name__ == "__main__":
    serve(Racer)
