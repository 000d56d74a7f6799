"""A step that calls a Python function, async or sync, inside a scope of its own, in this process.

A function that is told to stop and does not is given up and fenced when its grace is over, as anywhere in Allswell.
What it calls (guards, `llm_call`, `tool`) finds the step's deadline around it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from allswell.domain.agents.status import named
from allswell.domain.duration import show
from allswell.domain.receipts.receipt import End
from allswell.domain.receipts.step import FinalAction, StepStatus, step_status
from allswell.domain.scopes import ScopeKind
from allswell.domain.service.classify import failure_of
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.domain.values import to_json
from allswell.engine.lease import Lease
from allswell.errors import Refused
from allswell.flows.run.context import RunContext, StepOutcome
from allswell.flows.run.plan import MemberJob
from allswell.flows.run.timeouts import BaselineNotes, Capturing, TimeoutCut
from allswell.flows.spec import Function
from allswell.runtime.agents.function import FunctionLife, load_function
from allswell.runtime.attempt import AttemptLimits, AttemptOutcome
from allswell.runtime.attempt.launch import PLACE, LaunchSpec
from allswell.runtime.call_timeouts import CallTimeout, CallTimeouts
from allswell.runtime.calls import contained, left
from allswell.runtime.deadlines import limits, run, step
from allswell.runtime.guard.transport import expense_of
from allswell.runtime.process import allowed_environment
from allswell.timing.loops import running_loop
from allswell.timing.scopes import Scope, ScopeTimeout


def find_function(named: Function, folder: str) -> Callable[..., object]:
    """The function that a step names, looked for from the flow's folder; `Refused` where it is not there."""
    whole = f"{named.module}:{named.function}"
    return load_function(whole, folder, where=whole)


class FunctionWork(FunctionLife):
    """One call of a function, inside a scope with the step's limit; at that limit the scope ends it."""

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
        bounds, name = AttemptLimits(grace=limits().grace), f"{work.module}:{work.function}"
        order = LaunchSpec((name,), "", job.folder, {}, bounds)
        if lease.verify:
            env = allowed_environment({**job.env, "ALLSWELL_STEP": job.id})
            order = dataclasses.replace(order, env=env, verify=() if job.verify is None else job.verify.argv)
        super().__init__(order, lease, site.clock, handover, bodies=True)
        self._handover = handover
        self._job = job
        self._work = work
        self._site = site
        self._number = job.tried + lease.attempt
        self._ledger = self._call.ledger
        self._capturing = capturing
        self._limit = cut
        self._loop = asyncio.get_running_loop()
        self._timeouts = CallTimeouts(self._hear_timeout, (ScopeKind.LLM_CALL, ScopeKind.TOOL), site.clock.wall)
        self._keeping: list[asyncio.Future[None]] = []
        self._ended_by: CallTimeout | None = None
        """The timeout of a call by which the function has ended."""

    async def came(self) -> StepOutcome:
        """Call it, at most until the step's time is up; what models were asked in it is kept."""
        ended = await self.run()
        status, cut = step_status(ended.end), None
        if status is StepStatus.TIMEOUT:
            cut = self._limit
        elif self._ended_by is not None:
            cut = self._cut_of(self._ended_by)
        return StepOutcome(
            status=status,
            error=None if status is StepStatus.DONE else ended.reason,
            failure=ended.failure,
            cut=cut,
            result=ended.value if status is StepStatus.DONE else None,
            streams=await self._transcript(),
            tokens=self._ledger.tokens,
            verification=ended.verification,
        )

    async def _life(self) -> AttemptOutcome:
        job, lease, noting = self._job, self.lease, self._site.noting
        function = find_function(self._work, job.folder)
        noted = noting is not None and await noting.note(self._site.aside, job, lease.task, lease.attempt)
        ended = await self._called(function)
        if left := await self._call.end_processes(lambda: self._grace):
            self._site.tell("step_processes_ended", job.id, self._number, processes=named(left))
        await self._keep_calls()
        if noted and ended.end is End.DONE and job.audit is job.verify is None:
            BaselineNotes.forget(job, lease.task, lease.attempt)
        if (spent := expense_of(self._ledger.tokens)) is not None:
            self._gathering.meter.add(spent)
        return await self.verifying.verified(await self._paid(ended), self._judge.remaining, said=False)

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

    # --- the call itself ----------------------------------------------------------------------------------------------

    async def _called(self, function: Callable[..., object]) -> AttemptOutcome:
        remaining = self.lease.until_limit
        if remaining <= 0:
            return await self._timed_out("its time was up before it began")
        scope = step(self._job.id, timeout_override=remaining)
        inputs = {name: _with_handover(value, self._handover) for name, value in self._work.inputs.items()}
        recorded = self._timeouts.begin()  # which the call inherits
        working = self._call.begin(run(scope, contained(function), **inputs))
        self._timeouts.end(recorded)
        return await self._ended(working, scope, await self._watched(working, scope))

    async def _ended(self, working: asyncio.Future[object], scope: Scope, ended: AttemptOutcome) -> AttemptOutcome:
        """How the attempt ended, by what the call came to."""
        try:
            result = working.result()
        except asyncio.CancelledError as cancelled:
            if ended.end not in (End.DONE, End.TIMEOUT):
                return ended
            late = scope.expired or ended.end is End.TIMEOUT
            return await self._limit_reached(scope) if late else self._raised(left(cancelled))
        except BaseException as error:  # noqa: BLE001 - whatever the function raises is how the step ended
            if scope.expired:  # what it raises in its grace comes of that: a tool that was ended, a cancel
                return await self._limit_reached(scope, error)
            return await self._inner(error)
        try:
            to_json(result, f"what {self._job.id} returned")
        except Refused as error:
            return self._failed(error.message, Failure(ErrorClass.VALIDATION, error.message[:4_000]))
        return dataclasses.replace(self._judge.so(End.DONE, "it returned"), value=result)

    async def _limit_reached(self, scope: Scope, raised: BaseException | None = None) -> AttemptOutcome:
        """The step's time is up; its limit is told as its own, whatever of it was left when the call began."""
        whose = "the flow's" if self._limit.scope is ScopeKind.FLOW else "its"
        error = f"{whose} limit of {show(self._limit.timeout_ms)} was reached"
        if isinstance(raised, ScopeTimeout) and raised.scope is scope and raised.abandoned:
            error += "; it did not stop within the grace and was given up"
        return await self._timed_out(error)

    async def _timed_out(self, error: str) -> AttemptOutcome:
        await self._site.aside(lambda: self._capturing.begin(self._limit))
        return self._judge.so(End.TIMEOUT, error)

    async def _inner(self, error: BaseException) -> AttemptOutcome:
        """The function raised: where that is because a call inside it ran out of time, that is kept as the step's."""
        late = self._timeouts.of(error)
        if isinstance(error, ScopeTimeout):  # as one of the network
            ended = self._failed(str(error), Failure(ErrorClass.NETWORK, str(error)[:4_000]))
        else:
            ended = self._raised(error)
        if late is None or late.is_kept:
            return ended
        self._ended_by, cut = late, self._cut_of(late)
        if late.scope is ScopeKind.LLM_CALL:
            self._ledger.hung(late.name, late.error)
        self._capturing.retry_count = max(late.retry_count, self._capturing.retry_count)
        await self._site.aside(lambda: self._capturing.begin(cut, late.error))
        return ended

    def _raised(self, error: BaseException) -> AttemptOutcome:
        return self._failed(f"{type(error).__name__}: {error}", failure_of(error))

    def _failed(self, reason: str, failure: Failure) -> AttemptOutcome:
        return dataclasses.replace(self._judge.so(End.FAILED, reason), failure=failure)


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
