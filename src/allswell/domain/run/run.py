"""A run: tasks with one common deadline and purpose, and a clock that stands while one of them waits for an answer.

A human's answer has no limit, so no limit of a run may take its place (O9): while a question is open that a task of the
run waits for, the run's time does not run down. Of questions that overlap only the first that opens and the last that
closes matter. What a holder asks in passing and what is asked about a service stops no clock.

A run that has ended can go on in another one: a flow that failed or ran out of time and is resumed. The one that ended
names it (`continued_in`), which only opening the other one can set: how the whole stands is how its last run stands.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from allswell.domain.ids import NO_COMMAND, CommandId, Millis, RunId, TaskId


class Run(msgspec.Struct, frozen=True, gc=False):
    """One run; `ended_at` is set when it was ended as a whole, by a caller or by its deadline."""

    id: RunId
    name: str
    created_at: Millis
    deadline: Millis | None
    """As it was set; how far it has moved since, `limit` knows."""
    ended_at: Millis | None = None
    reason: str = ""
    command: CommandId = NO_COMMAND
    asked: int = 0
    """How many questions keep its clock standing."""
    stands_since: Millis | None = None
    stood: int = 0
    """For how many milliseconds its clock stood before."""
    moves: int = 0
    """How often its clock has stopped or gone on."""
    continued_in: RunId | None = None
    """The run that does what was left of this one, which has ended."""

    @property
    def end_text(self) -> str:
        """Why it ended, and where it went on."""
        if self.continued_in is None:
            return self.reason
        return f"{self.reason}, and went on in {self.continued_in}".removeprefix(", and ")

    @property
    def limit(self) -> Millis | None:
        """When its time is up; None if it has no deadline, or while its clock stands."""
        if self.deadline is None or self.stands_since is not None:
            return None
        return Millis(self.deadline + self.stood)


def last_of(run: Run, runs: Mapping[RunId, Run]) -> tuple[Run, ...]:
    """The run and those in which it went on, in order; the last one tells how it all stands."""
    found = {run.id: run}
    while (after := run.continued_in) is not None and after in runs and after not in found:
        run = found[after] = runs[after]
    return tuple(found.values())


class Fanout(msgspec.Struct, frozen=True, gc=False):
    """A consequence that is worked off in chunks: telling a task's dependents, ending a run's tasks, moving its leases.

    It is written in the same transaction as its cause, so what it still has to reach is accounted for.
    """

    id: TaskId | RunId | str
    """Of the task that ended or the run that was ended: each spreads at most once. A run's clock may stop and go on
    again and again: each time has a number behind the run's id."""
    outcome: str
    """The end state that is spread: a task's, or that which a run's tasks shall have; or `MOVED`."""
    reason: str
    """Why; of a clock that has moved there is none."""
    replaced_by: tuple[TaskId, ...] = ()
    """The subtasks, where the task was split."""
    reached: str = ""
    """Of a clock that has moved, the last of the run's leases that was told of it."""


MOVED = "moved"


def stop_clock(run: Run, now: Millis) -> Run:
    """A question was asked that a task waits for: the clock stands, or goes on standing.

    One that was asked at the very end, or was noticed late, leaves nothing, and never less.
    """
    if run.deadline is None:
        return run
    if run.stands_since is not None:
        return replace(run, asked=run.asked + 1)
    since = min(now, Millis(run.deadline + run.stood))
    return replace(run, asked=run.asked + 1, stands_since=since, moves=run.moves + 1)


def start_clock(run: Run, now: Millis) -> Run:
    """Such a question was answered or withdrawn: with the last one the clock goes on.

    The wall may have been set back meanwhile. A run whose clock stands has no timer and is not moved with it (ADR 33):
    its deadline and since when it stands are both of the time before, so what it has left is right all the same.
    """
    if run.stands_since is None:
        return run
    if run.asked > 1:
        return replace(run, asked=run.asked - 1)
    stood = run.stood + now - run.stands_since
    return replace(run, asked=0, stands_since=None, stood=stood, moves=run.moves + 1)


def time_left(run: Run, now: int) -> int | None:
    """How much of its time a run has left, in milliseconds, never less than none; None where it has no deadline."""
    if run.deadline is None:
        return None
    until = now if run.stands_since is None else run.stands_since
    return max(run.deadline + run.stood - until, 0)


def moved(run: Run) -> Fanout:
    """What tells the run's leases that its clock has stopped or gone on."""
    return Fanout(f"{run.id}~{run.moves}", MOVED, "")


def run_of_move(spread: Fanout) -> RunId:
    """The run whose clock has moved."""
    return RunId(str(spread.id).rpartition("~")[0])
