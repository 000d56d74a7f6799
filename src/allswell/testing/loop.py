"""An asyncio event loop without chance: same seed, same history.

Code under test runs unchanged, with the real asyncio tasks, futures, locks, queues and timeouts. Only what
lies below them is replaced:

**Time is virtual.** It stands still while anything is ready to run and then jumps to the next timer, so a
month of sleeping costs nothing. It is a whole number of microseconds: sums of float seconds drift, and a
deadline that is a millisecond early only in the simulator is a bug hunt for nothing. A task that spins on
`sleep(0)` holds the time for ever; `max_steps` ends it.

**The order is drawn.** With a seed, each step runs one of the ready callbacks, each with equal chance. That
is wilder than asyncio, which promises first come, first served; code that is right only under that promise
fails here, and is meant to, for a thread or a second process gives no such promise. With `seed=None` the
order is asyncio's own. Timers that fall due at the same microsecond become ready together, in the order they
were set.

**Nothing waits in vain.** When no callback is ready and no timer is set, nothing can ever happen again: that
is `LoopStuck`, with every task that still waits and where. A callback that raises ends the run with its error;
asyncio would only log it. Threads and I/O are refused, for they answer when they like.

Chance can still come in through what the loop cannot see: iterating over a set of objects or, across
processes, of strings (`PYTHONHASHSEED`); `asyncio.all_tasks()` and `TaskGroup`, which are such sets (use
`pending()` and `Nursery`); async generators left to the garbage collector; the real clock, `random` and
`uuid`.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import inspect
import itertools
import math
import random
import sys
import threading
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context
from typing import Any, NoReturn, TypeVar, TypeVarTuple

from allswell.store.memory.locks import a_turn

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
if sys.version_info >= (3, 12):
    _Startable = Coroutine[Any, Any, T]
else:
    _Startable = Coroutine[Any, Any, T] | Generator[Any, None, T]

START_WALL_MS = 1_700_000_000_000
"""Where the virtual wall clock begins unless told otherwise: 2023-11-14 22:13:20 UTC."""

_US_PER_SECOND = 1_000_000
_STEPS_TO_END = 1_000  # what each task, callback and timer left behind may still take
_SHOWN = 20  # tasks named in an error


class LoopStuck(RuntimeError):
    """Nothing is ready and no timer is set, yet the end was not reached: what is awaited can never come."""


class Runaway(RuntimeError):
    """The run took more steps than it was allowed; it may be a livelock, or a limit set too low."""


class DeterministicLoop(asyncio.BaseEventLoop):
    """An event loop with virtual time whose order of callbacks follows from its seed alone."""

    # Beyond what is public we know of BaseEventLoop these four, `_asyncgens`, and that it calls `_run_once`
    # and `_timer_handle_cancelled`: the same in 3.11 to 3.14.
    _ready: deque[asyncio.Handle]
    _scheduled: list[tuple[int, int, asyncio.TimerHandle]]  # due, order of setting: never compares handles
    _stopping: bool
    _closed: bool

    def __init__(self, *, seed: int | None, start_wall_ms: int = START_WALL_MS, max_steps: int | None = None) -> None:
        super().__init__()
        self.seed = seed
        self.start_wall_ms = start_wall_ms
        self.now_us = 0
        self.steps = 0
        self.after_step: Callable[[], None] | None = None
        """Called after every callback, outside any task; what it raises ends the run."""
        self._limit = sys.maxsize if max_steps is None else max_steps
        self._draw = None if seed is None else random.Random(seed).random
        self._order = itertools.count()
        self._cancelled_timers = 0
        self._task_numbers = itertools.count(1)
        self._tasks: list[asyncio.Task[Any]] = []
        self._tidy_at = 0
        self._failure: BaseException | None = None
        self._thread = threading.get_ident()
        self._asyncgens = _OrderedWeakSet()
        self.set_exception_handler(_fail_loudly)

    # -- time and order -------------------------------------------------------------------------------------

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self.now_us / _US_PER_SECOND

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Make a callback ready."""
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Make a callback ready at a moment of virtual time; infinity never comes."""
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if when <= self.now_us / _US_PER_SECOND:
            self._ready.append(handle)
        elif when != math.inf:
            # What lies ahead, if by less than a microsecond, is not now: who waits in small steps gets there.
            due = max(round(when * _US_PER_SECOND), self.now_us + 1)
            heapq.heappush(self._scheduled, (due, next(self._order), handle))
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Make a callback ready after so many seconds of virtual time."""
        return self.call_at(self.now_us / _US_PER_SECOND + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Sweep the heap when half of it is dead; a cancelled timeout would stay until its time comes."""
        if handle.when() <= self.time():
            return  # it has fired and left the heap: `asyncio.sleep` cancels even then
        self._cancelled_timers += 1
        if self._cancelled_timers > 100 and self._cancelled_timers > len(self._scheduled) // 2:
            self._scheduled[:] = [timer for timer in self._scheduled if not timer[2].cancelled()]
            heapq.heapify(self._scheduled)
            self._cancelled_timers = 0

    def _run_once(self) -> None:
        """Run one callback after the other until told to stop."""
        ready, draw = self._ready, self._draw
        while not self._stopping:
            if not ready:
                self._jump()
            if self.steps >= self._limit:
                raise Runaway(f"{self.steps:,} steps did not reach the end; {self._report()}")
            if draw is not None and len(ready) > 1:
                drawn = int(draw() * len(ready))
                ready[0], ready[drawn] = ready[drawn], ready[0]
            handle = ready.popleft()
            if handle.cancelled():
                continue
            self.steps += 1
            handle._run()  # noqa: SLF001 - what BaseEventLoop itself calls
            if self.after_step is not None:
                self.after_step()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _jump(self) -> None:
        """Go to the next moment at which something happens, and make ready all that does."""
        timers = self._scheduled
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise LoopStuck(f"Nothing is ready and no timer is set; {self._report()}")
        self.now_us = timers[0][0]
        while timers and timers[0][0] == self.now_us:
            handle = heapq.heappop(timers)[2]
            if not handle.cancelled():  # a dead one would take a draw, and be there or not as the heap was swept
                self._ready.append(handle)

    def turn(self) -> Awaitable[None] | None:
        """What `await asyncio.sleep(0)` does, or None where it would do nothing but take a step: nobody else is ready.

        The history is the same either way, for a callback that is ready alone takes no draw, and time stands still. It
        is the memory store's `turn`, which takes one with every statement, three times out of four for nothing.
        """
        if self._ready or self._stopping or self.after_step is not None or self.steps >= self._limit:
            return a_turn()
        self.steps += 1
        return None

    # -- tasks ----------------------------------------------------------------------------------------------

    def create_task(
        self,
        coro: _Startable[T],
        *,
        name: object = None,
        **options: Any,  # noqa: ANN401 - `context`, and from 3.13 on `eager_start`
    ) -> asyncio.Task[T]:
        """Start a task; one without a name is numbered within this loop, not within the process."""
        number = next(self._task_numbers)
        task = super().create_task(coro, name=f"Task-{number}" if name is None else str(name), **options)
        # asyncio holds tasks weakly, so that a forgotten one vanishes when the collector happens to come by.
        self._tasks.append(task)
        if len(self._tasks) > self._tidy_at:
            self._tasks = self.pending()
            self._tidy_at = 2 * len(self._tasks) + 1_000
        return task

    def pending(self) -> list[asyncio.Task[Any]]:
        """The tasks that have not ended, oldest first."""
        return [task for task in self._tasks if not task.done()]

    def wind_up(self) -> None:
        """Cancel what is left, oldest first, and run until it ends; `LoopStuck` or `Runaway` if it refuses."""
        self.after_step = None
        left = self.pending()
        rest = 1 + len(left) + len(self._ready) + len(self._scheduled)
        self._limit = self.steps + _STEPS_TO_END * rest
        while left:
            for task in left:
                task.cancel()
            with contextlib.suppress(SystemExit):  # a task's SystemExit stops the loop, and the rest still runs
                self.run_until_complete(asyncio.wait(left))
            left = self.pending()
        self.run_until_complete(self.shutdown_asyncgens())

    def close(self) -> None:
        """Close the loop and let its tasks go."""
        super().close()
        self._tasks.clear()

    def _report(self) -> str:
        pending = self.pending()
        lines = [f"at {self.time():.6f} s (seed {self.seed}) these tasks wait:"]
        lines += [f"  {task.get_name()}: {_where(task)}" for task in pending[:_SHOWN]]
        if len(pending) > _SHOWN:
            lines.append(f"  and {len(pending) - _SHOWN:,} more")
        return "\n".join(lines)

    # -- what would bring chance back -----------------------------------------------------------------------

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """As `call_soon`; refused from other threads."""
        if threading.get_ident() != self._thread:
            raise RuntimeError("A deterministic loop cannot be called from another thread: its moment is chance.")
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(
        self,
        executor: Executor | None,  # noqa: ARG002 - the signature is asyncio's
        func: Callable[[*Ts], T],
        *args: *Ts,  # noqa: ARG002
    ) -> NoReturn:
        """Refused: a thread ends when it likes."""
        raise RuntimeError(f"A deterministic loop runs no threads, and {func!r} needs one: inject and fake it.")


def run(
    main: Coroutine[Any, Any, T],
    *,
    seed: int | None,
    start_wall_ms: int = START_WALL_MS,
    max_steps: int | None = None,
) -> T:
    """Run a coroutine to its end on a deterministic loop of its own, as `asyncio.run` would."""
    loop = DeterministicLoop(seed=seed, start_wall_ms=start_wall_ms, max_steps=max_steps)
    try:
        result = loop.run_until_complete(main)
    except BaseException:
        # The first error is the one to be seen, even if what is left cannot be ended.
        with contextlib.suppress(BaseException):
            loop.wind_up()
        raise
    else:
        loop.wind_up()
        return result
    finally:
        loop.close()


def running_loop() -> DeterministicLoop:
    """The deterministic loop that is running now."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, DeterministicLoop):
        raise TypeError(f"This needs a DeterministicLoop, and a {type(loop).__name__} is running.")
    return loop


def _fail_loudly(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """End the run when a callback has raised; whatever else is reported here is logged, as always."""
    if isinstance(loop, DeterministicLoop) and "handle" in context and loop._failure is None:  # noqa: SLF001
        loop._failure = context["exception"]  # noqa: SLF001
        loop.stop()
    else:
        loop.default_exception_handler(context)


def _where(task: asyncio.Task[Any]) -> str:
    """Where a task stands: its chain of awaits with line numbers, outermost first."""
    chain: list[str] = []
    awaited: object = task.get_coro()
    while inspect.iscoroutine(awaited) and awaited.cr_frame is not None:
        chain.append(f"{awaited.__qualname__}:{awaited.cr_frame.f_lineno}")
        awaited = awaited.cr_await
    return " > ".join(chain)


class _OrderedWeakSet(weakref.WeakKeyDictionary[AsyncGenerator[Any, Any], None]):
    """The set of async generators that BaseEventLoop keeps, closed at the end in order of their first use."""

    def add(self, item: AsyncGenerator[Any, Any]) -> None:
        self[item] = None

    def discard(self, item: AsyncGenerator[Any, Any]) -> None:
        self.pop(item, None)


# A clock for tests: it stands until the deterministic loop moves on, and its wall can be made to jump.

_US_PER_MS = 1_000


class VirtualClock:
    """The `Clock` of one simulated machine; machines on one loop share its pace, not their walls."""

    def __init__(self, loop: DeterministicLoop | None = None) -> None:
        self._loop = loop or running_loop()
        self._wall_at_zero = self._loop.start_wall_ms
        self._slept = 0

    def wall(self) -> int:
        """Milliseconds since the Unix epoch, as this machine believes."""
        return self._wall_at_zero + self.monotonic()

    def monotonic(self) -> int:
        """Milliseconds since the loop began."""
        return self._loop.now_us // _US_PER_MS

    def boottime(self) -> int:
        """Milliseconds since the loop began, and those in which the machine was made to sleep."""
        return self.monotonic() + self._slept

    def jump_wall(self, ms: int) -> None:
        """Set the wall, as an NTP step or an operator does (either way)."""
        self._wall_at_zero += ms

    def suspend(self, ms: int) -> None:
        """Have slept for so long: the wall has gone on, and nothing on this machine has."""
        self._wall_at_zero += ms
        self._slept += ms
