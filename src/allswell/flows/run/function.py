"""A step that calls a Python function, async or sync, inside a scope of its own, in this process.

A function that is told to stop and does not is given up and fenced when its grace is over, as anywhere in Allswell.
What it calls (guards, `llm_call`, `tool`) finds the step's deadline around it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from allswell.domain.agents.status import named
from allswell.domain.duration import show
from allswell.domain.receipts.step import FinalAction, StepStatus
from allswell.domain.scopes import ScopeKind
from allswell.domain.service.classify import failure_of
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.domain.values import to_json
from allswell.engine.lease import Lease
from allswell.errors import AllswellError, Refused
from allswell.flows.run.context import RunContext, StepOutcome, failed
from allswell.flows.run.plan import MemberJob
from allswell.flows.run.timeouts import BaselineNotes, Capturing, TimeoutCut
from allswell.flows.spec import Function
from allswell.runtime.agents.function import FunctionCall, load_function
from allswell.runtime.attempt.launch import PLACE
from allswell.runtime.call_timeouts import CallTimeout, CallTimeouts
from allswell.runtime.calls import contained, left
from allswell.runtime.deadlines import limits, run, step
from allswell.runtime.guard.transport import expense_of
from allswell.timing.loops import running_loop
from allswell.timing.scopes import Scope, ScopeTimeout


def find_function(named: Function, folder: str) -> Callable[..., object]:
    """The function that a step names, looked for from the flow's folder; `Refused` where it is not there."""
    whole = f"{named.module}:{named.function}"
    return load_function(whole, folder, where=whole)


class FunctionWork:
    """One call of a function."""

    def __init__(
        self,
        job: MemberJob,
        work: Function,
        lease: Lease,
        capturing: Capturing,
        cut: TimeoutCut,
        site: RunContext,
        handover: str,
    ) -> None:
        self._handover = handover
        self._job = job
        self._work = work
        self._site = site
        self._lease = lease
        self._noted = False
        self._number = job.tried + lease.attempt
        self._call = FunctionCall(f"{lease.task}.{lease.attempt}", handover)
        self._ledger = self._call.ledger
        self._capturing = capturing
        self._cut = cut
        self._working: asyncio.Future[object] | None = None
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """The call has ended, or nobody waits for it any more."""
        self._stopped: tuple[str, bool] | None = None
        self._loop = asyncio.get_running_loop()
        self._timeouts = CallTimeouts(self._hear_timeout, (ScopeKind.LLM_CALL, ScopeKind.TOOL), site.clock.wall)
        self._keeping: list[asyncio.Future[None]] = []
        self._ended_by: CallTimeout | None = None
        """The timeout of a call by which the function has ended."""

    async def run(self) -> StepOutcome:
        """Call it, at most until the step's time is up; what models were asked in it is kept."""
        came = await self._called()
        await self._end_processes()
        await self._keep_calls()
        if self._noted and came.status is StepStatus.DONE and self._job.audit is self._job.verify is None:
            BaselineNotes.forget(self._job, self._lease.task, self._lease.attempt)
        if (spent := expense_of(self._ledger.tokens)) is not None:
            with contextlib.suppress(AllswellError):  # money that cannot be told is no reason to fail
                await self._lease.spend(spent)
        return msgspec.structs.replace(came, streams=await self._transcript(), tokens=self._ledger.tokens)

    async def _transcript(self) -> tuple[tuple[str, Path], ...]:
        """The file of what models were asked and answered so far, if they were."""
        path = self._site.base.llm / f"{self._job.id}-{self._number}.jsonl"
        if lines := self._ledger.lines():
            await self._site.aside(lambda: self._site.base.files.append(path, *lines))
        return (("llm", path),) if self._ledger.exchanges else ()

    # --- calls inside it whose time was up ----------------------------------------------------------------------------

    def _hear_timeout(self, timeout: CallTimeout) -> None:
        """A call has run out of time, and it is known what follows; told in whatever thread that is."""
        if running_loop() is self._loop:
            self._keep_timeout(timeout)
        else:
            self._loop.call_soon_threadsafe(self._keep_timeout, timeout)

    def _keep_timeout(self, timeout: CallTimeout) -> None:
        before = self._keeping[-1] if self._keeping else None
        self._keeping.append(asyncio.ensure_future(self._keep_call(timeout, len(self._keeping) + 1, before)))

    async def _keep_call(self, timeout: CallTimeout, count: int, before: asyncio.Future[None] | None) -> None:
        """Keep a call's timeout as a step's (F9, F10): receipt, transcript with the request that hung, line."""
        if before is not None:
            await before  # lines stand in the order of what they tell
        self._ledger.hung(timeout.name, timeout.error)
        capturing, site = self._capturing.for_call(count), self._site
        action = timeout.action or FinalAction.FAIL
        capturing.retry_count = timeout.retry_count
        await site.aside(lambda: capturing.begin(self._cut_of(timeout), timeout.error))
        streams = await self._transcript()
        await site.aside(lambda: capturing.complete(None, streams))
        await site.aside(lambda: capturing.close(action))
        about = {"scope": timeout.scope, "timeout_ms": timeout.timeout_ms, "final_action": action}
        site.tell("call_timeout", self._job.id, self._number, name=timeout.name, **about)

    async def _keep_calls(self) -> None:
        self._timeouts.rest(self._ended_by)
        await asyncio.sleep(0)  # those that other threads have told of
        while pending := [one for one in self._keeping if not one.done()]:
            await asyncio.wait(pending)
        for one in self._keeping:
            one.result()

    def _cut_of(self, timeout: CallTimeout) -> TimeoutCut:
        began = self._site.clock.monotonic() - timeout.elapsed_ms
        return TimeoutCut(timeout.scope, timeout.timeout_ms, began, timeout.elapsed_ms, timeout.at)

    async def _end_processes(self) -> None:
        """End what the function has started and left running, however its call ended."""
        at_once = self._stopped is not None and self._stopped[1]
        if left := await self._call.end_processes(lambda: 0 if at_once else limits().grace):
            self._site.tell("step_processes_ended", self._job.id, self._number, processes=named(left))

    async def _called(self) -> StepOutcome:
        try:
            function = find_function(self._work, self._job.folder)
        except Refused as error:
            return failed(error.message)
        noting = self._site.noting
        if noting is not None:
            self._noted = await noting.note(self._site.aside, self._job, self._lease.task, self._lease.attempt)
        self._remaining = self._lease.until_limit
        if self._remaining <= 0:
            await self._site.aside(lambda: self._capturing.begin(self._cut))
            return StepOutcome(status=StepStatus.TIMEOUT, error="its time was up before it began", cut=self._cut)
        scope = step(self._job.id, timeout_override=self._remaining)
        inputs = {name: _with_handover(value, self._handover) for name, value in self._work.inputs.items()}
        recorded = self._timeouts.begin()  # which the call inherits
        working = self._working = self._call.begin(run(scope, contained(function), **inputs))
        self._timeouts.end(recorded)
        working.add_done_callback(self._ended)
        if self._stopped is not None:
            self.stop(self._stopped[0], at_once=self._stopped[1])
        await self._over
        if not working.done():  # told to stop at once: nobody waits for it
            return self._interrupted()
        try:
            return self._returned(working.result())
        except asyncio.CancelledError as cancelled:
            if self._stopped is not None:
                return self._interrupted()
            return await self._timed_out(scope) if scope.expired else _raised(left(cancelled))
        except BaseException as error:  # noqa: BLE001 - whatever the function raises is how the step ended
            if scope.expired:  # what it raises in its grace comes of that: a tool that was ended, a cancel
                return await self._timed_out(scope, error)
            return await self._inner(error)

    def stop(self, reason: str, *, at_once: bool) -> None:
        """Cancel the call; at once, nobody waits for it any more."""
        self._stopped = (reason, at_once)
        if self._working is not None:
            self._working.cancel(reason)
            if at_once and not self._over.done():
                self._over.set_result(None)

    def _ended(self, working: asyncio.Future[object]) -> None:
        if not self._over.done():
            self._over.set_result(None)
        elif not working.cancelled():
            working.exception()  # seen: nobody else waits for it

    def _returned(self, result: object) -> StepOutcome:
        try:
            to_json(result, f"what {self._job.id} returned")
        except Refused as error:
            return failed(error.message)
        return StepOutcome(status=StepStatus.DONE, result=result)

    def _interrupted(self) -> StepOutcome:
        reason = "it was cancelled" if self._stopped is None else self._stopped[0]
        return StepOutcome(status=StepStatus.INTERRUPTED, error=reason)

    async def _timed_out(self, scope: Scope, raised: BaseException | None = None) -> StepOutcome:
        """The step's time is up; its limit is told as its own, whatever of it was left when the call began."""
        cut = self._cut
        await self._site.aside(lambda: self._capturing.begin(cut))
        whose = "the flow's" if cut.scope is ScopeKind.FLOW else "its"
        error = f"{whose} limit of {show(cut.timeout_ms)} was reached"
        if isinstance(raised, ScopeTimeout) and raised.scope is scope and raised.abandoned:
            error += "; it did not stop within the grace and was given up"
        return StepOutcome(status=StepStatus.TIMEOUT, error=error, cut=cut)

    async def _inner(self, error: BaseException) -> StepOutcome:
        """The function raised: where that is because a call inside it ran out of time, that is kept as the step's."""
        late = self._timeouts.of(error)
        if isinstance(error, ScopeTimeout):
            failure = Failure(ErrorClass.NETWORK, str(error)[:4_000])  # as one of the network
            came = StepOutcome(status=StepStatus.FAILED, error=str(error), failure=failure)
        else:
            came = _raised(error)
        if late is None or late.is_kept:
            return came
        self._ended_by, cut = late, self._cut_of(late)
        if late.scope is ScopeKind.LLM_CALL:
            self._ledger.hung(late.name, late.error)
        self._capturing.retry_count = max(late.retry_count, self._capturing.retry_count)
        await self._site.aside(lambda: self._capturing.begin(cut, late.error))
        return msgspec.structs.replace(came, cut=cut)


def _with_handover(value: Any, handover: str) -> Any:  # noqa: ANN401 - JSON
    """An input of the function, with what came before its attempt put in."""
    match value:
        case str():
            return value.replace(PLACE, handover)
        case list():
            return [_with_handover(one, handover) for one in value]
        case dict():
            return {name: _with_handover(one, handover) for name, one in value.items()}
        case _:
            return value


def _raised(error: BaseException) -> StepOutcome:
    return StepOutcome(status=StepStatus.FAILED, error=f"{type(error).__name__}: {error}", failure=failure_of(error))
