"""Reading messages: first a connection for each that may come, then the messages, then a handler for each.

The connections come first, so that waiting for one cannot eat a message's visibility. As many messages are read as
there are free slots, and each begins at once: none waits in a line with its time running. The ends of messages whose
handlers wrote nothing are written in the same transaction as the next reading.

Polling is the truth: a notification only makes the next look come sooner. PGMQ sends at most one in 250 ms, so after
one, or after a message, the next look comes soon as well.
"""

from __future__ import annotations

import logging
import threading
import time

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout

from allswell.domain.handling import FailedForGood, Retried, after_turning_away
from allswell.worker.connection import HandlerConnection
from allswell.worker.failures import sentence
from allswell.worker.limit import Limit
from allswell.worker.queue import Token
from allswell.worker.shift import LATE, Pending, Shift, write_end

log = logging.getLogger("allswell.worker")
SOON = 0.3
"""How soon is looked again after a message or a notification: PGMQ keeps quiet for 250 ms after one."""
TROUBLE_PAUSE = 1.0
"""The pause after a reading that failed."""


class Reader:
    """The thread that reads."""

    def __init__(self, shift: Shift) -> None:
        self._shift = shift
        self._over = False
        self._soon_until = 0.0
        self.seen = time.monotonic()
        """When it last came round."""
        self._thread = threading.Thread(target=self._run, name="allswell-reader", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def told(self) -> None:
        """There may be a message."""
        self._soon_until = time.monotonic() + SOON
        self._shift.wake.set()

    def stop(self, seconds: float) -> None:
        """Write the last ends and stop."""
        self._over = True
        self._shift.wake.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        shift = self._shift
        while True:
            over = self._over
            self.seen = time.monotonic()
            shift.wake.clear()
            pause = shift.plan.poll_interval
            try:
                if self._read():
                    pause = 0.0
                elif self.seen < self._soon_until:
                    pause = min(SOON, pause)
            except PoolClosed:
                return
            except PoolTimeout as error:
                shift.figures.exhausted()
                log.warning("no connection for a message: %s", sentence(error))
            except psycopg.Error as error:
                log.warning("messages cannot be read: %s", sentence(error))
                pause = TROUBLE_PAUSE
            except Exception:
                log.exception("messages cannot be read")
                pause = TROUBLE_PAUSE
            if over:
                return
            if pause:
                shift.wake.wait(pause)

    def _read(self) -> bool:
        """One look at the queue; whether there may be more."""
        shift = self._shift
        pending = shift.pending()
        free = shift.free()
        if not free and not pending:
            return False
        try:
            connections = shift.connections(max(free, 1))
        except BaseException:
            shift.postpone(pending)
            raise
        since = time.monotonic()
        first, layers = connections[0], shift.plan.layers
        first.limit = Limit(layers, since + layers.visibility_timeout)  # a locked table must not hold up the reader
        try:
            quiet = [one for one in pending if one[1] is None]
            most = min(free, len(connections))
            handled, busy, taken = shift.queue.finish_and_read(
                first, [token for token, _, _ in quiet], hide=layers.visibility_timeout, most=most
            )
            late = [token for token, _, _ in quiet if token.id not in handled and token.id not in busy]
            shift.queue.came_back(first, late)
            back = [
                (one.token, after_turning_away(one.history, place, layers.visibility_timeout), one)
                for place, one in enumerate(shift.turn_away(taken), start=1)
            ]
            ended = _write_ends(shift, first, [*pending, *back])
            first.limit = None
            first.commit()
        except BaseException:
            first.limit = None
            shift.postpone(pending)
            shift.give_back(connections)
            raise
        shift.put_off([one for one in quiet if one[0].id in busy])
        if handled:
            shift.figures.handled(len(handled))
        for _ in late:
            shift.figures.ended(LATE)
        for token, how, counted in ended:
            shift.tell_end(token, how, counted)
        if taken:
            self._soon_until = since + SOON
        turned_away = {token for token, _, _ in back}
        for message in taken:
            if message.token not in turned_away:
                shift.handle(message, connections.pop(), since)
        if connections:
            shift.give_back(connections)
        return bool(taken) and not connections


def _write_ends(
    shift: Shift, connection: HandlerConnection, pending: list[Pending]
) -> list[tuple[Token, Retried | FailedForGood, str]]:
    """Write the ends that came without success; gives what each is counted as."""
    ended = []
    for token, how, taken in pending:
        if how is None or taken is None:
            continue
        try:
            with connection.transaction():
                ended.append((token, how, write_end(shift.queue, connection, taken, how)))
        except psycopg.Error as error:
            if connection.broken:
                raise
            log.warning("the end of message %s cannot be written, it shows again: %s", token.id, sentence(error))
    return ended
