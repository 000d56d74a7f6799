"""The worker: messages of one queue, each handled in its own slot, whatever a handler or the database does.

worker = Worker("postgresql://…", "orders", concurrency=10)

@worker.handler("order.paid")
def paid(message, connection):
    connection.execute("UPDATE orders SET …")

worker.run()
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg_pool import ConnectionPool

from allswell.domain.worker.limits import LONGEST_SECONDS, STUCK_GRACE, Layers, WorkerCondition, spent
from allswell.domain.worker.message import MessagePolicy
from allswell.errors import Refused
from allswell.worker.attempt import HandlerLoop, MessageAttempt, MessagesInHand
from allswell.worker.connection import SET_CAP, HandlerConnection
from allswell.worker.errors import sentence
from allswell.worker.escalation import MessageEscalation
from allswell.worker.handlers import Function, Handlers, HookFunction, WorkerHook, WorkerPlan, checked_plan
from allswell.worker.metrics import RepeatedLog, WorkerMetrics
from allswell.worker.queue import Queue, QueueToken
from allswell.worker.reader import BackgroundThread, Listener, Reader
from allswell.worker.session import LATE, LINE_SECONDS, WorkerSession
from allswell.worker.setup import refuse_unless_ready
from allswell.worker.status import WorkerStatus, be_gone, be_present

# Finding handlers that are stuck: a thread that needs neither the queue, nor the pool, nor the handler's thread (W4).
#
# A handler is stuck when it has run for the visibility timeout and 5 s more, counted from its start or from when its
# message was last hidden for longer. It is logged once with its stack, counted once, its statement is cancelled on the
# server and its connection cut, and its slot is taken by a new thread. The watcher itself only looks and decides: the
# cutting, which may take time, is done by a thread of its own.
#
# When the whole process stood still (SIGSTOP, a machine that was suspended), every handler seems to be stuck in the
# moment in which it goes on. A look that comes late tells of that: what handlers did not have is not held against them.

log = logging.getLogger("allswell.worker")
LOOK_SECONDS = 0.2
"""How often it looks."""
LATE_SECONDS = 1.0
"""A look that comes so long after the last one comes after a pause of the whole process: that is no handler's fault."""


class StuckHandlerDetector(BackgroundThread):
    """The thread that looks."""

    def __init__(self, shift: WorkerSession, reader: Reader, on_critical: Callable[[str], None]) -> None:
        super().__init__("allswell-watcher")
        self._shift = shift
        self._reader = reader
        self._on_critical = on_critical
        self._looked = time.monotonic()

    def _run(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                self._look()
            except Exception:
                log.exception("the watcher failed, and goes on")

    def _look(self) -> None:
        layers = self._shift.plan.layers
        now = time.monotonic()
        slept, self._looked = now - self._looked, now
        if slept > LATE_SECONDS:
            for attempt in self._shift.attempts():
                attempt.slept(slept)
            return
        self._shift.give_back_line(LINE_SECONDS)
        for attempt in self._shift.attempts():
            elapsed, whole = now - attempt.began, now - attempt.first_began
            over = attempt.handler is not None and attempt.handler.long and whole > self._shift.plan.long_timeout
            if elapsed <= layers.stuck_after and not over:
                continue
            stack, message = attempt.stack(), attempt.taken.token.id
            limit = f" (long_timeout is {self._shift.plan.long_timeout:g}s)" if over else ""
            if self._shift.give_up(attempt):
                text = "Thread stuck for %.1fs processing %s - abandoning%s\n%s"
                log.error(text, whole if over else elapsed, message, limit, stack)
                self._shift.figures.stuck(message)
        condition, why = self._shift.figures.condition()
        silent = now - self._reader.seen
        if silent > layers.pool_timeout + layers.stuck_after:
            condition, why = WorkerCondition.CRITICAL, f"the reader has stood still for {silent:.0f} s"
        if condition is WorkerCondition.CRITICAL and not self._shift.stopping:
            self._on_critical(why)


# Keeping up what must be said to the database again and again, on a connection of its own.
#
# The messages of long handlers are hidden for longer at each third of the visibility timeout (W7), and every few
# seconds the worker says how it is, for `allswell worker status`.
#
# A message that turns out to belong to somebody else is lost: its handler is given up, for nothing that it still does
# can be kept. While the database cannot be reached nothing is kept hidden, and the watcher's limit holds.

TELL_SECONDS = 5.0
"""How often the worker says how it is."""
TELL_LIMIT = 1.0
"""How long that may take, in seconds: long handlers wait meanwhile for their messages to be hidden."""
repeated = RepeatedLog(log)


class VisibilityKeeper(BackgroundThread):
    """The thread that hides messages for longer."""

    def __init__(self, shift: WorkerSession, tell: Callable[[], WorkerStatus]) -> None:
        super().__init__("allswell-keeper")
        self._shift = shift
        self._tell = tell
        self._name = f"{socket.gethostname()}:{os.getpid()}:{time.time():.3f}"
        self._told = -inf
        self._connection: psycopg.Connection[Any] | None = None

    def stop(self) -> None:
        """Stop, and wait for it for a moment: it says goodbye to the database."""
        super().stop()
        self._thread.join(1.0)

    def _run(self) -> None:
        third = self._shift.plan.layers.visibility_timeout / 3
        while not self._over.wait(min(third / 4, 1.0)):
            now = time.monotonic()
            due = [
                attempt
                for attempt in self._shift.attempts()
                if attempt.handler is not None and attempt.handler.long and now - attempt.began >= third
            ]
            try:
                if due:
                    self._hide(due)
                if now - self._told >= TELL_SECONDS:
                    self._told = now
                    with self._said_within(TELL_LIMIT) as connection:
                        self._shift.figures.depth = self._shift.queue.depth(connection, at_most=True)
                        be_present(connection, self._name, self._tell())
            except psycopg.Error as error:
                why = sentence(error)
                repeated.write(logging.WARNING, why, "what must be kept up cannot be said to the database: %s", why)
                self._disconnect()
        with suppress(psycopg.Error), self._said_within(TELL_LIMIT) as connection:
            be_gone(connection, self._name)
        self._disconnect()

    def _hide(self, due: list[MessageAttempt]) -> None:
        visibility = self._shift.plan.layers.visibility_timeout
        since = time.monotonic()
        tokens = [attempt.taken.token for attempt in due]
        with self._said_within(visibility / 3) as connection:
            hidden, locked = self._shift.queue.hide(connection, tokens, visibility)
        lost: dict[QueueToken, str] = {}
        for attempt in due:
            token = attempt.taken.token
            if token.id in hidden:
                attempt.hidden_again(since, visibility)
            elif token.id not in locked and self._shift.give_up(attempt):
                log.warning("message %s is another worker's now: its handler is given up", token.id)
                self._shift.figures.ended(LATE)
                lost[token] = ""
        if lost:
            with self._said_within(TELL_LIMIT) as connection:
                self._shift.queue.came_back(connection, lost)

    @contextmanager
    def _said_within(self, seconds: float) -> Iterator[psycopg.Connection[Any]]:
        """A transaction whose statements each end within so long: a lock must not let all others go."""
        connection = self._connected()
        with connection.transaction():
            connection.execute(SET_CAP, (str(max(round(seconds * 1_000), 1)),))
            yield connection

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            plan = self._shift.plan
            self._connection = psycopg.connect(plan.conninfo, autocommit=True, **plan.connecting())
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


READING_SECONDS = 2.0
"""How long a stop waits for a reading that is under way."""
RETIRING_SECONDS = 60.0
"""How long handlers of a shift that was restarted may go on beside the new one."""


class Worker:
    """Handles the messages of a queue, `concurrency` at a time; see docs/worker.md."""

    def __init__(  # noqa: PLR0913 - each is a figure of its own, and all have defaults
        self,
        conninfo: str,
        queue: str,
        *,
        concurrency: int = 10,
        visibility_timeout: int = 30,
        statement_timeout: int = 25_000,
        pool_timeout: float = 30.0,
        stuck_grace: float = STUCK_GRACE,
        retry_pauses: Sequence[float] = (10, 60, 300),
        poison_after: int = 3,
        unknown_type_pause: float = 60.0,
        unknown_type_rounds: int = 10,
        long_timeout: float = 3_600.0,
        poll_interval: float = 1.0,
        stop_timeout: float = 10.0,
        listen: bool = True,
        handlers: Handlers | None = None,
    ) -> None:
        layers = Layers(statement_timeout, visibility_timeout, pool_timeout, stuck_grace, concurrency)
        pauses = tuple(_milliseconds(pause) for pause in retry_pauses)
        plan = WorkerPlan(
            conninfo,
            queue,
            layers,
            MessagePolicy(pauses, poison_after, round(unknown_type_pause * 1_000), unknown_type_rounds),
            poll_interval=poll_interval,
            listen=listen,
            stop_timeout=stop_timeout,
            long_timeout=long_timeout,
        )
        Queue(queue)  # or it is refused
        self.plan = checked_plan(plan)
        self.handlers = Handlers() if handlers is None else handlers
        self.figures = WorkerMetrics()
        self.in_hand = MessagesInHand()
        self.loop = HandlerLoop()
        self._restarts: tuple[int, ...] = ()
        """When it was restarted in its process, because it was critical."""
        self._lock = threading.RLock()
        self._parts: _SessionParts | None = None
        self._retiring: list[_SessionParts] = []
        """Shifts that were restarted, and whose handlers may still end."""
        self._stopped = threading.Event()
        self._since = time.time()

    @classmethod
    def by(cls, plan: WorkerPlan, handlers: Handlers) -> Self:
        """A worker that goes by a plan made elsewhere."""
        worker = cls(plan.conninfo, plan.queue, handlers=handlers)
        worker.plan, worker.figures = checked_plan(plan), WorkerMetrics(plan.health)
        return worker

    def handler(self, type_: str, *, long: bool = False) -> Callable[[Function], Function]:
        """Have a function handle messages of this type; it is given the message and a connection."""
        return self.handlers.handler(type_, long=long)

    def on_start(self, function: HookFunction) -> HookFunction:
        """Have a function called before the first message is read; see `Handlers.on_start`."""
        return self.handlers.on_start(function)

    def on_stop(self, function: HookFunction) -> HookFunction:
        """Have a function called after the last message was handled; see `Handlers.on_stop`."""
        return self.handlers.on_stop(function)

    # --- running ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to handle messages; returns at once. `Refused` where the database is not set up for it."""
        if not self.handlers.types():
            raise Refused(
                "no_handlers", "the worker has no handlers: it would quarantine every message", where="handlers"
            )
        refuse_unless_ready(self.plan)
        with self._lock:
            if self._parts is not None:
                raise Refused("running", "this worker runs already", where="worker")
            self._stopped.clear()
            for hook in self.handlers.at_start():
                self._call(hook)
            self._parts = _SessionParts(self)

    def stop(self, timeout: float | None = None) -> None:
        """Read no more, let running handlers end within `timeout` seconds (`stop_timeout`), and let go of the rest."""
        give_up_at = time.monotonic() + (self.plan.stop_timeout if timeout is None else timeout)
        with self._lock:
            parts, self._parts = self._parts, None
            retiring = list(self._retiring)
        if parts is not None:
            parts.shift.stopping = True
            for old in retiring:
                old.let_go(give_up_at - time.monotonic())
            parts.end(give_up_at - time.monotonic())
            for hook in self.handlers.at_stop():
                try:
                    self._call(hook)
                except Exception:
                    log.exception("what is called at the stop of the worker failed")
            self.loop.close()
        self._stopped.set()

    def _call(self, hook: WorkerHook) -> None:
        if hook.is_async:
            self.loop.begin(hook.function).wait()
        else:
            hook.function()

    def run(self) -> None:
        """Handle messages until `stop` is called, by a signal's handler or another thread."""
        self.start()
        try:
            self._stopped.wait()
        finally:
            self.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- how it is ----------------------------------------------------------------------------------------------------

    def condition(self) -> tuple[WorkerCondition, str]:
        """Healthy, degraded or critical, and why."""
        how, why = self.figures.condition()
        if how is not WorkerCondition.CRITICAL and (blind := self._blind()):
            return WorkerCondition.DEGRADED, blind
        return how, why

    def _blind(self) -> str:
        parts = self._parts
        return "" if parts is None else parts.reader.blind()

    def counts(self) -> dict[str, int]:
        """What it has done so far."""
        return {**self.figures.counts(), "restarts": len(self._restarts), "running": len(self.running())}

    def alive(self) -> bool:
        """Whether it still does its work: the reader comes round, and restarts have not become a habit."""
        layers = self.plan.layers
        return self.silent() <= 2 * (layers.pool_timeout + layers.stuck_after) and not spent(
            self._restarts, _now(), self.plan.health
        )

    def status(self) -> WorkerStatus:
        """How it is, for others."""
        how, why = self.condition()
        running = self._parts is not None
        oldest = min(self._attempts(), key=lambda attempt: attempt.first_began, default=None)
        return WorkerStatus(
            os.getpid(),
            self.plan.queue,
            running,
            self.alive(),
            how,
            why,
            self.counts(),
            self._since,
            reads=not self._blind(),
            oldest=0.0 if oldest is None else round(time.monotonic() - oldest.first_began, 3),
            oldest_type="" if oldest is None or oldest.handler is None else oldest.handler.type,
            depth=self.figures.depth,
            too_slow=self.figures.too_slow_types(),
        )

    def running(self) -> list[int]:
        """The ids of the messages that are being handled."""
        return [attempt.taken.token.id for attempt in self._attempts()]

    def _attempts(self) -> list[MessageAttempt]:
        parts = self._parts
        return [] if parts is None else parts.shift.attempts()

    def silent(self) -> float:
        """For how long the reader has not come round, in seconds."""
        parts = self._parts
        return 0.0 if parts is None else time.monotonic() - parts.reader.seen

    def pool(self) -> ConnectionPool[HandlerConnection]:
        """The pool that a running worker has its connections from; a handler may take further ones."""
        if self._parts is None:
            raise Refused("not_running", "this worker does not run, and has no connections", where="worker")
        return self._parts.shift.pool

    # --- restarting ---------------------------------------------------------------------------------------------------

    def restart(self, why: str) -> None:
        """Put a new shift in place of one that is critical; what runs well in the old one may end there."""
        with self._lock:
            old = self._parts
            if old is None or old.shift.stopping:
                return
            log.critical("the worker is critical (%s), and is restarted", why)
            self._restarts = (*self._restarts, _now())
            self.figures.restarted()
            self._parts = _SessionParts(self)  # first: where none can be made, the old one goes on
            old.shift.stopping = True
            self._retiring.append(old)
        threading.Thread(target=self._retire, args=(old,), name="allswell-retiring", daemon=True).start()

    def _retire(self, old: _SessionParts) -> None:
        old.end(RETIRING_SECONDS)
        with self._lock:
            self._retiring.remove(old)


def _now() -> int:
    return int(time.monotonic() * 1_000)


def _milliseconds(pause: float) -> int:
    if not 0 < pause <= LONGEST_SECONDS:
        raise ValueError(f"retry_pauses ({pause:g}s) must each be more than 0 and at most 366 days")
    return round(pause * 1_000)


class _SessionParts:
    """All that runs in one shift."""

    def __init__(self, worker: Worker) -> None:
        desk = MessageEscalation(worker.plan, worker.figures, worker.in_hand)
        self.shift = WorkerSession(worker.plan, worker.handlers, worker.figures, desk, worker.in_hand, worker.loop)
        self.shift.pool.open()
        self.reader = Reader(self.shift)
        others: list[StuckHandlerDetector | VisibilityKeeper | Listener | MessageEscalation] = [
            desk,
            StuckHandlerDetector(self.shift, self.reader, worker.restart),
            VisibilityKeeper(self.shift, worker.status),
        ]
        if worker.plan.listen:
            others.append(Listener(worker.plan, self.reader))
        self._others = others
        for part in (self.reader, *others):
            part.start()

    def let_go(self, seconds: float) -> None:
        """Read no more, wait so long for what runs, and give the rest back."""
        self.shift.stopping = True
        self.reader.wait_for_reading(READING_SECONDS)
        self.shift.give_back_line()
        self.shift.wake.set()
        left_over = self.shift.drain(seconds)
        try:
            self.shift.give_back_messages(left_over)
        except psycopg.Error as error:
            log.warning("messages could not be given back, and show again by themselves: %s", sentence(error))

    def end(self, seconds: float) -> None:
        """Let go, and stop all of it."""
        self.let_go(seconds)
        self.reader.stop(READING_SECONDS)
        for part in self._others:
            part.stop()
        self.shift.close()
