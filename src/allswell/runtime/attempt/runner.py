"""The life of one attempt, from its order to its outcome.

    prepare    transcript, socket, and the note that lets a later supervisor settle it
    start      the command, under a reaper of its own
    watch      until it ends, a limit is reached, somebody orders a stop, or the lease is lost
    cut        only where it has not ended by itself: freeze, snapshot, partial receipt, TERM, grace, KILL
    verify     where its task wants that, and it ended well: the command that must pass (verification.py)
    settle     snapshot again if anything changed, final receipt; the note goes, or to whoever reports the outcome

At a limit everybody in the tree is stopped first: nothing changes while the work is kept, and a tree that ignores
SIGTERM has lost nothing by the time it is killed. The receipt exists before the first signal that could end anything.

The life is a task of its own. Cancelling the caller of `run` orders a stop, as `stop` does, and is passed on when the
tree is gone and the receipt written (`outcome` has it then); nothing is left half done by being cancelled twice.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from allswell.domain.agents.cost import usd
from allswell.domain.agents.denied import Denied, waiting_by_our_hook, waiting_call
from allswell.domain.agents.evidence import BARE_CHECKIN, Evidence, EvidenceKind, EvidenceState
from allswell.domain.agents.permission import why_no_hook
from allswell.domain.agents.result import CHANGED_NOTHING_AND_ASKS, asks_human
from allswell.domain.agents.session import resumed
from allswell.domain.agents.status import Survivor, named
from allswell.domain.ids import TaskId
from allswell.domain.lease.model import stop_margin, stop_reserve
from allswell.domain.receipts.receipt import End
from allswell.domain.rules.event import (
    AGENT_NAME,
    ATTEMPT,
    COST,
    EXIT_CODE,
    INVOKE_AGENT,
    OPERATION,
    OUTCOME,
    RUN,
    TASK,
    TASK_NAME,
    TOKENS_IN,
    TOKENS_OUT,
)
from allswell.domain.task.model import raised
from allswell.domain.values import on_one_line
from allswell.engine.lease import Lease
from allswell.engine.wakeup import Signal
from allswell.errors import AllswellError, Refused, Unavailable
from allswell.runtime.attempt.control import (
    CheckinForwarder,
    ControlHandler,
    ControlSocket,
    CostReporter,
    More,
    PeerCheck,
    QuotaTracker,
    RepetitionReporter,
)
from allswell.runtime.attempt.launch import AttemptOutcome, HandoverPlaces, LaunchSpec, PermissionPlugin, about
from allswell.runtime.attempt.limits import LimitChecker, as_the_store_has_it, overtaken
from allswell.runtime.attempt.orphans import check_folder, note_survivors
from allswell.runtime.attempt.outcome import OutcomeReport
from allswell.runtime.attempt.output import Streams
from allswell.runtime.attempt.progress import ProgressMonitor, SharedSampler, WorkPlace
from allswell.runtime.attempt.record import AttemptRecorder, FlightFile, flight_of, take_off, work_folder
from allswell.runtime.attempt.verification import Verifying
from allswell.runtime.calls import in_time
from allswell.runtime.process import KEEPER, EndCause, Handle, ProcessResult, WardenCommand, working_in
from allswell.runtime.receipts import StateDir, attempt_name
from allswell.runtime.workspace.git import find_top, head_of, place_of
from allswell.timing.clock import Clock, SystemClock
from allswell.timing.tracing import traced

# An attempt as a span: whose it is, and how it ended.


async def traced_life(lease: Lease, life: Coroutine[object, object, AttemptOutcome]) -> AttemptOutcome:
    """An attempt to its end, within its span; what it starts goes on with its trace."""
    about = {
        OPERATION: INVOKE_AGENT,
        AGENT_NAME: lease.agent,
        TASK: lease.task,
        TASK_NAME: lease.name,
        RUN: lease.run,
        ATTEMPT: lease.attempt,
    }
    with traced(INVOKE_AGENT, about, title=lease.agent) as seen:
        outcome = await life
        seen.note({OUTCOME: outcome.end.value, EXIT_CODE: outcome.exit_code})
        spent = outcome.expense
        if spent is not None:
            seen.note({COST: usd(spent.cost), TOKENS_IN: spent.given, TOKENS_OUT: spent.written})
        if outcome.end is not End.DONE:
            seen.failed(outcome.reason)
        return outcome


T = TypeVar("T")
FOLDER_ANSWERS = 10.0
"""Seconds for a folder to say what it is: of a repository, and at which commit."""
_STANDING_STILL = 2.0
"""Seconds in which a tree must have stopped; else it is kept while it moves."""
_REFUSALS_KEPT = 5.0
"""Seconds for which it is believed which calls were refused: an agent can say its last word again and again."""
_TAKEN = 0.5
"""Seconds for what is left of the output to be heard, and to be taken by a watcher once we were told to stop."""
_NAMED = 5
"""Background processes that are named."""
_BEYOND = 10.0  # seconds after the grace in which a reaper must have answered


class AttemptLife:
    """One attempt at a task by the holder of a lease, whatever it is by; `run` is called once."""

    remark = ""
    """That its reaper was stopped, once it was."""

    def __init__(
        self,
        order: LaunchSpec,
        lease: Lease,
        clock: Clock,
        tower: SharedSampler | None = None,
        *,
        place: WorkPlace | None = None,
        last_word: Callable[[], str | None] = lambda: None,
    ) -> None:
        idle = raised(order.limits.idle, lease.idle_override)
        self.order = order = dataclasses.replace(order, limits=dataclasses.replace(order.limits, idle=idle))
        self.lease = lease
        if lease.length is not None:
            lease.reserve = stop_reserve(lease.length, order.limits.grace)
        self.outcome: AttemptOutcome | None = None
        """How it ended, once it has."""
        self._clock = clock
        self._grace = order.limits.grace
        self._stopped = False
        self._news = Signal()
        """Something happened that the judge should know of."""
        seen = self._gathering = ProgressMonitor(order, place, clock, self._heard, tower or SharedSampler())
        self.verifying = Verifying(order, lease, lambda what: seen.heard(EvidenceKind.PROTOCOL, what))
        """Verifies its work, where its task wants that."""
        self._paying = CostReporter(lease, seen.meter, lambda why: self.stop(why, End.COSTLY), lambda: seen.is_done)
        seen.on_cost = self._paying.hear
        self._judge = LimitChecker(order.limits, lease, seen, clock, last_word)

    @property
    def standing(self) -> EvidenceState:
        """What it has shown so far."""
        return self._gathering.standing

    @property
    def doing(self) -> str:
        """The call of a tool that it has made, and that has brought nothing yet; empty if there is none."""
        return self._gathering.doing

    def answered(self, note: str) -> None:
        """It has checked in, in its own output or from elsewhere."""
        self._gathering.heard(EvidenceKind.CHECKIN, f"“{note[:400]}”" if note else BARE_CHECKIN)

    def _heard(self, seen: Evidence) -> None:
        """It has shown something."""

    def stop(self, reason: str, end: End = End.INTERRUPTED, *, grace: int | None = None) -> None:
        """Order the stop; a second order can only shorten the grace. What it was up to is kept first."""
        if grace is not None:
            self._grace = min(self._grace, grace)
        if not self._stopped:
            self._judge.order = (end, reason)
            self._stopped = True
            self._news.fire()
            self.verifying.stop(reason, end)

    async def run(self) -> AttemptOutcome:
        """From the order to the outcome; a cancel is passed on once it is over."""
        life = asyncio.ensure_future(traced_life(self.lease, self._life()))
        cancel: asyncio.CancelledError | None = None
        while not life.done():
            try:
                await asyncio.shield(life)
            except asyncio.CancelledError as error:
                cancel = error
                self.stop("its caller was cancelled")
        self.outcome = life.result()
        if cancel is not None:
            raise cancel
        return self.outcome

    async def _life(self) -> AttemptOutcome:
        raise NotImplementedError

    async def _paid(self, ended: AttemptOutcome) -> AttemptOutcome:
        """How it ended, with what it has cost, which the store is told."""
        over, told = await self._paying.settle(), self._paying.is_told
        return dataclasses.replace(ended, expense=self._gathering.meter.total, expense_told=told, over_cost=over)


class AttemptRunner(AttemptLife):
    """One attempt by a command."""

    _streams: Streams
    """What it prints, once it is prepared."""
    on_remark: Callable[[str], None] | None = None
    """Called with that."""
    _no_permissions = ""
    """Why no call can be made to wait for a human, where some are to: then the attempt does not start."""

    def __init__(  # noqa: PLR0913 - all but three are keywords, for callers with wishes
        self,
        order: LaunchSpec,
        lease: Lease,
        home: StateDir,
        *,
        on_evidence: Callable[[Evidence], None] | None = None,
        orders: More | None = None,
        note: FlightFile | None = None,
        clock: Clock | None = None,
        tower: SharedSampler | None = None,
        report: OutcomeReport | None = None,
    ) -> None:
        name = self._name = attempt_name(lease.task, lease.attempt)
        place = None if order.folder is None else WorkPlace(name, str(order.folder), home.attempts)
        super().__init__(
            *(order, lease, clock or SystemClock(), tower), place=place, last_word=lambda: self._holder.last_word
        )
        order, seen = self.order, self._gathering
        self.before_start: Callable[[], None] | None = None
        """Called when all is prepared, and the command is about to be started."""
        self.on_start: Callable[[], None] | None = None
        """Called when the command runs."""
        self.on_left: Callable[[tuple[Survivor, ...]], None] | None = None
        """Called with those that the command left running when it ended by itself, before they are ended."""
        self.keeping: AttemptRecorder | None = None
        """Keeps what it leaves behind, once it is prepared."""
        self._home = home
        self._on_evidence = on_evidence
        self._room = None if tower is None else tower.room
        """Where what it prints is heard, along with others; None: in threads of its own, which a watcher may block."""
        self._report = report
        """Takes the note over when the attempt has ended; None: the note goes then."""
        spends = QuotaTracker(order.quota, self._clock)
        self._holder = ControlHandler(
            *(lease, spends, seen, self._denied), more=orders, handover=order.handover, report=report
        )
        self._told = HandoverPlaces(order, home.folder / "briefs" / f"{name}.handover")
        self._admission = PeerCheck(outsiders=order.outsiders)
        self._desk = ControlSocket(self._holder.hear, self._admission)
        self._handle: Handle | None = None
        self._cancelling: asyncio.Task[bool] | None = None
        """Waits for a command that was asked to cancel what it does."""
        self._file = note
        """Where the attempt is noted while it is in flight; a caller may have begun it before it had the lease."""
        self._plugin: PermissionPlugin | None = None
        """Decides about calls of its tools: one that a human has decided about, and those that wait for one."""
        self._teller = CheckinForwarder(lease, lambda: self.standing, self._clock)
        self._circles = RepetitionReporter(lease, order.limits.repeats, seen)

    # --- from outside -------------------------------------------------------------------------------------------------

    @property
    def stands(self) -> bool:
        """Whether it is stopped by a person: then no limit is judged."""
        return self._judge.stands

    @stands.setter
    def stands(self, stands: bool) -> None:
        self._judge.stands = stands

    @property
    def remaining(self) -> int | None:
        """How long it is to the hard limit, in milliseconds; None without a limit."""
        return self._judge.remaining

    @property
    def printed_since(self) -> str:
        """What it has printed since its last proof of progress, in words."""
        return self._gathering.printed_since

    @property
    def speaks(self) -> bool:
        """Whether its standard output is a protocol of agents."""
        return self._gathering.streams is not None and self._gathering.streams.speaks

    @property
    def requests(self) -> tuple[TaskId, ...]:
        """Its requests to other agents that have not come back."""
        return tuple(self._holder.requests)

    @property
    def handle(self) -> Handle | None:
        """Its process tree, once it has started."""
        return self._handle if self._handle is not None and self._handle.has_started else None

    def judge_again(self) -> None:
        """Something has changed by which it is judged."""
        self._news.fire()

    def stop(self, reason: str, end: End = End.INTERRUPTED, *, grace: int | None = None) -> None:
        """Order the stop; what is being ended already is given no more than this grace."""
        again = self._stopped
        super().stop(reason, end, grace=grace)
        if not again or grace is None:
            return
        if self._cancelling is not None:
            self._cancelling.cancel()
        if self._handle is not None and self._holder.stop is not None:
            self._handle.stop(self._grace)

    def interrupted(self) -> None:
        """Ctrl-C was typed at the command's own terminal, which has sent it SIGINT: what it does then is its affair."""
        self._judge.interrupted_at = self._clock.monotonic()

    # --- the pipeline -------------------------------------------------------------------------------------------------

    async def _life(self) -> AttemptOutcome:
        keeping = await self._prepare()
        try:
            try:
                with await self._begin(keeping) as handle:
                    ended = await self._watch(handle, keeping)
                    if ended.result is None:
                        ended = await self._cut(handle, keeping, ended)
            except AllswellError as error:
                if self.handle is not None:
                    raise
                return await self._not_started(keeping, error)
            ended = await self._with_result(ended, keeping)
            ended = await self.verifying.verified(ended, self.remaining, said=self._holder.brought)
            return await self._settle(keeping, ended)
        finally:
            await self._put_away(keeping)

    async def _prepare(self) -> AttemptRecorder:
        order, lease, seen = self.order, self.lease, self._gathering
        streams = Streams(self._home.transcripts, self._name, order.echo, seen.reader, self._room)
        self._streams = seen.streams = streams
        stdout, stderr = (None if path is None else str(path) for path in streams.paths)
        folder, head = await self._work()
        flight = flight_of(
            lease,
            self._clock.wall(),
            argv=order.argv,
            cwd=order.cwd,
            folder=None if folder is None else str(folder),
            head=head,
            grace=order.limits.grace,
            stdout=stdout,
            stderr=stderr,
            socket=str(self._desk.folder),
            resume=order.resume,
            account="" if order.agent is None else order.agent.limit_of(),
            session=order.warmth.session,
            warm_failures=order.warmth.failures,
        )
        keeping = self.keeping = AttemptRecorder(flight, self._home, order.snapshot, self._clock)
        if streams.warning is not None:
            keeping.warn("transcript", streams.warning)
        self._note(keeping)
        await self._prepare_permissions(keeping)
        if (trouble := await in_thread(self._told.write)) is not None:
            keeping.warn("handover", trouble)
        await self._in_folder(keeping.note_folder, "baseline")
        try:
            await self._desk.open()
        except OSError as error:
            keeping.warn("socket", f"the agent has no socket to check in at: {error.strerror or error}")
        return keeping

    async def _work(self) -> tuple[Path | None, str | None]:
        """Whose work is kept, and the commit that it stands on."""

        def look() -> tuple[Path | None, str | None]:
            folder = work_folder(self.order.folder)
            top = None if folder is None else find_top(folder)
            return folder, None if top is None else head_of(top)

        return await in_time(look, FOLDER_ANSWERS, f"the folder {self.order.cwd}")

    async def _in_folder(self, work: Callable[[], T], about: str) -> T | None:
        """Do work that looks at the whole folder. If it does not answer in time, leave it, and warn in the receipt."""
        try:
            return await in_time(work, self._folder_limit, f"the folder {self.order.cwd}")
        except Unavailable as error:
            if self.keeping is not None:
                self.keeping.warn(about, f"{error.message}, and was not waited for")
            return None

    @property
    def _folder_limit(self) -> float:
        """Seconds for what looks at all of the folder; it has bounds of its own that are nearer, if the disk works."""
        return (self.order.snapshot.timeout + 6 * self.order.snapshot.git_timeout) / 1_000

    async def _prepare_permissions(self, keeping: AttemptRecorder) -> None:
        """Prepare what a human has decided for this attempt, and which calls wait for one."""
        call, patterns = self.lease.decided_call, self.order.defer
        if call is None and not patterns:
            return
        trouble, context = why_no_hook(self.order.argv), ""
        if call is not None and call.id and self.order.warmth.session:
            context = self._without_message()
        try:
            if not trouble:
                make = partial(PermissionPlugin, call, patterns, self.order, context=context)
                self._plugin = await in_time(make, FOLDER_ANSWERS, "a file of settings that its command names")
        except OSError as error:
            trouble = error.strerror or str(error)
        except Unavailable as error:
            trouble = error.message
        if trouble and patterns:
            self._no_permissions = trouble
        elif trouble and call is not None:
            keeping.warn("allowed", f"the call of {call.tool} that a human has allowed is not allowed: {trouble}")

    def _without_message(self) -> str:
        """Go on with the call that was put off, and with no message behind it; what the message was.

        A message would begin a turn of its own, before which the agent could defer another call without our noticing.
        """
        alone = resumed(self.order.argv, "claude", self.order.warmth.session, "")
        if alone is None:
            return ""
        self.order = dataclasses.replace(self.order, argv=alone)
        return self.order.handover

    async def _begin(self, keeping: AttemptRecorder) -> Handle:
        """Have the command started; that it runs is waited for by `_watch`, for a start can hang, too."""
        order, streams = self.order, self._streams
        flight = keeping.flight
        there = flight.folder or flight.cwd
        await in_time(lambda: check_folder(self._home, there), FOLDER_ANSWERS, f"the folder {there}")
        if self._no_permissions:
            text = f"calls that match `defer` cannot be made to wait for a human: {self._no_permissions}"
            raise Refused("cannot_defer", text, where="defer")
        if not KEEPER.running:
            await in_thread(KEEPER.ensure)
        command = WardenCommand(
            argv=order.argv if self._plugin is None else self._plugin.added_to(order.argv),
            path=order.path,
            cwd=order.cwd,
            env={
                **order.env,
                **about(self.lease, self.remaining, self._desk.path, self._admission.secret),
                **self._told.variables,
            },
            stdout=streams.files[0],
            stderr=streams.files[1],
            stdin=self._told.stdin(),
            terminal=order.terminal,
            follows=order.follows,
            live=(streams.into[0], streams.into[1]),
            cap=order.cap,
            keep_children=order.keep_children,
            grace_ms=order.limits.grace,
        )
        self._gathering.begin()
        if self.before_start is not None:
            self.before_start()
        handle = self._handle = Handle(command)
        handle.on_left = self.on_left
        handle.on_wake = partial(self._reaper_woke, keeping)
        self._note(keeping, handle)  # with the marker, by which a tree can be found whose number is not known yet
        return handle

    def _reaper_woke(self, keeping: AttemptRecorder, reaper: int) -> None:
        """The reaper was stopped, which would have kept the command from being ended."""
        self.remark = f"its reaper (process {reaper}) was stopped, and was continued at once; its limits hold"
        keeping.warn("reaper", self.remark)
        if self.on_remark is not None:
            self.on_remark(self.remark)

    async def _result(self, handle: Handle, keeping: AttemptRecorder) -> ProcessResult:
        """The end of the tree, which is looked at while it runs; raises what stood in the way of its start."""
        await handle.started()
        streams = self._streams
        self._admission.begin(handle.record)
        self._note(keeping, handle)
        streams.let_go()
        if self.on_start is not None:
            self.on_start()
        self._gathering.on_tree = handle.remember
        looking = asyncio.ensure_future(self._gathering.watch(handle.record.reaper, streams))
        try:
            return await handle.ended()
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    def _note(self, keeping: AttemptRecorder, handle: Handle | None = None) -> None:
        if handle is not None:
            keeping.flight = msgspec.structs.replace(keeping.flight, record=handle.record)
        try:
            flight, report = keeping.flight, self._report
            if report is not None and report.commands:
                flight = msgspec.structs.replace(flight, report=report.commands)
            if self._file is None:
                self._file = take_off(self._home.attempts, flight)
            else:
                self._file.write(flight)
        except OSError as error:
            keeping.warn("flight", f"if this process is killed, this attempt cannot be recovered: {error.strerror}")
        if self._report is not None:
            self._report.attach(keeping.flight, self._file)

    async def _not_started(self, keeping: AttemptRecorder, error: AllswellError) -> AttemptOutcome:
        ended = dataclasses.replace(self._judge.so(End.NOT_STARTED, str(error)), error=error)
        return await in_thread(lambda: keeping.settled(ended))

    # --- watching -----------------------------------------------------------------------------------------------------

    async def _watch(self, handle: Handle, keeping: AttemptRecorder) -> AttemptOutcome:
        streams = self._streams
        ending = asyncio.ensure_future(self._result(handle, keeping))
        ending.add_done_callback(lambda _: self._news.fire())
        asking = asyncio.ensure_future(self._holder.watch_requests(lambda why: self.stop(why, End.RELEASED)))
        beside: list[asyncio.Future[Any]] = [ending, asking]
        if self._room is None:  # a supervisor looks at all of its leases together
            beside.append(asyncio.ensure_future(self.lease.follow()))
        self.lease.on_end = self._news.fire
        self._teller.begin()

        async def by_itself() -> AttemptOutcome | None:
            if not ending.done():
                return None
            result = ending.result()
            await streams.heard_out(_TAKEN)
            last = await asyncio.to_thread(streams.last_line)  # megabytes, perhaps: the loop serves others
            denied = await self._denied(fresh=True)
            ended = dataclasses.replace(self._judge.by_itself(result, last, denied), denied=denied)
            return await as_the_store_has_it(self.lease, await self._with_place(ended))

        async def look() -> None:
            if handle.has_started:
                await self._gathering.look_now(handle.record.reaper, streams)

        try:
            return await self._judge.watch(self._news, by_itself, look)
        finally:
            self._teller.end()
            self.lease.on_end = None
            for waiting in beside:
                waiting.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    async def _denied(self, *, fresh: bool = False) -> Denied:
        """The calls that its program has refused so far; unless `fresh`, as of a few seconds ago."""
        since = math.inf if fresh else asyncio.get_running_loop().time() - _REFUSALS_KEPT
        denied = await self._streams.denied(not_before=since)
        return await self._placed(denied) if denied.count else denied

    async def _placed(self, denied: Denied) -> Denied:
        """Refused calls with what a human should know who decides about them."""
        order = self.order

        def look() -> str:
            return place_of(work_folder(order.folder) or Path(order.cwd))

        try:
            work = await in_time(look, FOLDER_ANSWERS, f"the folder {order.cwd}")
        except Unavailable as error:
            work = on_one_line(error.message)
        return msgspec.structs.replace(denied, no_allow=why_no_hook(order.argv), work=work)

    async def _with_place(self, ended: AttemptOutcome) -> AttemptOutcome:
        failure = ended.failure
        if failure is None or failure.denied is None or failure.denied.work:
            return ended
        denied = waiting_by_our_hook(failure.denied, self.order.defer)
        placed = msgspec.structs.replace(failure, denied=await self._placed(denied))
        if placed.denied is not None and (call := waiting_call(placed.denied)) is not None:
            reason = f"it waits for a permission: {call.text}"
            return dataclasses.replace(ended, end=End.ASKED, reason=reason, failure=placed)
        return dataclasses.replace(ended, failure=placed)

    def _heard(self, seen: Evidence) -> None:
        if self._on_evidence is not None:
            self._on_evidence(seen)
        if seen.sign is EvidenceKind.PROTOCOL:
            self._teller.soon()
        elif seen.sign is EvidenceKind.CHECKIN:  # it may have been its last word
            self._news.fire()

    # --- ending -------------------------------------------------------------------------------------------------------

    async def _cut(self, handle: Handle, keeping: AttemptRecorder, ended: AttemptOutcome) -> AttemptOutcome:
        """End the tree for real; unless its last word was said, its work is kept first."""
        waited, gone = 0, False
        if self.order.cancels and ended.end is not End.LEASE_LOST:
            waited = self._grace // 2
            gone = await self._ends_when_told(handle, waited)
        if ended.end is not End.DONE and not gone:
            cut_off = self._judge.is_cut_off(ended)
            seconds = stop_margin(self.lease.length or 0) / 4_000 if cut_off else _STANDING_STILL
            handle.freeze()
            stands_still = await _within(seconds, handle.stood_still())
            if not stands_still:  # the reaper was stopped, or the machine hangs
                await in_thread(handle.hold_still)
                stands_still = await _within(seconds / 2, handle.stood_still())
            # A tree that moves on has no time for that where the store is about to give its work away: it is kept last.
            if handle.result is None and (stands_still or not cut_off):
                await in_thread(lambda: keeping.write(ended, partial=True))  # at once, with what is known already
                if ended.end is not End.IDLE:  # that was said after a last look already
                    await self._gathering.last_look()
                    ended = dataclasses.replace(ended, standing=self.standing)
                await self._in_folder(lambda: keeping.keep_work(ended.reason), "snapshot")
                await in_thread(lambda: keeping.write(ended, partial=True))
        self._holder.stop = ended.reason
        grace = max(self._grace - waited, 0)  # as it is now: a second order may have shortened it
        if ended.end is End.LEASE_LOST:  # at its end the work is given away: nothing of it may run then
            grace = min(grace, max(self.lease.remaining - stop_margin(self.lease.length or 0) // 4, 0))
        result = await handle.end(grace)
        if keeping.flight.record != handle.record:  # its start was reported while it was being ended, or never
            self._note(keeping, handle)
        if gone and result.exit_code:  # it has cancelled its turn, as it was told
            result = msgspec.structs.replace(result, ending=EndCause.STOPPED)
        return self._judge.by_last_word(overtaken(ended, result))

    async def _ends_when_told(self, handle: Handle, within: int) -> bool:
        """Ask the command to cancel what it does; whether it has ended in that time, or before a second order."""
        handle.interrupt()
        self._cancelling = asyncio.ensure_future(_within(within / 1_000, handle.ended()))
        await asyncio.wait([self._cancelling])
        return handle.result is not None

    async def _with_result(self, ended: AttemptOutcome, keeping: AttemptRecorder) -> AttemptOutcome:
        """How it ended, with what it has said last; where it ended well, with how many files it has changed.

        One that has changed nothing in a worktree of ours, and ends with a question, asks that question.
        """
        ended = dataclasses.replace(ended, message=self._streams.message)
        if ended.end is not End.DONE or self._holder.last_word is not None:
            return ended
        alone = self._gathering.neighbour is None
        ended = dataclasses.replace(
            ended, changed=await self._in_folder(keeping.count_changed, "baseline") if alone else None
        )
        is_asked = self.lease.granted.task.spec.origin is not None  # and what it answers is for who has asked it
        setting = "" if is_asked else self.order.ends_with_question
        if not asks_human(ended.message, ended.changed, own_worktree=bool(setting), setting=setting):
            return ended
        return dataclasses.replace(ended, end=End.ASKED, reason=CHANGED_NOTHING_AND_ASKS)

    async def _settle(self, keeping: AttemptRecorder, ended: AttemptOutcome) -> AttemptOutcome:
        left = None
        if ended.result is not None and ended.result.background:
            keeping.warn("background", background(ended.result, kept=self.order.keep_children))
        running = () if ended.result is None else ended.result.running
        if running:
            left = await in_thread(lambda: note_survivors(self._home, keeping.flight, running, self._clock))
        elif ended.result is not None and not ended.result.proven:
            await self._in_folder(lambda: _remark(keeping), "beside")
        if ended.changed is None or ended.verification is not None:
            await self._in_folder(lambda: keeping.note_folder(end=True), "baseline")
        if ended.denied.count:
            keeping.warn("denied", ended.warning)
        if ended.end is not End.DONE:
            await self._in_folder(lambda: keeping.keep_work(ended.reason), "snapshot")
        told = ended.denied.count > 0 or keeping.receipt is not None or ended.verification is not None
        if told or ended.end is not End.DONE:
            ended = await in_thread(lambda: keeping.settled(ended))
        await self._drain(ended)
        ended = await self._paid(ended)
        kept = self.order.keep_transcript or ended.end is not End.DONE
        streams = self._streams
        return dataclasses.replace(
            ended,
            said=None if self._holder.brought else self._holder.last_word,
            brought=self._holder.brought,
            survivors=left,
            warnings=keeping.warnings,
            last_words="" if ended.receipt is None else streams.last_words(),
            transcript=streams.kept(ended.result) if kept else (None, None),
        )

    async def _drain(self, ended: AttemptOutcome) -> None:
        """Let the watcher take what is left: as long as that takes, unless a stop was ordered."""
        loop = asyncio.get_running_loop()
        stopped = ended.result is not None and ended.result.ending is not EndCause.EXITED
        left = ended.result is not None and ended.result.survivors  # which may hold its streams open for ever
        until = loop.time() + (_TAKEN if left else _BEYOND) if stopped else None

        def given_up() -> bool:
            nonlocal until
            if until is None and self._stopped:
                until = loop.time() + _TAKEN
            return until is not None and loop.time() >= until

        await self._streams.drained(given_up)

    async def _put_away(self, keeping: AttemptRecorder) -> None:
        self._teller.close()
        self._paying.close()
        self._circles.close()
        self._gathering.end()
        await self._desk.close()
        if self._plugin is not None:
            self._plugin.remove()
        self._told.close()
        kept = self.order.keep_transcript or keeping.receipt is not None
        self._streams.close(shelf=None if kept else self._home.shown)
        if self._file is not None and self._report is None:
            self._file.remove()


def background(result: ProcessResult, *, kept: bool) -> str:
    """What became of those whom a command left running, in words."""
    count = result.left_behind
    each = [f"{one.command or 'a process'} (pid {one.pid})" for one in result.background[:_NAMED]]
    names = ", ".join(each) + (f" and {count - len(each)} more" if count > len(each) else "")
    became = "left running" if kept else "killed after the grace" if result.killed else "ended"
    return f"{count} background process{' was' if count == 1 else 'es were'} still running: {became}: {names}"


def _remark(keeping: AttemptRecorder) -> None:
    """Name processes that may be of the tree because they work in its folder; an editor does that, too."""
    flight = keeping.flight
    if flight.record is not None:
        beside = working_in(flight.folder or flight.cwd, flight.record)
        if beside:
            keeping.warn("beside", f"working in its folder, of it or not: {named(beside)}")


async def _within(seconds: float, waiting: Awaitable[object]) -> bool:
    """Wait, at most so long; whether it came."""
    try:
        async with asyncio.timeout(seconds):
            await waiting
    except TimeoutError:
        return False
    return True


async def in_thread(work: Callable[[], T]) -> T:
    """Do what blocks in a thread of the loop's."""
    return await asyncio.get_running_loop().run_in_executor(None, work)
