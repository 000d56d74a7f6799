"""A run: tasks with one common deadline and purpose."""

from __future__ import annotations

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
