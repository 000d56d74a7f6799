"""The life of one attempt, from its order to its outcome.

    prepare    transcript, socket, and the note that lets a later supervisor settle it
    start      the command, under a reaper of its own
    watch      until it ends, a limit is reached, somebody orders a stop, or the lease is lost
    cut        only where it has not ended by itself: freeze, snapshot, partial receipt, TERM, grace, KILL
    verify     where its task wants that, and it ended well: the command that must pass (verifying.py)
    settle     snapshot again if anything changed, final receipt, the note is taken away

At a limit everybody in the tree is stopped first: nothing changes while the work is kept, and a tree that ignores
SIGTERM has lost nothing by the time it is killed. The receipt exists before the first signal that could end anything.

The life is a task of its own. Cancelling the caller of `run` orders a stop, as `stop` does, and is passed on when the
tree is gone and the receipt written (`outcome` has it then); nothing is left half done by being cancelled twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable
from typing import TypeVar

import msgspec

from allswell.domain.evidence import Evidence, Sign, Standing
from allswell.domain.names import Millis, TaskId
from allswell.domain.receipt import End
from allswell.domain.store_url import hide
from allswell.domain.task import raised
from allswell.engine.handle import Lease
from allswell.engine.signal import Signal, either
from allswell.errors import AllswellError
from allswell.runtime.attempt.admission import Admission
from allswell.runtime.attempt.allowance import Allowance
from allswell.runtime.attempt.desk import Desk
from allswell.runtime.attempt.flight import Flight, FlightFile, take_off
from allswell.runtime.attempt.gathering import Gathering
from allswell.runtime.attempt.holder import Holder, More
from allswell.runtime.attempt.judge import Judge
from allswell.runtime.attempt.keeping import Ended, Keeping, work_folder
from allswell.runtime.attempt.neighbours import WorkPlace
from allswell.runtime.attempt.order import Order, Outcome
from allswell.runtime.attempt.paying import Paying
from allswell.runtime.attempt.streams import Streams
from allswell.runtime.attempt.taken import as_the_store_has_it, overtaken
from allswell.runtime.attempt.teller import Teller
from allswell.runtime.attempt.tower import Tower
from allswell.runtime.attempt.traced import traced_life
from allswell.runtime.attempt.variables import about
from allswell.runtime.attempt.verifying import Verifying
from allswell.runtime.receipts import Home
from allswell.runtime.repository import find_top, head_of
from allswell.runtime.warden import KEEPER, Ending, Handle, Result, WardenCommand, begin
from allswell.timing.clock import Clock, SystemClock

T = TypeVar("T")
_STANDING_STILL = 2.0
"""Seconds in which a tree must have stopped; else it is kept while it moves."""
_TAKEN = 0.5
"""Seconds for what is left of the output to be heard, and to be taken by a watcher once we were told to stop."""
_BEYOND = 10.0  # seconds after the grace in which a reaper must have answered


class Attempt:
    """One attempt at a task by the holder of a lease; `run` is called once."""

    def __init__(  # noqa: PLR0913 - all but three are keywords, for callers with wishes
        self,
        order: Order,
        lease: Lease,
        home: Home,
        *,
        on_evidence: Callable[[Evidence], None] | None = None,
        orders: More | None = None,
        note: FlightFile | None = None,
        clock: Clock | None = None,
        tower: Tower | None = None,
    ) -> None:
        idle = raised(order.limits.idle, lease.idle_override)
        self.order = order = dataclasses.replace(order, limits=dataclasses.replace(order.limits, idle=idle))
        self.lease = lease
        self.outcome: Outcome | None = None
        """How it ended, once it has."""
        self.on_start: Callable[[], None] | None = None
        """Called when the command runs."""
        self.keeping: Keeping | None = None
        """Keeps what it leaves behind, once it is prepared."""
        self._home = home
        self._clock = clock or SystemClock()
        self._on_evidence = on_evidence
        self._room = None if tower is None else tower.room
        """Where what it prints is heard, along with others; None: in threads of its own, which a watcher may block."""
        name = f"{lease.task}.{lease.attempt}"
        place = None if order.folder is None else WorkPlace(name, str(order.folder), home.attempts)
        self._gathering = Gathering(order, place, self._clock, self._heard, tower or Tower())
        spends = Allowance(order.quota, self._clock)
        seen = self._gathering
        self._holder = Holder(
            lease, spends, more=orders, heard=lambda what: seen.heard(Sign.CHECKIN, what), spent=seen.spent
        )
        self._admission = Admission(outsiders=order.outsiders)
        self._desk = Desk(self._holder.hear, self._admission)
        self._streams: Streams | None = None
        self._handle: Handle | None = None
        self._file = note
        """Where the attempt is noted while it is in flight; a caller may have begun it before it had the lease."""
        self._stopped = False
        self.verifying = Verifying(order, lease, lambda what: self._gathering.heard(Sign.PROTOCOL, what))
        """Verifies its work, where its task wants that."""
        self._news = Signal()
        """Something happened that the judge should know of."""
        self._grace = order.limits.grace
        self._teller = Teller(lease, lambda: self.standing, self._clock)
        self._paying = Paying(lease, self._gathering.meter, lambda why: self.stop(why, End.COSTLY))
        self._gathering.on_cost = self._paying.hear
        self._judge = Judge(order.limits, lease, self._holder, self._gathering, self._clock)

    # --- from outside -------------------------------------------------------------------------------------------------

    @property
    def standing(self) -> Standing:
        """What it has shown so far."""
        return self._gathering.standing

    @property
    def remaining(self) -> int:
        """How long it is to the hard limit, in milliseconds."""
        return self._judge.remaining

    @property
    def requests(self) -> tuple[TaskId, ...]:
        """Its requests to other agents that have not come back."""
        return tuple(self._holder.requests)

    def note(self, seen: Evidence) -> None:
        """Add evidence that the caller has gathered elsewhere."""
        self._gathering.note(seen)

    def stop(self, reason: str, end: End = End.INTERRUPTED, *, grace: int | None = None) -> None:
        """Order the stop; a second order can only shorten the grace. What it was up to is kept first."""
        if grace is not None:
            self._grace = min(self._grace, grace)
        if not self._stopped:
            self._judge.order = (end, reason)
            self._stopped = True
            self._news.fire()
            self.verifying.stop(reason)
        elif grace is not None and self._handle is not None and self._holder.stop is not None:
            self._handle.stop(self._grace)

    async def run(self) -> Outcome:
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

    # --- the pipeline -------------------------------------------------------------------------------------------------

    async def _life(self) -> Outcome:
        keeping = await self._prepare()
        try:
            try:
                handle = await self._start(keeping)
            except AllswellError as error:
                return await self._not_started(keeping, error)
            with handle:
                ended = await self._watch(handle)
                if ended.result is None:
                    ended = await self._cut(handle, keeping, ended)
            ended = await self.verifying.verified(ended, self.remaining, said=self._holder.brought)
            return await self._settle(keeping, ended)
        finally:
            await self._put_away(keeping)

    async def _prepare(self) -> Keeping:
        order, lease = self.order, self.lease
        name = f"{lease.task}.{lease.attempt}"
        heard = self._gathering
        self._streams = Streams(self._home.transcripts, name, order.echo, heard.said, self._room, heard.reported)
        stdout, stderr = (None if path is None else str(path) for path in self._streams.paths)
        folder = work_folder(order.folder)
        top = None if folder is None else find_top(folder)
        flight = Flight(
            task=lease.task,
            name=lease.name,
            attempt=lease.attempt,
            token=lease.token,
            agent=lease.agent,
            run=lease.run,
            argv=order.argv,
            cwd=order.cwd,
            folder=None if folder is None else str(folder),
            head=None if top is None else head_of(top),
            began_at=Millis(self._clock.wall()),
            grace=order.limits.grace,
            stdout=stdout,
            stderr=stderr,
            socket=str(self._desk.folder),
            store=hide(lease.store),
            resume=order.resume,
        )
        keeping = self.keeping = Keeping(flight, self._home, order.snapshot, self._clock)
        if self._streams.warning is not None:
            keeping.warn("transcript", self._streams.warning)
        self._note(keeping)
        await _in_thread(keeping.note_beginning)
        try:
            await self._desk.open()
        except OSError as error:
            keeping.warn("socket", f"the agent has no socket to check in at: {error.strerror or error}")
        return keeping

    async def _start(self, keeping: Keeping) -> Handle:
        order, streams = self.order, self._streams
        assert streams is not None  # noqa: S101 - `_prepare` made them
        if not KEEPER.running:
            await asyncio.get_running_loop().run_in_executor(None, KEEPER.ensure)
        command = WardenCommand(
            argv=order.argv,
            path=order.path,
            cwd=order.cwd,
            env={**order.env, **about(self.lease, self.remaining, self._desk.path, self._admission.secret)},
            stdout=streams.files[0],
            stderr=streams.files[1],
            stdin=order.stdin,
            terminal=order.terminal,
            live=(streams.into[0], streams.into[1]),
            cap=order.cap,
            grace_ms=order.limits.grace,
        )
        self._gathering.begin()
        handle = begin(command)
        try:
            self._note(keeping, handle)  # with the marker, by which a tree can be found whose number is not known yet
            await handle.started()
            self._admission.begin(handle.record)
            self._note(keeping, handle)
        except BaseException:
            handle.close()
            raise
        self._handle = handle
        streams.let_go()
        if self.on_start is not None:
            self.on_start()
        return handle

    def _note(self, keeping: Keeping, handle: Handle | None = None) -> None:
        if handle is not None:
            keeping.flight = msgspec.structs.replace(keeping.flight, record=handle.record)
        try:
            if self._file is None:
                self._file = take_off(self._home.attempts, keeping.flight)
            else:
                self._file.write(keeping.flight)
        except OSError as error:
            keeping.warn("flight", f"should we be killed, nobody will know of this attempt: {error.strerror}")

    async def _not_started(self, keeping: Keeping, error: AllswellError) -> Outcome:
        ended = self._judge.so(End.NOT_STARTED, str(error))
        receipt = await _in_thread(lambda: keeping.write(ended, partial=False))
        return Outcome(
            ended.end,
            ended.reason,
            receipt=receipt,
            receipt_path=keeping.path,
            error=error,
            warnings=keeping.warnings,
        )

    # --- watching -----------------------------------------------------------------------------------------------------

    async def _watch(self, handle: Handle) -> Ended:
        streams = self._streams
        assert streams is not None  # noqa: S101 - `_prepare` made them
        ending = asyncio.ensure_future(handle.ended())
        ending.add_done_callback(lambda _: self._news.fire())
        looking = asyncio.ensure_future(self._gathering.watch(handle.record.reaper, streams))
        asking = asyncio.ensure_future(self._holder.watch_requests(lambda why: self.stop(why, End.RELEASED)))
        self.lease.on_end = self._news.fire
        self._teller.begin()
        try:
            while True:
                news = self._news.listen()
                if ending.done():
                    await streams.heard_out(_TAKEN)
                    ended = self._judge.by_itself(ending.result(), streams.last_line())
                    return await as_the_store_has_it(self.lease, ended)
                verdict = self._judge.verdict()
                if verdict is not None and verdict.end is End.IDLE:
                    await self._gathering.look_now(handle.record.reaper, streams)
                    verdict = self._judge.verdict()
                if verdict is not None and not (verdict.end is End.TIMEOUT and await self.lease.confirm()):
                    return await as_the_store_has_it(self.lease, verdict)
                await either(news, self._judge.pause())
        finally:
            self._teller.end()
            self.lease.on_end = None
            for waiting in (ending, looking, asking):
                waiting.cancel()
            await asyncio.gather(ending, looking, asking, return_exceptions=True)

    def _heard(self, seen: Evidence) -> None:
        if self._on_evidence is not None:
            self._on_evidence(seen)
        if seen.sign is Sign.PROTOCOL:
            self._teller.soon()
        elif seen.sign is Sign.CHECKIN:  # it may have been its last word
            self._news.fire()

    # --- ending -------------------------------------------------------------------------------------------------------

    async def _cut(self, handle: Handle, keeping: Keeping, ended: Ended) -> Ended:
        """End the tree for real; unless its last word was said, its work is kept first."""
        if ended.end is not End.DONE:
            handle.freeze()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STANDING_STILL):
                    await handle.stood_still()
            if handle.result is None:
                await _in_thread(lambda: keeping.write(ended, partial=True))  # at once, with what is known already
                if ended.end is not End.IDLE:  # that was said after a last look already
                    await self._gathering.last_look()
                    ended = msgspec.structs.replace(ended, standing=self.standing)
                await _in_thread(lambda: keeping.keep_work(ended.reason))
                await _in_thread(lambda: keeping.write(ended, partial=True))
        self._holder.stop = ended.reason
        handle.stop(self._grace)
        try:
            async with asyncio.timeout(self._grace / 1_000 + _BEYOND):
                result = await handle.ended()
        except TimeoutError:  # a machine that hangs; the tree is still its reaper's to end
            result = Result(Ending.STOPPED, None, None, killed=True, survivors=(handle.pid,))
        return overtaken(ended, result)

    async def _settle(self, keeping: Keeping, ended: Ended) -> Outcome:
        receipt = None
        await _in_thread(keeping.note_end)
        if ended.end is not End.DONE:
            await _in_thread(lambda: keeping.keep_work(ended.reason))
        if ended.end is not End.DONE or keeping.receipt is not None or ended.verification is not None:
            receipt = await _in_thread(lambda: keeping.write(ended, partial=False))
        await self._drain(ended)
        over = await self._paying.settle()
        kept = self.order.keep_transcript or ended.end is not End.DONE
        return Outcome(
            ended.end,
            ended.reason,
            ended.result,
            receipt,
            keeping.path,
            None if self._holder.brought else self._holder.last_word,
            verification=ended.verification,
            brought=self._holder.brought,
            failure=ended.failure,
            expense=self._gathering.meter.total,
            over_cost=over,
            warnings=keeping.warnings,
            last_words="" if receipt is None or self._streams is None else self._streams.last_words(),
            transcript=self._streams.kept(ended.result) if self._streams is not None and kept else (None, None),
        )

    async def _drain(self, ended: Ended) -> None:
        """Let whoever watches take what is left: as long as that takes, unless somebody was told to stop."""
        loop = asyncio.get_running_loop()
        stopped = ended.result is not None and ended.result.ending is not Ending.EXITED
        until = loop.time() + _BEYOND if stopped else None

        def given_up() -> bool:
            nonlocal until
            if until is None and self._stopped:
                until = loop.time() + _TAKEN
            return until is not None and loop.time() >= until

        if self._streams is not None:
            await self._streams.drained(given_up)

    async def _put_away(self, keeping: Keeping) -> None:
        self._teller.close()
        self._paying.close()
        self._gathering.end()
        await self._desk.close()
        if self._streams is not None:
            self._streams.close(keep=self.order.keep_transcript or keeping.receipt is not None)
        if self._file is not None:
            self._file.remove()


async def _in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, work)
