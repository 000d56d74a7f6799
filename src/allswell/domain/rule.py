"""Rules: for each command what it locks and reads, said as data, and the function that decides it.

Every module with commands ends with its `RULES`; decide.py has the table of all. The engine knows no command by name.
It goes by this for each batch, so whoever adds a command adds a rule, and no line to the engine:

1.  `names`: what follows from the command alone. With its searches: what to look for before anything is locked.
2.  `found`: what those searches add. They are hints, so what is found is locked, and read again.
3.  The engine locks all that the commands of a batch name, kind by kind and each kind by id, then reads it.
4.  `reads`: what only the rows themselves tell, covered by locks that are held by then.
5.  `decide`: the situation and the command in, the decision out. Nothing else is read, and nothing is changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Literal, TypedDict, TypeVar

import msgspec

from allswell.domain.names import AgentId, QuestionId, RunId, TaskId, Token

if TYPE_CHECKING:
    from allswell.domain.decision import Decision
    from allswell.domain.situation import Situation

C = TypeVar("C")
LaneKey = tuple[str, tuple[str, ...]]
"""A lane by what makes it: the role and the services of its tasks."""


class Search(msgspec.Struct, frozen=True, order=True):
    """Something to look for without a lock; what is found are ids."""

    what: Literal["asking", "claimed", "held", "leases", "open", "questions", "target", "waiting"]
    """Who waits for whom's answer (circle.py); tasks that a claim was given; a run's held tasks; all leases; a run's
    open tasks; open questions about a task; whom a request is for (its role); tasks that wait for a task."""
    of: str = ""
    after: str = ""
    """Where a walk goes on: only ids greater than this one."""
    most: int = 0


ASKING = Search("asking")


class Names(TypedDict, total=False):
    """The rows that a command is about: locked in one order for a whole batch, then read. What is left out is none."""

    runs: Collection[RunId]
    runs_shared: Collection[RunId]
    """Runs that are read only: several batches may do that at once."""
    services: Collection[str]
    agents: Collection[AgentId]
    questions: Collection[QuestionId]
    tasks: Collection[TaskId]
    held: Collection[TaskId]
    """Tasks with their leases, and with whether others wait for them."""
    leases: Collection[TaskId]
    """Leases alone, without their tasks."""
    made: Collection[TaskId]
    """New tasks under ids that were drawn for them: looked for only if the batch may have been done before."""
    runs_of: Collection[TaskId]
    """Tasks whose runs are concerned too. Which run a task is in never changes, so a look is enough."""
    perhaps_runs_of: Collection[TaskId]
    """Tasks whose runs may turn out to be concerned (`RunUnread`): then it is all decided again, with them."""
    free: Collection[TaskId]
    """As `held`, but passed over where somebody else has them: that one sees to them, or they are found again."""
    payloads: Collection[TaskId]
    bars: Collection[TaskId]
    """Tasks of which is wanted who may not hold them."""
    expenses: Collection[TaskId]
    """Tasks of which is wanted what their attempts have cost."""
    searches: Collection[Search]
    lanes: Collection[LaneKey]
    """The lanes of the tasks that it makes: a store interns them before anything is decided."""


class Reads(msgspec.Struct, frozen=True, gc=False):
    """What to read after the locks."""

    attempts: Sequence[tuple[TaskId, Token]] = ()
    """Attempts that are over; their tasks are locked."""
    questions: Sequence[QuestionId] = ()
    """Questions about tasks or services that are locked."""


def names_nothing(_: object) -> Names:
    """For a command that is about no row."""
    return Names()


class Rule(msgspec.Struct, Generic[C], frozen=True):
    """How one kind of command is decided."""

    command: type[C]
    decide: Callable[[Situation, C], Decision]
    names: Callable[[C], Names] = names_nothing
    found: Callable[[C, Mapping[Search, Sequence[str]]], Names] | None = None
    reads: Callable[[C, Situation], Reads | None] | None = None
    chance: bool = False
    """Whether it is decided with a number that was drawn for it."""
    last: bool = False
    """Whether it is decided after all others of its batch: what it tells comes with the claim that follows it."""
