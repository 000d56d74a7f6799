"""What the watch for code that is not async is made of: a thread with a loop of its own, and the handles of attempts.

The calls themselves are in `sync.py`, which is generated from the async ones. Here is what cannot be: how a call gets
into the watch's loop, what an iterator and a handler of events are there, and what of an answer is handed out in the
form that waits.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from allswell.domain.ids import RunId
from allswell.domain.rules.event import Entry, Position
from allswell.domain.task.model import Handover, Policy, RequestAnswer
from allswell.engine.lease import Held, Lease
from allswell.engine.mesh import Requested
from allswell.engine.watch import Watch
from allswell.errors import Unavailable

T = TypeVar("T")


class OwnThread:
    """A watch that is open in a loop and a thread of its own, so that leases are renewed while the caller works."""

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
        """Callers that still wait for an answer get the error that none will come."""
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

    # --- what is not one call with one answer -------------------------------------------------------------------------

    def events(self, *, after: Position | None = None, follow: bool = False) -> Iterator[Entry]:
        """The journal, from the start or after a position; with `follow`, it goes on as things happen."""
        if follow:
            return self._followed(after)

        async def read() -> list[Entry]:
            return [entry async for entry in self._open.events(after=after)]

        return iter(self.wait_for(read()))

    def _followed(self, after: Position | None) -> Iterator[Entry]:
        entries = self._open.events(after=after, follow=True)

        async def following() -> Entry:
            return await anext(entries)

        while True:
            yield self.wait_for(following())

    def follow(self, name: str, handler: Callable[[Sequence[Entry]], None]) -> None:
        """Hand the journal to `handler` from where it last was, in a thread, for as long as this watch is open."""

        async def handed(entries: Sequence[Entry]) -> None:
            await asyncio.to_thread(handler, entries)

        async def begin() -> None:
            self._open.follow(name, handed)

        self.wait_for(begin())

    def policy_for(self, role: str) -> Policy:
        """The policy of a role's tasks that set nothing by themselves."""
        return self._open.policy_for(role)

    def new_run(self) -> RunId:
        """An id for a run that is to be opened later, by `open_run(…, run=…)`."""

        async def new() -> RunId:
            return self._open.new_run()

        return self.wait_for(new())

    def _handed(self, answer: Any) -> Any:  # noqa: ANN401 - what it is, the call says that hands it out
        return hand_out(self, answer)


class AttemptHandle:
    """One attempt at one task, held by an agent."""

    def __init__(self, watch: OwnThread, held: Held) -> None:
        self._watch = watch
        self._wait_for = watch.wait_for
        self._held = held
        self.task = held.task
        self.token = held.token
        self.agent = held.agent

    def _handed(self, answer: Any) -> Any:  # noqa: ANN401 - as above
        return hand_out(self._watch, answer)


class LeaseFields(AttemptHandle):
    """What can be read of a lease without a call."""

    def __init__(self, watch: OwnThread, lease: Lease) -> None:
        super().__init__(watch, lease)
        self.inner = lease
        """The lease behind it, which belongs to the watch's own loop."""
        self.attempt: int = lease.attempt
        self.name: str = lease.name
        self.role: str = lease.role
        self.run: RunId | None = lease.run
        self.payload: Any = lease.payload
        self.handover: Handover | None = lease.handover
        self.notes: Sequence[str] = lease.notes
        self.answers: Sequence[RequestAnswer] = lease.answers

    def payload_as(self, shape: type[T]) -> T:
        """What was submitted with the task, as this; `msgspec.ValidationError` where it is something else."""
        return self.inner.payload_as(shape)

    @property
    def remaining(self) -> int:
        """How long the lease can still be trusted, in ms."""

        async def look() -> int:
            return self.inner.remaining

        return self._wait_for(look())


def hand_out(watch: OwnThread, answer: Any) -> Any:  # noqa: ANN401 - as above
    """An answer, with every handle in it as code has it that is not async."""
    from allswell.engine.sync import SyncHeld, SyncLease  # they are made of this module

    match answer:
        case Lease():
            return SyncLease(watch, answer)
        case Held():
            return SyncHeld(watch, answer)
        case Requested():
            return answer if answer.next is None else replace(answer, next=SyncLease(watch, answer.next))
        case list():
            return [hand_out(watch, one) for one in answer]
        case _:
            return answer


def unwrap(given: Any) -> Any:  # noqa: ANN401 - handles, pairs that begin with one, or several of either
    """The async handles behind those that are given."""
    if isinstance(given, AttemptHandle):
        return given._held  # noqa: SLF001 - it is of this module
    if isinstance(given, tuple) and given and isinstance(given[0], AttemptHandle):
        return unwrap(given[0]), *given[1:]
    return [unwrap(one) for one in given]
