"""The loop of `allswell run`: one task, tried again until it has ended or no try is left.

The store decides by the task's policy whether it may be tried again: after a failure once its pause is over, after a
limit at once, until a human is asked. This loop then claims the task again by its id and runs the command, at most as
many times more as `--retries` says.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from allswell.domain.agents.session import Warmth
from allswell.domain.ids import TaskId
from allswell.domain.lease.verification import AfterCheck
from allswell.domain.receipts.receipt import End, Verification
from allswell.domain.task.model import OPEN
from allswell.engine.lease import Lease
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, Refused, Unavailable
from allswell.runtime.attempt.launch import (
    AttemptOutcome,
    LaunchSpec,
    ReplayableStdin,
    has_refused_session,
    told_of_warmth,
    with_handover,
)
from allswell.runtime.attempt.orphans import reconcile
from allswell.runtime.attempt.outcome import OutcomeReport, past_limit, refused_receipt, report
from allswell.runtime.attempt.record import FlightFile
from allswell.runtime.attempt.runner import AttemptRunner
from allswell.runtime.attempt.warm import REFUSED
from allswell.runtime.receipts import StateDir
from allswell.timing.clock import Clock

LEASE = 300_000
"""Milliseconds after which a lease that is not renewed lapses: how soon the store notices by itself that we are gone.

Long, because a healthy command must not be ended when the store cannot be written to for a while (a full disk). A
process that starts in the same folder notices sooner, by the file about the attempt in flight.
"""
_RETRIED = (End.FAILED, End.SIGNALLED, End.LOST, End.TIMEOUT, End.IDLE)
"""Ends after which there may be another attempt."""
_JUDGED = 3.0
"""Seconds for the store to say that a limit was reached."""
_CLAIMING = 60_000
"""Milliseconds for one try to claim the task."""


class RunInput(Protocol):
    """What the attempts read from, one after another: what was piped to us (`ReplayableStdin`), or a terminal."""

    @property
    def spent(self) -> bool:
        """Whether no other attempt can be given what the first one got."""

    def begin(self, order: LaunchSpec) -> LaunchSpec:
        """The order of the next attempt, with what it reads from."""

    def end(self) -> None:
        """The attempt is over."""


class RetryLoop:
    """Attempts at one task; `stop` ends them for good, from a signal's handler too."""

    def __init__(  # noqa: PLR0913 - all but two are keywords with defaults
        self,
        watch: Watch,
        home: StateDir,
        *,
        agent: str,
        retries: int,
        source: RunInput | None = None,
        began: Callable[[AttemptRunner], None] | None = None,
        verified: Callable[[Verification, AfterCheck], None] | None = None,
        tell: Callable[[str], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> None:
        self.attempt: AttemptRunner | None = None
        """The one that runs now."""
        self.outcomes: list[AttemptOutcome] = []
        self.starved = False
        """Whether there is no other try because its standard input was too long to be kept for one."""
        self.untold: Unavailable | None = None
        """Why the store does not know how the last one ended, if it does not: the report is on disk then."""
        self._watch = watch
        self._home = home
        self._agent = agent
        self._retries = retries
        self._source = source
        self._began = began
        self._verified = verified
        self._tell = tell
        self._report: OutcomeReport | None = None
        self._clock = clock
        self._stopped: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def stop(self, reason: str) -> None:
        """End the attempt that runs, and try no more; a second call ends it at once, without its grace period."""
        again = self._stopped.done()
        if not again:
            self._stopped.set_result(reason)
        if self.attempt is not None:
            self.attempt.stop(reason, grace=0 if again else None)
        elif self._report is not None:  # its command has ended, and the store is away
            self._report.leave()

    async def run(self, task: TaskId, order: LaunchSpec, note: FlightFile | None = None) -> AttemptOutcome | None:
        """The last outcome; None if the task could not be had at all. `note` is that of the first attempt in flight."""
        while (lease := await self._claim(task)) is not None:
            self._report = OutcomeReport(lease, self._home, self._tell)
            own = await self._told(order, lease)
            outcome = await self._attempt(own, lease, self._report, note)
            note = None
            if not self._stopped.done() and await has_refused_session(own, outcome, lease, self._home):
                own = await asyncio.to_thread(partial(with_handover, order, lease, self._home, cold=REFUSED))
                outcome = await self._attempt(own, lease, self._report, self._report.note)
            self.outcomes.append(outcome)
            try:
                if outcome.survivors is not None:
                    await reconcile(self._watch, self._home)
                if not await self._reported(lease, outcome, self._report):
                    break
            except Unavailable as error:  # what the command did is done, and its exit code is still worth telling
                self.untold = error
                break
            finally:
                lease.over = True  # its command is gone, so it is not renewed
                self._report.close()
        if note is not None:
            note.remove()
        return self.outcomes[-1] if self.outcomes else None

    async def _attempt(
        self, order: LaunchSpec, lease: Lease, report_: OutcomeReport, note: FlightFile | None
    ) -> AttemptOutcome:
        """One attempt; one that goes on with its agent's session has read the standard input already."""
        await self._tell_warmth(lease, order.warmth)
        fed = self._source
        if order.warmth.session and isinstance(fed, ReplayableStdin):
            fed = None
        own = order if fed is None else fed.begin(order)
        self.attempt = AttemptRunner(own, lease, self._home, note=note, report=report_, clock=self._clock)
        if self._stopped.done():
            self.attempt.stop(self._stopped.result())
        if self._began is not None:
            self._began(self.attempt)
        outcome = await self.attempt.run()
        self.attempt = None
        if fed is not None:
            fed.end()
        return outcome

    async def _told(self, order: LaunchSpec, lease: Lease) -> LaunchSpec:
        """The launch spec with the handover in it; what earlier attempts left is read from files, in a thread."""
        if lease.attempt == 1 and order.earlier is None:
            return with_handover(order, lease, self._home)
        return await asyncio.to_thread(with_handover, order, lease, self._home)

    async def _tell_warmth(self, lease: Lease, warmth: Warmth) -> None:
        """Say whether an attempt goes on with its agent's own session, and why not."""
        event = told_of_warmth(lease, warmth)
        if event is None:
            return
        cold = f"begins a new session: the last one is not gone on with, {warmth.why_cold}"
        session = "goes on with the agent's own session" if warmth.session else cold
        self._tell(f"attempt {lease.attempt} {session}")
        with contextlib.suppress(AllswellError):  # that it cannot be said stops nothing
            await self._watch.notice(event)

    async def _reported(self, lease: Lease, outcome: AttemptOutcome, report_: OutcomeReport) -> bool:
        """Tell the store how an attempt ended, for as long as its lease can be trusted; whether there is another."""
        lease.send = report_.send
        trusted = asyncio.get_running_loop().call_later(lease.remaining / 1_000, report_.leave)
        if self._stopped.done():
            report_.leave()
        try:
            await report_.send_pending()
            followed = await report(lease, outcome)
            if lease.lost is not None and outcome.receipt is not None:
                refused_receipt(self._home, outcome.receipt, lease.lost.reason)
            if followed is not None and outcome.verification is not None and self._verified is not None:
                self._verified(outcome.verification, followed)
            if outcome.end is End.TIMEOUT:
                await past_limit(self._watch, lease, _JUDGED)
            return await report_.wait_for(lambda: self._goes_on(lease.task, outcome))
        finally:
            trusted.cancel()

    async def _claim(self, task: TaskId) -> Lease | None:
        """The task, as soon as it can be had; None if we were stopped, or if it waits for a human."""
        while not self._stopped.done():
            claiming = asyncio.ensure_future(
                self._watch.claim(agent=self._agent, task=task, lease=LEASE, wait=_CLAIMING)
            )
            waiting: set[asyncio.Future[Any]] = {claiming, self._stopped}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not claiming.done():
                claiming.cancel()
                await asyncio.wait({claiming})
            if claiming.cancelled():
                return None
            try:
                lease = claiming.result()
            except Refused:
                if not self.outcomes:
                    raise
                return None  # the task was cancelled between two attempts
            if lease is not None or await self._waits(task):
                return lease
        return None

    async def _waits(self, task: TaskId) -> bool:
        row = await self._watch.task(task)
        return row is None or bool(row.waits)

    async def _goes_on(self, task: TaskId, outcome: AttemptOutcome) -> bool:
        if (
            self._stopped.done()
            or outcome.survivors is not None
            or not (outcome.end is End.UNVERIFIED or self._may_retry(outcome))
        ):
            return False
        if self._source is not None and self._source.spent:
            self.starved = True
            return False
        row = await self._watch.task(task)
        return row is not None and row.task.state == OPEN and not row.waits

    def _may_retry(self, outcome: AttemptOutcome) -> bool:
        """Whether a try is left; a failed verification uses up none, because the task counts those itself."""
        spent = sum(one.end is not End.UNVERIFIED for one in self.outcomes)
        return outcome.end in _RETRIED and spent <= self._retries
