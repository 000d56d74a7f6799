"""Reading how a build stands off its rows in the store.

All rows are read once. After that, whoever follows the build reads what has changed: the journal says which tasks and
questions, and what we have just done ourselves is told to us (`touch`): an event of ours may stay behind one that
another process has not committed yet, and a check-in without words is no event. So a line costs what it concerns, not
what the build has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from allswell.domain.audit import Audited
from allswell.domain.build.component import BuildSpec
from allswell.domain.build.graph import BuildGraph
from allswell.domain.build.roles import AUDIT_ROLE, COMPONENT_ROLE
from allswell.domain.build.standing import (
    BuildAudit,
    BuildQuestion,
    ClaimMark,
    ComponentStanding,
    ComponentState,
    PastAttempt,
    Standing,
)
from allswell.domain.journal import Position
from allswell.domain.listing import TaskFilter, TaskRow
from allswell.domain.names import Millis, QuestionId, RunId, TaskId, task_of_question
from allswell.domain.question import Question
from allswell.domain.task import OPEN, State
from allswell.engine.journal_end import journal_end
from allswell.store.views import Views

_PAGE = 1_000
_EVENTS = 500
_QUESTIONS = 1_000_000
"""All there are: the oldest come first."""


class AuditJob(msgspec.Struct, frozen=True):
    """What an audit's task carries; its result is a verdict (`Audited`)."""

    component: str
    audit: BuildAudit


def write_mark(mark: ClaimMark) -> str:
    """A claim's mark as the id of the command that grants it: the lease keeps it."""
    return f"claim.{mark.at}.{mark.id}"[:200]


def read_mark(command: str) -> ClaimMark | None:
    """The mark of the claim that a lease was granted for."""
    word, at, id_ = [*command.split(".", 2), "", ""][:3]
    return ClaimMark(Millis(int(at)), id_) if word == "claim" and at.isdigit() else None


class BuildRows:
    """The rows of one build; with `follows`, a second look reads only what has changed."""

    def __init__(self, views: Views, run: RunId, *, follows: bool = False) -> None:
        self._views = views
        self.run = run
        self._follows = follows
        self._after: Position | None = None
        """Up to where the journal is known; None before everything was read."""
        self._touched: set[TaskId] = set()
        self._touched_questions: set[QuestionId] = set()
        self._components: dict[str, TaskRow] = {}
        self._names: dict[TaskId, str] = {}
        self._own: dict[str, ComponentState] = {}
        self._past: dict[str, tuple[PastAttempt, ...]] = {}
        self._audits: dict[str, dict[TaskId, BuildAudit]] = {}
        self._replaced: dict[str, dict[int, str]] = {}
        """Addresses that were replaced by something newer before anybody had judged them, by number."""
        self._jobs: dict[TaskId, AuditJob] = {}
        self._questions: dict[QuestionId, Question] = {}
        self._builders: dict[str, None] = {}
        self._graph: BuildGraph | None = None
        self._states: dict[str, ComponentState] = {}
        self._found: dict[str, ComponentStanding] = {}

    def touch(self, task: TaskId | None = None, question: QuestionId | None = None) -> None:
        """We have changed something about these, whatever the journal says of it."""
        if task is not None:
            self._touched.add(task)
        if question is not None:
            self._touched_questions.add(question)
            self._touched.add(task_of_question(question))

    async def look(self, spec: BuildSpec, started_at: Millis, gone: Collection[str] = ()) -> Standing:
        """How the build stands now; `gone` are builders without a key who cannot come back."""
        changed = await self._read()
        if self._graph is None or self._graph.spec is not spec:
            self._graph = BuildGraph(spec)
            self._states, self._found = {}, {}
            self._graph.bring_up_to_date(self._states, self._own, self._graph.needs)
            ordered: Iterable[str] = self._graph.needs  # everything is told in the order of the spec
        else:
            ordered = self._graph.bring_up_to_date(self._states, self._own, changed)
        for name in ordered:
            self._found[name] = self._standing(name, self._graph)
        builders: Iterable[str] = self._builders
        if gone:
            holders = {one.holder for one in self._found.values()}
            builders = [one for one in self._builders if one not in gone or one in holders]
        return Standing(dict(self._found), started_at, self._graph.cycle, self._asked(), tuple(builders))

    # --- what has changed ---------------------------------------------------------------------------------------------

    async def _read(self) -> set[str]:
        """Read what is new; the names of the components that it is about."""
        if self._after is None:
            if self._follows:
                self._after = await journal_end(self._views)
            for question in await self._views.view_questions(open_only=False, limit=_QUESTIONS):
                if question.run == self.run:
                    self._questions[question.id] = question
            return await self._take_in(await self._all_rows())
        await self._follow_journal()
        tasks, self._touched = sorted(self._touched), set()
        questions, self._touched_questions = sorted(self._touched_questions), set()
        for id_ in questions:
            found = await self._views.view_question(id_)
            if found is not None and found.run == self.run:
                self._questions[id_] = found
        rows: list[TaskRow] = []
        for start in range(0, len(tasks), _PAGE):
            some = tuple(tasks[start : start + _PAGE])
            rows += await self._views.view_tasks(TaskFilter(run=self.run, ids=some, limit=_PAGE))
        return await self._take_in(rows)

    async def _all_rows(self) -> list[TaskRow]:
        rows: list[TaskRow] = []
        after = ""
        while True:
            page = await self._views.view_tasks(TaskFilter(run=self.run, after=after, limit=_PAGE))
            rows += page
            if len(page) < _PAGE:
                return rows
            after = page[-1].task.id

    async def _follow_journal(self) -> None:
        while self._after is not None:
            entries = await self._views.journal(self._after, _EVENTS)
            for entry in entries:
                event = entry.event
                if event.run == self.run or event.task in self._names:
                    self.touch(event.task)
                    if event.kind.startswith("question_"):
                        self.touch(question=QuestionId(str(event.data.get("question", ""))))
            if entries:
                self._after = entries[-1].position
            if len(entries) < _EVENTS:
                return

    async def _take_in(self, rows: list[TaskRow]) -> set[str]:
        changed: set[str] = set()
        for row in rows:
            task = row.task
            if task.role == COMPONENT_ROLE:
                before = self._components.get(task.name)
                self._components[task.name] = row
                self._names[task.id] = task.name
                self._own[task.name] = _state(row)
                if before is None or before.lease is None or row.lease is None or before.lease.token != row.lease.token:
                    self._past[task.name] = await self._ended(row)
                if row.lease is not None:
                    self._builders[row.lease.agent] = None
                changed.add(task.name)
            elif task.role == AUDIT_ROLE:
                changed.add(await self._take_in_audit(row))
        return changed

    async def _take_in_audit(self, row: TaskRow) -> str:
        task = row.task
        if task.id not in self._jobs:
            payload, _ = await self._views.view_payload(task.id)
            self._jobs[task.id] = msgspec.json.decode(payload or "", type=AuditJob)
        job = self._jobs[task.id]
        audits = self._audits.setdefault(job.component, {})
        if task.state not in {OPEN, State.DONE}:
            audits.pop(task.id, None)  # its builder has handed in something newer
            self._replaced.setdefault(job.component, {})[job.audit.number] = job.audit.url
            return job.component
        audit = msgspec.structs.replace(job.audit, task=task.id, at=task.created_at)
        if task.state == State.DONE:
            _, result = await self._views.view_payload(task.id)
            verdict = msgspec.json.decode(result or "", type=Audited)
            audit = msgspec.structs.replace(audit, passed=verdict.passed, by=verdict.by, details=verdict.details)
        audits[task.id] = audit
        return job.component

    async def _ended(self, row: TaskRow) -> tuple[PastAttempt, ...]:
        if not row.task.record.token:
            return ()
        ended = await self._views.view_attempts(row.task.id)
        self._builders.update((one.agent, None) for one in ended)
        return tuple(PastAttempt(one.token, one.agent, one.outcome, one.detail) for one in ended)

    # --- how it stands ------------------------------------------------------------------------------------------------

    def _asked(self) -> tuple[BuildQuestion, ...]:
        found = []
        for question in self._questions.values():
            options = tuple(option.key for option in question.options)
            component = self._names.get(task_of_question(question.id), "")
            found.append(BuildQuestion(question.id, question.text, options, component, question.choice))
        return tuple(found)

    def _standing(self, name: str, graph: BuildGraph) -> ComponentStanding:
        row = self._components.get(name)
        lease = None if row is None else row.lease
        audits = tuple(sorted(self._audits.get(name, {}).values(), key=lambda one: one.number))
        found = ComponentStanding(
            name,
            self._states[name],
            graph.needs[name],
            None if row is None else row.task.id,
            audits=audits,
            replaced=tuple(url for _, url in sorted(self._replaced.get(name, {}).items())),
            past=self._past.get(name, ()),
            has_its_needs=graph.has_its_needs(name, self._states),
        )
        if lease is None:
            return found
        heard = lease.granted_at if lease.checkin_at is None else lease.checkin_at
        mark = read_mark(lease.command)
        return msgspec.structs.replace(found, holder=lease.agent, token=lease.token, claimed=mark, heard_at=heard)


def _state(row: TaskRow) -> ComponentState:
    if row.task.state == State.DONE:
        return "merged"
    if row.task.state != OPEN:
        return "skipped"
    if row.lease is not None:
        return "held"
    return "asked" if row.waits else "free"
