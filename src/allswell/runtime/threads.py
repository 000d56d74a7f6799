"""Threads for calls that block: one that does not come back is given up, and its slot is taken by a new thread.

Python cannot stop a thread. A call that is given up runs on in a thread that no longer counts: its result goes nowhere,
its scope is fenced, and the next call in the queue starts in its place. The threads are daemons, so that one that hangs
does not keep the process from ending.

A call is not handed to a thread of its own: it waits in one queue, and one worker is called, who takes it and calls the
next worker only if more is waiting. So calls that block run each in a thread, as many as there are slots; and those
that are over in no time are done by the first worker before the next has even woken up, which costs more than they do.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

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
        threading.Thread(target=self._work, name=name, daemon=True).start()

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
