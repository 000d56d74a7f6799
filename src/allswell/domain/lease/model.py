"""A lease: one holder's time-limited right to one attempt at a task.

Four clocks can end it, each with a name:
  deadline   the attempt's hard limit, which never moves; or the run's, if that is nearer, which moves while the run's
             clock stands (run/run.py). What a lease carries of it is as it was last seen.
  lapse      the holder promised to renew every `length` and did not: it is dead, or cut off.
  idle       no check-in for the policy's `idle`. Off by default.
  silence    asked for a check-in at every multiple of the interval, it did not answer (`missed`).

All four follow from the row and the policy, so the row is written only when the holder says something. `due_at` is the
earliest moment at which any of them could bite. Check-ins never move the timer: a tick that comes early re-arms itself.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from allswell.domain.duration import LONGEST
from allswell.domain.ids import AgentId, CommandId, Millis, TaskId, Token
from allswell.errors import Refused

NO_LIMIT = 100 * LONGEST
"""How far off the deadline of an attempt without a limit is, in milliseconds. A row always has a moment there, so that
every comparison holds; that it is not a limit follows from its length: `LONGEST`, which builds used to have, is not
one."""
_STOP_MARGIN = 2_000


class LeaseRow(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The current right to a task; the row is gone when the attempt is over.

    What a check-in changes stands last: an update then logs only the tail of the row.
    """

    task: TaskId
    token: Token
    agent: AgentId
    granted_at: Millis
    deadline: Millis
    length: int | None
    """How often the holder promised to renew; None: it need not."""
    idle: int | None
    ask_every: int
    ask_wait: int
    grace: int
    command: CommandId
    judged: int = 0
    """How many of the asked-for check-ins have been judged, answered or missed."""
    stalled_at: Millis | None = None
    renewed_at: Millis = Millis(0)
    checkin_at: Millis | None = None
    progress: float | None = None
    note: str = ""
    own: Millis | None = None
    """The attempt's own limit, where `deadline` is that of its run, which is nearer."""

    @property
    def limit(self) -> int | None:
        """How long the attempt may take in all, in milliseconds; None: it has no limit."""
        length = self.deadline - self.granted_at
        return None if length >= LONGEST else length

    @property
    def limit_at(self) -> Millis | None:
        """When its limit is reached; None: it has no limit."""
        return None if self.limit is None else self.deadline


def bounded(lease: LeaseRow, limit: Millis | None) -> LeaseRow:
    """The lease under the limit that its run has now; None: it has none, or its clock stands."""
    own = lease.deadline if lease.own is None else lease.own
    capped = limit is not None and limit < own
    deadline = limit if capped and limit is not None else own
    if deadline == lease.deadline and capped is (lease.own is not None):
        return lease
    return replace(lease, deadline=deadline, own=own if capped else None)


def lapses_at(lease: LeaseRow) -> int | None:
    """When the lease ends for want of renewal."""
    return None if lease.length is None else lease.renewed_at + lease.length


def idles_at(lease: LeaseRow) -> int | None:
    """When the attempt ends for want of progress."""
    if lease.idle is None:
        return None
    return (lease.granted_at if lease.checkin_at is None else lease.checkin_at) + lease.idle


def recovered_at(lease: LeaseRow) -> int | None:
    """When a stalled attempt is taken back, whether or not its supervisor has acted."""
    return None if lease.stalled_at is None else lease.stalled_at + lease.grace


def asked_at(lease: LeaseRow, number: int) -> int | None:
    """When the holder is asked for its n-th check-in; None if that is not strictly before its limit (O2).

    An interval of `LONGEST` means that it is never asked.
    """
    if lease.ask_every >= LONGEST:
        return None
    moment = lease.granted_at + number * lease.ask_every
    return moment if moment < lease.deadline else None


def judged_at(lease: LeaseRow) -> int | None:
    """When the next asked-for check-in counts as missed."""
    asked = asked_at(lease, lease.judged + 1)
    return None if asked is None else asked + lease.ask_wait


def stop_margin(length: int) -> int:
    """What a holder allows, in ms, for noticing that it is cut off, and for a tree to be gone once it was killed."""
    return min(_STOP_MARGIN, length // 10)


def stop_reserve(length: int, grace: int) -> int:
    """How long before the end of a lease of this length its holder begins to stop, in ms.

    SIGTERM, the grace and SIGKILL fit into it, so that nothing runs any more when the store gives the work away. The
    grace is cut to a third of the lease: else a holder would stop soon after each renewal (`allswell check` says so).
    """
    return min(grace, length // 3) + stop_margin(length)


def ends_at(lease: LeaseRow) -> Millis:
    """The moment from which this lease is over, whether or not a sweeper has said so yet."""
    # Asked at every word of a holder, so it is written out.
    end = lease.deadline
    if lease.length is not None and lease.renewed_at + lease.length < end:
        end = Millis(lease.renewed_at + lease.length)
    if lease.idle is not None and (idle_end := idles_at(lease)) is not None and idle_end < end:
        end = Millis(idle_end)
    if lease.stalled_at is not None and lease.stalled_at + lease.grace < end:
        end = Millis(lease.stalled_at + lease.grace)
    return end


def due_at(lease: LeaseRow) -> Millis:
    """The earliest moment at which this lease could change by itself."""
    end = ends_at(lease)
    judged = judged_at(lease)
    return end if judged is None or judged >= end else Millis(judged)


def is_asked(lease: LeaseRow, now: int) -> bool:
    """Whether the holder owes a check-in right now: the order that every answer to it carries."""
    number = (now - lease.granted_at) // lease.ask_every
    if number < 1:
        return False
    asked = asked_at(lease, number)
    return asked is not None and (lease.checkin_at is None or lease.checkin_at < asked)


# Check-ins asked for, answered and missed; stalled agents (O2, O3, O8).
#
# A holder is asked at each multiple of the interval strictly before its limit, and has `checkpoint_timeout` to answer;
# the wait runs beside the attempt's own clock. Check-ins are answers, and so is what an agent's protocol shows: its
# supervisor reports that as check-ins, soon enough for each (`tells_every`). Misses are counted per agent, over all its
# leases, and cleared by any answer or by a recovery. The third one marks the agent as stalled: its supervisor has a
# short grace to end it for real, then the task is taken back in any case.


class Agent(msgspec.Struct, frozen=True, gc=False):
    """What is held against an agent; there is no row for one that has answered."""

    id: AgentId
    misses: int
    missed_at: Millis
    stalled: bool = False


class ExpiredDelivery(msgspec.Struct, frozen=True, gc=False):
    """A delivery of a request that an agent did not answer in time."""

    at: Millis
    request: str
    kind: str
    timeout: int
    """How long was waited, in milliseconds."""


class AgentRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What the last day says of an agent as one that is asked: the newest of it (mesh/health.py)."""

    expired: tuple[ExpiredDelivery, ...] = ()
    unblocked: tuple[Millis, ...] = ()
    """When late answers of its let a blocked task go on."""


def check_progress(progress: float | None) -> None:
    """Refuse a number that is not a share of the work; NaN is not one either, and JSON would turn it into null."""
    if progress is not None and not 0 <= progress <= 1:
        raise Refused("bad_progress", f"progress is a share from 0 to 1, not {progress}", where="progress")


def answered(lease: LeaseRow) -> bool:
    """Whether the next check-in to be judged was given, at or after it was asked for."""
    asked = asked_at(lease, lease.judged + 1)
    return asked is not None and lease.checkin_at is not None and lease.checkin_at >= asked


_TELLS_EVERY = 15_000
"""Milliseconds between two tellings where nothing is in a hurry: each is a write."""
_IN_TIME = 4
"""Of the time that there is to answer in, so many tellings fit."""


def tells_every(lease: LeaseRow) -> int:
    """How often a watcher tells of an agent that talks, in milliseconds: no answer is late because it was held."""
    shortest = lease.ask_wait if lease.idle is None else min(lease.ask_wait, lease.idle)
    return min(_TELLS_EVERY, max(shortest // _IN_TIME, 1))


def missed(agent: Agent | None, lease: LeaseRow, threshold: int, at: Millis) -> Agent:
    """The agent's record after one more miss; an answer on this lease since the last miss starts the count anew."""
    before = 0
    if agent is not None and not (lease.checkin_at is not None and lease.checkin_at > agent.missed_at):
        before = agent.misses
    return Agent(lease.agent, before + 1, at, stalled=before + 1 >= threshold)
