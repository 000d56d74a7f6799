"""Which rows a batch will touch: found from the commands alone, so that all of them can be locked in one order."""

from __future__ import annotations

from collections.abc import Iterable

from allswell.domain.command import (
    Answer,
    Cancel,
    Claim,
    Command,
    EndRun,
    Fail,
    NewTask,
    OpenRun,
    Submit,
    Word,
)
from allswell.domain.names import AgentId, QuestionId, RunId, TaskId, can_name, task_of_question
from allswell.store.port import Kind, Transaction, Wanted


def ordered(ids: Iterable[str]) -> list[str]:
    """In the one order of locking, each once; an id that nothing can have is left out, and so names nothing."""
    return sorted(filter(can_name, {*ids}))


class Plan:
    """Every row that the commands of a batch name, found before anything is locked."""

    def __init__(self, commands: Iterable[Command | Claim]) -> None:
        self.runs: dict[RunId, None] = {}
        self.runs_shared = True
        self.services: dict[str, None] = {}
        self.agents: dict[AgentId, None] = {}
        self.questions: dict[QuestionId, None] = {}
        self.tasks: dict[TaskId, None] = {}
        self.held: dict[TaskId, None] = {}
        for command in commands:
            self._add(command)

    def _add(self, command: Command | Claim) -> None:
        if isinstance(command, Word):
            self.agents[command.agent] = None
            self._hold(command.task)
            if isinstance(command, Fail):
                self.services.update(dict.fromkeys(command.failure.services))
        elif isinstance(command, Submit):
            self._submit(command.tasks)
        elif isinstance(command, Cancel):
            self._hold(command.task)
        elif isinstance(command, Answer):
            self.questions[command.question] = None
            self._hold(task_of_question(command.question))
            self._submit(command.subtasks)
        elif isinstance(command, OpenRun | EndRun):
            self.runs[command.run] = None
            self.runs_shared = False

    def _hold(self, task: TaskId) -> None:
        self.tasks[task] = None
        self.held[task] = None

    def _submit(self, tasks: Iterable[NewTask]) -> None:
        for new in tasks:
            self.tasks[new.id] = None
            if new.needs:
                self.tasks.update(dict.fromkeys(new.needs))
            if new.run is not None:
                self.runs[new.run] = None

    async def lock(self, tx: Transaction) -> Wanted:
        """Lock all of it, in order; what exists is what can be read."""
        wanted = Wanted()
        if runs := ordered(self.runs):
            wanted.runs = [RunId(id_) for id_ in await tx.lock(Kind.RUN, runs, shared=self.runs_shared)]
        if services := ordered(self.services):
            wanted.services = await tx.lock(Kind.SERVICE, services)
        if agents := ordered(self.agents):
            wanted.agents = [AgentId(id_) for id_ in await tx.lock(Kind.AGENT, agents)]
        if questions := ordered(self.questions):
            wanted.questions = [QuestionId(id_) for id_ in await tx.lock(Kind.QUESTION, questions)]
        if tasks := ordered(self.tasks):
            wanted.tasks = [TaskId(id_) for id_ in await tx.lock(Kind.TASK, tasks)]
        if held := [id_ for id_ in wanted.tasks if id_ in self.held]:
            wanted.leases = [TaskId(id_) for id_ in await tx.lock(Kind.LEASE, held)]
            wanted.awaited = held
        return wanted
