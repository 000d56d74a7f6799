"""The tree of scopes, and how a deadline ends what is inside it.

**The tree.** The scope in effect is a context variable, so every task, callback and `to_thread` call inherits it. A
scope's deadline is fixed when it is entered: min(its own limit, the deadline of the scope around). One that is capped
by a scope of the same task sets no timer: the outer one ends both. When the time comes, the task is cancelled
(`Expiry`).

**Leaving.** A scope takes back (`uncancel`) exactly the cancels it made. It turns `CancelledError` into `ScopeTimeout`
only when the task's count of cancels is back where it was on entry, for what is left then was meant by somebody else;
and only when no scope around it has expired since it was entered, for then the outermost of those does, in its own
task. (Otherwise a group whose children have scopes would end with their errors or with its own, as chance has it.)
What the body raises of its own passes, with a note. A body that ends in spite of the cancel has ended: nothing is
raised, as with `asyncio.timeout`.

**Clean-up.** A scope that is entered inside one that has expired is part of its clean-up: it has until the end of the
grace. After that, or when the call was given up, entering a scope is the fence: it raises at once.

**Without a task** (plain sync code, another thread) nothing can be interrupted by force. Such a scope is known to all
that is entered inside it, and it is checked: on entry, by `check_deadline()`, and when it is left.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from contextvars import Context, ContextVar
from copy import deepcopy
from heapq import heapify, heappop, heappush
from math import inf
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from allswell.domain.duration import LONGEST, Duration
from allswell.domain.scopes import DEFAULT, Book, ScopeUse, TimeoutReport, book, end_of_grace, label, positive, span
from allswell.errors import AllswellError, Refused
from allswell.timing.loops import PerLoop, refuse_other_loops, refuse_trio, running_loop

# The deadlines of one event loop: a heap of our own, behind a single timer of the loop.
#
# `asyncio.timeout` sets a timer of the loop for every block and cancels it again. Here a block costs a push on a heap
# and, mostly, a pop off one of its ends: the loop's timer is set for the nearest deadline only and stays where it is
# when that block ends early. When it fires with nothing due, it is set for what is then the nearest.


_DEAD_KEPT = 100


class Deadlines:
    """What expires on one loop, and when."""

    __slots__ = ("_armed_at", "_context", "_dead", "_handle", "_number", "expiries", "heap", "loop", "time")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        # asyncio's own loops say `time.monotonic()`, by a call more; virtual ones have a time of their own.
        self.time = time.monotonic if type(loop).time is asyncio.BaseEventLoop.time else loop.time
        self.heap: list[tuple[float, int, Scope]] = []
        self.expiries = 0
        """How many scopes have expired so far: what came before what, where the clock stands still."""
        self._number = 0
        self._dead = 0
        self._armed_at = inf
        self._handle: asyncio.TimerHandle | None = None
        self._context = Context()  # an empty one: that of whoever armed it would be kept alive with all its scopes

    def add(self, when: float, scope: Scope) -> None:
        """Let a scope know when its time comes."""
        self._number += 1
        heappush(self.heap, (when, self._number, scope))
        if when < self._armed_at:
            self._arm(when)

    def remove(self, scope: Scope) -> None:
        """Forget a scope that was left: at once where it came first, else when half of the heap is dead."""
        heap = self.heap
        if heap and heap[0][2] is scope:
            heappop(heap)
            return
        self._dead += 1
        if self._dead > _DEAD_KEPT and self._dead > len(heap) // 2:
            heap[:] = [entry for entry in heap if entry[2].is_open]
            heapify(heap)
            self._dead = 0

    def _arm(self, when: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._armed_at = when
        self._handle = self.loop.call_at(when, self._tick, context=self._context)

    def _tick(self) -> None:
        """Strike everything that is due, and wait for the next. The loop may call a little early; we never do."""
        self._handle = None
        self._armed_at = inf
        try:
            self._strike(self.time())
        finally:  # whatever a task makes of being cancelled, the other deadlines hold
            if self.heap:
                self._arm(self.heap[0][0])

    def _strike(self, now: float) -> None:
        heap = self.heap
        while heap:
            when, _, scope = heap[0]
            if not scope.is_open:
                heappop(heap)
                self._dead = max(self._dead - 1, 0)
            elif when > now:
                break
            else:
                heappop(heap)
                again = scope.strike(now)
                if again is not None:
                    self._number += 1
                    heappush(heap, (again, self._number, scope))


of_loop = PerLoop(Deadlines)


# What a scope does once its time is up: when it cancels, how often, and when its body is given up.
#
# A scope cancels its task once, and again at every third of the grace while the body goes on. It never cancels at every
# await: a cancel that comes again and again cuts clean-up short and pierces shields. For the same reason a scope whose
# task is already being ended by one further in (the loop was late, and both are due) waits a third before it adds to
# it.


SHORTEST_PAUSE = 0.05
"""Between two cancels of one scope, however short what is outside has cut its grace; seconds."""


class Expiry:
    """What a scope has done since its time was up; instants are those of its clock."""

    __slots__ = ("cancels", "end", "fenced", "last", "number")

    def __init__(self, number: int, end: float) -> None:
        self.number = number
        """Which one it is on its loop: two may fall into the same instant."""
        self.end = end
        """When the grace is over."""
        self.cancels = 0
        self.last = -inf
        """When it last cancelled."""
        self.fenced = False
        """Whether the body was given up."""


def strike(scope: Scope, task: asyncio.Task[object], now: float) -> float:
    """Tell the body to stop, or tell it again, or give it up; returns when to come back."""
    expiry = scope.expiry or expire(scope, end_of(scope))
    if now >= expiry.end and scope.given_up is not None and not scope.given_up.done():
        expiry.fenced = True
        scope.given_up.set_result(None)
    pause = max((expiry.end - scope.deadline) / 3, SHORTEST_PAUSE)
    told = max(expiry.last, _told_from_inside(scope))
    if now >= told + pause:
        task.cancel(f"{label(scope.kind, scope.name)} reached its limit")
        expiry.cancels += 1
        expiry.last = told = now
    return min(told + pause, expiry.end) if now < expiry.end else told + pause


_expiring = threading.Lock()


def expire(scope: Scope, end: float) -> Expiry:
    """Note that a scope's time is up. Its loop and a thread that works for it may both be the first to see it."""
    with _expiring:
        if scope.expiry is None:
            number = 0
            if scope.deadlines is not None:
                number = scope.deadlines.expiries = scope.deadlines.expiries + 1
            scope.expiry = Expiry(number, end)
        return scope.expiry


def _told_from_inside(scope: Scope) -> float:
    """When a scope further in, of the same task and still open, last cancelled it."""
    last, inner = -inf, scope.inner
    while inner is not None:
        if inner.is_open and inner.expiry is not None:
            last = max(last, inner.expiry.last)
        inner = inner.inner
    return last


def end_of(scope: Scope, told: float | None = None) -> float:
    """Until when a body that was told to stop (at the deadline, unless it was sooner) may take to do so."""
    told = scope.deadline if told is None else told
    outer = scope.outer
    if outer is None or outer.deadline == inf:
        return end_of_grace(told, scope.grace_ms / 1_000)
    outer_end = end_of(outer) if outer.expiry is None else outer.expiry.end
    ahead = 0.0 if outer.deadlines is scope.deadlines else scope.now() - outer.now()
    return end_of_grace(told, scope.grace_ms / 1_000, outer.deadline + ahead, outer_end + ahead)


# The scope in effect: what every task, callback and thread inherits, and how it is asked.


in_effect: ContextVar[Scope | None] = ContextVar("allswell_scope", default=None)


def current() -> Scope | None:
    """The innermost scope in effect."""
    return in_effect.get()


def remaining_ms() -> float | None:
    """Milliseconds that the innermost scope in effect has left (of its grace, in clean-up); None without a limit."""
    scope = in_effect.get()
    return None if scope is None else scope.remaining_ms()


def check_deadline() -> None:
    """Raise `ScopeTimeout` if the time is up: for loops of sync code, which nothing can interrupt."""
    late = late_from(in_effect.get())
    if late is not None:
        raise late.timed_out()


def late_from(scope: Scope | None) -> Scope | None:
    """The outermost scope, from this one outward, whose time is up; it is told so, and what cleans up has its grace."""
    late = None
    while scope is not None:
        if scope.deadline != inf and scope.now() >= scope.deadline:
            late = scope
            if scope.expiry is None:
                expire(scope, end_of(scope))
        scope = scope.outer
    return late


# Scopes that are left where or when they must not be: the tree is put in order, and the caller told what to do.


def entered_twice(scope: Scope) -> RuntimeError:
    """For a scope that is used a second time."""
    return RuntimeError(f"{scope!r} was entered before; a scope is entered once, so make one for each block.")


def not_open(scope: Scope) -> RuntimeError:
    """For a scope that is left without being open."""
    return RuntimeError(f"{scope!r} was left, but is not open.")


def left_elsewhere(scope: Scope) -> RuntimeError:
    """For a scope that another task leaves than the one that entered it."""
    entered = "outside any task" if scope.task is None else f"in {scope.task.get_name()}"
    return RuntimeError(
        f"{scope!r} was entered {entered} and left elsewhere; a scope belongs to one task. In an async generator, "
        "leave it before `yield`, or close the generator where it is used (contextlib.aclosing)."
    )


def left_before(scope: Scope, inner: Scope) -> RuntimeError:
    """For a scope that is left before one inside it; what is inside is closed and its cancels are taken back."""
    error = RuntimeError(
        f"{scope!r} was left while {inner!r}, entered inside it, is open: a generator was left in the middle of its "
        "block. Close it where it is used (contextlib.aclosing), or leave the scope before `yield`."
    )
    part: Scope | None = inner
    while part is not None:
        part.is_open = False
        if part.expiry is not None and part.task is not None:
            for _ in range(part.expiry.cancels):
                part.task.uncancel()
        part = part.inner
    return error


# The error of a scope whose time is up.


on_timeout: ContextVar[Callable[[ScopeTimeout], None] | None] = ContextVar("allswell_on_timeout", default=None)
"""Is told of every scope whose time is up, where somebody keeps a record of that."""


class ScopeTimeout(AllswellError, TimeoutError):
    """A scope's time is up. It is raised where that scope is left, never by the scopes that it ended inside.

    It is not a failure of what was called: `scope` says whose limit it was, `explain()` where the time went.
    """

    def __init__(self, scope: Scope, report: TimeoutReport) -> None:
        super().__init__(report.sentence())
        self.scope = scope
        self.report = report

    @property
    def abandoned(self) -> bool:
        """Whether the work did not stop within its grace, and still runs somewhere, fenced off."""
        return self.report.abandoned

    def explain(self) -> str:
        """One sentence, and a tree of how the time was spent."""
        return f"{self.report.sentence()}\n{self.report.tree()}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_restored, (self.report,))


def _restored(report: TimeoutReport) -> ScopeTimeout:
    """From another process, the scope comes as what is left of it: its names and figures."""
    return ScopeTimeout(Scope(report.timeout_ms, kind=report.kind, name=report.name), report)


_current_task = asyncio.current_task
_monotonic = time.monotonic


class Scope:
    """A deadline around a block: `async with within("2s"): …`; entered once, and left by the task that entered it."""

    __slots__ = (
        "_armed",
        "_cancels_on_entry",
        "_expiries_on_entry",
        "began",
        "booked",
        "deadline",
        "deadlines",
        "expiry",
        "given_up",
        "grace_ms",
        "inner",
        "is_open",
        "kind",
        "name",
        "outer",
        "task",
        "timeout_ms",
    )

    def __init__(
        self, timeout: float | Duration | None, *, kind: str = "scope", name: str = "", grace_ms: int = DEFAULT.grace
    ) -> None:
        self.kind = kind
        self.name = name
        self.timeout_ms = None if timeout is None else positive(timeout, where="timeout")
        """Its own limit; None: only what is outside limits it."""
        self.grace_ms = grace_ms
        self.is_open = False
        self.outer: Scope | None = None
        """The scope around it."""
        self.deadline = inf
        """When it ends, on its clock, in seconds: its loop's `time()`, which is `time.monotonic()` without one."""
        self.began: float | None = None
        # What the tree keeps; not for users.
        self.task: asyncio.Task[object] | None = None
        self.deadlines: Deadlines | None = None
        self.inner: Scope | None = None
        self.booked: Book | None = None
        self.expiry: Expiry | None = None
        self.given_up: asyncio.Future[None] | None = None
        self._armed = False

    # --- what it says of itself ---------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        left = "" if self.deadline == inf or not self.is_open else f", {span(self.remaining())} left"
        return f"<{label(self.kind, self.name)}{left}>"

    def now(self) -> float:
        """Its clock."""
        return _monotonic() if self.deadlines is None else self.deadlines.time()

    @property
    def expired(self) -> bool:
        """Whether its time is up and its body was told to stop."""
        return self.expiry is not None

    @property
    def fenced(self) -> bool:
        """Whether it, or a scope around it, was given up: what still runs inside may have no effects any more."""
        scope: Scope | None = self
        while scope is not None:
            if scope.expiry is not None and scope.expiry.fenced:
                return True
            scope = scope.outer
        return False

    @property
    def effective_ms(self) -> float | None:
        """How long it had on entry: min(its own limit, what was left outside); None where nothing limits it."""
        return None if self.began is None or self.deadline == inf else (self.deadline - self.began) * 1_000

    @property
    def capped_by(self) -> Scope | None:
        """The outer scope whose deadline came before its own, and holds for both; None where its own did."""
        if self.began is None or self.deadline == inf:
            return None
        if self.timeout_ms is not None and self.deadline >= self.began + self.timeout_ms / 1_000:
            return None
        outer = self.outer
        return outer if outer is None else outer.capped_by or outer

    def remaining(self) -> float:
        """Seconds that are left; in the clean-up after the deadline, what is left of the grace. Never negative."""
        limit = self.deadline if self.expiry is None else self.expiry.end
        return inf if limit == inf else max(limit - self.now(), 0.0)

    def remaining_ms(self) -> float | None:
        """Milliseconds that are left, or None where nothing limits it."""
        left = self.remaining()
        return None if left == inf else left * 1_000

    # --- entering -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        loop = running_loop()
        if loop is None:
            refuse_other_loops()
        if not self._opened(loop):
            # A body that swallows this, too, and tries again must not keep the loop busy.
            await asyncio.sleep(SHORTEST_PAUSE)
            raise asyncio.CancelledError(f"{self!r} was entered after the end of {self.outer!r}")
        return self

    def __enter__(self) -> Self:
        loop = running_loop()
        if loop is None:
            refuse_trio()
        return self.enter(loop)

    def enter(self, loop: asyncio.AbstractEventLoop | None) -> Self:
        """Enter it as sync code does; without a loop no task is bound to it, even where one is running."""
        if not self._opened(loop):
            raise (late_from(self.outer) or self).timed_out()
        return self

    def _opened(self, loop: asyncio.AbstractEventLoop | None) -> bool:  # noqa: PLR0912 - one look at all of it
        """Find out what is outside and how much time there is, and open; False if there is none."""
        if self.began is not None:
            raise entered_twice(self)
        outer = self.outer = in_effect.get()
        task = deadlines = None
        if loop is not None:
            deadlines = self.deadlines = of_loop[loop]
            self._expiries_on_entry = deadlines.expiries
            task = self.task = _current_task(loop)
            if task is None:
                refuse_trio()  # it can be a guest of asyncio's loop
            else:
                self._cancels_on_entry = task.cancelling()
        limit = inf
        if outer is None:
            now = self.began = _monotonic() if deadlines is None else deadlines.time()
        elif outer.expiry is None and outer.deadlines is deadlines:
            now = self.began = _monotonic() if deadlines is None else deadlines.time()
            limit = outer.deadline
        else:
            # The order of the readings matters: a deadline may come late by the time between them, never early.
            outer_now = outer.now()
            now = self.began = self.now()
            limit = now - outer_now + (outer.deadline if outer.expiry is None else outer.expiry.end)
        if outer is not None and (outer.expiry is not None or task is None) and (limit <= now or outer.fenced):
            return False  # as `has_time` has it
        deadline = inf if self.timeout_ms is None else now + self.timeout_ms / 1_000
        # Only within one task is what was entered last left first; threads under one scope come and go.
        beside = task is not None and outer is not None and outer.task is task and outer.is_open
        if outer is not None:
            if beside:
                outer.inner = self
            if deadline >= limit:
                deadline = limit
                if beside and outer.expiry is None:
                    task = None  # its end is ours too: no timer of our own
        self.deadline = deadline
        self.is_open = True
        in_effect.set(self)
        if task is not None and deadline < inf and deadlines is not None:
            self._armed = True
            deadlines.add(deadline, self)
        return True

    def has_time(self) -> bool:
        """Whether anything may be begun inside it: it was neither given up, nor has it used up its time and grace."""
        return self.remaining() > 0 and not self.fenced

    # --- leaving ------------------------------------------------------------------------------------------------------

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        interruptible = self.task is not None and self.expiry is not None
        self._leave(error)
        if interruptible or self.now() < self.deadline:
            return
        if error is None:
            raise self.timed_out()  # nobody could interrupt it; it is late all the same
        if not isinstance(error, ScopeTimeout):
            error.add_note(self._note())

    def _leave(self, error: BaseException | None) -> None:
        if not self.is_open:
            if isinstance(error, GeneratorExit):
                return
            raise not_open(self) from error
        self.is_open = False
        outer, deadlines, task = self.outer, self.deadlines, self.task
        if outer is not None and outer.inner is self:
            outer.inner = None
        if deadlines is not None:
            if self._armed:
                heap = deadlines.heap
                if heap and heap[-1][2] is self:  # the last of a heap can be taken off, and blocks mostly nest
                    heap.pop()
                else:
                    deadlines.remove(self)
            if _current_task(deadlines.loop) is not task:
                if isinstance(error, GeneratorExit):
                    return  # the coroutine is thrown away, perhaps with its loop: nobody is there to be told
                raise left_elsewhere(self) from error
        in_effect.set(outer)
        if outer is not None and not (self.expiry is not None and self.expiry.fenced):
            self.book()
        inner = self.inner
        broken = left_before(self, inner) if inner is not None and inner.is_open else None
        self.task = None  # what is left of us, in the heap or in an error, must not keep its result alive
        if self.expiry is not None and task is not None:
            self._settle(task, self.expiry, error)
        if broken is not None:
            raise broken from error

    def _settle(self, task: asyncio.Task[object], expiry: Expiry, error: BaseException | None) -> None:
        """Take back our own cancels, and raise if what is in flight is ours alone."""
        for _ in range(expiry.cancels):
            task.uncancel()
        if isinstance(error, asyncio.CancelledError):
            if task.cancelling() <= self._cancels_on_entry and not self._outlasted():
                raise self.timed_out() from error
        elif error is not None:
            error.add_note(self._note())

    def _note(self) -> str:
        return f"{label(self.kind, self.name)} had reached its limit when this was raised."

    def _outlasted(self) -> bool:
        """Whether a scope around it, of this task or of the one that started it, has expired since it was entered."""
        outer = self.outer
        while outer is not None:
            expiry = outer.expiry
            if expiry is not None and outer.deadlines is self.deadlines and expiry.number > self._expiries_on_entry:
                return True
            outer = outer.outer
        return False

    # --- its time is up -----------------------------------------------------------------------------------------------

    def strike(self, now: float) -> float | None:
        """Called when the deadline has passed, and again while the body goes on; returns when to come back."""
        task = self.task
        if not self.is_open or task is None or task.done():
            self.is_open = False
            return None
        return strike(self, task, now)

    def book(self) -> None:
        """Book what it took with the scope around it: when it is left, or when what still runs in it is given up."""
        outer = self.outer
        if outer is not None:
            if outer.booked is None:
                outer.booked = {}
            book(outer.booked, self.spent(self.booked))

    def spent(self, inner: Book | None) -> ScopeUse:
        """What it has taken so far."""
        now = self.now()
        took, cut = now - (self.began or 0.0), int(now >= self.deadline)
        return ScopeUse(self.kind, self.name, 1, took, self.timeout_ms, cut, inner)

    def _booked_so_far(self) -> Book:
        """What was booked, and what is still open inside it: sync code is told of a timeout in the middle of it."""
        scope, open_inside = in_effect.get(), None
        while scope is not None and scope is not self:
            inner: Book = deepcopy(scope.booked or {})  # what is booked already is booked anew when it is left
            if open_inside is not None:
                book(inner, open_inside)
            open_inside = scope.spent(inner)
            scope = scope.outer
        if scope is None or open_inside is None:
            return self.booked or {}
        told: Book = deepcopy(self.booked or {})
        book(told, open_inside)
        return told

    def timed_out(self, *, abandoned: bool = False) -> ScopeTimeout:
        """The error that says that this scope's time is up, with how it was spent."""
        now = self.now()
        began = now if self.began is None else self.began
        cap = self.capped_by
        report = TimeoutReport(
            kind=self.kind,
            name=self.name,
            elapsed=now - began,
            limit=self.deadline - began,
            timeout_ms=self.timeout_ms,
            capped_by=None if cap is None else (cap.kind, cap.name),
            abandoned=abandoned,
            spent=tuple(self._booked_so_far().values()),
        )
        error = ScopeTimeout(self, report)
        tell = on_timeout.get()
        if tell is not None:
            tell(error)
        return error


def within(timeout: float | Duration | None, *, kind: str = "scope", name: str = "") -> Scope:
    """A bare scope: milliseconds or "2s"; None for one that only what is outside limits."""
    return Scope(timeout, kind=kind, name=name)


async def pause(ms: float, *, why: str = "") -> None:
    """Sleep so that the sleep has its line in the explanation of a timeout."""
    if not 0 <= ms <= LONGEST:
        raise Refused("bad_duration", f"ms ({ms}) must be between 0 and 366 days", where="ms")
    async with Scope(None, kind="sleep", name=why):
        await asyncio.sleep(ms / 1_000)


# Calls whose end is promised: the body is a task of its own, which can be given up.
#
# `async with` ends what obeys. A body that swallows its cancel, or waits for something that does, holds its block for
# as long as it likes, and nothing in Python can change that. `run` keeps the caller apart from the body: at the
# deadline the body is cancelled, and again at every third of the grace; at the end of the grace the caller goes on.
# What is left behind is fenced (it can enter no scope any more, and its result goes nowhere), counted, named in a
# warning, and still cancelled now and then, for as long as it runs.
#
# The caller may be cancelled too, by anybody. The cancel is passed on to the body once, unless the deadline has told it
# already, and the wait for it is bounded in the same way.

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)

_abandoned: dict[asyncio.Task[object], Scope] = {}


def abandoned() -> tuple[Scope, ...]:
    """The scopes whose bodies were given up and still run, oldest first."""
    for task in [task for task in list(_abandoned) if task.get_loop().is_closed()]:
        _abandoned.pop(task, None)
    return tuple(_abandoned.values())


async def run(scope: Scope, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Await a call inside a scope in a task of its own; back at the latest when the scope's grace is over."""
    if scope.began is not None:
        raise entered_twice(scope)
    refuse_other_loops()

    async def body() -> T:
        task.remove_done_callback(ended)  # it is for a task that is cancelled before it begins
        try:
            async with scope:
                return await function(*args, **kwargs)
        finally:
            ended()  # a turn of the loop before the task could say so itself

    def ended(_: object = None) -> None:
        if not over.done():
            over.set_result(None)

    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    scope.given_up = over
    task = loop.create_task(body(), name=label(scope.kind, scope.name))
    task.add_done_callback(ended)
    try:
        await over
    except asyncio.CancelledError:
        await _end(task, scope)
        if not task.done():
            _abandon(task, scope)
        elif not task.cancelled():
            error = task.exception()
            if error is not None and not isinstance(error, ScopeTimeout):
                raise error from None
        raise
    if task.done():
        return task.result()
    _abandon(task, scope)
    raise scope.timed_out(abandoned=True)


async def _end(task: asyncio.Task[T], scope: Scope) -> None:
    """Pass the caller's cancel on, and wait for the body until its grace is over."""
    began = told = scope.now()
    if not scope.expired:
        task.cancel()
    while not task.done():
        end = end_of(scope, began)
        if scope.expiry is not None:  # whichever told it first: a limit that comes after a cancel gives no more time
            end = min(end, scope.expiry.end)
        now = scope.now()
        if now >= end:
            return
        pause = max((end - began) / 3, SHORTEST_PAUSE)
        try:
            await asyncio.wait((task,), timeout=min(told + pause, end) - now)
            again = scope.now() >= told + pause
        except asyncio.CancelledError:
            again = True  # the caller is cancelled again: so is the body
        if again and not task.done():
            told = scope.now()
            if not scope.expired:  # a scope that has expired does its own telling
                task.cancel()


def _abandon(task: asyncio.Task[T], scope: Scope) -> None:
    """Fence, count and name what does not stop."""
    expiry = expire(scope, scope.now()) if scope.expiry is None else scope.expiry
    scope.book()
    expiry.fenced = True
    _abandoned[task] = scope
    task.cancel()  # told once more, now that it is fenced: a body that waits for a thread lets go of its slot
    # `asyncio.run` ends when every task that asyncio knows of has ended, and would wait for this one for ever. This
    # takes it out of that list. The name is public in spite of its spelling: it is in `asyncio.__all__` and in the
    # library's reference ("Extending", task lifetime support); adr/0007 says why nothing plainer does.
    asyncio._unregister_task(task)  # noqa: SLF001
    task.add_done_callback(_ended)
    log.warning("%s did not stop within its grace and was given up; it is at %s", task.get_name(), _where(task))


def _where(task: asyncio.Task[T]) -> str:
    """The innermost line of a task that we can see."""
    found = "an unknown place"
    awaited: object = task.get_coro()
    while inspect.iscoroutine(awaited) and awaited.cr_frame is not None:
        found = f"{awaited.cr_frame.f_code.co_filename}:{awaited.cr_frame.f_lineno}"
        awaited = awaited.cr_await
    return found


def _ended(task: asyncio.Task[T]) -> None:
    _abandoned.pop(task, None)
    if not task.cancelled():
        task.exception()  # seen: it has nobody else to go to


# Scopes: nested deadlines that hold (`async with within("2s"): …`), and what becomes of work that does not obey.
#
# Scopes with a default and a hard limit (`flow`, `step`, …) are made of these in `allswell.runtime.deadlines`.

__all__ = ["Scope", "ScopeTimeout", "abandoned", "check_deadline", "current", "pause", "remaining_ms", "run", "within"]
