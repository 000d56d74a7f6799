"""Which rows a batch will touch: found from the commands alone, so that all of them can be locked in one order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

from allswell.domain.command import (
    Admit,
    Answer,
    Ask,
    AskForHelp,
    Cancel,
    CheckInAgain,
    Claim,
    Command,
    Complete,
    Delegate,
    EndIdle,
    EndRun,
    Fail,
    NewTask,
    OpenRun,
    Park,
    Recover,
    Report,
    Submit,
    TakeUp,
    Word,
)
from allswell.domain.names import (
    AgentId,
    Millis,
    QuestionId,
    RunId,
    TaskId,
    can_name,
    service_of_question,
    task_of_question,
)
from allswell.store.port import Kind, Lock, Rows, Transaction, Wanted

Id = TypeVar("Id", bound=str)
_MAY_ASK = (Ask, Fail, Recover, EndIdle, CheckInAgain)
_ORDER = (Kind.RUN, Kind.SERVICE, Kind.AGENT, Kind.QUESTION, Kind.TASK, Kind.LEASE)
"""The one order of locking: kind by kind, and within a kind by id."""


def ordered(ids: Collection[Id]) -> list[Id]:
    """In the one order of locking, each once; an id that nothing can have is left out, and so names nothing."""
    if not ids:
        return []
    each = dict.fromkeys(ids)  # not a set: most come in order already, and are sorted at once then
    try:
        if "".join(each).isprintable():  # all of them at once: nearly always so
            return sorted(each)
    except TypeError:
        pass
    return sorted(filter(can_name, each))


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
        self.asking: dict[TaskId, None] = {}
        """Tasks that are likely to ask a human something, or to be answered: their runs are concerned too."""
        self.words: dict[TaskId, None] = {}
        """All tasks about which a holder says something."""
        self.fresh = True
        """Whether the commands do nothing but make tasks, under ids drawn for them, and claim."""
        for command in commands:
            if isinstance(command, Word):
                self._add_word(command)
            else:
                self._add(command)

    def _add(self, command: Command | Claim) -> None:
        if not isinstance(command, Submit | Claim):
            self.fresh = False
        if isinstance(command, Claim):
            if command.task is not None:
                self._hold(command.task)
        elif isinstance(command, Submit):
            self._submit(command.tasks)
        elif isinstance(command, TakeUp):
            self._submit((command.flow,))
            self._hold(command.flow.id)
            self.runs_shared = False
        elif isinstance(command, Cancel):
            self._hold(command.task)
        elif isinstance(command, Answer):
            self._answer(command)
        elif isinstance(command, OpenRun | EndRun):
            self.runs[command.run] = None
            if isinstance(command, OpenRun) and command.after is not None:
                self.runs[command.after] = None
            self.runs_shared = False
        elif isinstance(command, Admit | Park | AskForHelp):
            self.services[command.service] = None
        elif isinstance(command, Report):
            self.services[command.permit.service] = None

    def _add_word(self, command: Word) -> None:
        self.agents[command.agent] = None
        self.tasks[command.task] = self.held[command.task] = self.words[command.task] = None
        if isinstance(command, Complete):
            return  # as most are
        if isinstance(command, _MAY_ASK) and not (isinstance(command, Ask) and command.hold):
            self.asking[command.task] = None
        if isinstance(command, Fail):
            self.services.update(dict.fromkeys(command.failure.services))
        elif isinstance(command, Delegate):
            self.tasks[command.request.id] = None

    def _hold(self, task: TaskId) -> None:
        self.tasks[task] = None
        self.held[task] = None

    def _answer(self, command: Answer) -> None:
        self.questions[command.question] = None
        service = service_of_question(command.question)
        if service is None:
            task = task_of_question(command.question)
            self._hold(task)
            self.asking[task] = None
        else:
            self.services[service] = None
        self._submit(command.subtasks)

    def _submit(self, tasks: Iterable[NewTask]) -> None:
        for new in tasks:
            self.tasks[new.id] = None
            if new.keyed:
                self.fresh = False
            if new.needs:
                self.fresh = False
                self.tasks.update(dict.fromkeys(new.needs))
            if new.run is not None:
                self.runs[new.run] = None

    async def find_runs(self, tx: Transaction, *, careful: bool) -> None:
        """Add the runs of the tasks that may ask: which run a task is in never changes, so a look is enough.

        If it is done with care, those of all tasks that a holder speaks about: one of them did turn out to ask.
        """
        tasks = {**self.asking, **self.words} if careful else self.asking
        if tasks and (found := await tx.find_runs(ordered(tasks))):
            self.runs.update(dict.fromkeys(found.values()))
            self.runs_shared = False

    async def take(self, tx: Transaction, payloads: Sequence[TaskId], *, careful: bool) -> tuple[Millis, Rows]:
        """Lock all of it, in order, and read what exists of it, with these payloads.

        If it is done with care, tasks that can only be new are looked for too.
        """
        runs, services, agents = ordered(self.runs), ordered(self.services), ordered(self.agents)
        questions, tasks = ordered(self.questions), ordered(self.tasks)
        held = tasks if self.held == self.tasks else ordered(self.held)
        fresh = self.fresh and not careful and not runs and not held
        ids_of_all: tuple[Sequence[str], ...] = (runs, services, agents, questions, tasks, held)
        named = zip(_ORDER, ids_of_all, strict=True)
        locks = [Lock(kind, ids, shared=ids is runs and self.runs_shared, fresh=fresh) for kind, ids in named if ids]
        wanted = Wanted(
            runs=runs,
            services=services,
            agents=agents,
            questions=questions,
            tasks=tasks,
            leases=held,
            awaited=held,
            payloads=payloads,
            whole=True,
        )
        return await tx.take(locks, wanted)
