"""An attempt by an async function, in our own loop: called, asked, and cancelled at its limit.

Python cannot end a function that will not be cancelled: after its grace it is given up, fenced by its token, and its
slot is free. What it leaves is a receipt like anybody else's.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import sys
from collections.abc import Callable
from functools import reduce
from typing import Any

from msgspec.structs import replace

from allswell.domain.classify import failure_of
from allswell.domain.duration import show
from allswell.domain.evidence import Evidence, Sign, Standing
from allswell.domain.expense import Expense, Meter
from allswell.domain.fleet import AgentSpec
from allswell.domain.names import Millis
from allswell.domain.receipt import End
from allswell.domain.retry import Failure
from allswell.domain.snapshot import Limits
from allswell.domain.task import raised
from allswell.engine.handle import Lease
from allswell.errors import AllswellError, Refused
from allswell.runtime.agents.brief import Brief
from allswell.runtime.agents.ears import Heard
from allswell.runtime.agents.work import TaskBrief, Work
from allswell.runtime.attempt import Flight, Outcome
from allswell.runtime.attempt.keeping import Ended, Keeping
from allswell.runtime.attempt.paying import Paying
from allswell.runtime.attempt.taken import ended_by
from allswell.runtime.attempt.variables import about
from allswell.runtime.attempt.verifying import judged, watch_over
from allswell.runtime.contained import contained
from allswell.runtime.guard.ledger import ExchangeLedger, expense_of, in_ledger
from allswell.runtime.receipts import Home
from allswell.runtime.warden import allowed_environment
from allswell.timing.clock import Clock

_LOOK = 0.5
"""Seconds between two looks at whether the lease still holds."""


ABANDONED: dict[asyncio.Future[Any], None] = {}
"""Functions that would not be cancelled and still run: a program that ends must not wait for them."""


def _let_go(work: asyncio.Future[Any]) -> None:
    ABANDONED.pop(work, None)
    if not work.cancelled():
        work.exception()  # heard, so that nobody complains


def load_function(path: str) -> Callable[..., Any]:
    """The function that `module:name` means, or `Refused` that says what is missing."""
    module, _, name = path.partition(":")
    try:
        found = reduce(getattr, name.split("."), importlib.import_module(module))
    except ModuleNotFoundError as error:
        raise Refused("no_function", f"there is no module {error.name!r} for {path}", where="function") from None
    except AttributeError:
        raise Refused("no_function", f"{module} has no {name!r}", where="function") from None
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        raise Refused("no_function", f"{module} cannot be imported: {error!r}", where="function") from error
    if not callable(found):
        raise Refused("no_function", f"{path} is {type(found).__name__}, and cannot be called", where="function")
    return found


def find_function(spec: AgentSpec) -> Callable[..., Any]:
    """An agent's function, looked for from its folder too."""
    if spec.cwd not in sys.path:
        sys.path.insert(0, spec.cwd)
    return load_function(spec.function)


def told_of(brief: Brief, lease: Lease) -> TaskBrief:
    """What a function is told about its task."""
    return TaskBrief(
        lease.task,
        lease.name,
        lease.payload,
        lease.attempt,
        lease.agent,
        lease.role,
        brief.prompt,
        brief.handover,
        brief.folder,
    )


class FunctionRun:
    """One attempt by an async function."""

    def __init__(self, spec: AgentSpec, brief: Brief, lease: Lease, home: Home, heard: Heard, clock: Clock) -> None:
        self.lease = lease
        self.result: object = None
        self.failure: Failure | None = None
        self.inbox: tuple[str, ...] = ()
        self._spec = spec
        self._home = home
        self._heard = heard
        self._clock = clock
        self._began_at = Millis(self._clock.wall())
        self._standing = Standing(self._clock.monotonic())
        self._stopping: asyncio.Future[tuple[End, str]] = asyncio.get_running_loop().create_future()
        self._grace = spec.grace
        self._meter, self._ledger = Meter(), ExchangeLedger(bodies=False)
        self._paying = Paying(lease, self._meter, lambda why: self.stop(why, End.COSTLY))
        self._work = Work(told_of(brief, lease), lease, self._note, self._spent)
        self._folder = brief.folder

    @property
    def standing(self) -> Standing:
        """What it has shown so far: its check-ins, for nothing else can be seen of it."""
        return self._standing

    @property
    def waits_for(self) -> str | None:
        """Another agent's answer that it waits for."""
        return f"asked for help: {self._work.waits_for}" if self._work.waits_for else None

    def _note(self, what: str) -> None:
        self._standing = self._standing.heard(Evidence(Sign.CHECKIN, self._clock.monotonic(), what))

    def _spent(self, more: Expense) -> None:
        self._meter.add(more)
        self._paying.hear()

    def ask(self, words: str) -> tuple[str, ...]:
        """Ask by its callback, or by what it can look at."""
        return self._work.ask_for_checkin(words)

    def answered(self, note: str) -> None:
        """It has checked in, in its own output."""
        self._work.asked = ""
        self._note(f"“{note[:400]}”")

    def stop(self, reason: str, end: End = End.INTERRUPTED, *, grace: int | None = None) -> None:
        """Cancel it."""
        if grace is not None:
            self._grace = min(self._grace, grace)
        if not self._stopping.done():
            self._stopping.set_result((end, reason))

    async def run(self) -> Outcome:
        """From the call to the outcome."""
        before = in_ledger.set(self._ledger)  # which the call inherits
        work = asyncio.ensure_future(contained(find_function(self._spec))(self._work))
        in_ledger.reset(before)
        self._heard.started()
        try:
            end, reason, limit = await self._watch(work)
        except asyncio.CancelledError:
            self.stop("its caller was cancelled")
            await self._cut(work)
            raise
        if end is End.DONE and self.lease.verify:
            return await self._verified(reason)
        if not work.done():
            if end is End.LEASE_LOST:
                end, reason = await ended_by(self.lease) or (end, reason)
            await self._cut(work)
        asked = expense_of(self._ledger.tokens)
        if asked is not None:
            self._meter.add(asked)
        over = await self._paying.settle()
        outcome = await asyncio.get_running_loop().run_in_executor(None, self._outcome, end, reason, limit)
        return dataclasses.replace(outcome, expense=self._meter.total, over_cost=over)

    async def _verified(self, reason: str) -> Outcome:
        """It has returned; its work is verified before that counts."""
        stop = asyncio.Event()
        self._stopping.add_done_callback(lambda _: stop.set())
        elapsed = self._clock.monotonic() - self._standing.began
        ended = Ended(End.DONE, reason, None, None, elapsed, self._standing)
        env = allowed_environment(self._spec.env, more=self._spec.pass_env)
        env |= about(self.lease, self.lease.until_limit, "", "")
        came = await watch_over(self.lease, self.lease.verify, folder=self._folder, env=env, stop=stop)
        if came is None:
            end, why = self._stopping.result()
            ended = replace(ended, end=end, reason=why)
        else:
            ended = judged(ended, came)
        return await asyncio.get_running_loop().run_in_executor(None, self._receipted, ended)

    async def _watch(self, work: asyncio.Future[Any]) -> tuple[End, str, int | None]:
        limit = self.lease.until_limit
        loop = asyncio.get_running_loop()
        hard_at = loop.time() + limit / 1_000
        idle = raised(self._spec.idle, self.lease.idle_override)
        while True:
            pause = min(_LOOK, max(hard_at - loop.time(), 0))
            await asyncio.wait((work, self._stopping), timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return self._ended(work)
            if self._stopping.done():
                return (*self._stopping.result(), None)
            if loop.time() >= hard_at and await self.lease.confirm():
                limit = self.lease.limit
                hard_at = loop.time() + self.lease.until_limit / 1_000
            if loop.time() >= hard_at:
                return End.TIMEOUT, f"its limit of {show(limit)} was reached", limit
            if self.lease.over:
                return End.ASKED, "it let go of the task", None
            if self.lease.lost is not None or self.lease.remaining == 0:
                return (
                    End.LEASE_LOST,
                    "its lease has ended" if self.lease.lost is None else self.lease.lost.reason,
                    None,
                )
            if idle is not None and self._clock.monotonic() >= self._standing.idle_at(idle):
                return End.IDLE, f"nothing showed progress for {show(idle)}", idle

    def _ended(self, work: asyncio.Future[Any]) -> tuple[End, str, int | None]:
        if work.cancelled():
            return End.INTERRUPTED, "it was cancelled from inside", None
        error = work.exception()
        if error is None:
            self.result = work.result()
            return End.DONE, "it returned", None
        if isinstance(error, AllswellError) and self.lease.over:
            return End.ASKED, "it asked a human", None
        self.failure = failure_of(error)
        return End.FAILED, f"{type(error).__name__}: {error}"[:1_000], None

    async def _cut(self, work: asyncio.Future[Any]) -> None:
        """Cancel, and cancel again within the grace; then it is given up."""
        for _ in range(3):
            work.cancel()
            await asyncio.wait((work,), timeout=self._grace / 3_000)
            if work.done():
                if not work.cancelled():
                    work.exception()  # heard, so that nobody complains
                return
        ABANDONED[work] = None
        work.add_done_callback(_let_go)

    def _outcome(self, end: End, reason: str, limit: int | None) -> Outcome:
        if end is End.DONE:
            return Outcome(end, reason)
        elapsed = self._clock.monotonic() - self._standing.began
        return self._receipted(Ended(end, reason, limit, None, elapsed, self._standing))

    def _receipted(self, ended: Ended) -> Outcome:
        lease = self.lease
        flight = Flight(
            task=lease.task,
            name=lease.name,
            attempt=lease.attempt,
            token=lease.token,
            agent=lease.agent,
            run=lease.run,
            argv=(self._spec.function,),
            cwd=self._folder,
            began_at=self._began_at,
        )
        keeping = Keeping(flight, self._home, Limits(), self._clock)
        receipt = keeping.write(ended, partial=False)
        return Outcome(
            ended.end,
            ended.reason,
            receipt=receipt,
            receipt_path=keeping.path,
            verification=ended.verification,
            warnings=keeping.warnings,
        )
