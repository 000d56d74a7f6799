"""A lease: one holder's time-limited right to one attempt at a task.

Four clocks can end it, each with a name:
  deadline   the attempt's hard limit, which never moves; or the run's, if that is nearer, which moves while the run's
             clock stands (run.py). What a lease carries of it is as it was last seen.
  lapse      the holder promised to renew every `length` and did not: it is dead, or cut off.
  idle       no check-in for the policy's `idle`. Off by default.
  silence    asked for a check-in at every multiple of the interval, it did not answer (see checkin.py).

All four follow from the row and the policy, so the row is written only when the holder says something. `due_at` is the
earliest moment at which any of them could bite. Check-ins never move the timer: a tick that comes early re-arms itself.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from allswell.domain.names import AgentId, CommandId, Millis, TaskId, Token


class Lease(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
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


def bounded(lease: Lease, limit: Millis | None) -> Lease:
    """The lease under the limit that its run has now; None: it has none, or its clock stands."""
    own = lease.deadline if lease.own is None else lease.own
    capped = limit is not None and limit < own
    deadline = limit if capped and limit is not None else own
    if deadline == lease.deadline and capped is (lease.own is not None):
        return lease
    return replace(lease, deadline=deadline, own=own if capped else None)


def lapses_at(lease: Lease) -> int | None:
    """When the lease ends for want of renewal."""
    return None if lease.length is None else lease.renewed_at + lease.length


def idles_at(lease: Lease) -> int | None:
    """When the attempt ends for want of progress."""
    if lease.idle is None:
        return None
    return (lease.granted_at if lease.checkin_at is None else lease.checkin_at) + lease.idle


def recovered_at(lease: Lease) -> int | None:
    """When a stalled attempt is taken back, whether or not its supervisor has acted."""
    return None if lease.stalled_at is None else lease.stalled_at + lease.grace


def asked_at(lease: Lease, number: int) -> int | None:
    """When the holder is asked for its n-th check-in; None if that is not strictly before its limit (O2)."""
    moment = lease.granted_at + number * lease.ask_every
    return moment if moment < lease.deadline else None


def judged_at(lease: Lease) -> int | None:
    """When the next asked-for check-in counts as missed."""
    asked = asked_at(lease, lease.judged + 1)
    return None if asked is None else asked + lease.ask_wait


def ends_at(lease: Lease) -> Millis:
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


def due_at(lease: Lease) -> Millis:
    """The earliest moment at which this lease could change by itself."""
    end = ends_at(lease)
    judged = judged_at(lease)
    return end if judged is None or judged >= end else Millis(judged)


def is_asked(lease: Lease, now: int) -> bool:
    """Whether the holder owes a check-in right now: the order that every answer to it carries."""
    number = (now - lease.granted_at) // lease.ask_every
    if number < 1:
        return False
    asked = asked_at(lease, number)
    return asked is not None and (lease.checkin_at is None or lease.checkin_at < asked)
