"""A step that calls a Python function, async or sync, inside a scope of its own, in this process.

A function that is told to stop and does not is given up and fenced when its grace is over, as anywhere in Allswell.
What it calls (guards, `llm_call`, `tool`) finds the step's deadline around it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sys
from collections.abc import Callable

import msgspec

from allswell.domain.classify import failure_of
from allswell.domain.deadline import ScopeKind
from allswell.domain.plain_data import to_json
from allswell.domain.retry import ErrorClass, Failure
from allswell.domain.step_receipt import StepStatus
from allswell.engine.handle import Lease
from allswell.errors import AllswellError, Refused
from allswell.flows.run.changes import Noting
from allswell.flows.run.job import Job
from allswell.flows.run.site import Site
from allswell.flows.run.timeouts import Capturing, Cut
from allswell.flows.run.work import Came, failed
from allswell.flows.spec import Function
from allswell.runtime.contained import contained, left
from allswell.runtime.guard.ledger import ExchangeLedger, expense_of, in_ledger
from allswell.runtime.scoped import run, step
from allswell.timing.scope import ScopeTimeout


def find_function(named: Function, folder: str) -> Callable[..., object]:
    """The function that a step names, looked for from the flow's folder; `Refused` where it is not there."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
    whole = f"{named.module}:{named.function}"
    try:
        found: object = importlib.import_module(named.module)
    except ModuleNotFoundError as error:
        where = "" if error.name == named.module else f", which needs {error.name}, and that is not installed"
        raise Refused("no_function", f"there is no module {named.module}{where}", where=whole) from None
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        text = f"the module {named.module} cannot be imported: {type(error).__name__}: {error}"
        raise Refused("no_function", text, where=whole) from error
    for name in named.function.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        raise Refused("no_function", f"{named.module} has no function {named.function}", where=whole)
    return found


class FunctionWork:
    """One call of a function."""

    def __init__(self, job: Job, work: Function, lease: Lease, capturing: Capturing, cut: Cut, site: Site) -> None:
        self._job = job
        self._work = work
        self._site = site
        self._lease = lease
        self._noted = False
        self._number = job.tried + lease.attempt
        self._ledger = ExchangeLedger()
        self._capturing = capturing
        self._cut = cut
        self._working: asyncio.Future[object] | None = None
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """The call has ended, or nobody waits for it any more."""
        self._stopped: tuple[str, bool] | None = None

    async def run(self) -> Came:
        """Call it, at most until the step's time is up; what models were asked in it is kept."""
        came = await self._called()
        if self._noted and came.status is StepStatus.DONE and self._job.audit is self._job.verify is None:
            Noting.forget(self._job, self._lease.task, self._lease.attempt)
        if (spent := expense_of(self._ledger.tokens)) is not None:
            with contextlib.suppress(AllswellError):  # money that cannot be told is no reason to fail
                await self._lease.spend(spent)
        lines = self._ledger.lines()
        if not lines:
            return came
        path = self._site.base.llm / f"{self._job.id}-{self._number}.jsonl"
        await self._site.aside(lambda: self._site.base.files.append(path, *lines))
        return msgspec.structs.replace(came, streams=(("llm", path),), tokens=self._ledger.tokens)

    async def _called(self) -> Came:
        try:
            function = find_function(self._work, self._job.folder)
        except Refused as error:
            return failed(error.message)
        noting = self._site.noting
        if noting is not None:
            self._noted = await noting.note(self._site.aside, self._job, self._lease.task, self._lease.attempt)
        self._remaining = self._lease.until_limit
        if self._remaining <= 0:
            return await self._timed_out(self._cut, "its time was up before it began")
        scope = step(self._job.id, timeout_override=self._remaining)
        before = in_ledger.set(self._ledger)  # which the call inherits
        working = self._working = asyncio.ensure_future(run(scope, contained(function), **self._work.inputs))
        in_ledger.reset(before)
        working.add_done_callback(self._ended)
        if self._stopped is not None:
            self.stop(self._stopped[0], at_once=self._stopped[1])
        await self._over
        if not working.done():  # told to stop at once: nobody waits for it
            return self._interrupted()
        try:
            return self._returned(working.result())
        except asyncio.CancelledError as cancelled:
            return self._interrupted() if self._stopped is not None else _raised(left(cancelled))
        except ScopeTimeout as late:
            if late.scope is scope:
                return await self._timed_out(self._cut, str(late))
            return await self._inner(late)
        except BaseException as error:  # noqa: BLE001 - whatever the function raises is how the step ended
            return _raised(error)

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

    def progress(self) -> str:
        """Nothing: a function says what it has to say by returning."""
        return ""

    def _returned(self, result: object) -> Came:
        try:
            to_json(result, f"what {self._job.id} returned")
        except Refused as error:
            return failed(error.message)
        return Came(status=StepStatus.DONE, result=result)

    def _interrupted(self) -> Came:
        reason = "it was cancelled" if self._stopped is None else self._stopped[0]
        return Came(status=StepStatus.INTERRUPTED, error=reason)

    async def _timed_out(self, cut: Cut, error: str) -> Came:
        await self._site.aside(lambda: self._capturing.begin(cut))
        return Came(status=StepStatus.TIMEOUT, error=error, cut=cut)

    async def _inner(self, late: ScopeTimeout) -> Came:
        """A call of a model, or a tool, inside the step ran out of time: that is a failure like one of the network."""
        kinds = {kind.value for kind in ScopeKind}
        scope = ScopeKind(late.scope.kind) if late.scope.kind in kinds else ScopeKind.TOOL
        limit = round(late.report.limit * 1_000)
        elapsed = round(late.report.elapsed * 1_000)
        cut = Cut(scope, limit, self._site.clock.monotonic() - elapsed, elapsed)
        await self._site.aside(lambda: self._capturing.begin(cut, str(late)))
        failure = Failure(ErrorClass.NETWORK, str(late)[:4_000])
        return Came(status=StepStatus.FAILED, error=str(late), failure=failure, cut=cut)


def _raised(error: BaseException) -> Came:
    return Came(status=StepStatus.FAILED, error=f"{type(error).__name__}: {error}", failure=failure_of(error))
