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
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from math import ceil
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from allswell.domain.duration import Duration
from allswell.domain.ids import TaskId, file_name
from allswell.domain.receipts.receipt import CHANGES_LISTED
from allswell.domain.receipts.snapshot import spell
from allswell.domain.receipts.step import (
    Capture,
    ContextForResume,
    FinalAction,
    LastKnownState,
    Phase,
    TimeoutEvent,
    TimeoutRecord,
)
from allswell.domain.scopes import ScopeKind
from allswell.engine.flow import FlowHold, run_named
from allswell.engine.lease import Lease
from allswell.engine.sync import SyncWatch
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, LeaseLost, Refused, Unavailable
from allswell.runtime.call_timeouts import CallTimeout, CallTimeouts, in_timeouts
from allswell.runtime.deadlines import F, LimitedScope
from allswell.runtime.durable.step import DurableStep, in_flow
from allswell.runtime.guard.transport import ExchangeLedger, expense_of, in_ledger, not_seen
from allswell.runtime.process.identity import is_dead, this_process
from allswell.runtime.workspace.baseline import look_by_git
from allswell.runtime.workspace.files import Files, open_folder, stamp
from allswell.runtime.workspace.git import Git, find_top, scratch_folder
from allswell.store import files
from allswell.store.sqlite.paths import locate
from allswell.timing.clock import Clock, SystemClock
from allswell.timing.loops import OwnLoop, running_loop
from allswell.timing.scopes import ScopeTimeout, on_timeout

if TYPE_CHECKING:
    from allswell.app import Opening


# The steps of a flow that is running: what was recorded before is given back, what is done now is recorded.
#
# The flow's watch lives in one event loop. Steps come from there, from other loops, and from threads. A thread that has
# no loop records its step itself where the store has a short way; all others are carried to the watch's loop. Each
# waits until it is durable. A sync step that would block that very loop is refused: nobody could ever record it.

log = logging.getLogger("allswell.flow")


class FlowSteps:
    """All steps of one flow, for as long as its block is open."""

    def __init__(self, name: str, hold: FlowHold, known: dict[TaskId, str]) -> None:
        self.name = name
        self.hold = hold
        self.found = 0
        """Steps that were not run, because their results were there."""
        self._known = known
        self._calls: dict[tuple[str, str], int] = {}
        """How often each was called."""
        self._functions: dict[str, str] = {}
        """Which function each name stands for."""
        self._counting = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._over = False

    def close(self, *, finished: bool) -> None:
        """Record nothing more; in a flow that came to its end, say how many results nobody asked for."""
        self._over = True
        if finished and self._known and self.hold.lease is not None:
            log.warning(
                "flow %r (%s): %d recorded results were not asked for again; if a step ran twice, what it is called "
                "with differs from run to run, and key= should say what tells its calls apart",
                self.name,
                self.hold.run,
                len(self._known),
            )

    def _place(self, step: DurableStep, args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[str, TaskId]:
        """What tells this call from the others, and the task that stands for it."""
        if self._over:
            text = f"step {step.name!r} was called after its flow {self.name!r} had ended"
            raise Refused("flow_over", text, where=step.name)
        first = self._functions.setdefault(step.name, step.function)
        if first != step.function:
            text = f"two functions are called step {step.name!r} here, {first} and {step.function}"
            raise Refused(
                "two_functions", f"{text}, and each would get the other's results; rename one", where=step.name
            )
        key = step.key(args, kwargs)
        place = (step.name, key)
        with self._counting:  # threads may call at once
            number = self._calls[place] = self._calls.get(place, 0) + 1
        return key, step.id(self.hold.run, key, number)

    def _begin(self, step: DurableStep, id_: TaskId) -> str | None:
        """The result that is there already; without one, the step can be run."""
        if self._known:
            text = self._known.pop(id_, None)
            if text is not None:
                self.found += 1
                return text
        step.check()
        self.hold.check(step.name)  # better before it has done anything than after
        return None

    # --- async --------------------------------------------------------------------------------------------------------

    async def call(
        self,
        step: DurableStep,
        work: Callable[[], Awaitable[object]],
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> Any:  # noqa: ANN401 - whatever the step returns
        """The step's result: what was recorded, or what it returns now."""
        key, id_ = self._place(step, args, kwargs)
        known = self._begin(step, id_)
        if known is not None:
            return step.read(known)
        loop = asyncio.get_running_loop()
        began = loop.time()
        text = step.write(await work())
        result = step.read(text)
        elapsed = int((loop.time() - began) * 1_000)
        said = self.hold.said(id_, step.name, step.payload(key), text, elapsed)
        if loop is self._loop:
            await self.hold.record(said)
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.hold.record(said), self._loop))
        return result

    # --- sync ---------------------------------------------------------------------------------------------------------

    def call_sync(
        self, step: DurableStep, work: Callable[[], object], args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> Any:  # noqa: ANN401 - whatever the step returns
        """As `call`, for sync functions called from sync code."""
        if running_loop() is self._loop:
            why = f"step {step.name!r} is sync and would block the event loop that its flow runs in"
            hint = "make it async, or call it as await asyncio.to_thread(step, …)"
            raise Refused("blocks_loop", f"{why}; {hint}", where=step.name)
        key, id_ = self._place(step, args, kwargs)
        known = self._begin(step, id_)
        if known is not None:
            return step.read(known)
        began = time.monotonic()
        text = step.write(work())
        result = step.read(text)
        elapsed = int((time.monotonic() - began) * 1_000)
        said = self.hold.said(id_, step.name, step.payload(key), text, elapsed)
        if not self.hold.record_here(said):
            try:
                asyncio.run_coroutine_threadsafe(self.hold.record(said), self._loop).result()
            except CancelledError:
                raise Unavailable("the watch was closed before the step was recorded") from None
        return result


# The timeouts of a durable Python flow, kept as those of a flow's file are (F9, F10).
#
#     .allswell/runs/<run>/<flow>/
#       timeouts.jsonl                       every timeout: the flow's, its steps', calls of models and tools inside
#       receipts/<step>.<n>-timeout.json     what is needed to go on, the so-manieth timeout of this program
#       llm/<step>.<n>-partial.jsonl         the request that hung; where it went past us, the name of its call
#
# They lie beside the store, or beside the program's folder where the store is on a server. They are written in a
# thread, so that neither the flow nor its loop waits for a disk or for git; leaving the flow does. What cannot be
# written is logged, and fails nothing.

_log = logging.getLogger(__name__)

_GIT = 10_000
"""Milliseconds for git to say what was changed."""
_KINDS = (ScopeKind.FLOW, ScopeKind.STEP, ScopeKind.LLM_CALL, ScopeKind.TOOL)


class FlowTimeouts:
    """Keeps the timeouts of one run of a program."""

    def __init__(self, flow: str, lease: Lease, clock: Clock) -> None:
        self.calls = CallTimeouts(self._hear, _KINDS, clock.wall)
        self._flow = flow
        self._lease = lease
        self._folder = Path.cwd()
        self._files = Files()
        self._writer: ThreadPoolExecutor | None = None
        self._count = 0

    def end(self, error: BaseException | None) -> None:
        """The flow was left: keep what is not kept yet; it blocks until everything is written."""
        ended_by = None if error is None else self.calls.of(error)
        self.calls.rest(ended_by)
        if ended_by is not None and not ended_by.is_kept:
            ended_by.action = FinalAction.FAIL  # the program ends with it
            self._hear(ended_by)
        if self._writer is not None:
            self._writer.shutdown()

    def _hear(self, timeout: CallTimeout) -> None:
        self._count += 1
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, thread_name_prefix="allswell-timeouts")
        self._writer.submit(self._keep, timeout, self._count)

    def _keep(self, timeout: CallTimeout, count: int) -> None:
        try:
            self._write(timeout, count)
        except (AllswellError, OSError) as error:
            _log.warning("a timeout of flow %r could not be written down: %s", self._flow, error)

    def _write(self, timeout: CallTimeout, count: int) -> None:
        home = _home(self._lease)
        files.make(home)
        run, step = str(self._lease.run), timeout.step or self._flow
        base = home / "runs" / file_name(run) / file_name(self._flow)
        name = f"{file_name(step)}.{count}"
        receipts, llm = base / "receipts", base / "llm"
        for folder in (receipts, llm):
            os.close(open_folder(folder, make=True))
        event = TimeoutEvent(stamp(timeout.at), timeout.scope, timeout.timeout_ms, timeout.elapsed_ms)
        state = LastKnownState(step, "python", Phase.WORK, timeout.error)
        capture = Capture("timeout", True, event, state, (), ContextForResume(None, (), None))
        path = receipts / f"{name}-timeout.json"
        self._files.replace(path, _written(capture))
        changed = self._changed()
        transcript = None
        requests = timeout.requests
        if not requests and timeout.scope is ScopeKind.LLM_CALL:
            requests = [not_seen(timeout.name, timeout.error)]
        if requests:
            transcript = llm / f"{name}-partial.jsonl"
            self._files.replace(transcript, b"".join(msgspec.json.encode(one) + b"\n" for one in requests))
        context = ContextForResume(None, changed, None if transcript is None else self._shown(transcript))
        self._files.replace(path, _written(msgspec.structs.replace(capture, partial=False, context_for_resume=context)))
        line = TimeoutRecord(
            timestamp=event.timestamp,
            run_id=run,
            flow_key=self._flow,
            step_id=step,
            scope=timeout.scope,
            timeout_ms=timeout.timeout_ms,
            elapsed_ms=timeout.elapsed_ms,
            retry_count=timeout.retry_count,
            final_action=timeout.action or FinalAction.FAIL,
            recovery_path=self._shown(path),
        )
        self._files.append(base / "timeouts.jsonl", msgspec.json.encode(line))

    def _changed(self) -> tuple[str, ...]:
        """What git says has changed in the program's folder, and is not committed."""
        top = find_top(self._folder)
        if top is None:
            return ()
        try:
            with scratch_folder() as scratch:
                opened = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    git = Git(os.fsencode(top), timeout=_GIT, scratch=scratch)
                    return tuple(sorted(map(spell, look_by_git(git, opened, CHANGES_LISTED).paths)))
                finally:
                    os.close(opened)
        except (AllswellError, OSError):
            return ()

    def _shown(self, path: Path) -> str:
        return str(path.relative_to(self._folder)) if path.is_relative_to(self._folder) else str(path)


def _written(capture: Capture) -> bytes:
    return msgspec.json.format(msgspec.json.encode(capture), indent=2) + b"\n"


def _home(lease: Lease) -> Path:
    """The folder of ours beside the store, or here where the store is on a server."""
    from allswell.settings.nearby import own_folder

    beside = locate(lease.store).parent.absolute() if lease.store.startswith("sqlite:") else Path.cwd()
    return beside if beside.name == files.NAME else own_folder(beside)


T = TypeVar("T")

HOLD = 60_000
"""How long a hold lasts without being renewed, in ms; it is renewed at a third of that."""
_LAST_WORD = 5.0
"""Seconds in which a flow that is left because of an error may say so; after that its hold lapses by itself."""
_INTERRUPTIONS = (asyncio.CancelledError, KeyboardInterrupt, SystemExit)


class DurableFlow(LimitedScope):
    """A flow whose finished steps are kept, and are not run again when it is."""

    __slots__ = (
        "_before",
        "_ledger",
        "_ledger_before",
        "_opening",
        "_outside",
        "_steps",
        "_store",
        "_timeouts",
        "_watch",
        "run_id",
    )

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
        self._steps: FlowSteps | None = None
        self._before: FlowSteps | None = None
        self._ledger = ExchangeLedger(bodies=False)
        self._ledger_before: ExchangeLedger | None = None
        self._timeouts: FlowTimeouts | None = None
        self._outside: tuple[CallTimeouts | None, Callable[[ScopeTimeout], None] | None] = (None, None)
        """Who kept a record of timeouts before."""

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
            await self._keep_timeouts_aside(raised)
            await self._end(raised)
            raise
        finally:
            self._leave_record()
        if not isinstance(error, GeneratorExit):
            await self._keep_timeouts_aside(error)
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
            self._keep_timeouts(raised)
            self._end_sync(raised)
            raise
        finally:
            self._leave_record()
        self._keep_timeouts(error)
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

    async def _take_up(self, watch: Watch) -> FlowSteps:
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
        return FlowSteps(self.name, hold, known)

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
        lease = None if self._steps is None else self._steps.hold.lease
        if lease is not None:
            self._timeouts = FlowTimeouts(self.name, lease, SystemClock())
            self._outside = in_timeouts.get(), on_timeout.get()
            self._timeouts.calls.begin()

    def _leave_record(self) -> None:
        if self._timeouts is not None:
            in_timeouts.set(self._outside[0])
            on_timeout.set(self._outside[1])

    def _keep_timeouts(self, error: BaseException | None) -> None:
        if self._timeouts is not None and self._timeouts.calls:
            self._timeouts.end(error)

    async def _keep_timeouts_aside(self, error: BaseException | None) -> None:
        if self._timeouts is not None and self._timeouts.calls:
            await asyncio.to_thread(self._timeouts.end, error)

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
