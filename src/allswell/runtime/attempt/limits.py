"""When an attempt is over, and how: by its own end, by an order, by its last word, by a limit, or with its lease.

What was ordered comes before what follows from the clock, the hard limit before the loss of the lease (the store ends
it at the same moment), and both before idleness. An agent that has said its last word is bound by its leave alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace

from allswell.domain.agents.denied import Denied
from allswell.domain.agents.evidence import REPEATS
from allswell.domain.agents.output import AgentLine, not_done, plain_refusal, with_denied
from allswell.domain.duration import show
from allswell.domain.lease.claim import RUN_ROLE
from allswell.domain.receipts.receipt import End, taken_away
from allswell.engine.lease import Lease
from allswell.engine.wakeup import Signal, either
from allswell.errors import AllswellError, LeaseLost
from allswell.runtime.attempt.launch import AttemptLimits, AttemptOutcome, is_gone
from allswell.runtime.attempt.progress import ProgressMonitor
from allswell.runtime.process import EndCause, ProcessResult
from allswell.timing.clock import Clock

_AWAKE = 2_000
"""Milliseconds after which it is looked whether the machine has slept: our own clock stands still then."""
_AROUND_THE_LIMIT = 1_000
"""A lease that ends so shortly before the hard limit has reached it: the clocks of the store and ours are two."""
_AFTER_INTERRUPT = 10_000
"""A command that fails so shortly after Ctrl-C was typed was interrupted by it."""
_LIMITS = (End.TIMEOUT, End.IDLE, End.LEASE_LOST)
_BY_WORD = {"done": End.DONE, "fail": End.FAILED, "release": End.RELEASED, "ask": End.ASKED, "decline": End.RELEASED}


class LimitChecker:
    """Holds one attempt to its limits; the clock begins when this is made."""

    def __init__(
        self,
        limits: AttemptLimits,
        lease: Lease,
        seen: ProgressMonitor,
        clock: Clock,
        last_word: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`last_word` is what its agent has said last (`done`, `fail`, …), which has ended it."""
        self.order: tuple[End, str] | None = None
        """What was ordered from outside, and why."""
        self.interrupted_at: int | None = None
        """When Ctrl-C was last typed at the command's own terminal."""
        self.stands = False
        """Whether it is stopped by a person: then no limit is judged."""
        self._limits = limits
        self._lease = lease
        self._seen = seen
        self._last_word = last_word
        self._clock = clock
        self._leave_at: int | None = None
        now = clock.monotonic()
        self._own_at = None if limits.timeout is None else now + limits.timeout
        self._lease_at, self._deadline = now + lease.until_limit, lease.deadline

    @property
    def _hard_at(self) -> int:
        """The nearer of its own limit and the lease's, which moves where it is that of a run whose clock stands."""
        moved = 0 if self._lease.role == RUN_ROLE else self._lease.deadline - self._deadline
        lease_at = self._lease_at + moved  # that of a command moves only while it is stopped, when our clock stands
        return lease_at if self._own_at is None else min(self._own_at, lease_at)

    @property
    def _limit(self) -> int | None:
        own, of_lease = self._limits.timeout, self._lease.limit
        return of_lease if own is None else own if of_lease is None else min(own, of_lease)

    @property
    def remaining(self) -> int | None:
        """How long it is to the hard limit, in milliseconds; None without a limit."""
        return None if self._limit is None else max(self._hard_at - self._clock.monotonic(), 0)

    def pause(self) -> float:
        """Seconds until something could have to be decided, if nothing happens: a last word, an order, a loss do."""
        now = self._clock.monotonic()
        if self._leave_at is not None:
            return max(self._leave_at - now, 1) / 1_000
        moments = [self._hard_at, now + min(self._lease.until_stop, _AWAKE)]
        if self._limits.idle is not None:
            moments.append(self._seen.standing.idle_at(self._limits.idle))
        return max(min(moments) - now, 1) / 1_000

    def verdict(self) -> AttemptOutcome | None:
        """Why it should be ended now, if it should."""
        now = self._clock.monotonic()
        said = self._last_word()
        if self.order is not None:
            end, reason = self.order
            refused = self._refused() if end is End.INTERRUPTED and said is None else ""
            return self.so(end if said is None else _BY_WORD[said], f"{reason}{refused}")
        if said is not None:
            return self._outstayed(said, now)
        lost = self._lease.lost
        near = lost is not None and now >= self._hard_at - _AROUND_THE_LIMIT
        if now >= self._hard_at or near or self._lease.until_limit == 0:
            by_run = self._lease.by_run and self._limit == self._lease.limit
            reached = f"its limit of {show(self._limit or self._lease.limit or 0)} was reached"
            reason = "the deadline of its run has passed" if by_run else reached
            return self.so(End.TIMEOUT, f"{reason}{self._refused()}", self._limit)
        if lost is not None:
            return self.so(End.LEASE_LOST, lost.reason)
        if self._lease.until_stop == 0:
            over = "its lease was ended" if self._lease.over else "its lease could not be renewed in time"
            return self.so(End.LEASE_LOST, over)
        idle = self._limits.idle
        if idle is not None and now >= self._seen.standing.idle_at(idle):
            beside = self._seen.neighbour
            blind = "" if beside is None else f"; files were no evidence: attempt {beside} works in the same folder"
            printed = self._seen.printed_since
            circle = self._seen.standing.repeats
            why = f"{REPEATS}{circle}; no progress" if circle else "nothing showed progress"
            longer = f"; if it was at work: {self._limits.longer_idle}" if self._limits.longer_idle else ""
            return self.so(End.IDLE, f"{why} for {show(idle)}; {printed}{blind}{longer}", idle)
        return None

    async def watch(
        self,
        news: Signal,
        by_itself: Callable[[], Awaitable[AttemptOutcome | None]],
        look: Callable[[], Awaitable[None]] | None = None,
        *,
        longest: float = math.inf,
    ) -> AttemptOutcome:
        """Until the attempt has ended by itself, or is to be ended; it is judged with all `news`.

        `look` is called before it counts as idle; it is looked at again every `longest` seconds, if nothing happens.
        """
        while True:
            heard = news.listen()
            if (ended := await by_itself()) is not None:
                return ended
            verdict = self.verdict()
            if verdict is not None and verdict.end is End.IDLE and look is not None:
                await look()
                verdict = self.verdict()
            if verdict is not None and self.stands and verdict.end in _LIMITS:
                verdict = None
            if verdict is not None and not await self._goes_on(verdict):
                return verdict if self.is_cut_off(verdict) else await as_the_store_has_it(self._lease, verdict)
            await either(heard, min(self.pause(), longest))

    async def _goes_on(self, verdict: AttemptOutcome) -> bool:
        """Whether the store says otherwise: its limit has moved, or its lease is renewed in the last moment."""
        if verdict.end is End.TIMEOUT:
            return await self._lease.confirm()
        return self.is_cut_off(verdict) and await self._lease.renew_in_time()

    def is_cut_off(self, verdict: AttemptOutcome) -> bool:
        """Whether it is ended because the store does not answer, and not because the store has said so."""
        lease = self._lease
        return verdict.end is End.LEASE_LOST and self.order is None and not is_gone(lease)

    def _refused(self) -> str:
        """That its client waited for a provider that refuses, where it did: that is why it was not done."""
        refusal = self._seen.standing.refusal
        if refusal is not None and self.order is not None and refusal.words in self.order[1]:
            return ""  # it was ended for that
        return "" if refusal is None else f" while it was waiting for the provider: {refusal.words}"

    def _outstayed(self, said: str, now: int) -> AttemptOutcome | None:
        if self._leave_at is None:
            self._leave_at = now + self._limits.leave
        if now < self._leave_at:
            return None
        text = f"it said {said}, and had not ended {show(self._limits.leave)} later"
        return self.so(_BY_WORD[said], text)

    def by_itself(self, result: ProcessResult, last_line: AgentLine, denied: Denied) -> AttemptOutcome:
        """How it ended by itself; its last line may say what its exit code does not."""
        said = self._last_word()
        if said is not None:
            return self.so(_BY_WORD[said], f"it said {said}", result=result)
        if self._lease.blocked_on is not None and result.ending is EndCause.EXITED:
            return self.so(End.RELEASED, f"blocked: no answer to {self._lease.blocked_on}", result=result)
        if self._was_interrupted(result):
            how = f"exit code {result.exit_code}" if result.signal is None else f"signal {_name_of(result.signal)}"
            return self.so(End.INTERRUPTED, f"Ctrl-C was typed, and it ended with {how}", result=result)
        if result.ending is EndCause.EXITED:
            failure = not_done(last_line) or (plain_refusal(last_line) if result.exit_code else None)
            code = f"exit code {result.exit_code}"
            if failure is not None:
                but = ", but it was not done" if result.exit_code == 0 else ""
                ended = self.so(End.FAILED, f"{code}{but}: {failure.message}", result=result)
                return replace(ended, failure=with_denied(failure, denied))
            if result.exit_code == 0:
                return self.so(End.DONE, code, result=result)
            return self.so(End.FAILED, f"{code}{self._refused()}", result=result)
        if result.ending is EndCause.SIGNALLED and result.signal is not None:
            return self.so(End.SIGNALLED, f"signal {_name_of(result.signal)}{self._refused()}", result=result)
        if result.ending is EndCause.STOPPED:
            return self.so(End.INTERRUPTED, "its reaper was told to stop", result=result)
        return self.so(End.LOST, _lost(result), result=result)

    def _was_interrupted(self, result: ProcessResult) -> bool:
        if self.interrupted_at is None or result.ending not in (EndCause.EXITED, EndCause.SIGNALLED):
            return False
        return result.exit_code != 0 and self._clock.monotonic() - self.interrupted_at <= _AFTER_INTERRUPT

    def by_last_word(self, ended: AttemptOutcome) -> AttemptOutcome:
        """How it ended, if its last word came while it was being ended: the store has taken that, so it counts."""
        said = self._last_word()
        if said is None or ended.end is _BY_WORD[said]:
            return ended
        reason = f"it said {said} while it was being ended ({ended.reason})"
        return replace(ended, end=_BY_WORD[said], reason=reason, limit=None)

    def so(
        self, end: End, reason: str, limit: int | None = None, *, result: ProcessResult | None = None
    ) -> AttemptOutcome:
        """An end, with all that was seen until now."""
        standing = self._seen.standing
        elapsed = self._clock.monotonic() - standing.began
        seen = self._seen
        return AttemptOutcome(end, reason, result, limit, elapsed, standing, seen.session, open_call=seen.doing)


def _lost(result: ProcessResult) -> str:
    if result.survivors:
        return "its reaper was killed"
    if result.proven:
        return "its reaper was killed, and the tree with it"
    return "its reaper and the warden were killed; no process of it was found, which does not prove that none is left"


def _name_of(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} ({number})"
    except ValueError:
        return str(number)


# What the store says about an attempt that it has ended itself.
#
# A sweeper may end a lease before the attempt's own clock does, in this process or another; a supervisor that was
# frozen finds all its leases gone. The receipt then says what the store says, not only that the lease is lost.

_PATIENCE = 1.0
"""Seconds for the store to answer: meanwhile the agent goes on."""


async def as_the_store_has_it(lease: Lease, ended: AttemptOutcome) -> AttemptOutcome:
    """The end of an attempt whose lease may be gone: it is reported as the store has it."""
    by_itself = ended.result is not None
    if by_itself:
        await _ask_if_in_doubt(lease)
    if lease.over or (lease.lost is None and ended.end is not End.LEASE_LOST):
        return ended
    told = await ended_by(lease)
    if told is None:
        return ended
    end, reason = told
    if by_itself and ended.end is not End.LEASE_LOST:  # that one was being verified
        ends = ended.end if ended.end is not End.DONE else end
        return replace(ended, end=ends, reason=f"{ended.reason}; before that, {reason}")
    return replace(ended, end=end, reason=reason, limit=lease.limit if end is End.TIMEOUT else ended.limit)


def overtaken(ended: AttemptOutcome, result: ProcessResult) -> AttemptOutcome:
    """An end that was decided, with how the tree then ended: it may have been quicker than we were."""
    reason = ended.reason
    if result.ending is EndCause.EXITED:
        reason = f"exit code {result.exit_code}; before that, {reason}"
    return replace(ended, result=result, reason=reason)


async def ended_by(lease: Lease) -> tuple[End, str] | None:
    """How and why the store has ended a lease; None if it has not, or does not answer. Then the lease is lost."""
    with contextlib.suppress(AllswellError, TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            past = await lease.past()
        if past is not None:
            end, reason = taken_away(past.outcome, past.detail, lease.limit)
            if lease.lost is None:
                lease.lost = LeaseLost(lease.task, lease.token, reason)
            return end, reason
    return None


async def _ask_if_in_doubt(lease: Lease) -> None:
    """Renew a lease that may have lapsed while it could not be renewed: it then says that it is lost."""
    if lease.remaining == 0 and not is_gone(lease):
        with contextlib.suppress(AllswellError, TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await lease.renew()
