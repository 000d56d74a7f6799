"""The one entrance to the rules about a single task, held to the table of moves."""

from __future__ import annotations

import msgspec

from allswell.domain.answer import cancel
from allswell.domain.case import Case, Outcome, state
from allswell.domain.command import Cancel, HolderCommand, Word
from allswell.domain.hold import hold
from allswell.domain.names import Millis, TaskId
from allswell.domain.run import Run
from allswell.domain.task import MOVES
from allswell.domain.tick import tick
from allswell.errors import Bug


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Time has passed for this task."""

    task: TaskId


def decide(
    case: Case, command: HolderCommand | Cancel | Tick, now: Millis, draw: float, run: Run | None = None
) -> Outcome:
    """The outcome of one command on one task: a function of its arguments and of nothing else.

    `run` is the task's; where it was not read and turns out to be needed, that is `RunUnread`.
    """
    if isinstance(command, Word):
        out = hold(case, command, now, draw, run)
    elif isinstance(command, Tick):
        out = tick(case, now, run)
    else:
        out = cancel(case, command, now)
    return held_to_table(case, out)


def held_to_table(before: Case, out: Outcome) -> Outcome:
    """The outcome, if it is a move that the table allows; otherwise `Bug`."""
    old, new = state(before), state(out.case)
    if new is not old and new not in MOVES[old]:
        raise Bug(f"task {before.task.id} would go from {old} to {new}, which no rule allows")
    return out
