"""Calls of sync functions inside a scope, in a thread that can be given up.

A function in a thread is told that its time is up by `allswell.check_deadline()`, if it asks, and by every scope that
it enters. At the end of the grace it is given up: the caller goes on, the thread's slot is filled anew, and what the
function still does is fenced.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from allswell.errors import Refused, Unavailable
from allswell.timing.loops import PerLoop
from allswell.timing.scopes import Scope, end_of, expire, run

# Threads for calls that block: one that does not come back is given up, and its slot is taken by a new thread.
#
# Python cannot stop a thread. A call that is given up runs on in a thread that no longer counts: its result goes
# nowhere, its scope is fenced, and the next call in the queue starts in its place. The threads are daemons, so that one
# that hangs does not keep the process from ending.
#
# A call is not handed to a thread of its own: it waits in one queue, and one worker is called, who takes it and calls
# the next worker only if more is waiting. So calls that block run each in a thread, as many as there are slots; and
# those that are over in no time are done by the first worker before the next has even woken up, which costs more than
# they do.

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

IDLE_SECONDS = 30.0
"""How long a thread without work waits for some before it ends."""


class ThreadCall(Generic[T_co]):
    """One call in a thread: its result when it has ended, or nothing any more once it was given up."""

    def __init__(self, threads: Threads, function: Callable[[], T_co]) -> None:
        self._threads = threads
        self._function = function
        self._ended = False
        self._over = threading.Lock()
        """Held until it has ended."""
        self._over.acquire()
        self._told: list[Callable[[], None]] = []
        self._result: T_co | None = None
        self._error: BaseException | None = None
        self.given_up = False

    def done(self) -> bool:
        """Whether it has ended."""
        return self._ended

    def wait(self, seconds: float | None) -> bool:
        """Wait for its end, at most so long; whether it has come."""
        if self._over.acquire(timeout=-1 if seconds is None else max(min(seconds, threading.TIMEOUT_MAX), 0.0)):
            self._over.release()  # for whoever else waits
        return self._ended

    def tell(self, callback: Callable[[], None]) -> None:
        """Call this, in the thread, when the call has ended; at once if it has."""
        self._told.append(callback)
        if self.done():
            self._tell()

    def result(self) -> T_co:
        """What it returned, or raised."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # done, and no error: this is it

    def never_began(self) -> bool:
        """Take it out of the queue, if it still waits there."""
        return self._threads.withdraw(self)

    def give_up(self) -> None:
        """Stop counting on it: its slot is free at once."""
        self._threads.free(self)

    def run(self) -> None:
        """Do the work; called in the thread."""
        try:
            self._result = self._function()
        except BaseException as error:  # noqa: BLE001 - it is raised again where the caller waits
            self._error = error
        self._ended = True
        self._over.release()
        self._tell()

    def _tell(self) -> None:
        while self._told:
            with contextlib.suppress(IndexError):  # somebody else took the last one
                self._told.pop()()


class Threads:
    """At most so many calls at a time, each in a thread; `most=None`: as many as are asked for."""

    def __init__(self, most: int | None = None, *, name: str = "allswell-call") -> None:
        self._most = most
        self._name = name
        self.lost = 0
        """How many calls were given up while they ran, ever."""
        self._begin()

    def _begin(self) -> None:
        """With no threads: at first, and in a child process, where a fork leaves all of them behind."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._busy: dict[ThreadCall[object], None] = {}
        self._waiting: deque[ThreadCall[object]] = deque()
        self._idle: list[_Worker] = []
        self._called: _Worker | None = None
        """Who was called and has not come yet: somebody always is while a call waits and a slot is free."""

    @property
    def busy(self) -> int:
        """How many slots are taken."""
        return len(self._busy)

    def call(self, function: Callable[[], T]) -> ThreadCall[T]:
        """Start a call, or let it wait for a slot."""
        if self._process != os.getpid():
            self._begin()
        call = ThreadCall(self, function)
        with self._lock:
            self._waiting.append(call)
            try:
                self._call_somebody()
            except RuntimeError:
                self._waiting.remove(call)
                raise
        return call

    def free(self, call: ThreadCall[object]) -> None:
        """Take the slot of a call that was given up, and let the next one begin."""
        with self._lock:
            if not call.done():
                call.given_up = True
            if call in self._busy:
                del self._busy[call]
                self.lost += call.given_up
                self._call_somebody()
            elif call in self._waiting:
                self._waiting.remove(call)

    def withdraw(self, call: ThreadCall[object]) -> bool:
        """Take a call out of the queue; False if it has begun."""
        with self._lock:
            if call not in self._waiting:
                return False
            self._waiting.remove(call)
            return True

    def _may_begin(self) -> bool:
        return bool(self._waiting) and (self._most is None or len(self._busy) < self._most)

    def _call_somebody(self) -> None:
        if self._called is not None or not self._may_begin():
            return
        try:
            worker = self._idle.pop() if self._idle else _Worker(self, self._name)
        except RuntimeError:  # the system has no thread left for us
            if self._busy:
                return  # whoever is at work takes it afterwards
            raise
        self._called = worker
        worker.calls.put(None)

    def take(self, worker: _Worker, ended: ThreadCall[object] | None) -> ThreadCall[object] | None:
        """Free the slot of what the worker has done, and give it the next call; None if there is none for it."""
        with self._lock:
            if ended is not None:
                self._busy.pop(ended, None)
            if self._called is worker:
                self._called = None
            if not self._may_begin():
                return None
            call = self._waiting.popleft()
            self._busy[call] = None
            self._call_somebody()
            return call

    def rest(self, worker: _Worker) -> bool:
        """Offer a worker for the next call; False if there are enough of them."""
        with self._lock:
            if len(self._idle) >= (self._most or 8):
                return False
            self._idle.append(worker)
            return True

    def dismiss(self, worker: _Worker) -> bool:
        """Let a worker go that has waited long enough; False if it was just called."""
        with self._lock:
            if worker not in self._idle:
                return False
            self._idle.remove(worker)
            return True


class _Worker:
    """One thread."""

    def __init__(self, threads: Threads, name: str) -> None:
        self._threads = threads
        self.calls: SimpleQueue[None] = SimpleQueue()
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        Context().run(thread.start)  # it serves later calls, too: what it starts is not this one's

    def _work(self) -> None:
        while self._is_called():
            call = self._threads.take(self, None)
            while call is not None:
                call.run()
                if call.given_up:
                    return  # its slot was filled anew
                call = self._threads.take(self, call)
            if not self._threads.rest(self):
                return

    def _is_called(self) -> bool:
        while True:
            try:
                self.calls.get(timeout=IDLE_SECONDS)
            except Empty:
                if self._threads.dismiss(self):
                    return False
            else:
                return True


log = logging.getLogger(__name__)

SLOTS = 64
"""Threads for calls from async code; callers beyond wait, within their own deadline."""

FOR_TASKS = Threads(SLOTS)
_FOR_THREADS = Threads()  # here a caller waits for each call: there are never more than callers
_FOR_FOLDERS = Threads(name="allswell-folder")


async def run_in_thread(scope: Scope, function: Callable[[], T], *, threads: Threads = FOR_TASKS) -> T:
    """Await a sync call inside a scope; back at the latest when the scope's grace is over."""

    async def body() -> T:
        context = copy_context()  # in which this scope is the one in effect
        return await ended(threads.call(lambda: context.run(function)), scope)

    return await run(scope, body)


async def in_time(function: Callable[[], T], seconds: float, what: str) -> T:
    """Await a sync call that looks into another's folder; `Unavailable` if it does not return in time.

    A folder may lie on a disk that is gone, or on a file system whose process does not answer: the kernel then blocks
    the thread that looks, and no signal ends that. So no event loop looks itself, and no thread is waited for without a
    limit. A thread that was left ends by itself once the folder answers.
    """
    loop = asyncio.get_running_loop()
    call = _FOR_FOLDERS.call(function)
    if not call.done():
        waiter: asyncio.Future[None] = loop.create_future()
        call.tell(functools.partial(_ends[loop].tell, waiter))
        try:
            await asyncio.wait([waiter], timeout=seconds)
        finally:
            if not call.done():
                call.give_up()
    return _in_time(call, seconds, what)


def wait_in_time(function: Callable[[], T], seconds: float, what: str) -> T:
    """The same for sync callers."""
    call = _FOR_FOLDERS.call(function)
    if not call.wait(seconds):
        call.give_up()
    return _in_time(call, seconds, what)


def _in_time(call: ThreadCall[T], seconds: float, what: str) -> T:
    if not call.done():
        raise Unavailable(f"{what} did not answer for {seconds:g} s", hint="is a disk or a mount in it gone?")
    return call.result()


async def ended(call: ThreadCall[T], scope: Scope, *, stop: Callable[[], None] | None = None) -> T:
    """The call's result. A thread cannot be cancelled, so neither can this; who awaits it is let go by `run`."""
    loop = asyncio.get_running_loop()
    cancelled: asyncio.CancelledError | None = None
    while not call.done():
        waiter: asyncio.Future[None] = loop.create_future()
        call.tell(functools.partial(_ends[loop].tell, waiter))
        try:
            await waiter
        except asyncio.CancelledError as cancel:
            cancelled = cancel
            if call.never_began():
                raise
            if stop is not None:
                stop()
            if scope.fenced:
                call.give_up()
    if cancelled is not None:
        raise cancelled
    return call.result()


class EndedCalls:
    """Calls that have ended, told to their loop together: to wake it costs more than what is told."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._wake = functools.partial(loop.call_soon_threadsafe, self._settle)
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._woken = False

    def tell(self, waiter: asyncio.Future[None]) -> None:
        """Wake the loop, unless it has been and has not come yet; in the call's thread."""
        self._waiters.append(waiter)  # first: who comes before the look below takes it along
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._wake()

    def _settle(self) -> None:
        self._woken = False  # first: what is told from now on is told anew
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)


_ends = PerLoop(EndedCalls)


def call_in_thread(scope: Scope, function: Callable[[], T]) -> T:
    """A sync call inside a scope, for sync callers; back at the latest when the scope's grace is over."""
    context = copy_context()
    context.run(scope.enter, None)
    call = _FOR_THREADS.call(lambda: context.run(function))
    try:
        ended = call.wait(scope.remaining())
        if not ended:
            expiry = scope.expiry or expire(scope, end_of(scope))
            ended = call.wait(expiry.end - scope.now())
    except BaseException:  # the caller is interrupted: nobody waits for the call any more
        _fence(scope, call)
        raise
    if not ended:
        _fence(scope, call)
        log.warning("%r did not stop within its grace and was given up; its thread is replaced", scope)
        raise scope.timed_out(abandoned=True)
    try:
        result = call.result()
    except BaseException as error:
        context.run(scope.__exit__, type(error), error, None)
        raise
    context.run(scope.__exit__, None, None, None)
    return result


def settled(result: T) -> T:
    """What a sync function returned, unless it is async in disguise: nobody would await it in time."""
    if result is not None and inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        text = "the function returned something to be awaited; give an async function, not one that makes a coroutine"
        raise Refused("not_sync", text, where="function")
    return result


def _fence(scope: Scope, call: ThreadCall[T]) -> None:
    scope.book()
    (scope.expiry or expire(scope, scope.now())).fenced = True
    call.give_up()


# A user's function, called in a process of ours: however it leaves, that is its own failure and ends nothing else.
#
# `sys.exit` (which `argparse` calls for `--help` too) and `KeyboardInterrupt` stop an event loop with all that runs in
# it, and a `CancelledError` of the function's own (something that it awaited was cancelled) looks like our order to
# stop. A step ends well by returning, so each of these is an error like any other here. A cancel that was meant for the
# function passes: whoever sent it knows.
#
# A task that the function has started is out of its hands: asyncio lets `SystemExit` out of the loop itself. Then
# `run_through` enters the loop again; whoever awaits that task gets the error.


class CallInterrupted(RuntimeError):
    """A function has neither returned nor raised an error: it was interrupted, or cancelled, by itself."""


class ExitCalled(CallInterrupted):
    """A function has called `sys.exit`: its own verdict, so it is not repeated, whatever the code says."""


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling it gives something to await."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def contained(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, async if it was: what would stop the loop, or look like a cancel of ours, is raised as an error."""
    if is_async(function):

        @functools.wraps(function)
        async def call_async(*args: object, **kwargs: object) -> object:
            try:
                return await function(*args, **kwargs)
            except (SystemExit, KeyboardInterrupt) as raised:
                raise left(raised) from raised
            except asyncio.CancelledError as raised:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                raise left(raised) from raised

        return call_async

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        try:
            return function(*args, **kwargs)
        except (SystemExit, KeyboardInterrupt, asyncio.CancelledError) as raised:
            raise left(raised) from raised

    return call


def left(raised: BaseException) -> CallInterrupted:
    """The error that stands for it."""
    if isinstance(raised, SystemExit):
        code = raised.code
        text = f"it called sys.exit({'' if code is None else repr(code)})"
        return ExitCalled(text if code else f"{text}, and a step that is done returns")
    if isinstance(raised, asyncio.CancelledError):
        return CallInterrupted("it ended in a CancelledError of its own: something that it awaited was cancelled")
    return CallInterrupted(f"it raised {type(raised).__name__}")


def run_through(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, and on to the end of `main` when a task beside it calls `sys.exit`."""
    working: asyncio.Task[T] | None = None

    async def watched() -> None:
        nonlocal working
        if working is None:
            working = asyncio.create_task(main)
        try:
            await asyncio.wait((working,))
        except asyncio.CancelledError:  # from the keyboard
            working.cancel()
            await asyncio.wait((working,))
            if working.cancelled():
                raise

    with asyncio.Runner() as runner:
        while working is None or not working.done():
            try:
                runner.run(watched())
            except SystemExit:
                if working is None or working.done():
                    raise
        return working.result()
