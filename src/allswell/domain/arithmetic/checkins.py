"""Check-ins against the run they are asked for in: asked too late, judged too late, missed by construction (O2, O3).

A holder is asked at each multiple of the interval strictly before its limit, and has a wait to answer in. Misses are
counted per agent across its leases, so a threshold that one run cannot reach may be reached in the next; but each of
those silent runs ends in a timeout, and after `timeout_escalation` of them a human is asked anyway.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from allswell.domain.arithmetic.figure import Figure
from allswell.domain.arithmetic.finding import Finding, Rule, Severity
from allswell.domain.arithmetic.sum import Sum, at_most, exact, one, times

NEVER_ASKED = Rule("never_asked", Severity.WARNING, "A run is long enough for at least one check-in to be asked for.")
NEVER_JUDGED = Rule("never_judged", Severity.WARNING, "Every check-in is asked for early enough to be missed in time.")
STALL_IN_REACH = Rule("stall_in_reach", Severity.WARNING, "An agent is found stalled before a human is asked anyway.")
STALL_TAKES_RUNS = Rule("stall_takes_runs", Severity.NOTE, "An agent that falls silent is found within one run.")
IDLE_AFTER_CHECKIN = Rule(
    "idle_after_checkin", Severity.WARNING, "An agent that answers every check-in in time is never ended as idle."
)
BUSY_IS_NOT_STALLED = Rule(
    "busy_is_not_stalled", Severity.WARNING, "A single call within its limit does not make an agent look stalled."
)


class CheckIns(msgspec.Struct, frozen=True):
    """How the runs of one role are watched."""

    limit: Figure
    interval: Figure
    wait: Figure
    threshold: Figure
    escalation: Figure
    idle: Figure | None = None


def asked(limit: int, interval: int) -> int:
    """How many check-ins are asked for in a run: at each multiple of the interval strictly before the limit."""
    return (limit - 1) // interval


def judged(limit: int, interval: int, wait: int) -> int:
    """How many of them can be missed before the run is over."""
    return max((limit - 1 - wait) // interval, 0)


def checkins_work(watched: CheckIns) -> Iterator[Finding]:
    """Everything that the figures of one role say about each other."""
    limit, interval, wait = watched.limit, watched.interval, watched.wait
    if interval.length <= 0 or limit.length <= 0:
        return  # refused where it was loaded
    count = asked(limit.length, interval.length)
    if count == 0:
        yield NEVER_ASKED.broken(
            f"Nobody is ever asked for a check-in: the first would come at {exact(interval.length)}, and"
            f" {limit.name} ends the run first.",
            (limit, interval),
            sum=Sum((one(interval.length),), "≥", limit.length),
            fix=f"Make {interval.name} less than {exact(limit.length)}; a third of it asks twice.",
        )
    else:
        in_time = judged(limit.length, interval.length, wait.length)
        if in_time < count:
            yield _never_judged(watched, count)
        yield from _stalling(watched, in_time)
    yield from _idle(watched)


def _never_judged(watched: CheckIns, number: int) -> Finding:
    limit, interval, wait = watched.limit, watched.interval, watched.wait
    made = Sum((times(number, interval.length), one(wait.length)), "≥", limit.length)
    return NEVER_JUDGED.broken(
        f"Check-in {number} of a run can never be missed: {limit.name} ends the run before the wait for it is over.",
        (limit, wait, interval),
        sum=made,
        fix=f"Make {limit.name} more than {exact(made.total)}, or {wait.name} less than"
        f" {exact(limit.length - number * interval.length)}.",
    )


def _stalling(watched: CheckIns, in_time: int) -> Iterator[Finding]:
    threshold, escalation = watched.threshold.length, watched.escalation.length
    figures = (watched.threshold, watched.interval, watched.limit, watched.escalation)
    enough = f"Make {watched.interval.name} at most {at_most(_often_enough(watched))}"
    reached = in_time * escalation
    if reached < threshold:
        yield STALL_IN_REACH.broken(
            f"{watched.threshold.name} ({threshold}) can never be reached: a run has {_times(in_time)} to miss a"
            f" check-in, and after {escalation} silent runs a human is asked because of the timeouts.",
            figures,
            fix=f"{enough}, or {watched.threshold.name} at most {reached}." if reached else f"{enough}.",
        )
    elif in_time < threshold:
        runs = -(-threshold // in_time)
        yield STALL_TAKES_RUNS.broken(
            f"An agent that falls silent is found stalled only in run {runs}: a run of {exact(watched.limit.length)}"
            f" has {_times(in_time)} to miss a check-in, and {watched.threshold.name} is {threshold}.",
            figures,
            fix=f"Nothing, if that is soon enough. {enough} to find it in one run.",
        )


def _often_enough(watched: CheckIns) -> int:
    """The longest interval at which one run has room for all the misses."""
    room = watched.limit.length - 1 - watched.wait.length
    return max(room // watched.threshold.length, 1)


def _times(count: int) -> str:
    return {0: "no chance", 1: "one chance"}.get(count, f"{count} chances")


def _idle(watched: CheckIns) -> Iterator[Finding]:
    idle, interval, wait = watched.idle, watched.interval, watched.wait
    if idle is None or asked(watched.limit.length, interval.length) == 0:
        return
    latest = interval.length + wait.length
    if idle.value <= latest:
        surely = idle.value <= interval.value
        yield IDLE_AFTER_CHECKIN.broken(
            f"{idle.name} is over before an agent is first asked for a check-in: one that waits to be asked is ended."
            if surely
            else f"{idle.name} can end an agent that answers every check-in in time.",
            (idle, interval, wait),
            sum=Sum((one(interval.length), one(wait.length)), "≥", idle.length),
            fix=f"Make {idle.name} more than {exact(latest)}, or let agents check in by themselves.",
        )


def misses_during(call: int, interval: int, wait: int) -> int:
    """How many check-ins in a row one call can cover from being asked for to being missed."""
    return 0 if call < wait else (call - wait) // interval + 1


def busy_is_not_stalled(watched: CheckIns, call: Figure, what: str) -> Iterator[Finding]:
    """An agent that waits for one call cannot answer; if the call may last, it is taken for stalled."""
    limit, interval, wait = watched.limit.length, watched.interval.length, watched.wait.length
    longest = min(call.length, limit)
    covered = min(misses_during(longest, interval, wait), judged(limit, interval, wait))
    if covered >= watched.threshold.value:
        needed = watched.threshold.length - 1
        terms = (times(needed, interval), one(wait)) if needed else (one(wait),)
        made = Sum(terms, "≤", call.length)
        yield BUSY_IS_NOT_STALLED.broken(
            f"An agent that waits for {what} as long as it may ({call.name}) misses {covered} check-ins by"
            f" construction, and is taken for stalled after {watched.threshold.length}.",
            (watched.interval, watched.threshold, call),
            sum=made,
            fix=f"Make {watched.threshold.name} at least {covered + 1}, or let the agent check in while it waits.",
        )
