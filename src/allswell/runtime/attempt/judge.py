"""When an attempt is over, and how: by its own end, by an order, by its last word, by a limit, or with its lease.

What was ordered comes before what follows from the clock, the hard limit before the loss of the lease (the store ends
it at the same moment), and both before idleness. An agent that has said its last word is bound by its leave alone.
"""

from __future__ import annotations

import signal

import msgspec

from allswell.domain.duration import show
from allswell.domain.final_line import not_done
from allswell.domain.receipt import End
from allswell.engine.handle import Lease
from allswell.runtime.attempt.gathering import Gathering
from allswell.runtime.attempt.holder import Holder
from allswell.runtime.attempt.keeping import Ended
from allswell.runtime.attempt.order import AttemptLimits
from allswell.runtime.warden import Ending, Result
from allswell.timing.clock import Clock

_AROUND_THE_LIMIT = 1_000
"""A lease that ends so shortly before the hard limit has reached it: the clocks of the store and ours are two."""
_BY_WORD = {"done": End.DONE, "fail": End.FAILED, "release": End.RELEASED, "ask": End.ASKED}


class Judge:
    """Holds one attempt to its limits; the clock begins when this is made."""

    def __init__(self, limits: AttemptLimits, lease: Lease, holder: Holder, gathering: Gathering, clock: Clock) -> None:
        self.order: tuple[End, str] | None = None
        """What somebody ordered, and why."""
        self._limits = limits
        self._lease = lease
        self._holder = holder
        self._gathering = gathering
        self._clock = clock
        self._leave_at: int | None = None
        now = clock.monotonic()
        self._own_at = None if limits.timeout is None else now + limits.timeout
        self._lease_at, self._deadline = now + lease.until_limit, lease.deadline

    @property
    def _hard_at(self) -> int:
        """The nearer of its own limit and the lease's, which moves where it is that of a run whose clock stands."""
        lease_at = self._lease_at + self._lease.deadline - self._deadline
        return lease_at if self._own_at is None else min(self._own_at, lease_at)

    @property
    def _limit(self) -> int:
        own = self._limits.timeout
        return self._lease.limit if own is None else min(own, self._lease.limit)

    @property
    def remaining(self) -> int:
        """How long it is to the hard limit, in milliseconds."""
        return max(self._hard_at - self._clock.monotonic(), 0)

    def pause(self) -> float:
        """Seconds until something could have to be decided, if nothing happens: a last word, an order, a loss do."""
        now = self._clock.monotonic()
        if self._leave_at is not None:
            return max(self._leave_at - now, 1) / 1_000
        moments = [self._hard_at, now + self._lease.remaining]
        if self._limits.idle is not None:
            moments.append(self._gathering.standing.idle_at(self._limits.idle))
        return max(min(moments) - now, 1) / 1_000

    def verdict(self) -> Ended | None:
        """Why it should be ended now, if it should."""
        now = self._clock.monotonic()
        said = self._holder.last_word
        if self.order is not None:
            end, reason = self.order
            return self.so(end if said is None else _BY_WORD[said], reason)
        if said is not None:
            return self._outstayed(said, now)
        lost = self._lease.lost
        near = lost is not None and now >= self._hard_at - _AROUND_THE_LIMIT
        if now >= self._hard_at or near or self._lease.until_limit == 0:
            by_run = self._limit == self._lease.limit < self._lease.own_limit
            reason = "the deadline of its run has passed" if by_run else f"its limit of {show(self._limit)} was reached"
            return self.so(End.TIMEOUT, reason, self._limit)
        if lost is not None:
            return self.so(End.LEASE_LOST, lost.reason)
        if self._lease.remaining == 0:
            over = "its lease was ended" if self._lease.over else "its lease could not be renewed in time"
            return self.so(End.LEASE_LOST, over)
        idle = self._limits.idle
        if idle is not None and now >= self._gathering.standing.idle_at(idle):
            beside = self._gathering.neighbour
            blind = "" if beside is None else f"; files were no evidence: attempt {beside} works in the same folder"
            return self.so(End.IDLE, f"nothing showed progress for {show(idle)}{blind}", idle)
        return None

    def _outstayed(self, said: str, now: int) -> Ended | None:
        if self._leave_at is None:
            self._leave_at = now + self._limits.leave
        if now < self._leave_at:
            return None
        text = f"it said {said}, and had not ended {show(self._limits.leave)} later"
        return self.so(_BY_WORD[said], text)

    def by_itself(self, result: Result, last_line: bytes = b"") -> Ended:
        """How it ended, if nobody ended it; its last line may say what its exit code does not."""
        said = self._holder.last_word
        if said is not None:
            return self.so(_BY_WORD[said], f"it said {said}", result=result)
        if result.ending is Ending.EXITED:
            failure = not_done(last_line)
            code = f"exit code {result.exit_code}"
            if failure is not None:
                but = ", but it was not done" if result.exit_code == 0 else ""
                ended = self.so(End.FAILED, f"{code}{but}: {failure.message}", result=result)
                return msgspec.structs.replace(ended, failure=failure)
            return self.so(End.DONE if result.exit_code == 0 else End.FAILED, code, result=result)
        if result.ending is Ending.SIGNALLED and result.signal is not None:
            return self.so(End.SIGNALLED, f"signal {_name_of(result.signal)}", result=result)
        if result.ending is Ending.STOPPED:
            return self.so(End.INTERRUPTED, "somebody told its reaper to stop", result=result)
        return self.so(End.LOST, "its reaper was killed, and the tree with it", result=result)

    def so(self, end: End, reason: str, limit: int | None = None, *, result: Result | None = None) -> Ended:
        """An end, with all that was seen until now."""
        standing = self._gathering.standing
        elapsed = self._clock.monotonic() - standing.began
        return Ended(end, reason, limit, result, elapsed, standing, self._gathering.session)


def _name_of(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} ({number})"
    except ValueError:
        return str(number)
