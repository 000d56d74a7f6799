"""A run: tasks with one common deadline and purpose.

A run that has ended can go on in another one: a flow that failed or ran out of time and is resumed. That is said in the
reason of the one that ended, in words that are read back here, so that all who tell of it tell the same: how the whole
stands is how its last run stands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from allswell.domain.names import NO_COMMAND, CommandId, Millis, RunId, TaskId


class Run(msgspec.Struct, frozen=True, gc=False):
    """One run; `ended_at` is set when it was ended as a whole, by a caller or by its deadline."""

    id: RunId
    name: str
    created_at: Millis
    deadline: Millis | None
    ended_at: Millis | None = None
    reason: str = ""
    command: CommandId = NO_COMMAND


_WENT_ON = re.compile(r"(?:(.*), and )?went on in (r_\S+)", re.DOTALL)


def gone_on(run: Run, after: RunId) -> Run:
    """A run that has ended, once another one does what was left of it."""
    return msgspec.structs.replace(run, reason=f"{run.reason}, and went on in {after}".removeprefix(", and "))


def went_on_in(run: Run) -> RunId | None:
    """The run that does what was left of this one; None where there is none."""
    said = _WENT_ON.fullmatch(run.reason) if run.ended_at is not None else None
    return None if said is None else RunId(said[2])


def last_of(run: Run, runs: Mapping[RunId, Run]) -> tuple[Run, ...]:
    """The run and those in which it went on, in order; the last one tells how it all stands."""
    found = {run.id: run}
    while (after := went_on_in(run)) is not None and after in runs and after not in found:
        run = found[after] = runs[after]
    return tuple(found.values())


class Spread(msgspec.Struct, frozen=True, gc=False):
    """A consequence that is worked off in chunks: telling a task's dependents, or ending a run's tasks.

    It is written in the same transaction as its cause, so what it still has to reach is accounted for.
    """

    id: TaskId | RunId
    """Of the task that ended or the run that was ended: each spreads at most once."""
    outcome: str
    """The end state that is spread: a task's, or that which a run's tasks shall have."""
    reason: str
    replaced_by: tuple[TaskId, ...] = ()
    """The subtasks, where the task was split."""
