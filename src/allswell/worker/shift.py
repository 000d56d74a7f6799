"""One shift of a worker, from a start to a stop or a restart: its pool, its slots, and what is in them.

An attempt's life is `_attend`: the handler is called, and its end is written in the transaction that it wrote in. What
wrote nothing has nothing of its own to commit: its end is written by the reader, together with the next reading.

Whoever is given up (by the watcher, or at a stop) keeps its thread, which Python cannot stop, and its connection, which
is cut. Both are replaced at once: another thread takes the slot, and the pool may have one connection more until the
lost one comes back.
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
from contextlib import suppress

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from allswell.domain.handling import (
    BROKEN,
    UNKNOWN_TYPE,
    UNREADABLE,
    FailedForGood,
    MessageFailure,
    Quarantined,
    Retried,
    after_failure,
    after_giving_back,
    before_handling,
    on_trial,
)
from allswell.domain.message import BATCH, Message, Unreadable, read_body
from allswell.domain.retry import ErrorClass
from allswell.runtime.threads import Threads
from allswell.worker.async_connection import AsyncHandlerConnection
from allswell.worker.attempt import MessageAttempt
from allswell.worker.batches import end_of_batch
from allswell.worker.cancelled import Cancellations
from allswell.worker.connection import SET_CAP, HandlerConnection, check
from allswell.worker.failures import cancelled_by, sentence, told
from allswell.worker.figures import Figures
from allswell.worker.handler_loop import HandlerLoop
from allswell.worker.handlers import Handlers
from allswell.worker.operator_desk import OperatorDesk
from allswell.worker.plan import WorkerPlan
from allswell.worker.queue import Queue, Taken, Token

log = logging.getLogger("allswell.worker")
_CANCELLATIONS = Cancellations()
IN_HAND_SECONDS = 30.0
"""A connection that goes from handler to handler goes through the pool at least so often: it may be too old."""
MORE_SECONDS = 0.05
"""How long is waited for a second connection and further ones: one is enough to go on."""
GIVE_BACK_SECONDS = 2
"""How long each step of giving messages back may take at a stop: they show again by themselves, only later."""
LATE, GIVEN_BACK = "late", "given_back"
"""What ends are counted as whose message was somebody else's by then, or is handled later."""
Pending = tuple[Token, Retried | FailedForGood | None, Taken | None]


class Shift:
    """What a worker has while it works."""

    def __init__(self, plan: WorkerPlan, handlers: Handlers, figures: Figures, desk: OperatorDesk) -> None:
        self.plan = plan
        self._desk = desk
        self.figures = figures
        self.queue = Queue(plan.queue)
        self.handlers = handlers
        self.pool: ConnectionPool[HandlerConnection] = ConnectionPool(
            plan.conninfo,
            connection_class=HandlerConnection,
            kwargs=plan.connecting(),
            min_size=plan.min_size,
            max_size=plan.max_size,
            timeout=plan.layers.pool_timeout,
            max_lifetime=plan.max_lifetime,
            max_idle=plan.max_idle,
            reconnect_timeout=plan.reconnect_timeout,
            check=check,
            open=False,
            name=f"allswell-worker-{plan.queue}",
        )
        self.wake = threading.Event()
        """Set when the reader has something to do."""
        self.stopping = False
        """No message is read any more."""
        self._loop = HandlerLoop()
        self._threads = Threads(plan.layers.concurrency, name="allswell-handler")
        self._lock = threading.Condition()
        self._attempts: dict[MessageAttempt, None] = {}
        self._lost = 0
        self._ready: list[HandlerConnection] = []
        self._pending: list[Pending] = []

    # --- for the reader -----------------------------------------------------------------------------------------------

    def free(self) -> int:
        """How many messages may be read now."""
        return 0 if self.stopping else self.plan.layers.concurrency - len(self._attempts)

    def attempts(self) -> list[MessageAttempt]:
        """What is being handled."""
        with self._lock:
            return list(self._attempts)

    def connections(self, most: int) -> list[HandlerConnection]:
        """Up to so many connections, one at least; `PoolTimeout` where none can be had."""
        with self._lock:
            taken = [self._ready.pop() for _ in range(min(most, len(self._ready)))]
        if not taken:
            taken.append(self._taken(None))
        with suppress(PoolTimeout):
            while len(taken) < most:
                taken.append(self._taken(MORE_SECONDS))
        return taken

    def _taken(self, seconds: float | None) -> HandlerConnection:
        connection = self.pool.getconn(timeout=seconds)
        connection.taken = time.monotonic()
        return connection

    def give_back(self, connections: list[HandlerConnection]) -> None:
        """Return connections, and all that wait for a message, to the pool."""
        with self._lock:
            connections = connections + self._ready
            self._ready = []
        for connection in connections:
            self.pool.putconn(connection)

    def pending(self) -> list[Pending]:
        """Take over the ends that are to be written with the next reading."""
        with self._lock:
            taken, self._pending = self._pending, []
        return taken

    def postpone(self, pending: list[Pending]) -> None:
        """Have ends written with the next reading, at once."""
        self.put_off(pending)
        self.wake.set()

    def put_off(self, pending: list[Pending]) -> None:
        """Have ends written with the next reading, whenever that is."""
        with self._lock:
            self._pending = pending + self._pending

    def turn_away(self, taken: list[Taken]) -> list[Taken]:
        """Of messages that were just read, those that must wait: one is on trial, and one alone is at a time."""
        tried = [one for one in taken if self._on_trial(one)]
        busy = tried and any(self._on_trial(attempt.taken) for attempt in self.attempts())
        return tried if busy else tried[1:]

    def _on_trial(self, taken: Taken) -> bool:
        return on_trial(taken.token.read_count, taken.history, self.plan.messages)

    def handle(self, taken: Taken, connection: HandlerConnection, since: float) -> None:
        """Start the handler of a message that was read."""
        body = read_body(taken.body)
        handler = None if isinstance(body, Unreadable) else self.handlers.get(body[0])
        attempt = MessageAttempt(taken, connection, handler, self.plan.layers, since)
        with self._lock:
            self._attempts[attempt] = None
        try:
            attempt.call = self._threads.call(lambda: self._attend(attempt))
        except RuntimeError as error:  # the system has no thread left for us
            log.warning("message %s cannot be handled now, and shows again: %s", taken.token.id, error)
            self._release(attempt)

    # --- the life of an attempt, in its own thread --------------------------------------------------------------------

    def _attend(self, attempt: MessageAttempt) -> None:
        attempt.begin()
        try:
            failure = self._perform(attempt)
            if not attempt.given_up:
                self._end(attempt, failure)
        except Exception:
            log.exception("the end of message %s could not be written", attempt.taken.token.id)
        finally:
            self._release(attempt)

    def _perform(self, attempt: MessageAttempt) -> MessageFailure | Quarantined | None:
        """Call the handler; what went wrong, or None."""
        taken = attempt.taken
        poison = before_handling(taken.token.read_count, taken.history, self.plan.messages)
        if poison is not None:
            return poison
        body = read_body(taken.body)
        if isinstance(body, Unreadable):
            return MessageFailure(ErrorClass.VALIDATION, UNREADABLE, body.why)
        if attempt.handler is None:
            known = ", ".join(self.handlers.types()) or "none"
            text = f"no handler for type {body[0]!r} (there are: {known})"
            return MessageFailure(ErrorClass.VALIDATION, UNKNOWN_TYPE, text)
        message = Message(self.plan.queue, taken.token.id, taken.token.read_count, *body, taken.headers)
        try:
            if attempt.handler.is_async:
                self._perform_async(attempt, message)
            else:
                _refuse_coroutine(attempt.handler.function(message, attempt.connection))
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is the message's, not the thread's
            return self._judge(attempt, error)
        return None

    def _perform_async(self, attempt: MessageAttempt, message: Message) -> None:
        assert attempt.handler is not None  # noqa: S101 - looked at by the caller
        function = attempt.handler.function
        view = AsyncHandlerConnection(attempt.connection, attempt.limit)
        attempt.async_call = self._loop.begin(lambda: function(message, view))
        try:
            attempt.async_call.wait()
        finally:
            view.limit = None  # a task that it left behind would write into the next handler's transaction

    def _judge(self, attempt: MessageAttempt, error: BaseException) -> MessageFailure:
        if isinstance(error, PoolTimeout):  # of a handler that wanted one more
            self.figures.exhausted()
        if attempt.given_up or not isinstance(error, psycopg.errors.QueryCanceled):
            if isinstance(error, psycopg.errors.OperationalError):
                log.warning("message %s: %s", attempt.taken.token.id, sentence(error))
            return told(error)
        by_timeout = False
        with suppress(psycopg.Error):
            attempt.connection.clean()
            by_timeout = _CANCELLATIONS.by_timeout(error, attempt.connection, attempt.limit)
        if by_timeout:
            log.warning("Query cancelled due to timeout: %s", attempt.taken.token.id)
        return cancelled_by(error, by_timeout=by_timeout)

    def _end(self, attempt: MessageAttempt, failure: MessageFailure | Quarantined | None) -> None:
        """Write down how it ended."""
        if failure is None:
            failure = _spoilt(attempt)
        if failure is None:
            try:
                self._finish(attempt)
            except psycopg.Error as error:
                failure = self._judge(attempt, error)
        if failure is None or attempt.given_up:
            return
        history = attempt.taken.history
        how = failure if isinstance(failure, Quarantined) else after_failure(failure, history, self.plan.messages)
        if isinstance(how, Quarantined):
            self._desk.hand_over(attempt.taken, _type_of(attempt.taken), how)
            return
        try:
            attempt.connection.clean()
            counted = write_end(self.queue, attempt.connection, attempt.taken, how)
            attempt.connection.commit()
        except psycopg.Error:  # its connection is gone: the reader writes it on another
            self.postpone([(attempt.taken.token, how, attempt.taken)])
        else:
            self.tell_end(attempt.taken.token, how, counted)

    def tell_end(self, token: Token, how: Retried | FailedForGood, counted: str) -> None:
        """Log and count an end without success, now that it is written."""
        self.figures.ended(counted)
        if counted == LATE:
            log.warning("message %s was given to somebody else: how it ended here is not kept", token.id)
        elif isinstance(how, FailedForGood):
            log.info("message %s ended as failed (%s): %s", token.id, how.code, how.reason)
        elif counted != GIVEN_BACK:
            text = "message %s failed (%s), tried again in %g s (retry %d)"
            log.warning(text, token.id, how.code, how.delay / 1_000, how.history.retries)

    def _finish(self, attempt: MessageAttempt) -> None:
        connection, token = attempt.connection, attempt.taken.token
        if connection.idle and BATCH not in attempt.taken.headers:
            self.put_off([(token, None, None)])  # the reader is woken when the slot is free, and reads as well
            return
        attempt.limit.begin_anew()
        held = self.queue.finish(connection, token)
        if held:
            end_of_batch(connection, attempt.taken.headers)
        connection.limit = None
        if held and not attempt.given_up:
            connection.commit()
            self.figures.handled()
        else:
            connection.rollback()
            log.warning("message %s was given to somebody else: what its handler wrote is not kept", token.id)
            self.figures.ended(LATE)
            with suppress(psycopg.Error):  # then it is held against the message, which stays in the queue
                self.queue.came_back(connection, [token])
                connection.commit()

    def _release(self, attempt: MessageAttempt) -> None:
        """Hand the connection on, and the slot."""
        connection = attempt.connection
        if not attempt.end():
            log.warning("message %s: its handler came back after it was given up", attempt.taken.token.id)
            connection.limit = None
            connection.close()
            self.pool.putconn(connection)
            self._lose(-1)
            return
        try:
            connection.clean()
        except Exception:  # noqa: BLE001 - whatever it is, the slot must come free
            connection.close()
        with self._lock:
            self._attempts.pop(attempt, None)
            fresh = not connection.closed and time.monotonic() - connection.taken < IN_HAND_SECONDS
            kept = fresh and not self.stopping
            if kept:
                self._ready.append(connection)
            self._lock.notify_all()
        if not kept:
            self.pool.putconn(connection)
        self.wake.set()

    # --- giving up ----------------------------------------------------------------------------------------------------

    def give_up(self, attempt: MessageAttempt) -> bool:
        """Free an attempt's slot and cut its connection; whether it was still there."""
        if not attempt.give_up():
            return False
        with self._lock:
            self._attempts.pop(attempt, None)
            self._lock.notify_all()
        self._lose(1)
        attempt.cut()
        self.wake.set()
        return True

    def _lose(self, connections: int) -> None:
        with self._lock:
            self._lost += connections
            lost = self._lost
        with suppress(psycopg.Error):
            self.pool.resize(self.plan.min_size + lost, self.plan.max_size + lost)

    def drain(self, seconds: float) -> list[MessageAttempt]:
        """Wait for what runs, at most so long; gives what had to be given up."""
        give_up_at = time.monotonic() + seconds
        with self._lock:
            while self._attempts and (left := give_up_at - time.monotonic()) > 0:
                self._lock.wait(left)
        return [attempt for attempt in self.attempts() if self.give_up(attempt)]

    def give_back_messages(self, attempts: list[MessageAttempt]) -> None:
        """Let others have the messages of attempts that were given up at a stop, at once and without blame."""
        if not attempts:
            return
        connecting = {**self.plan.connecting(), "connect_timeout": GIVE_BACK_SECONDS}
        with psycopg.connect(self.plan.conninfo, **connecting) as connection:
            connection.execute(SET_CAP, (str(GIVE_BACK_SECONDS * 1_000),))
            for attempt in attempts:
                taken = attempt.taken
                self.figures.ended(write_end(self.queue, connection, taken, after_giving_back(taken.history)))

    def close(self) -> None:
        """Let go of everything; what still runs is not waited for."""
        self._loop.close()
        self.give_back([])
        self.pool.close(timeout=1.0)


def write_end(queue: Queue, connection: psycopg.Connection[object], taken: Taken, how: Retried | FailedForGood) -> str:
    """Write down how a reading ended without success, if its token still holds; what it is counted as."""
    if not queue.record(connection, taken.token, how, taken.history):
        queue.came_back(connection, [taken.token])
        return LATE
    if isinstance(how, FailedForGood):
        end_of_batch(connection, taken.headers)
        return "failed"
    return "retried" if how.code else GIVEN_BACK


def _type_of(taken: Taken) -> str:
    body = read_body(taken.body)
    return "" if isinstance(body, Unreadable) else body[0]


def _refuse_coroutine(returned: object) -> None:
    """A handler that is async behind a wrapper that is not: nothing of it has run."""
    if inspect.iscoroutine(returned):
        returned.close()
        raise TypeError("the handler returned a coroutine, which is never awaited: make what wraps it `async def` too")


def _spoilt(attempt: MessageAttempt) -> MessageFailure | None:
    """What a handler that returned may have left behind that cannot be committed."""
    connection = attempt.connection
    if connection.closed:
        text = "the handler returned, but its connection is closed: what it wrote is lost"
        return MessageFailure(ErrorClass.TRANSIENT, BROKEN, text)
    if connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR:
        text = "the handler returned, but a statement of it had failed: what it wrote cannot be committed"
        return MessageFailure(ErrorClass.TRANSIENT, BROKEN, text)
    if attempt.limit.in_force is not None and connection.idle:
        text = "the handler ended its transaction itself (COMMIT or ROLLBACK as SQL): that is the worker's to do"
        return MessageFailure(ErrorClass.BUG, BROKEN, text)
    return None
