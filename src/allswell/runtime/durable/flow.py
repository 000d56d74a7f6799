"""A flow with a `run_id`: the block that holds its run, and leaves it finished, or ready to be taken up again.

    async with allswell.flow("build", run_id="nightly"):       # or `with`, in sync code
        pages = await fetch("https://…")                       # @allswell.step() functions: each runs once
        await publish(pages)

Entering takes the run up: it is made if it is new, and refused while somebody else runs it. Leaving ends the hold:
done, or stopped with what was raised. A process that is killed leaves its hold behind. On the machine that it ran on,
it can be seen that the process is gone, and the flow can be run again right away; elsewhere only when the hold has
lapsed (a minute after its last renewal), for nobody can tell a dead machine from one that is cut off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from math import ceil
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from allswell.domain.deadline import ScopeKind
from allswell.domain.duration import Duration
from allswell.engine.flow import run_named
from allswell.engine.sync import SyncWatch
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, LeaseLost, Refused, Unavailable
from allswell.runtime.durable.inside import in_flow
from allswell.runtime.durable.process import is_dead, this_process
from allswell.runtime.durable.steps import Steps
from allswell.runtime.guard.ledger import ExchangeLedger, expense_of, in_ledger
from allswell.runtime.scoped import F, LimitedScope
from allswell.timing.own_loop import OwnLoop

if TYPE_CHECKING:
    from allswell.app import Opening

T = TypeVar("T")
log = logging.getLogger("allswell.flow")

HOLD = 60_000
"""How long a hold lasts without being renewed, in ms; it is renewed at a third of that."""
_LAST_WORD = 5.0
"""Seconds in which a flow that is left because of an error may say so; after that its hold lapses by itself."""
_INTERRUPTIONS = (asyncio.CancelledError, KeyboardInterrupt, SystemExit)


class DurableFlow(LimitedScope):
    """A flow whose finished steps are kept, and are not run again when it is."""

    __slots__ = ("_before", "_ledger", "_ledger_before", "_opening", "_steps", "_store", "_watch", "run_id")

    def __init__(
        self,
        name: str,
        timeout: float | Duration | None,
        timeout_override: float | Duration | None,
        *,
        run_id: str,
        store: str | None,
        watch: Watch | SyncWatch | None,
    ) -> None:
        super().__init__(ScopeKind.FLOW, name, timeout, timeout_override, "thread")
        if not name:
            raise Refused("bad_name", "a flow with a run_id needs a name: allswell.flow(name, run_id=…)", where="name")
        if store is not None and watch is not None:
            text = "give the flow's place as store= (a URL) or as watch= (one that is open), not both"
            raise Refused("bad_store", text, where="store")
        self.run_id = run_named(run_id)
        """The run, as the command line knows it."""
        self._store = store
        self._watch: Watch | None = None if watch is None else watch.inner if isinstance(watch, SyncWatch) else watch
        self._opening: Opening | None = None
        self._steps: Steps | None = None
        self._before: Steps | None = None
        self._ledger = ExchangeLedger(bodies=False)
        self._ledger_before: ExchangeLedger | None = None

    def __call__(self, function: F) -> F:
        """Refused: one run is one flow, and a function may be called many times."""
        text = "a flow with a run_id is a block: write `async with allswell.flow(name, run_id=…):` inside the function"
        raise Refused("run_id_on_function", text, where=getattr(function, "__qualname__", "function"))

    @property
    def found(self) -> int:
        """How many steps were not run, because an earlier run had recorded their results."""
        return 0 if self._steps is None else self._steps.found

    # --- async --------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        watch = self._watch
        if watch is None:
            watch = self._watch = await self._open_store().__aenter__()
        try:
            self._steps = await self._carried(self._take_up(watch))
            await super().__aenter__()
        except BaseException as error:
            await self._end(error)
            raise
        self._enter_flow()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave_flow(error)
        try:
            await super().__aexit__(kind, error, trace)
        except BaseException as raised:
            await self._end(raised)
            raise
        if not isinstance(error, GeneratorExit):  # then nothing can be awaited any more, and the hold must lapse
            await self._end(error)

    async def _end(self, error: BaseException | None) -> None:
        try:
            if error is None:
                await self._carried(self._said(None))
            else:
                try:
                    async with asyncio.timeout(_LAST_WORD):
                        await self._carried(self._said(error))
                except (AllswellError, TimeoutError) as why:
                    self._unheard(why)
        finally:
            if self._opening is not None:
                await self._opening.__aexit__(None, None, None)

    async def _carried(self, work: Coroutine[Any, Any, T]) -> T:
        home = self._home(work)
        if home.is_here():
            return await work
        return await asyncio.wrap_future(_begun(home, work))

    # --- sync ---------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._watch is None:
            self._watch = self._open_store().__enter__().inner
        try:
            self._steps = self._waited_for(self._take_up(self._watch))
            super().__enter__()
        except BaseException as error:
            self._end_sync(error)
            raise
        self._enter_flow()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave_flow(error)
        try:
            super().__exit__(kind, error, trace)
        except BaseException as raised:
            self._end_sync(raised)
            raise
        self._end_sync(error)

    def _end_sync(self, error: BaseException | None) -> None:
        try:
            if error is None:
                self._waited_for(self._said(None))
            else:
                try:
                    self._waited_for(self._said(error), _LAST_WORD)
                except (AllswellError, TimeoutError) as why:
                    self._unheard(why)
        finally:
            if self._opening is not None:
                self._opening.__exit__(None, None, None)

    def _waited_for(self, work: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        home = self._home(work)
        if home.is_here():
            work.close()
            text = "`with allswell.flow(…, run_id=…)` would block the event loop of its watch; write `async with`"
            raise Refused("blocks_loop", text, where="flow")
        try:
            return _begun(home, work).result(seconds)
        except CancelledError:
            raise Unavailable("the flow's watch was closed") from None

    # --- both ---------------------------------------------------------------------------------------------------------

    def _open_store(self) -> Opening:
        from allswell.app import open as open_watch  # it wires the parts, and so stands above them all

        self._opening = open_watch(self._store)
        return self._opening

    def _home(self, work: Coroutine[Any, Any, object]) -> OwnLoop:
        home = None if self._watch is None else self._watch.own_loop
        if home is None:
            work.close()
            raise Unavailable("the flow's watch is not open")
        return home

    async def _take_up(self, watch: Watch) -> Steps:
        """Hold the run, and read what was recorded in it: in this order, so that nobody can add to it meanwhile."""
        hold = await watch.take_up(
            self.run_id,
            self.name,
            limit=ceil(self.timeout_ms or 0) + self.grace_ms,
            length=HOLD,
            agent=this_process(),
            is_dead=is_dead,
        )
        known = {} if hold.new else {id_: result async for id_, result in hold.results()}
        return Steps(self.name, hold, known)

    async def _said(self, error: BaseException | None) -> None:
        """Tell the store how the block was left."""
        lease = None if self._steps is None else self._steps.hold.lease
        if lease is None or (error is not None and lease.lost is not None) or isinstance(error, LeaseLost):
            return
        if (spent := expense_of(self._ledger.tokens)) is not None:
            await lease.spend(spent)
        if error is None:
            await lease.complete()
        elif isinstance(error, _INTERRUPTIONS):
            await lease.release("it was interrupted")
        else:
            await lease.fail(error)

    def _unheard(self, why: BaseException) -> None:
        log.warning("flow %r (%s) could not say that it has stopped: %s; its hold lapses", self.name, self.run_id, why)

    def _enter_flow(self) -> None:
        self._before = in_flow.get()
        in_flow.set(self._steps)
        self._ledger_before = in_ledger.get()
        in_ledger.set(self._ledger)

    def _leave_flow(self, error: BaseException | None) -> None:
        in_flow.set(self._before)
        in_ledger.set(self._ledger_before)
        if self._steps is not None:
            self._steps.close(finished=error is None)


def _begun(home: OwnLoop, work: Coroutine[Any, Any, T]) -> Future[T]:
    begun = home.carry(work)
    if begun is None:
        raise Unavailable("the flow's watch was closed, or stayed behind in the process that this one was forked from")
    return begun
