"""One shift of a worker, from a start to a stop or a restart: its pool, its slots, and what is in them.

An attempt's life is `_attend`: the handler is called, and its end is written in the transaction that it wrote in. What
wrote nothing has nothing of its own to commit: its end is written by the reader, together with the next reading.

**Ahead.** Where handlers are quick, a reading for each of them would cost more than they do. So a few messages more are
read than slots are free, and whichever slot ends takes the next of them on its own connection. They wait for moments
only: the watcher gives back what has waited for a second, and nothing is read ahead of handlers that take long.

Whoever is given up (by the watcher, or at a stop) keeps its thread, which Python cannot stop, and its connection, which
is cut. Both are replaced at once: another thread takes the slot, and the pool may have one connection more until the
lost one comes back.
"""

from __future__ import annotations

import contextvars
import inspect
import logging
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

import msgspec
import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from allswell.domain.service.classify import shortened
from allswell.domain.service.retry import ErrorClass
from allswell.domain.worker.message import (
    BATCH,
    BROKEN,
    UNKNOWN_TYPE,
    UNREADABLE,
    FailedForGood,
    Message,
    MessageFailure,
    Quarantined,
    Retried,
    Unreadable,
    after_failure,
    after_giving_back,
    before_handling,
    on_trial,
    read_body,
)
from allswell.runtime.calls import Threads
from allswell.timing.scopes import Scope
from allswell.worker.attempt import HandlerLoop, MessageAttempt, MessagesInHand
from allswell.worker.connection import (
    SET_CAP,
    AsyncHandlerConnection,
    Cancellations,
    HandlerConnection,
    ServerReachability,
    check,
)
from allswell.worker.errors import BusinessFailure, cancelled_by, sentence, told
from allswell.worker.escalation import MessageEscalation
from allswell.worker.handlers import Handlers, WorkerPlan
from allswell.worker.metrics import RepeatedLog, WorkerMetrics
from allswell.worker.queue import Queue, QueueMessage, QueueToken, end_of_batch

log = logging.getLogger("allswell.worker")
repeated = RepeatedLog(log)
_OURS = str(Path(__file__).parent)
_CANCELLATIONS = Cancellations()
IN_HAND_SECONDS = 30.0
"""A connection that goes from handler to handler goes through the pool at least so often: it may be too old."""
MORE_SECONDS = 0.05
"""How long is waited for a second connection and further ones: one is enough to go on."""
QUICK_SECONDS, MOST_AHEAD = 0.02, 50
"""Handlers that take no longer than this are read ahead for, so many messages at most."""
LINE_SECONDS = 1.0
"""How long a message that was read ahead may wait."""
GIVE_BACK_SECONDS = 2
"""How long each step of giving messages back may take at a stop: they show again by themselves, only later."""
LATE, GIVEN_BACK = "late", "given_back"
"""What ends are counted as whose message was somebody else's by then, or is handled later."""


class Pending(msgspec.Struct, frozen=True):
    """An end that is to be written together with the next reading."""

    token: QueueToken
    how: Retried | FailedForGood | None = None
    """None: it was handled."""
    taken: QueueMessage | None = None
    too_slow: str = ""


class WorkerSession:
    """What a worker has while it works."""

    def __init__(
        self,
        plan: WorkerPlan,
        handlers: Handlers,
        figures: WorkerMetrics,
        desk: MessageEscalation,
        in_hand: MessagesInHand,
        loop: HandlerLoop,
    ) -> None:
        self.in_hand = in_hand
        self.plan = plan
        self._desk = desk
        self.figures = figures
        self.queue = Queue(plan.queue)
        self.handlers = handlers
        self.reaching = ServerReachability(plan.reconnect_timeout)
        self.pool: ConnectionPool[HandlerConnection] = ConnectionPool(
            plan.conninfo,
            connection_class=HandlerConnection,
            kwargs={**plan.connecting(), "reaching": self.reaching},
            min_size=plan.min_size,
            max_size=plan.max_size,
            timeout=plan.layers.pool_timeout,
            max_lifetime=plan.max_lifetime,
            max_idle=plan.max_idle,
            reconnect_timeout=plan.reconnect_timeout,
            check=self._check,
            open=False,
            name=f"allswell-worker-{plan.queue}",
        )
        self.wake = threading.Event()
        """Set when the reader has something to do."""
        desk.when_drained = self.wake.set
        self.stopping = False
        """No message is read any more."""
        self._loop = loop
        self._threads = Threads(plan.layers.concurrency, name="allswell-handler")
        self._lock = threading.Condition()
        self._attempts: dict[MessageAttempt, None] = {}
        self._lost = 0
        self._drained = 0.0
        self._ready: list[HandlerConnection] = []
        self._pending: list[Pending] = []
        self._line: deque[tuple[QueueMessage, float]] = deque()
        """Messages that were read ahead, and when."""
        self._took = 1.0
        """How many seconds handlers take, lately."""

    # --- for the reader -----------------------------------------------------------------------------------------------

    def free(self) -> int:
        """How many messages may be read now."""
        return 0 if self.stopping else min(self.plan.layers.concurrency - len(self._attempts), self._desk.room())

    def ahead(self) -> int:
        """How many messages may be read beyond those that slots are free for: none, unless handlers are quick."""
        most = min(2 * self.plan.layers.concurrency, MOST_AHEAD)
        if self.stopping or len(self._line) > most // 2 or self._took > QUICK_SECONDS:
            return 0
        return max(min(most - len(self._line), self._desk.room() - self.plan.layers.concurrency), 0)

    def line_up(self, taken: list[QueueMessage], since: float) -> None:
        """Keep messages that were read ahead for the next slots."""
        for message in taken:
            self.in_hand.take(message.token, since + self.plan.layers.visibility_timeout)
            self._line.append((message, since))

    def next_in_line(self, most: int) -> list[tuple[QueueMessage, float]]:
        """Up to so many messages that were read ahead."""
        with self._lock:
            return [self._line.popleft() for _ in range(min(most, len(self._line)))]

    def give_back_line(self, seconds: float = 0.0) -> None:
        """Let others have what was read ahead, if the first of it has waited for so long; without blame."""
        with self._lock:
            if not self._line or time.monotonic() - self._line[0][1] < seconds:
                return
            waiting = [taken for taken, _ in self._line]
            self._line.clear()
        self.postpone([Pending(taken.token, after_giving_back(taken.history), taken) for taken in waiting])

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

    def _check(self, connection: HandlerConnection) -> None:
        """What the pool asks before it gives a connection out."""
        try:
            check(connection)
        except BaseException:
            self.lost_connection(connection)
            raise

    def lost_connection(self, connection: HandlerConnection) -> None:
        """A connection broke: the others are older than what broke it, and are made anew rather than tried one by one.

        (Between two that it finds broken the pool pauses, and its pauses double.) One from before the last time is no
        news; one that was made since has met another outage, however soon that came.
        """
        with self._lock:
            if connection.made < self._drained:
                return
            self._drained = time.monotonic()
            ready, self._ready = self._ready, []
        for idle in ready:
            idle.close()
            self.pool.putconn(idle)
        self.pool.drain()

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

    def turn_away(self, taken: list[QueueMessage]) -> list[QueueMessage]:
        """Of messages that were just read, those that must wait: only one message on trial is handled at a time."""
        tried = [one for one in taken if self._on_trial(one)]
        others = [attempt.taken for attempt in self.attempts()] + [waiting for waiting, _ in list(self._line)]
        busy = tried and any(self._on_trial(other) for other in others)
        return tried if busy else tried[1:]

    def _on_trial(self, taken: QueueMessage) -> bool:
        return on_trial(taken.token.read_count, taken.history, self.plan.messages)

    def handle(self, taken: QueueMessage, connection: HandlerConnection, since: float) -> None:
        """Start the handler of a message that was read."""
        attempt = self._attempt(taken, connection, since)
        with self._lock:
            self._attempts[attempt] = None
        try:
            attempt.call = self._threads.call(lambda: self._attend(attempt))
        except RuntimeError as error:  # the system has no thread left for us
            log.warning("message %s cannot be handled now, and shows again: %s", taken.token.id, error)
            attempt.call = None
            self._release(attempt)

    def _attempt(self, taken: QueueMessage, connection: HandlerConnection, since: float) -> MessageAttempt:
        body = read_body(taken.body)
        handler = None if isinstance(body, Unreadable) else self.handlers.get(body[0])
        self.in_hand.take(taken.token, since + self.plan.layers.stuck_after)
        return MessageAttempt(taken, connection, handler, self.plan.layers, since)

    # --- the life of an attempt, in its own thread --------------------------------------------------------------------

    def _attend(self, attempt: MessageAttempt) -> None:
        """Handle a message, and with the same connection what stands next in line."""
        following: MessageAttempt | None = attempt
        while following is not None:
            following = self._attend_one(following)

    def _attend_one(self, attempt: MessageAttempt) -> MessageAttempt | None:
        attempt.begin()
        try:
            failure = self._perform(attempt)
            self._took += (time.monotonic() - attempt.first_began - self._took) / 10
            if too_slow := attempt.too_slow():
                self._tell_too_slow(attempt, too_slow)
            if not attempt.given_up:
                self._end(attempt, failure)
        except Exception:
            log.exception("the end of message %s could not be written", attempt.taken.token.id)
        return self._release(attempt)

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
                contextvars.copy_context().run(self._perform_sync, attempt, message)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is the message's, not the thread's
            _tell_raised(message, error)
            return self._judge(attempt, error)
        return None

    def _perform_sync(self, attempt: MessageAttempt, message: Message) -> None:
        """Call a handler in a context of its own, which is thrown away afterwards."""
        assert attempt.handler is not None  # noqa: S101 - looked at by the caller
        self._scope(attempt).enter(None)
        _refuse_coroutine(attempt.handler.function(message, attempt.connection))

    def _scope(self, attempt: MessageAttempt) -> Scope:
        """What `remaining_ms()` goes by in a handler, and every scope inside it; nothing is cancelled by it."""
        long = attempt.handler is not None and attempt.handler.long
        left = self.plan.long_timeout if long else attempt.limit.ends - time.monotonic()
        return Scope(
            max(left * 1_000, 1.0), kind="message", name="" if attempt.handler is None else attempt.handler.type
        )

    def _perform_async(self, attempt: MessageAttempt, message: Message) -> None:
        assert attempt.handler is not None  # noqa: S101 - looked at by the caller
        function = attempt.handler.function
        view = AsyncHandlerConnection(attempt.connection, attempt.limit)

        async def perform() -> None:
            self._scope(attempt).enter(None)
            await function(message, view)

        attempt.async_call = self._loop.begin(perform)
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

    def _tell_too_slow(self, attempt: MessageAttempt, too_slow: str) -> None:
        """Say once for each type of message that its handler takes longer than its message is hidden."""
        if self.figures.too_slow(_type_of(attempt.taken), too_slow):
            text = "the handler of %r %s (message %s)"
            log.warning(text, _type_of(attempt.taken), too_slow, attempt.taken.token.id)

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
            attempt.kept = True
            self._desk.hand_over(attempt.taken, _type_of(attempt.taken), how)
            return
        try:
            attempt.connection.clean()
            counted = write_end(self.queue, attempt.connection, attempt.taken, how, attempt.too_slow())
            attempt.connection.commit()
        except psycopg.Error:  # its connection is gone: the reader writes it on another
            attempt.kept = True
            self.postpone([Pending(attempt.taken.token, how, attempt.taken, attempt.too_slow())])
        else:
            self.tell_end(attempt.taken.token, how, counted)

    def tell_end(self, token: QueueToken, how: Retried | FailedForGood, counted: str) -> None:
        """Log and count an end without success, now that it is written."""
        self.figures.ended(counted)
        if counted == LATE:
            log.warning("message %s was given to another worker: how it ended here is not kept", token.id)
        elif isinstance(how, FailedForGood):
            log.info("message %s ended as failed (%s): %s", token.id, how.code, how.reason)
        elif counted != GIVEN_BACK:
            text = "message %s failed (%s), tried again in %g s (retry %d)"
            log.warning(text, token.id, how.code, how.delay / 1_000, how.history.retries)

    def _finish(self, attempt: MessageAttempt) -> None:
        connection, token = attempt.connection, attempt.taken.token
        if connection.idle and BATCH not in attempt.taken.headers:
            self.put_off(
                [Pending(token, too_slow=attempt.too_slow())]
            )  # the reader is woken when the slot is free, and reads as well
            return
        attempt.limit.begin_anew()
        if token.read_count == 1 and BATCH not in attempt.taken.headers and not attempt.given_up:
            connection.limit_next()
            connection.limit = None
            done = self.queue.finish_and_commit(connection, token)
        else:
            held = self.queue.finish(connection, token)
            if held:
                end_of_batch(connection, attempt.taken.headers)
            connection.limit = None
            done = held and not attempt.given_up
            if done:
                connection.commit()
            else:
                connection.rollback()
        if done:
            self.figures.handled()
        else:
            log.warning("message %s was given to another worker: what its handler wrote is not kept", token.id)
            self.figures.ended(LATE)
            with suppress(psycopg.Error):  # the message stays in the queue, as if its handler had not come back
                self.queue.came_back(connection, {token: attempt.too_slow()})
                connection.commit()

    def _release(self, attempt: MessageAttempt) -> MessageAttempt | None:
        """Hand the connection on, and the slot: to the next message in line, which is given back, or to the reader."""
        connection = attempt.connection
        if not attempt.kept:
            self.in_hand.let_go(attempt.taken.token)
        if not attempt.end():
            log.warning("message %s: its handler came back after it was given up", attempt.taken.token.id)
            connection.limit = None
            connection.close()
            self.pool.putconn(connection)
            self._lose(-1)
            return None
        try:
            connection.clean()
        except Exception:  # noqa: BLE001 - whatever it is, the slot must come free
            connection.close()
        with self._lock:
            self._attempts.pop(attempt, None)
            fresh = not connection.closed and time.monotonic() - connection.taken < IN_HAND_SECONDS
            kept = fresh and not self.stopping
            following = None
            if kept and self._line and attempt.call is not None:
                following = self._attempt(self._line[0][0], connection, self._line.popleft()[1])
                following.call = attempt.call
                self._attempts[following] = None
            elif kept:
                self._ready.append(connection)
            self._lock.notify_all()
        if not kept:
            self.pool.putconn(connection)
        if following is None or self.ahead():
            self.wake.set()
        return following

    # --- giving up ----------------------------------------------------------------------------------------------------

    def give_up(self, attempt: MessageAttempt) -> bool:
        """Free an attempt's slot and cut its connection; whether it was still there."""
        if not attempt.give_up():
            return False
        self.in_hand.let_go(attempt.taken.token)
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
        self.reaching.over.set()
        self.give_back([])
        self.pool.close(timeout=1.0)


def write_end(
    queue: Queue,
    connection: psycopg.Connection[object],
    taken: QueueMessage,
    how: Retried | FailedForGood,
    too_slow: str = "",
) -> str:
    """Write down how a reading ended without success, if its token still holds; what it is counted as."""
    if not queue.record(connection, taken.token, how, taken.history):
        queue.came_back(connection, {taken.token: too_slow})
        return LATE
    if isinstance(how, FailedForGood):
        end_of_batch(connection, taken.headers)
        return "failed"
    return "retried" if how.code else GIVEN_BACK


def _tell_raised(message: Message, error: BaseException) -> None:
    """Log what a handler raised with its traceback: in full once for each place and minute."""
    if isinstance(error, BusinessFailure):
        return  # an answer
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    inmost = trace
    while inmost is not None and inmost.tb_next is not None:
        inmost = inmost.tb_next
    place = "" if inmost is None else f"{inmost.tb_frame.f_code.co_filename}:{inmost.tb_lineno}"
    name, text = type(error).__name__, shortened(str(error))
    told = f"{name}: {text}" if text else name
    line = "message %s (%s) raised %s"
    shown = error.with_traceback(trace)
    repeated.write(logging.WARNING, f"{name} {place}", line, message.id, message.type, told, error=shown)


def _type_of(taken: QueueMessage) -> str:
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
