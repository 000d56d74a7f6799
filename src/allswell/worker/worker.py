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
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import psycopg
from psycopg_pool import ConnectionPool

from allswell.domain.handling import MessagePolicy
from allswell.domain.health import WorkerCondition, spent
from allswell.domain.layers import LONGEST_SECONDS, STUCK_GRACE, Layers
from allswell.errors import Refused
from allswell.worker.connection import HandlerConnection
from allswell.worker.failures import sentence
from allswell.worker.figures import Figures
from allswell.worker.handlers import Function, Handlers
from allswell.worker.keeping import Keeper
from allswell.worker.listener import Listener
from allswell.worker.operator_desk import OperatorDesk
from allswell.worker.plan import WorkerPlan, checked_plan
from allswell.worker.queue import Queue
from allswell.worker.reader import Reader
from allswell.worker.setup import refuse_unless_ready
from allswell.worker.shift import Shift
from allswell.worker.status import WorkerStatus
from allswell.worker.watcher import Watcher

log = logging.getLogger("allswell.worker")
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
            MessagePolicy(pauses, poison_after),
            poll_interval=poll_interval,
            listen=listen,
            stop_timeout=stop_timeout,
        )
        Queue(queue)  # or it is refused
        self.plan = checked_plan(plan)
        self.handlers = Handlers() if handlers is None else handlers
        self.figures = Figures()
        self._restarts: tuple[int, ...] = ()
        """When it was restarted in its process, because it was critical."""
        self._lock = threading.RLock()
        self._parts: _Parts | None = None
        self._retiring: list[_Parts] = []
        """Shifts that were restarted, and whose handlers may still end."""
        self._stopped = threading.Event()
        self._since = time.time()

    @classmethod
    def by(cls, plan: WorkerPlan, handlers: Handlers) -> Self:
        """A worker that goes by a plan made elsewhere."""
        worker = cls(plan.conninfo, plan.queue, handlers=handlers)
        worker.plan, worker.figures = checked_plan(plan), Figures(plan.health)
        return worker

    def handler(self, type_: str, *, long: bool = False) -> Callable[[Function], Function]:
        """Have a function handle messages of this type; it is given the message and a connection."""
        return self.handlers.handler(type_, long=long)

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
            self._parts = _Parts(self)

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
        self._stopped.set()

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
        return self.figures.condition()

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
        return WorkerStatus(os.getpid(), self.plan.queue, running, self.alive(), how, why, self.counts(), self._since)

    def running(self) -> list[int]:
        """The ids of the messages that are being handled."""
        parts = self._parts
        return [] if parts is None else [attempt.taken.token.id for attempt in parts.shift.attempts()]

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
            self._parts = _Parts(self)  # first: where none can be made, the old one goes on
            old.shift.stopping = True
            self._retiring.append(old)
        threading.Thread(target=self._retire, args=(old,), name="allswell-retiring", daemon=True).start()

    def _retire(self, old: _Parts) -> None:
        old.end(RETIRING_SECONDS)
        with self._lock:
            self._retiring.remove(old)


def _now() -> int:
    return int(time.monotonic() * 1_000)


def _milliseconds(pause: float) -> int:
    if not 0 < pause <= LONGEST_SECONDS:
        raise ValueError(f"retry_pauses ({pause:g}s) must each be more than 0 and at most 366 days")
    return round(pause * 1_000)


class _Parts:
    """All that runs in one shift."""

    def __init__(self, worker: Worker) -> None:
        desk = OperatorDesk(worker.plan, worker.figures)
        self.shift = Shift(worker.plan, worker.handlers, worker.figures, desk)
        self.shift.pool.open()
        self.reader = Reader(self.shift)
        others: list[Watcher | Keeper | Listener | OperatorDesk] = [
            desk,
            Watcher(self.shift, self.reader, worker.restart),
            Keeper(self.shift, worker.status),
        ]
        if worker.plan.listen:
            others.append(Listener(worker.plan, self.reader.told))
        self._others = others
        for part in (self.reader, *others):
            part.start()

    def let_go(self, seconds: float) -> None:
        """Read no more, wait so long for what runs, and give the rest back."""
        self.shift.stopping = True
        self.shift.wake.set()
        left_over = self.shift.drain(seconds)
        try:
            self.shift.give_back_messages(left_over)
        except psycopg.Error as error:
            log.warning("messages could not be given back, and show again by themselves: %s", sentence(error))

    def end(self, seconds: float) -> None:
        """Let go, and stop all of it."""
        self.let_go(seconds)
        self.reader.stop(2.0)
        for part in self._others:
            part.stop()
        self.shift.close()
