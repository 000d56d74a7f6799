"""Reading how a build stands off its rows in the store.

All rows are read once. After that, whoever follows the build reads what has changed: the journal says which tasks and
questions, and what we have just done ourselves is told to us (`touch`): an event of ours may stay behind one that
another process has not committed yet, and a check-in without words is no event. So a line costs what it concerns, not
what the build has.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Self

import msgspec

from allswell.domain.build.announcements import Announced, still_owed
from allswell.domain.build.component import BuildGraph, BuildSpec
from allswell.domain.build.limits import AUDIT_ROLE, BUILD_ROLE, COMPONENT_ROLE, PLAIN_POLICY, command_key
from allswell.domain.build.state import (
    ASKED,
    AUDIT_FAILED,
    NEWCOMER,
    BuildAudit,
    BuildQuestion,
    BuildStatus,
    ClaimMark,
    ComponentState,
    ComponentStatus,
    PastAttempt,
)
from allswell.domain.ids import Millis, QuestionId, RunId, TaskId, Token, task_of_question
from allswell.domain.lease.audit import Audited
from allswell.domain.question import Question
from allswell.domain.rules.event import Position
from allswell.domain.task.model import OPEN, State, TaskFilter, TaskRow
from allswell.engine.ids import run_for_key
from allswell.engine.lease import Lease
from allswell.engine.status.journal import journal_end
from allswell.engine.watch import Watch
from allswell.errors import LeaseLost, Refused
from allswell.runtime.process.identity import is_alive, is_dead
from allswell.store.views import Views

_PAGE = 1_000
_EVENTS = 500
_QUESTIONS = 1_000_000
"""All there are: the oldest come first."""


class AuditJob(msgspec.Struct, frozen=True):
    """What an audit's task carries; its result is a verdict (`Audited`)."""

    component: str
    audit: BuildAudit


def write_mark(task: TaskId, mark: ClaimMark) -> str:
    """A claim's mark as the id of the command that grants it: the lease keeps it. One message may have several."""
    return f"claim.{mark.at}.{task}.{mark.id}"[:200]


def read_mark(task: TaskId, command: str) -> ClaimMark | None:
    """The mark of the claim that a lease was granted for; the task's id was not in it once."""
    word, at, id_ = [*command.split(".", 2), "", ""][:3]
    return ClaimMark(Millis(int(at)), id_.removeprefix(f"{task}.")) if word == "claim" and at.isdigit() else None


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
        self._found: dict[str, ComponentStatus] = {}

    def touch(self, task: TaskId | None = None, question: QuestionId | None = None) -> None:
        """We have changed something about these, whatever the journal says of it."""
        if task is not None:
            self._touched.add(task)
        if question is not None:
            self._touched_questions.add(question)
            self._touched.add(task_of_question(question))

    async def look(self, spec: BuildSpec, started_at: Millis, gone: Collection[str] = ()) -> BuildStatus:
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
        return BuildStatus(dict(self._found), started_at, self._graph.cycle, self._asked(), tuple(builders))

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
            said = (question.choice, question.answer, question.answered_by)
            found.append(BuildQuestion(question.id, question.text, options, component, *said))
        return tuple(found)

    def _ended_otherwise(self, name: str) -> tuple[PastAttempt, ...]:
        """The attempts that are over; what no human has decided about, because a newcomer came, has merely failed."""
        past = self._past.get(name, ())
        asked = {one.text for one in self._questions.values() if one.answered_by == NEWCOMER}
        return tuple(
            PastAttempt(one.token, one.agent, "released", AUDIT_FAILED + one.detail)
            if one.outcome == ASKED and one.detail in asked
            else one
            for one in past
        )

    def _standing(self, name: str, graph: BuildGraph) -> ComponentStatus:
        row = self._components.get(name)
        lease = None if row is None else row.lease
        audits = tuple(sorted(self._audits.get(name, {}).values(), key=lambda one: one.number))
        found = ComponentStatus(
            name,
            self._states[name],
            graph.needs[name],
            None if row is None else row.task.id,
            audits=audits,
            replaced=tuple(url for _, url in sorted(self._replaced.get(name, {}).items())),
            past=self._ended_otherwise(name),
            has_its_needs=graph.has_its_needs(name, self._states),
        )
        if lease is None:
            return found
        heard = lease.granted_at if lease.checkin_at is None else lease.checkin_at
        mark = read_mark(found.task or TaskId(""), lease.command)
        return msgspec.structs.replace(found, holder=lease.agent, token=lease.token, claimed=mark, heard_at=heard)


def _state(row: TaskRow) -> ComponentState:
    if row.task.state == State.DONE:
        return "merged"
    if row.task.state != OPEN:
        return "skipped"
    if row.lease is not None:
        return "held"
    return "asked" if row.waits else "free"


# What a coordinator must not forget: what the channel was told and is still owed, and which messages it has acted on.
#
# A server replays the last messages of a channel to whoever joins, up to a few hundred. Those that are remembered here
# were acted on before, in this life of the coordinator or in an earlier one.

_MOST = 400
"""More messages than any server replays."""


class BuildMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """One word in the store."""

    told: Announced = Announced()
    said_until: Millis = Millis(0)
    """When our last line arrived, by the channel's clock."""
    heard: tuple[str, ...] = ()
    """The messages acted on, the last ones."""
    owed: tuple[str, ...] = ()
    """The lines that were decided and are not known to have arrived (`domain/build/announcements.py`)."""
    names: tuple[str, ...] = ()
    """As whom we have talked here: without a key, a coordinator has another name each time."""
    heard_until: Millis = Millis(0)
    """The newest message that was heard, by the channel's clock."""
    alive: Mapping[str, tuple[Token, Millis]] = {}
    """When the holder of a component was last heard, or had no need to be, and under which lease: by the store's clock,
    counted back from how long ago it was said by the channel's."""
    builders: tuple[str, ...] = ()
    """Who has spoken as a builder, the last ones."""
    hinted: tuple[str, ...] = ()
    """Who was told how a line is written, the last ones."""
    keyless: tuple[str, ...] = ()
    """Builders who had a component, and do not keep their names."""

    def having_heard(self, marks: Iterable[str]) -> Self:
        """As it is once these messages were acted on."""
        return msgspec.structs.replace(self, heard=(*self.heard, *marks)[-_MOST:])

    def having_caught_up(self, who: str, old: Iterable[str], said: Sequence[str]) -> Self:
        """As it is after the replay: what there is of ours in it was said, whether or not we knew."""
        memory = self.having_heard(old).as_whom(who)
        return msgspec.structs.replace(memory, owed=still_owed(memory.owed, said))

    def as_whom(self, who: str) -> Self:
        """As it is once we talk under this name."""
        return self if who in self.names else msgspec.structs.replace(self, names=(*self.names, who))

    def having_said(self, count: int, at: Millis) -> Self:
        """As it is once the first so many lines have arrived."""
        return msgspec.structs.replace(self, owed=self.owed[count:], said_until=at)


# The place of a build in the store: its run, the task that stands for it, and what is kept beside its tasks.
#
# A build is found again by its name: whoever coordinates it once more goes on with it, until it is complete. Its
# coordinator holds its task by a lease that is renewed every few seconds, so of two there is one. The work of one that
# was killed is taken up some seconds later; at once, if its process was on this machine and is certainly gone.

LEASE = 8_000
"""Milliseconds after which a coordinator that was killed has lost its build."""
_LONGER = 1.5
"""So many times that whoever comes next waits for it."""
_LEAVING = 1_000
"""Milliseconds for a coordinator on this machine that is just being stopped."""
_NAME_MOST = 100


class BuildPlace:
    """Where a build lives. `memory` is as it was last kept."""

    def __init__(self, run: RunId, started_at: Millis, lease: int = LEASE, process: str = "", typed: str = "") -> None:
        self.run = run
        self.started_at = started_at
        self._lease = lease
        self._process = process
        self._typed = typed
        self.memory = BuildMemory()
        self.is_new = False
        """Whether nobody has coordinated this build before."""
        self._kept: str | None = None
        self._keeping = asyncio.Lock()

    @classmethod
    async def find(
        cls, watch: Watch, name: str, *, lease: int = LEASE, process: str = "", typed: str = ""
    ) -> BuildPlace:
        """The build of this name that is not over yet; a new one if there is none.

        `process` names the process that coordinates it, so that others can see when it has died; `typed` is the command
        that starts it again.
        """
        number = 1
        while True:
            key = f"build.{name}.{number}"
            run = await watch.run(run_for_key(key))
            if run is None:
                run = await watch.run(await watch.open_run(name, key=key))
            if run is not None and run.ended_at is None:
                return cls(run.id, run.created_at, lease, process, typed)
            number += 1

    @property
    def _key(self) -> str:
        return _key_of(self.run)

    async def take(self, watch: Watch, *, agent: str) -> Lease:
        """Hold the build; `Refused` while somebody else does."""
        run = await watch.run(self.run)
        name = f"coordinate {self.run if run is None else run.name}"[:_NAME_MOST]
        task = await watch.submit(name, run=self.run, role=BUILD_ROLE, policy=PLAIN_POLICY, key=f"{self.run}.build")
        holder = self._process or agent
        row = await watch.task(task)
        if row is not None and row.lease is not None and is_dead(row.lease.agent):
            with contextlib.suppress(LeaseLost):  # somebody else was quicker
                await watch.held(task, row.lease.token, row.lease.agent).release("its coordinator has died")
        there = row is not None and row.lease is not None and is_alive(row.lease.agent)
        wait = _LEAVING if there else round(self._lease * _LONGER)
        lease = await watch.claim(agent=holder, task=task, lease=self._lease, wait=wait)
        if lease is None:
            row = await watch.task(task)
            holder = "somebody" if row is None or row.lease is None else row.lease.agent
            text = f"{holder} coordinates this build ({self.run}) already; stop that coordinator first"
            raise Refused("build_taken", text, where="build")
        self._kept = await watch.recall(self._key)
        self.is_new = self._kept is None
        if self._kept is not None:
            self.memory = msgspec.json.decode(self._kept, type=BuildMemory)
        else:
            await self.keep(watch, lambda memory: memory)
        key = command_key(self.run)
        before = await watch.recall(key) if self._typed else None
        if self._typed and self._typed != before:
            await watch.swap(key, before, self._typed)
        return lease

    async def keep(self, watch: Watch, change: Callable[[BuildMemory], BuildMemory]) -> None:
        """Keep what must not be forgotten; `Refused` if another coordinator has, meanwhile."""
        async with self._keeping:
            memory = change(self.memory)
            text = msgspec.json.encode(memory).decode()
            if text != self._kept and not await watch.swap(self._key, self._kept, text):
                raise Refused("build_taken", f"another coordinator has taken the build {self.run} over", where="build")
            self._kept = text
            self.memory = memory

    async def keep_spec(self, watch: Watch, spec: BuildSpec) -> None:
        """Keep the graph for whoever looks at the build: names and needs."""
        bare = [msgspec.structs.replace(component, text="") for component in spec.components]
        text = msgspec.json.encode(msgspec.structs.replace(spec, components=tuple(bare))).decode()
        before = await watch.recall(f"{self._key}.spec")
        if text != before:
            await watch.swap(f"{self._key}.spec", before, text)

    async def finish(self, watch: Watch, build: Lease, standing: BuildStatus, *, all_said: bool = True) -> None:
        """Leave the build: it is over, or was stopped, or somebody will coordinate it again, if only to say so."""
        if standing.is_over and all_said:
            merged = sum(one.state == "merged" for one in standing.components.values())
            result = {"merged": merged, "skipped": len(standing.components) - merged}
            try:
                await build.complete(result)
            except LeaseLost:  # we were away for too long just now; unless another coordinator came, it is still ours
                await (await self.take(watch, agent=build.agent)).complete(result)
            await watch.end_run(self.run, "complete" if standing.has_merged else "nothing merged")
            return
        try:
            await build.release("its coordinator was stopped")
        except LeaseLost:
            row = await watch.task(build.task)
            if row is not None and row.task.ended_at is not None:
                await watch.end_run(self.run, "stopped by a human")


async def kept_spec(views: Views, run: RunId) -> BuildSpec | None:
    """The graph of the build that a run is of; None if it is of none."""
    key = f"{_key_of(run)}.spec"
    text = (await views.view_kept(key)).get(key)
    return None if text is None else msgspec.json.decode(text, type=BuildSpec)


def _key_of(run: RunId) -> str:
    return f"build.{run}"
