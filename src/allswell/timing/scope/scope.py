"""The tree of scopes, and how a deadline ends what is inside it.

**The tree.** The scope in effect is a context variable, so every task, callback and `to_thread` call inherits it. A
scope's deadline is fixed when it is entered: min(its own limit, the deadline of the scope around). One that is capped
by a scope of the same task sets no timer: the outer one ends both. When the time comes, `expiry` cancels the task.

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
import time
from copy import deepcopy
from math import inf
from types import TracebackType
from typing import Self

from allswell.domain.deadline import DEFAULT, positive
from allswell.domain.duration import LONGEST, Duration
from allswell.domain.spending import Book, Spending, TimeoutReport, book, label, span
from allswell.errors import Refused
from allswell.timing.foreign import refuse_other_loops, refuse_trio
from allswell.timing.running_loop import running_loop
from allswell.timing.scope import misuse
from allswell.timing.scope.deadlines import Deadlines, of_loop
from allswell.timing.scope.effect import in_effect, late_from
from allswell.timing.scope.expiry import SHORTEST_PAUSE, Expiry, strike
from allswell.timing.scope.timeout import ScopeTimeout

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
            raise misuse.entered_twice(self)
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
            raise misuse.not_open(self) from error
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
                raise misuse.left_elsewhere(self) from error
        in_effect.set(outer)
        if outer is not None and not (self.expiry is not None and self.expiry.fenced):
            self.book()
        inner = self.inner
        broken = misuse.left_before(self, inner) if inner is not None and inner.is_open else None
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

    def spent(self, inner: Book | None) -> Spending:
        """What it has taken so far."""
        now = self.now()
        took, cut = now - (self.began or 0.0), int(now >= self.deadline)
        return Spending(self.kind, self.name, 1, took, self.timeout_ms, cut, inner)

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
        return ScopeTimeout(self, report)


def within(timeout: float | Duration | None, *, kind: str = "scope", name: str = "") -> Scope:
    """A bare scope: milliseconds or "2s"; None for one that only what is outside limits."""
    return Scope(timeout, kind=kind, name=name)


async def pause(ms: float, *, why: str = "") -> None:
    """Sleep so that the sleep has its line in the explanation of a timeout."""
    if not 0 <= ms <= LONGEST:
        raise Refused("bad_duration", f"ms ({ms}) must be between 0 and 366 days", where="ms")
    async with Scope(None, kind="sleep", name=why):
        await asyncio.sleep(ms / 1_000)
