"""The situation: all that a decision may read, as it stands in one unit of work.

The engine locks and reads what the commands of a batch name (rule.py) and enters each decision before the next command
is decided, so a rule sees what those before it in the same batch have left. Rules read here, and change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from allswell.domain.case import Case
from allswell.domain.checkin import Agent
from allswell.domain.expense import ExpenseRow
from allswell.domain.lease import Lease
from allswell.domain.names import AgentId, Millis, QuestionId, RunId, TaskId, Token
from allswell.domain.question import Question
from allswell.domain.rule import LaneKey, Search
from allswell.domain.run import Run
from allswell.domain.service import ServiceRow
from allswell.domain.task import Attempt, Task
from allswell.errors import Refused


class Situation(msgspec.Struct, frozen=True):
    """The rows of a unit of work; what does not exist, or was not named, is missing."""

    now: Millis
    cases: Mapping[TaskId, Case] = {}
    leases: Mapping[TaskId, Lease] = {}
    """Of tasks that were read without their case."""
    runs: Mapping[RunId, Run] = {}
    runs_seen: Mapping[RunId, Run] = {}
    """Runs that were read without a lock, for what is claimed."""
    services: Mapping[str, ServiceRow] = {}
    agents: Mapping[AgentId, Agent | None] = {}
    """Agents that something is held against; None: not any more."""
    questions: Mapping[QuestionId, Question] = {}
    attempts: Mapping[tuple[TaskId, Token], Attempt] = {}
    """Attempts that are over."""
    payloads: Mapping[TaskId, str] = {}
    bars: Mapping[TaskId, AbstractSet[AgentId]] = {}
    expenses: Mapping[TaskId, Sequence[ExpenseRow]] = {}
    """What attempts have cost, by task."""
    lanes: Mapping[LaneKey, int] = {}
    """The lane of each (role, services) of the tasks that are to be made."""
    found: Mapping[Search, Sequence[str]] = {}
    """What was looked for before anything was locked."""
    runs_found: Mapping[TaskId, RunId] = {}
    """In which runs tasks are, where that was looked for."""
    chance: float = 0.0
    """A number from 0 to 1, for a rule that asks for one."""

    def case(self, task: TaskId) -> Case:
        """A task's case; refused where there is no such task."""
        case = self.cases.get(task)
        if case is None:
            raise Refused("unknown_task", f"there is no task {task}", where="task")
        return case

    def lease(self, task: TaskId) -> Lease | None:
        """A task's lease as it stands now."""
        case = self.cases.get(task)
        return self.leases.get(task) if case is None else case.lease

    def run_of(self, task: Task) -> Run | None:
        """The run of a task as it stands now, if it was locked and read."""
        return None if task.run is None else self.runs.get(task.run)

    def run_seen(self, task: Task) -> Run | None:
        """The run of a task: as it stands in this unit of work, or as somebody has last left it."""
        return None if task.run is None else self.runs.get(task.run) or self.runs_seen.get(task.run)

    def service(self, name: str) -> ServiceRow:
        """A service as it stands now; one that nothing was ever held against has no row yet."""
        return self.services.get(name) or ServiceRow(name)
