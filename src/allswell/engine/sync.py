"""The watch for code that is not async: the same calls, each waiting for its answer.

An event loop of its own runs in a background thread, so leases are renewed and timers swept while the caller works.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any, Self, TypeVar

from allswell.domain.hold import Orders
from allswell.domain.journal import Entry, Position
from allswell.domain.listing import TaskFilter, TaskRow
from allswell.domain.names import QuestionId, RunId, TaskId
from allswell.domain.question import Option, Question
from allswell.domain.retry import Failure
from allswell.engine.handle import Lease
from allswell.engine.watch import Watch
from allswell.errors import Unavailable

T = TypeVar("T")


class SyncLease:
    """The right to one attempt at one task, for code that is not async."""

    def __init__(self, watch: SyncWatch, lease: Lease) -> None:
        self._watch = watch
        self._lease = lease
        self.task = lease.task
        self.token = lease.token
        self.agent = lease.agent
        self.name = lease.name
        self.payload = lease.payload
        self.handover = lease.handover
        self.notes = lease.notes

    @property
    def remaining(self) -> int:
        """How long the lease can still be trusted, in ms."""

        async def look() -> int:
            return self._lease.remaining

        return self._watch.wait_for(look())

    def checkin(self, note: str = "", *, progress: float | None = None) -> Orders:
        """Prove progress."""
        return self._watch.wait_for(self._lease.checkin(note, progress=progress))

    def complete(self, result: object = None) -> None:
        """The task is done."""
        self._watch.wait_for(self._lease.complete(result))

    def fail(self, error: BaseException | str | Failure, **how: Any) -> None:  # noqa: ANN401 - as Lease.fail
        """This attempt failed."""
        self._watch.wait_for(self._lease.fail(error, **how))

    def release(self, reason: str = "released", *, delay: int | str = 0) -> None:
        """Give the task back."""
        self._watch.wait_for(self._lease.release(reason, delay=delay))

    def delegate(self, role: str, name: str, **how: Any) -> TaskId:  # noqa: ANN401 - as Lease.delegate
        """Hand a focused request to an expert of this role, and keep working."""
        return self._watch.wait_for(self._lease.delegate(role, name, **how))

    def ask(self, text: str, options: Sequence[Option] = (), *, hold: bool = False) -> QuestionId:
        """Ask a human."""
        return self._watch.wait_for(self._lease.ask(text, options, hold=hold))


class SyncWatch:
    """An open watch, for code that is not async."""

    def __init__(self, make: Callable[[], Watch]) -> None:
        self._make = make
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="allswell", daemon=True)
        self._opened: threading.Event = threading.Event()
        self._closing: asyncio.Event | None = None
        self._error: BaseException | None = None
        self._watch: Watch | None = None
        self._guard = threading.Lock()
        self._over = False

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._live())
        except BaseException as error:  # noqa: BLE001 - it is raised again in start() or stop()
            self._error = error
        finally:
            with self._guard:
                self._over = True
            self._loop.run_until_complete(self._end_all())
            self._opened.set()
            self._loop.close()

    async def _live(self) -> None:
        self._closing = asyncio.Event()
        async with self._make() as watch:
            self._watch = watch
            self._opened.set()
            await self._closing.wait()
            self._watch = None

    async def _end_all(self) -> None:
        """Whoever still waits for an answer is told that none will come."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def start(self) -> Self:
        """Open the watch; what is wrong with it is raised here."""
        self._thread.start()
        self._opened.wait()
        self._raise()
        return self

    def stop(self) -> None:
        """Close the watch and end its thread."""
        if self._closing is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the watch's loop and wait for it, or until the watch is closed."""
        with self._guard:
            if self._over:
                work.close()
                raise Unavailable("the watch is closed")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise Unavailable("the watch was closed before the store answered") from None

    @property
    def inner(self) -> Watch:
        """The watch behind it, which lives in a loop and a thread of its own; for what carries its calls there."""
        return self._open

    @property
    def _open(self) -> Watch:
        if self._watch is None:
            raise Unavailable("the watch is closed")
        return self._watch

    def submit(self, name: str, **fields: Any) -> TaskId:  # noqa: ANN401 - as Watch.submit
        """Hand a task to the watch; when this returns, it is durable."""
        return self.wait_for(self._open.submit(name, **fields))

    def submit_many(self, tasks: Iterable[Mapping[str, Any]]) -> list[TaskId]:
        """Hand over many tasks at once, all or none."""
        return self.wait_for(self._open.submit_many(tasks))

    def claim(self, *, agent: str, **how: Any) -> SyncLease | None:  # noqa: ANN401 - as Watch.claim
        """Take one task, or None."""
        lease = self.wait_for(self._open.claim(agent=agent, **how))
        return None if lease is None else SyncLease(self, lease)

    def claim_many(self, count: int, *, agent: str, **how: Any) -> list[SyncLease]:  # noqa: ANN401 - as Watch.claim_many
        """Take up to `count` tasks."""
        return [SyncLease(self, lease) for lease in self.wait_for(self._open.claim_many(count, agent=agent, **how))]

    def cancel(self, task: str, reason: str = "cancelled") -> None:
        """Call a task off."""
        self.wait_for(self._open.cancel(task, reason))

    def open_run(self, name: str, *, timeout: int | str | None = None, key: str | None = None) -> RunId:
        """Open a run."""
        return self.wait_for(self._open.open_run(name, timeout=timeout, key=key))

    def end_run(self, run: str, reason: str = "ended") -> None:
        """End a run."""
        self.wait_for(self._open.end_run(run, reason))

    def answer(self, question: str, option: str, text: str = "", **how: Any) -> None:  # noqa: ANN401 - as Watch.answer
        """Decide a question."""
        self.wait_for(self._open.answer(question, option, text, **how))

    def task(self, task: str) -> TaskRow | None:
        """One task as it stands."""
        return self.wait_for(self._open.task(task))

    def result(self, task: str) -> Any:  # noqa: ANN401 - whatever the holder gave
        """A finished task's result."""
        return self.wait_for(self._open.result(task))

    def tasks(self, which: TaskFilter | None = None) -> list[TaskRow]:
        """Tasks by id, a page at a time."""
        return self.wait_for(self._open.tasks(which))

    def questions(self, *, open_only: bool = True) -> list[Question]:
        """What waits for a human."""
        return self.wait_for(self._open.questions(open_only=open_only))

    def counts(self) -> dict[str, int]:
        """How many tasks stand where."""
        return self.wait_for(self._open.counts())

    def unaccounted(self) -> list[TaskId]:
        """Open tasks that nothing will ever move again; there are none."""
        return self.wait_for(self._open.unaccounted())

    def events(self, after: Position | None = None) -> list[Entry]:
        """The journal so far."""

        async def read() -> list[Entry]:
            return [entry async for entry in self._open.events(after=after)]

        return self.wait_for(read())
