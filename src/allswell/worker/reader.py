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

import msgspec
import psycopg
from psycopg import sql
from psycopg_pool import PoolClosed, PoolTimeout

from allswell.domain.worker.message import FailedForGood, Retried, after_turning_away
from allswell.errors import Unavailable
from allswell.store.postgres.connection import is_pooled
from allswell.worker.connection import HandlerConnection, Limit
from allswell.worker.errors import sentence
from allswell.worker.handlers import WorkerPlan
from allswell.worker.metrics import RepeatedLog
from allswell.worker.queue import Queue, QueueMessage, QueueToken, statement
from allswell.worker.session import LATE, Pending, WorkerSession, write_end

log = logging.getLogger("allswell.worker")
repeated = RepeatedLog(log)
SOON = 0.3
"""How soon is looked again after a message or a notification: PGMQ keeps quiet for 250 ms after one."""
UNHEARD_PAUSE, UNHEARD_SECONDS = 0.1, 10.0
"""Where nothing is told of (PGMQ before 1.8, a pooler), how often is looked, and for how long after a message."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""The pause after a reading that failed doubles, up to this: a server that is back must not wait."""
BLIND_SECONDS = 5.0
"""A worker that could read nothing for so long is not ready."""


class Reader:
    """The thread that reads."""

    def __init__(self, shift: WorkerSession) -> None:
        self._shift = shift
        self._over = threading.Event()
        self._soon_until = 0.0
        self.seen = time.monotonic()
        """When it last came round."""
        self.hears = False
        """Whether new messages are told of."""
        self._wanted_since: float | None = None
        """Since when it wants to read and cannot."""
        self._trouble = ""
        """Why the last reading failed."""
        self._failed = 0
        """How many readings have failed in a row."""
        self._reading = threading.Lock()
        """Held in the middle of a reading."""
        self._thread = threading.Thread(target=self._run, name="allswell-reader", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def told(self) -> None:
        """There may be a message."""
        self._soon_until = time.monotonic() + SOON
        self._shift.wake.set()

    def wait_for_reading(self, seconds: float) -> None:
        """Wait for the end of a reading that is under way, at most so long: it may still take messages."""
        if self._reading.acquire(timeout=seconds):
            self._reading.release()

    def stop(self, seconds: float) -> None:
        """Write the last ends and stop."""
        self._over.set()
        self._shift.wake.set()
        self._thread.join(seconds)

    def blind(self) -> str:
        """Why nothing could be read for `BLIND_SECONDS`; empty where messages can be read."""
        since = self._wanted_since
        if since is None or (seconds := time.monotonic() - since) < BLIND_SECONDS:
            return ""
        why = self._shift.reaching.error or self._trouble or "the database does not answer"
        return f"nothing could be read for {seconds:.0f} s: {why}"

    def _run(self) -> None:
        shift = self._shift
        while True:
            over = self._over.is_set()
            self.seen = time.monotonic()
            shift.wake.clear()
            pause = shift.plan.poll_interval
            try:
                with self._reading:
                    more = self._read()
                if more:
                    pause = 0.0
                elif self.seen < self._soon_until:
                    pause = min(SOON if self.hears else UNHEARD_PAUSE, pause)
            except PoolClosed:
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and reading goes on
                pause = self._after_trouble(error)
            if over:
                return
            if self._failed:
                self._over.wait(pause)  # not for a message: there may be an end to be written, which wakes at once
            elif pause:
                shift.wake.wait(pause)

    def _after_trouble(self, error: Exception) -> float:
        """Tell of a reading that failed; how long to pause."""
        shift = self._shift
        self._failed += 1
        pause = min(FIRST_PAUSE * 2.0 ** min(self._failed - 1, 10), LONGEST_PAUSE)
        if not isinstance(error, psycopg.Error):
            self._trouble = f"{type(error).__name__}: {error}"
            repeated.write(logging.ERROR, self._trouble, "messages cannot be read", error=error)
            return pause
        self._trouble = sentence(error)
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            self._trouble += f" (see `allswell worker setup {shift.plan.queue} --print-grants`)"
        if not isinstance(error, PoolTimeout):
            repeated.write(logging.WARNING, self._trouble, "messages cannot be read: %s", self._trouble)
        elif away := shift.reaching.error:
            repeated.write(logging.WARNING, away, "messages cannot be read, the server cannot be reached: %s", away)
        else:
            shift.figures.exhausted()
            log.warning("no connection for a message: %s", self._trouble)
        return pause

    def _read(self) -> bool:
        """One look at the queue; whether there may be more."""
        shift = self._shift
        free = shift.free()
        if waiting := shift.next_in_line(free):
            return self._handle_line(waiting)
        pending = shift.pending()
        ahead = shift.ahead()
        if not free and not pending and not ahead:
            self._wanted_since = None
            return False
        since = time.monotonic()
        if self._wanted_since is None:
            self._wanted_since = since
        try:
            connections = shift.connections(max(free, 1))
        except BaseException:
            shift.put_off(pending)
            raise
        since = time.monotonic()
        first, layers = connections[0], shift.plan.layers
        first.limit = Limit(layers, since + layers.visibility_timeout)  # a locked table must not hold up the reader
        try:
            slots = 0 if shift.stopping else min(free, len(connections))
            beyond = ahead if slots == free and not shift.stopping else 0
            exchange = _exchange(shift, first, pending, slots + beyond)
            first.limit = None
            first.commit()
        except BaseException:
            first.limit = None
            broken = first.broken or first.closed
            shift.put_off(pending)
            shift.give_back(connections)
            if broken:
                shift.lost_connection(first)
            raise
        self._wanted_since, self._failed, self._trouble = None, 0, ""
        exchange.settle(shift, pending)
        if exchange.taken:
            self._soon_until = since + (SOON if self.hears else UNHEARD_SECONDS)
        for message in exchange.taken[:slots]:
            shift.handle(message, connections.pop(), since)
        shift.line_up(exchange.taken[slots:], since)
        if connections:
            shift.give_back(connections)
        return len(exchange.taken) >= slots > 0

    def _handle_line(self, waiting: list[tuple[QueueMessage, float]]) -> bool:
        """Have free slots handle what was read ahead."""
        shift = self._shift
        try:
            connections = shift.connections(len(waiting))
        except BaseException:
            for taken, since in waiting:
                shift.line_up([taken], since)
            raise
        for taken, since in waiting:
            if connections:
                shift.handle(taken, connections.pop(), since)
            else:
                shift.line_up([taken], since)
        return True


class QueueExchange(msgspec.Struct, frozen=True):
    """What came of one transaction with the queue."""

    handled: set[int]
    busy: list[Pending]
    """Ends that wait for a lock on their message."""
    late: list[QueueToken]
    ended: list[tuple[QueueToken, Retried | FailedForGood, str]]
    taken: list[QueueMessage]
    """Messages to be handled now."""

    def settle(self, shift: WorkerSession, pending: list[Pending]) -> None:
        """Count and log what was written."""
        shift.put_off(self.busy)
        for one in pending:
            if one.how is not None:
                shift.in_hand.let_go(one.token)
        if self.handled:
            shift.figures.handled(len(self.handled))
        for _ in self.late:
            shift.figures.ended(LATE)
        for token, how, counted in self.ended:
            shift.tell_end(token, how, counted)


def _exchange(shift: WorkerSession, connection: HandlerConnection, pending: list[Pending], most: int) -> QueueExchange:
    """Write the ends that wait, and read up to so many messages, in one transaction that the caller ends."""
    hide = shift.plan.layers.visibility_timeout
    quiet = {one.token: one for one in pending if one.how is None}
    handled, busy, taken = shift.queue.finish_and_read(connection, list(quiet), hide=hide, most=most)
    late = [token for token in quiet if token.id not in handled and token.id not in busy]
    shift.queue.came_back(connection, {token: quiet[token].too_slow for token in late})
    held = {one.token: more for one in taken if (more := shift.in_hand.more(one.token)) is not None}
    if held:
        shift.queue.unread(connection, held)
        taken = [one for one in taken if one.token not in held]
    back = [
        Pending(one.token, after_turning_away(one.history, place, hide), one)
        for place, one in enumerate(shift.turn_away(taken), start=1)
    ]
    ended = _write_ends(shift, connection, [*pending, *back])
    turned_away = {one.token for one in back}
    return QueueExchange(
        handled,
        [one for token, one in quiet.items() if token.id in busy],
        late,
        ended,
        [one for one in taken if one.token not in turned_away],
    )


def _write_ends(
    shift: WorkerSession, connection: HandlerConnection, pending: list[Pending]
) -> list[tuple[QueueToken, Retried | FailedForGood, str]]:
    """Write the ends that came without success; gives what each is counted as."""
    ended = []
    for one in pending:
        token, how, taken = one.token, one.how, one.taken
        if how is None or taken is None:
            continue
        try:
            with connection.transaction():
                ended.append((token, how, write_end(shift.queue, connection, taken, how, one.too_slow)))
        except psycopg.Error as error:
            if connection.broken:
                raise
            log.warning("the end of message %s cannot be written, it shows again: %s", token.id, sentence(error))
    return ended


# Listening for new messages: PGMQ notifies `pgmq.q_NAME.INSERT`, and the reader then looks at once.
#
# Only a hint: the reader polls anyway. Behind a pooler nothing is listened for. Nothing would come, and the session
# that said LISTEN would be somebody else's afterwards, who then hears of our messages.

FIRST_LISTEN_PAUSE, LONGEST_LISTEN_PAUSE = 0.5, 30.0
TURN = 1.0
"""How often it looks whether to stop."""


class BackgroundThread:
    """A thread of a worker's that runs until it is told to stop."""

    def __init__(self, name: str) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Tell it to stop; it is not waited for."""
        self._over.set()

    def _run(self) -> None:
        raise NotImplementedError


class Listener(BackgroundThread):
    """The thread that listens, on a connection of its own."""

    def __init__(self, plan: WorkerPlan, reader: Reader) -> None:
        super().__init__("allswell-listener")
        self._plan = plan
        self._reader = reader

    def _run(self) -> None:
        pause = FIRST_LISTEN_PAUSE
        while not self._over.is_set():
            try:
                with psycopg.connect(self._plan.conninfo, autocommit=True, **self._plan.connecting()) as connection:
                    if is_pooled(connection, self._plan.queue):
                        log.info("a pooler is in front of the database: the worker polls for messages")
                        return
                    queue = Queue(self._plan.queue)
                    connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(queue.channel)))
                    notifies = connection.execute(statement("notifies"), (f'pgmq."{queue.table}"',)).fetchone()
                    self._reader.hears = bool(notifies and notifies[0])
                    self._reader.told()  # of what came before
                    pause = FIRST_LISTEN_PAUSE
                    while not self._over.is_set():
                        for _ in connection.notifies(timeout=TURN, stop_after=1):
                            self._reader.told()
            except (psycopg.Error, Unavailable) as error:
                self._reader.hears = False
                why = sentence(error) if isinstance(error, psycopg.Error) else str(error)
                log.info("cannot listen for messages, polling goes on: %s", why)
                self._over.wait(pause)
                pause = min(pause * 2, LONGEST_LISTEN_PAUSE)
