"""A task of one's own, tried until it has ended or no try is left: what `allswell run` does.

The store judges each attempt: a failure is retried after its pause as long as the task's policy allows, a limit puts
the task back into the pool and is counted. What is decided here is only who takes it from there: we do, by name, for as
many more tries as were asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from allswell.domain.names import TaskId
from allswell.domain.receipt import End, Verification
from allswell.domain.task import OPEN
from allswell.domain.verification import AfterCheck
from allswell.engine.handle import Lease
from allswell.engine.watch import Watch
from allswell.errors import Unavailable
from allswell.runtime.attempt.attempt import Attempt
from allswell.runtime.attempt.consequence import report
from allswell.runtime.attempt.fed import Fed
from allswell.runtime.attempt.flight import FlightFile
from allswell.runtime.attempt.handed import ToldOrder
from allswell.runtime.attempt.order import Order, Outcome
from allswell.runtime.receipts import Home

LEASE = 300_000
"""Milliseconds in which a lease is renewed or lapses: how soon the store knows by itself that we are gone.

Long, because a store that cannot be written to for a while (a full disk) must not cost a command that is well. Whoever
starts in the same place knows sooner, by the note in flight.
"""
_AGAIN = (End.FAILED, End.SIGNALLED, End.LOST, End.TIMEOUT, End.IDLE)
_JUDGED = 3.0
"""Seconds for the store to say that a limit was reached."""
_CLAIMING = 60_000


class Tries:
    """Attempts at one task; `stop` ends them for good, from a signal's handler too."""

    def __init__(
        self,
        watch: Watch,
        home: Home,
        *,
        agent: str,
        retries: int,
        fed: Fed | None = None,
        began: Callable[[Attempt], None] | None = None,
        verified: Callable[[Verification, AfterCheck], None] | None = None,
    ) -> None:
        self.attempt: Attempt | None = None
        """The one that runs now."""
        self.outcomes: list[Outcome] = []
        self.starved = False
        """Whether there is no other try because its standard input was too long to be kept for one."""
        self.untold: Unavailable | None = None
        """Why the store could not be told of the last one, if it could not."""
        self._watch = watch
        self._home = home
        self._agent = agent
        self._retries = retries
        self._fed = fed
        self._began = began
        self._verified = verified
        self._stopped: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def stop(self, reason: str) -> None:
        """End the attempt that runs, and try no more; a second call lets go of the grace."""
        again = self._stopped.done()
        if not again:
            self._stopped.set_result(reason)
        if self.attempt is not None:
            self.attempt.stop(reason, grace=0 if again else None)

    async def run(self, task: TaskId, order: Order, note: FlightFile | None = None) -> Outcome | None:
        """The last outcome; None if the task could not be had at all. `note` is that of the first attempt in flight."""
        while (lease := await self._claim(task)) is not None:
            own = ToldOrder(order if self._fed is None else replace(order, stdin=self._fed.begin()), lease)
            self.attempt = Attempt(own.order, lease, self._home, note=note)
            note = None
            if self._stopped.done():
                self.attempt.stop(self._stopped.result())
            if self._began is not None:
                self._began(self.attempt)
            outcome = await self.attempt.run()
            self.attempt = None
            self.outcomes.append(outcome)
            own.close()
            if self._fed is not None:
                self._fed.end()
            try:
                followed = await report(lease, outcome)
                if followed is not None and outcome.verification is not None and self._verified is not None:
                    self._verified(outcome.verification, followed)
                if outcome.end is End.TIMEOUT:
                    await self._judged(lease)
                if not await self._goes_on(task, outcome):
                    break
            except Unavailable as error:  # what the command did is done, and its exit code is still worth telling
                self.untold = error
                break
        if note is not None:
            note.remove()
        return self.outcomes[-1] if self.outcomes else None

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
            lease = claiming.result()
            if lease is not None or await self._waits(task):
                return lease
        return None

    async def _waits(self, task: TaskId) -> bool:
        row = await self._watch.task(task)
        return row is None or bool(row.waits)

    async def _goes_on(self, task: TaskId, outcome: Outcome) -> bool:
        if self._stopped.done() or not (outcome.end is End.UNVERIFIED or self._may_retry(outcome)):
            return False
        if self._fed is not None and self._fed.spent:
            self.starved = True
            return False
        row = await self._watch.task(task)
        return row is not None and row.task.state == OPEN and not row.waits

    def _may_retry(self, outcome: Outcome) -> bool:
        """Whether a try is left; to be sent back to mend what was not done takes none: the task counts that itself."""
        spent = sum(one.end is not End.UNVERIFIED for one in self.outcomes)
        return outcome.end in _AGAIN and spent <= self._retries

    async def _judged(self, lease: Lease) -> None:
        """Until the store has said that the limit was reached: its clock may be a little behind ours."""
        end = asyncio.get_running_loop().time() + _JUDGED
        while asyncio.get_running_loop().time() < end:
            row = await self._watch.task(lease.task)
            if row is None or row.lease is None or row.lease.token != lease.token:
                return
            await self._watch.sweep_once()
            await asyncio.sleep(0.02)
