"""Threads for calls that block: one that does not come back is given up, and its slot is taken by a new thread.

Python cannot stop a thread. A call that is given up runs on in a thread that no longer counts: its result goes nowhere,
its scope is fenced, and the next call in the queue starts in its place. The threads are daemons, so that one that hangs
does not keep the process from ending.
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


class Call(Generic[T_co]):
    """One call in a thread: its result when it has ended, or nothing any more once it was given up."""

    def __init__(self, threads: Threads, function: Callable[[], T_co]) -> None:
        self._threads = threads
        self._function = function
        self._ended = threading.Event()
        self._told: list[Callable[[], None]] = []
        self._result: T_co | None = None
        self._error: BaseException | None = None
        self.given_up = False

    def done(self) -> bool:
        """Whether it has ended."""
        return self._ended.is_set()

    def wait(self, seconds: float | None) -> bool:
        """Wait for its end, at most so long; whether it has come."""
        return self._ended.wait(None if seconds is None else max(min(seconds, threading.TIMEOUT_MAX), 0.0))

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
        self._ended.set()
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
        self._busy: dict[Call[object], None] = {}
        self._waiting: deque[Call[object]] = deque()
        self._idle: list[_Worker] = []

    @property
    def busy(self) -> int:
        """How many slots are taken."""
        return len(self._busy)

    def call(self, function: Callable[[], T]) -> Call[T]:
        """Start a call, or let it wait for a slot."""
        if self._process != os.getpid():
            self._begin()
        call = Call(self, function)
        with self._lock:
            self._waiting.append(call)
            self._fill()
        return call

    def free(self, call: Call[object]) -> None:
        """Take the slot of a call that has ended or was given up, and let the next one begin."""
        with self._lock:
            if not call.done():
                call.given_up = True
            if call in self._busy:
                del self._busy[call]
                self.lost += call.given_up
                self._fill()
            elif call in self._waiting:
                self._waiting.remove(call)

    def withdraw(self, call: Call[object]) -> bool:
        """Take a call out of the queue; False if it has begun."""
        with self._lock:
            if call not in self._waiting:
                return False
            self._waiting.remove(call)
            return True

    def _fill(self) -> None:
        while self._waiting and (self._most is None or len(self._busy) < self._most):
            call = self._waiting.popleft()
            self._busy[call] = None
            worker = self._idle.pop() if self._idle else _Worker(self, self._name)
            worker.calls.put(call)

    def rest(self, worker: _Worker) -> bool:
        """Offer a worker for the next call; False if there are enough of them."""
        with self._lock:
            if len(self._idle) >= (self._most or 8):
                return False
            self._idle.append(worker)
            return True

    def dismiss(self, worker: _Worker) -> bool:
        """Let a worker go that has waited long enough; False if a call was just given to it."""
        with self._lock:
            if worker not in self._idle:
                return False
            self._idle.remove(worker)
            return True


class _Worker:
    """One thread."""

    def __init__(self, threads: Threads, name: str) -> None:
        self._threads = threads
        self.calls: SimpleQueue[Call[object]] = SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                call = self.calls.get(timeout=IDLE_SECONDS)
            except Empty:
                if self._threads.dismiss(self):
                    return
                continue
            call.run()
            lost = call.given_up
            if not lost:
                self._threads.free(call)
            del call  # a worker that rests must not keep the last result alive
            if lost or not self._threads.rest(self):
                return
