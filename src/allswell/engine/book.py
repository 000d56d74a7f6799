"""The book of one transaction: the cases as they were read, as they stand now, and what must be written.

Decisions return whole cases; the book compares rows by identity and writes those that differ. A command that is refused
never touches the book, so it disturbs no other command of its batch.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from allswell.domain.case import Case, Outcome
from allswell.domain.checkin import Agent
from allswell.domain.names import AgentId, Millis, QuestionId, RunId, TaskId, Token
from allswell.domain.question import Question
from allswell.domain.retry import Failure
from allswell.domain.run import Run, gone_on, moved
from allswell.domain.service import ServiceRow, park
from allswell.domain.serving import Decided
from allswell.domain.task import Attempt, Bar, Task
from allswell.errors import Bug
from allswell.store.port import Changes, Rows, Transaction

_NOTHING = Changes()


class News(msgspec.Struct):
    """What a commit means for others in this process: whom to wake."""

    ready: bool = False
    """A task can be claimed that could not before."""
    spreads: bool = False
    """A consequence is waiting to be worked off."""
    events: bool = False
    steps: bool = False
    """Nothing but steps of flows were recorded, for which nobody waits."""
    due: int | None = None
    """The earliest timer that was set."""

    def add(self, changes: Changes) -> None:
        """Take note of what is about to be written."""
        self.ready = self.ready or bool(changes.new_ready)
        self.spreads = self.spreads or bool(changes.new_spreads)
        self.events = self.events or bool(changes.events)
        if changes.timers:
            earliest = min([due for _, due in changes.timers])
            self.due = earliest if self.due is None else min(self.due, earliest)


class Book:
    """All that one transaction reads and writes."""

    def __init__(self, rows: Rows, now: Millis) -> None:
        self.now = now
        self.rows = rows
        self.cases: dict[TaskId, Case] = {}
        self.agents: dict[AgentId, Agent | None] = dict(rows.agents)
        self.changes = Changes()
        self.news = News()
        self._before: dict[TaskId, Case | None] = {}
        self._payloads: dict[TaskId, str] = {}
        self._results: dict[TaskId, str] = {}
        self._ended: dict[tuple[TaskId, Token], Attempt] = {}
        self._services: dict[str, ServiceRow] = {}
        """As they stand now, those that have changed."""
        self.seen_runs: dict[RunId, Run] = {}
        """Runs that were read without a lock, for what is claimed."""
        self._runs: dict[RunId, Run | None] = {}
        """Those that have changed, as they were before; None for new ones."""
        self.take(rows)

    def take(self, rows: Rows) -> None:
        """Add the cases of further rows that were read."""
        ready, timers, waits, leases, awaited = rows.ready, rows.timers, rows.waits, rows.leases, rows.awaited
        for id_, task in rows.tasks.items():
            case = Case(
                task,
                leases.get(id_),
                ready.get(id_),
                timers.get(id_),
                tuple(waits.get(id_, ())),
                None,
                id_ in awaited,
            )
            self.cases[id_] = case
            self._before[id_] = case
        self.cases.update(rows.cases)
        self._before.update(rows.cases)

    def apply(self, out: Outcome, agent: AgentId | None = None) -> None:
        """Enter a decision's outcome. `agent` is the one whose record the decision was given."""
        case = out.case
        id_ = case.task.id
        self.cases[id_] = case
        if agent is not None:
            self.agents[agent] = case.agent
        if out.result is not None:
            self._results[id_] = out.result
        changes = self.changes
        changes.events += out.events
        if out.attempts:
            changes.new_attempts += out.attempts
            for ended in out.attempts:
                self._ended[(ended.task, ended.token)] = ended
        if out.questions:
            changes.new_questions += out.questions
        if out.late is not None:
            self._keep_late(out)
        if out.spread is not None:
            changes.new_spreads.append(out.spread)
        if out.run is not None:
            self.enter_run(out.run)

    def run_of(self, task: Task) -> Run | None:
        """The run of a task as it stands now, if it was locked and read."""
        return None if task.run is None else self.rows.runs.get(task.run)

    def run_seen(self, task: Task) -> Run | None:
        """The run of a task: as it stands in this transaction, or as somebody has last left it."""
        return None if task.run is None else self.rows.runs.get(task.run) or self.seen_runs.get(task.run)

    def enter_run(self, run: Run) -> None:
        """Enter a run that is new, or has changed."""
        before = self.rows.runs.get(run.id)
        if before is not run:
            self._runs.setdefault(run.id, before)
            self.rows.runs[run.id] = run

    def ended(self, task: TaskId, token: Token) -> Attempt | None:
        """How an attempt ended: before this batch, or by a decision of it."""
        return self.rows.attempts.get((task, token)) or self._ended.get((task, token))

    def _keep_late(self, out: Outcome) -> None:
        """An attempt that ends and is late in one batch, or late again and again, is written once, with all of it."""
        late = out.late
        if late is None:
            return
        self.rows.attempts[(late.task, late.token)] = late
        for attempts in (self.changes.new_attempts, self.changes.late_attempts):
            for place, known in enumerate(attempts):
                if known.task == late.task and known.token == late.token:
                    attempts[place] = late
                    return
        self.changes.late_attempts.append(late)

    def park(self, failure: Failure, until: Millis) -> None:
        """Park the services whose limit a failure reported."""
        for name in failure.services:
            before = self.service(name)
            parked = park(before, until)
            if parked is not before:
                self._services[name] = parked

    def service(self, name: str) -> ServiceRow:
        """A service as it stands now; one that nothing was ever held against has no row yet."""
        return self._services.get(name) or self.rows.services.get(name) or ServiceRow(name)

    def enter(self, decided: Decided) -> None:
        """Enter what a command made of a service."""
        row = decided.row
        if row is not self.service(row.id):
            self._services[row.id] = row
        self.changes.events += decided.events
        if decided.asked is not None:
            self.changes.new_questions.append(decided.asked)
            self.rows.questions[decided.asked.id] = decided.asked
        if decided.closed is not None:
            self.close(decided.closed)

    def question(self, id_: QuestionId) -> Question | None:
        """A question as it stands now, be it that this batch has asked it."""
        for asked in self.changes.new_questions:
            if asked.id == id_:
                return asked
        return self.rows.questions.get(id_)

    def go_on(self, ended: RunId | None, after: RunId) -> None:
        """Enter that a run which has ended goes on in another one."""
        run = None if ended is None else self.rows.runs.get(ended)
        if run is not None and run.ended_at is not None:
            self.enter_run(gone_on(run, after))

    def close(self, question: Question) -> None:
        """Enter a question that was answered or withdrawn, be it that this batch has asked it."""
        self.rows.questions[question.id] = question
        for place, asked in enumerate(self.changes.new_questions):
            if asked.id == question.id:
                self.changes.new_questions[place] = question
                return
        self.changes.questions.append(question)

    def accept(self, out: Outcome, payload: str, barred: tuple[AgentId, ...]) -> None:
        """Enter a new task."""
        id_ = out.case.task.id
        self._before[id_] = None
        self._payloads[id_] = payload
        self.apply(out)
        for wait in out.case.waits:
            # What is decided later in this batch must know that someone waits: the rows were read before.
            target = self.cases.get(TaskId(wait.target))
            if target is not None and not target.awaited:
                self.cases[target.task.id] = replace(target, awaited=True)
        if barred:
            self.changes.new_bars += [Bar(id_, agent) for agent in dict.fromkeys(barred)]

    async def write(self, tx: Transaction) -> None:
        """Write what differs; what is decided later is compared with the rows as they then are."""
        stands = self._flush()
        changes = self.changes
        if changes != _NOTHING:
            changes.at, changes.cases = self.now, stands
            self.changes = Changes()
            self.news.add(changes)
            await tx.write(changes)

    def _flush(self) -> dict[TaskId, Case]:
        """Collect what differs; the cases that do, as they stand now."""
        changes, befores = self.changes, self._before
        stands: dict[TaskId, Case] = {}
        for id_, after in self.cases.items():
            before = befores[id_]
            if before is after:
                continue
            befores[id_] = stands[id_] = after
            if before is None:
                self._flush_new(id_, after)
                continue
            if after.task is not before.task:
                changes.tasks.append((after.task, self._results.pop(id_, None)))
            self._flush_place(id_, before, after)
            if before.lease is not after.lease:
                self._flush_lease(before, after)
        if self._services:
            self._flush_services()
        if self._runs:
            self._flush_runs()
        if self.agents:
            self._flush_agents()
        if len(changes.new_tasks) > 1:
            # Two processes that make the same new rows must meet them in the same order, or they wait in a circle.
            changes.new_tasks.sort(key=_by_id)
        if len(changes.new_agents) > 1:
            changes.new_agents.sort(key=_by_name)
        return stands

    def _flush_agents(self) -> None:
        changes = self.changes
        for agent, record in self.agents.items():
            known = self.rows.agents.get(agent)
            if record is known:
                continue
            if record is None:
                changes.drop_agents.append(agent)
                del self.rows.agents[agent]
            else:
                (changes.new_agents if known is None else changes.agents).append(record)
                self.rows.agents[agent] = record

    def _flush_runs(self) -> None:
        """Runs with their timers: one whose clock stands has none, its question is what it waits for."""
        changes = self.changes
        for id_, before in sorted(self._runs.items()):
            run = self.rows.runs[id_]
            (changes.new_runs if before is None else changes.runs).append(run)
            old = None if before is None or before.ended_at is not None else before.limit
            new = None if run.ended_at is not None else run.limit
            if new is not None and new != old:
                changes.timers.append((id_, new))
            elif new is None and old is not None:
                changes.drop_timers.append(id_)
            if before is not None and run.moves != before.moves and run.ended_at is None:
                changes.new_spreads.append(moved(run))
        self._runs.clear()

    def _flush_services(self) -> None:
        changes, known = self.changes, self.rows.services
        for name, row in sorted(self._services.items()):  # in one order, as new tasks are
            (changes.services if name in known else changes.new_services).append(row)
            known[name] = row
        self._services.clear()

    def _flush_new(self, id_: TaskId, case: Case) -> None:
        changes = self.changes
        changes.new_tasks.append((case.task, self._payloads.pop(id_)))
        if case.ready is not None:
            changes.new_ready.append(case.ready)
        if case.due is not None:
            changes.timers.append((id_, case.due))
        if case.waits:
            changes.new_waits += case.waits
        if case.lease is not None:
            changes.new_leases.append(case.lease)

    def _flush_place(self, id_: TaskId, before: Case, after: Case) -> None:
        changes = self.changes
        left, taken = before.ready, after.ready
        if left is not taken and left != taken:
            if left is not None:
                changes.drop_ready.append(left)
            if taken is not None:
                changes.new_ready.append(taken)
        old, new = before.due, after.due
        if old is not None or new is not None:
            # A lease has its timer with it, so a timer moves with every lease that comes or goes, also if it stays due.
            moves = old is not None and (before.lease is None) is not (after.lease is None)
            if moves and before.lease is None:
                changes.drop_timers.append(id_)
            if old != new or moves:
                if new is None:
                    changes.drop_timers.append(id_)
                else:
                    changes.timers.append((id_, new))
        if before.waits is not after.waits:
            changes.drop_waits += [wait for wait in before.waits if wait not in after.waits]
            changes.new_waits += [wait for wait in after.waits if wait not in before.waits]

    def _flush_lease(self, before: Case, after: Case) -> None:
        old, new = before.lease, after.lease
        changes = self.changes
        if old is None:
            if new is not None:
                changes.new_leases.append(new)
        elif new is None:
            changes.drop_leases.append((old.task, old.token))
        elif old.token == new.token:
            changes.leases.append(new)
        elif (old.task, old.token) in self._ended:  # a flow is taken up from a holder that is gone, in one batch
            changes.drop_leases.append((old.task, old.token))
            changes.new_leases.append(new)
            # A store may keep a lease's timer in its row or beside it: the old one goes, and the new one comes.
            changes.drop_timers.append(new.task)
            if after.due is not None and after.due == before.due:
                changes.timers.append((new.task, after.due))
        else:
            raise Bug(f"task {old.task} would change holders in one step")


def _by_id(new: tuple[Task, str]) -> TaskId:
    return new[0].id


def _by_name(agent: Agent) -> AgentId:
    return agent.id
