"""Reading how a build stands off its rows in the store.

What is over does not change any more: a finished audit and the ended attempts of a component are read once.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from allswell.domain.audit import Audited
from allswell.domain.build.component import BuildSpec, Component, cycle_in
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
from allswell.domain.listing import TaskFilter, TaskRow
from allswell.domain.names import Millis, RunId, TaskId, task_of_question
from allswell.domain.task import OPEN, State
from allswell.store.views import Views

_PAGE = 1_000
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
    """The rows of one build."""

    def __init__(self, views: Views, run: RunId) -> None:
        self._views = views
        self.run = run
        self._past: dict[tuple[TaskId, int], tuple[PastAttempt, ...]] = {}
        self._jobs: dict[TaskId, AuditJob] = {}
        self._verdicts: dict[TaskId, Audited] = {}

    async def look(self, spec: BuildSpec, started_at: Millis, gone: Collection[str] = ()) -> Standing:
        """How the build stands now; `gone` are builders without a key who cannot come back."""
        components: dict[str, TaskRow] = {}
        audits: dict[str, list[BuildAudit]] = {}
        for row in await self._rows():
            if row.task.role == COMPONENT_ROLE:
                components[row.task.name] = row
            elif row.task.role == AUDIT_ROLE and row.task.state in {OPEN, State.DONE}:
                job = await self._job(row.task.id)
                audits.setdefault(job.component, []).append(await self._audit(row, job.audit))
        names = {row.task.id: name for name, row in components.items()}
        past = {name: await self._ended(row) for name, row in components.items()}
        states = _states(spec, components)
        found = {
            component.name: _standing(
                component,
                states[component.name],
                components.get(component.name),
                sorted(audits.get(component.name, ()), key=lambda one: one.number),
                past.get(component.name, ()),
            )
            for component in spec.components
        }
        builders = [one.agent for ended in past.values() for one in ended if one.agent not in gone]
        builders += [one.holder for one in found.values() if one.holder]
        return Standing(
            found,
            started_at,
            cycle_in(spec) or "",
            await self._questions(names),
            tuple(dict.fromkeys(builders)),
        )

    async def _rows(self) -> list[TaskRow]:
        rows: list[TaskRow] = []
        after = ""
        while True:
            page = await self._views.view_tasks(TaskFilter(run=self.run, after=after, limit=_PAGE))
            rows += page
            if len(page) < _PAGE:
                return rows
            after = page[-1].task.id

    async def _job(self, task: TaskId) -> AuditJob:
        if task not in self._jobs:
            payload, _ = await self._views.view_payload(task)
            self._jobs[task] = msgspec.json.decode(payload or "", type=AuditJob)
        return self._jobs[task]

    async def _audit(self, row: TaskRow, audit: BuildAudit) -> BuildAudit:
        task = row.task.id
        audit = msgspec.structs.replace(audit, task=task, at=row.task.created_at)
        if row.task.state != State.DONE:
            return audit
        if task not in self._verdicts:
            _, result = await self._views.view_payload(task)
            self._verdicts[task] = msgspec.json.decode(result or "", type=Audited)
        verdict = self._verdicts[task]
        return msgspec.structs.replace(audit, passed=verdict.passed, by=verdict.by, details=verdict.details)

    async def _ended(self, row: TaskRow) -> tuple[PastAttempt, ...]:
        task, token = row.task.id, row.task.record.token
        if not token:
            return ()
        if (task, token) not in self._past:
            ended = await self._views.view_attempts(task)
            self._past[task, token] = tuple(PastAttempt(one.token, one.agent, one.outcome, one.detail) for one in ended)
        return self._past[task, token]

    async def _questions(self, names: dict[TaskId, str]) -> tuple[BuildQuestion, ...]:
        found = []
        for question in await self._views.view_questions(open_only=False, limit=_QUESTIONS):
            if question.run == self.run:
                options = tuple(option.key for option in question.options)
                component = names.get(task_of_question(question.id), "")
                found.append(BuildQuestion(question.id, question.text, options, component, question.choice))
        return tuple(found)


def _states(spec: BuildSpec, rows: dict[str, TaskRow]) -> dict[str, ComponentState]:
    """Where each component stands: by its task, or by what it needs where it has none yet."""
    states: dict[str, ComponentState] = {}
    for component in spec.components:
        row = rows.get(component.name)
        states[component.name] = "waiting" if row is None else _state(row)
    for component in spec.components:
        if states[component.name] == "free" and any(states[need] != "merged" for need in component.needs):
            states[component.name] = "waiting"  # it was offered before the spec was changed
    lost = [name for name, state in states.items() if state == "skipped"]
    needed_by: dict[str, list[str]] = {}
    for component in spec.components:
        for need in component.needs:
            needed_by.setdefault(need, []).append(component.name)
    while lost:
        for name in needed_by.get(lost.pop(), ()):
            if states[name] == "waiting":
                states[name] = "skipped"
                lost.append(name)
    return states


def _state(row: TaskRow) -> ComponentState:
    if row.task.state == State.DONE:
        return "merged"
    if row.task.state != OPEN:
        return "skipped"
    if row.lease is not None:
        return "held"
    return "asked" if row.waits else "free"


def _standing(
    component: Component,
    state: ComponentState,
    row: TaskRow | None,
    audits: list[BuildAudit],
    past: tuple[PastAttempt, ...],
) -> ComponentStanding:
    lease = None if row is None else row.lease
    if row is None or lease is None:
        task = None if row is None else row.task.id
        return ComponentStanding(component.name, state, component.needs, task, audits=tuple(audits), past=past)
    heard = lease.granted_at if lease.checkin_at is None else lease.checkin_at
    return ComponentStanding(
        component.name,
        state,
        component.needs,
        row.task.id,
        lease.agent,
        lease.token,
        read_mark(lease.command),
        heard,
        tuple(audits),
        past,
    )
