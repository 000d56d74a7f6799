"""Rules: for each command what it locks and reads, said as data, and the function that decides it.

Every module with commands ends with its `RULES`; decide.py has the table of all. The engine knows no command by name.
It goes by this for each batch, so a new command needs a new rule, and no line in the engine:

1.  `names`: what follows from the command alone. With its searches: what to look for before anything is locked.
2.  `found`: what those searches add. They are hints, so what is found is locked, and read again.
3.  The engine locks all that the commands of a batch name, kind by kind and each kind by id, then reads it.
4.  `reads`: what only the rows themselves tell, covered by locks that are held by then.
5.  `decide`: the situation and the command in, the decision out. Nothing else is read, and nothing is changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Generic, Literal, TypedDict, TypeVar

import msgspec

from allswell.domain.agents.cost import ExpenseRow
from allswell.domain.ids import AgentId, Millis, QuestionId, RunId, TaskId, Token
from allswell.domain.lease.model import Agent, AgentRecord, LeaseRow
from allswell.domain.question import Question
from allswell.domain.rules.command import Claim, LeaseCommand
from allswell.domain.rules.event import Event
from allswell.domain.run.run import Fanout, Run
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.aggregate import TaskAggregate, TaskChange
from allswell.domain.task.model import Attempt, FinishedTask, Task
from allswell.errors import AllswellError, Refused

C = TypeVar("C")
LaneKey = tuple[str, tuple[str, ...]]
"""A lane by what makes it: the role and the services of its tasks."""


class RowSearch(msgspec.Struct, frozen=True, order=True):
    """Something to look for without a lock; what is found are ids, but for `ASKING`."""

    what: Literal["asking", "claimed", "held", "leases", "open", "questions", "target", "waiting"]
    """Who waits for whom's answer (mesh.circle); tasks that a claim was given; a run's held tasks; all leases; a run's
    open tasks; open questions about a task; whom a request is for (its role); tasks that wait for a task."""
    of: str = ""
    after: str = ""
    """Where a walk goes on: only ids greater than this one."""
    limit: int = 0


ASKING = RowSearch("asking")


class AwaitedRequest(msgspec.Struct, frozen=True, order=True):
    """An open request whose asker waits for the answer, and who can give it."""

    id: TaskId
    asker: str
    can_answer: Sequence[str]


class ReadSet(TypedDict, total=False):
    """The rows that a command is about: locked in one order for a whole batch, then read."""

    runs: Collection[RunId]
    runs_shared: Collection[RunId]
    """Runs that are read only: several batches may do that at once."""
    services: Collection[str]
    agents: Collection[AgentId]
    health: Collection[str]
    """Agents of which is wanted what requests say of them, by their names in the settings."""
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
    """As `held`, but skipped if another transaction has them: it handles them, or they are found again."""
    payloads: Collection[TaskId]
    bars: Collection[TaskId]
    """Tasks of which is wanted who may not hold them."""
    expenses: Collection[TaskId]
    """Tasks of which is wanted what their attempts have cost."""
    searches: Collection[RowSearch]
    lanes: Collection[LaneKey]
    """The lanes of the tasks that it makes: a store interns them before anything is decided."""


class RowReads(msgspec.Struct, frozen=True, gc=False):
    """What to read after the locks."""

    attempts: Sequence[tuple[TaskId, Token]] = ()
    """Attempts that are over; their tasks are locked."""
    questions: Sequence[QuestionId] = ()
    """Questions about tasks or services that are locked."""


def names_nothing(_: object) -> ReadSet:
    """For a command that is about no row."""
    return ReadSet()


class Rule(msgspec.Struct, Generic[C], frozen=True):
    """How one kind of command is decided."""

    command: type[C]
    decide: Callable[[RowSnapshot, C], Decision]
    names: Callable[[C], ReadSet] = names_nothing
    found: Callable[[C, Mapping[RowSearch, Sequence[str]]], ReadSet] | None = None
    reads: Callable[[C, RowSnapshot], RowReads | None] | None = None
    chance: bool = False
    """Whether it is decided with a number that was drawn for it."""
    last: bool = False
    """Whether it is decided after all others of its batch: what it tells comes with the claim that follows it."""


# The situation: all that a decision may read, as it stands in one unit of work.
#
# The engine locks and reads what the commands of a batch name and enters each decision before the next command is
# decided, so a rule sees what those before it in the same batch have left. Rules read here, and change nothing.


class RowSnapshot(msgspec.Struct, frozen=True):
    """The rows of a unit of work; what does not exist, or was not named, is missing."""

    now: Millis
    cases: Mapping[TaskId, TaskAggregate] = {}
    leases: Mapping[TaskId, LeaseRow] = {}
    """Of tasks that were read without their case."""
    runs: Mapping[RunId, Run] = {}
    runs_seen: Mapping[RunId, Run] = {}
    """Runs that were read without a lock, for what is claimed."""
    services: Mapping[str, ServiceRow] = {}
    agents: Mapping[AgentId, Agent | None] = {}
    """Agents that something is held against; None: not any more."""
    health: Mapping[str, AgentRecord] = {}
    questions: Mapping[QuestionId, Question] = {}
    attempts: Mapping[tuple[TaskId, Token], Attempt] = {}
    """Attempts that are over."""
    payloads: Mapping[TaskId, str] = {}
    bars: Mapping[TaskId, AbstractSet[AgentId]] = {}
    expenses: Mapping[TaskId, Sequence[ExpenseRow]] = {}
    """What attempts have cost, by task."""
    lanes: Mapping[LaneKey, int] = {}
    """The lane of each (role, services) of the tasks that are to be made."""
    found: Mapping[RowSearch, Sequence[str]] = {}
    """What was looked for before anything was locked."""
    asking: Sequence[AwaitedRequest] = ()
    """Who waits for whose answer, where `ASKING` was searched for."""
    runs_found: Mapping[TaskId, RunId] = {}
    """In which runs tasks are, where that was looked for."""
    chance: float = 0.0
    """A number from 0 to 1, for a rule that asks for one."""

    def case(self, task: TaskId) -> TaskAggregate:
        """A task's case; refused where there is no such task."""
        case = self.cases.get(task)
        if case is None:
            raise Refused("unknown_task", f"there is no task {task}", where="task")
        return case

    def lease(self, task: TaskId) -> LeaseRow | None:
        """A task's lease as it stands now."""
        case = self.cases.get(task)
        return self.leases.get(task) if case is None else case.lease

    def run_of(self, task: Task) -> Run | None:
        """The run of a task as it stands now, if it was locked and read."""
        return None if task.run is None else self.runs.get(task.run)

    def run_seen(self, task: Task) -> Run | None:
        """The run of a task: as it stands in this unit of work, or as it was last committed."""
        return None if task.run is None else self.runs.get(task.run) or self.runs_seen.get(task.run)

    def service(self, name: str) -> ServiceRow:
        """A service as it stands now; one that nothing was ever held against has no row yet."""
        return self.services.get(name) or ServiceRow(name)


def past_of(command: LeaseCommand, situation: RowSnapshot) -> RowReads | None:
    """The attempt that a word names, where that is not the current one: it may be a repetition, or late."""
    case = situation.cases.get(command.task)
    if case is None or (case.lease is not None and case.lease.token == command.token):
        return None
    if command.token.bit_length() >= 63:
        return None
    return RowReads(attempts=((command.task, command.token),))


# A decision: everything that one command comes to, as a value. All of it is entered, or, where it is refused, nothing.
#
# Events are written in this order: `events` first, then those of each outcome.


class Decision(msgspec.Struct):
    """What a command comes to. A row that is the same object as before has not changed.

    It is seen by the garbage collector, unlike rows: an error that was raised may lead back to it by its traceback.
    """

    answer: object = None
    error: AllswellError | None = None
    """For the caller; the rest is written all the same."""
    outcomes: Sequence[TaskChange] = ()
    """What becomes of tasks, step by step: each is held to the table of moves."""
    agents: Sequence[tuple[AgentId, Agent | None]] = ()
    """What is held against agents now; None: nothing."""
    health: Sequence[tuple[str, AgentRecord]] = ()
    """What requests say of agents now."""
    events: Sequence[Event] = ()
    leases: Sequence[LeaseRow] = ()
    """Leases that were renewed, of which nothing else was read."""
    recorded: Sequence[FinishedTask] = ()
    """Tasks that are finished as they are made."""
    runs: Sequence[Run] = ()
    services: Sequence[ServiceRow] = ()
    asked: Sequence[Question] = ()
    """Questions about services; those about tasks are in the outcomes."""
    closed: Sequence[Question] = ()
    """Questions that were answered, withdrawn or dismissed, be it that this decision has asked them."""
    expenses: Sequence[ExpenseRow] = ()
    """What attempts have cost, in the place of what was known of them."""
    spreads: Sequence[Fanout] = ()
    worked_off: Sequence[str] = ()
    """Spreads that nothing is left of."""
    timers: Sequence[tuple[str, Millis | None]] = ()
    """Of runs that are otherwise as they were: when they fall due, or that they do not."""
    claim: Claim | None = None
    """To be served from the ready tasks, after all commands of the batch were decided."""
