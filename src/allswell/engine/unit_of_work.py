"""The book of one transaction: the rows as they were read, as they stand now, and what must be written.

Decisions return whole cases; the book compares rows by identity and writes those that differ. Rules read
it (domain/rules/rule.py). A command that is refused never touches it, so it disturbs no other command of its batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from allswell.domain.agents.cost import ExpenseRow
from allswell.domain.ids import AgentId, Millis, RunId, TaskId
from allswell.domain.lease.model import Agent, LeaseRow
from allswell.domain.question import Question
from allswell.domain.rules.command import NewTask
from allswell.domain.rules.rule import AwaitedRequest, Decision, LaneKey, RowSearch, RowSnapshot
from allswell.domain.run.run import Run, moved
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.aggregate import RunUnread, TaskAggregate, TaskChange
from allswell.domain.task.model import Attempt, Exclusion, Task
from allswell.errors import Bug
from allswell.store.port import RowChanges, Rows, Transaction

_NOTHING = RowChanges()


class CommitEffects(msgspec.Struct):
    """What a commit means for others in this process: whom to wake."""

    ready: bool = False
    """A task can be claimed that could not before."""
    spreads: bool = False
    """A consequence is waiting to be worked off."""
    events: bool = False
    steps: bool = False
    """Steps of flows were recorded, for which no caller waits."""
    due: int | None = None
    """The earliest timer that was set."""

    def add(self, changes: RowChanges) -> None:
        """Take note of what is about to be written."""
        self.ready = self.ready or bool(changes.new_ready)
        self.spreads = self.spreads or bool(changes.new_spreads)
        self.events = self.events or bool(changes.events)
        self.steps = self.steps or bool(changes.recorded)
        if changes.timers:
            earliest = min([due for _, due in changes.timers])
            self.due = earliest if self.due is None else min(self.due, earliest)


def cases_of(rows: Rows) -> dict[TaskId, TaskAggregate]:
    """The cases of tasks, of the rows that were read of them."""
    ready, timers, waits, leases, awaited = rows.ready, rows.timers, rows.waits, rows.leases, rows.awaited
    cases = {
        id_: TaskAggregate(
            task, leases.get(id_), ready.get(id_), timers.get(id_), tuple(waits.get(id_, ())), None, id_ in awaited
        )
        for id_, task in rows.tasks.items()
    }
    cases.update(rows.cases)
    return cases


class UnitOfWork:
    """All that one transaction reads and writes."""

    def __init__(
        self,
        now: Millis,
        rows: Rows,
        lanes: Mapping[LaneKey, int],
        found: Mapping[RowSearch, Sequence[str]],
        asking: Sequence[AwaitedRequest],
        runs_found: Mapping[TaskId, RunId],
        *,
        shares_runs: bool = False,
    ) -> None:
        self.now = now
        self._shares_runs = shares_runs
        self.cases = cases_of(rows)
        self.changes = RowChanges()
        self.news = CommitEffects()
        self._rows = rows
        """As they were read; runs, questions, attempts and leases as they stand now."""
        self._agents: dict[AgentId, Agent | None] = dict(rows.agents)
        self._health = dict(rows.health)
        self._services = dict(rows.services)
        self._runs_seen: dict[RunId, Run] = {}
        self._before: dict[TaskId, TaskAggregate | None] = dict(self.cases)
        self._made: dict[TaskId, NewTask] = {}
        self._results: dict[TaskId, str] = {}
        self._renewed: dict[TaskId, LeaseRow] = {}
        """Leases that have changed, of which nothing else was read."""
        self._changed_services: dict[str, None] = {}
        self._runs: dict[RunId, Run | None] = {}
        """Those that have changed, as they were before; None for new ones."""
        self.situation = RowSnapshot(
            now,
            self.cases,
            rows.leases,
            rows.runs,
            self._runs_seen,
            self._services,
            self._agents,
            self._health,
            rows.questions,
            rows.attempts,
            rows.payloads,
            rows.bars,
            rows.expenses,
            lanes,
            found,
            asking,
            runs_found,
        )

    def add(self, rows: Rows) -> None:
        """Add further rows that were read: tasks with their payloads and bars, questions, and attempts."""
        cases = cases_of(rows)
        self.cases.update(cases)
        self._before.update(cases)
        self._rows.payloads.update(rows.payloads)
        self._rows.bars.update(rows.bars)
        self._rows.questions.update(rows.questions)
        self._rows.attempts.update(rows.attempts)

    def see_runs(self, runs: Mapping[RunId, Run]) -> None:
        """Add runs that were read without a lock."""
        self._runs_seen.update(runs)

    def enter(self, decision: Decision) -> None:
        """Enter all that a command came to."""
        changes = self.changes
        if decision.events:
            changes.events += decision.events
        for out in decision.outcomes:
            self._enter_outcome(out)
        for agent, record in decision.agents:
            self._agents[agent] = record
        self._health.update(decision.health)
        for lease in decision.leases:
            self._renew(lease)
        for finished in decision.recorded:
            task = finished.task
            changes.recorded.append(finished)
            self.cases[task.id] = self._before[task.id] = TaskAggregate(task)
        self._enter_others(decision)

    def _enter_others(self, decision: Decision) -> None:
        """What is not about single tasks: runs, services, questions, spreads."""
        changes = self.changes
        for run in decision.runs:
            self._enter_run(run)
        for row in decision.services:
            if row is not self._services.get(row.id) and row != ServiceRow(row.id):
                self._services[row.id] = row
                self._changed_services[row.id] = None
        for question in decision.asked:
            changes.new_questions.append(question)
            self._rows.questions[question.id] = question
        for question in decision.closed:
            self._close(question)
        for spent in decision.expenses:
            self._enter_expense(spent)
        if decision.spreads:
            changes.new_spreads += decision.spreads
        if decision.worked_off:
            changes.drop_spreads += decision.worked_off
        for owner, due in decision.timers:
            if due is None:
                changes.drop_timers.append(owner)
            else:
                changes.timers.append((owner, due))

    def _enter_expense(self, row: ExpenseRow) -> None:
        known = [one for one in self._rows.expenses.get(row.task, ()) if one.token != row.token]
        self._rows.expenses[row.task] = [*known, row]
        same = (row.task, row.token)
        self.changes.expenses = [one for one in self.changes.expenses if (one.task, one.token) != same] + [row]

    def _enter_outcome(self, out: TaskChange) -> None:
        case, changes = out.case, self.changes
        id_ = case.task.id
        if out.made is not None:
            self._before[id_] = None
            self._made[id_] = out.made
        self._enter_waits(case)
        self.cases[id_] = case
        if out.result is not None:
            self._results[id_] = out.result
        if out.unbarred:
            changes.drop_bars += [Exclusion(id_, agent) for agent in out.unbarred]
        if out.barred:
            changes.new_bars += [Exclusion(id_, agent) for agent in out.barred]
        changes.events += out.events
        if out.attempts:
            changes.new_attempts += out.attempts
            for ended in out.attempts:
                self._rows.attempts[(ended.task, ended.token)] = ended
        if out.questions:
            changes.new_questions += out.questions
            for question in out.questions:
                self._rows.questions[question.id] = question
        if out.late is not None:
            self._keep_late(out.late)
        if out.spread is not None:
            changes.new_spreads.append(out.spread)
        if out.run is not None:
            self._enter_run(out.run)

    def _enter_waits(self, case: TaskAggregate) -> None:
        """What is decided later in this batch must know that someone waits: the rows were read before."""
        for wait in case.waits:
            target = self.cases.get(TaskId(wait.target))
            if target is not None and not target.awaited:
                self.cases[target.task.id] = replace(target, awaited=True)

    def _enter_run(self, run: Run) -> None:
        """Enter a run that is new, or has changed."""
        before = self._rows.runs.get(run.id)
        if before is not run:
            if before is not None and self._shares_runs:  # read for another command of the batch, which changes none
                raise RunUnread(run.id)
            self._runs.setdefault(run.id, before)
            self._rows.runs[run.id] = run

    def _renew(self, lease: LeaseRow) -> None:
        case = self.cases.get(lease.task)
        if case is None:
            self._rows.leases[lease.task] = self._renewed[lease.task] = lease
        else:
            self.cases[lease.task] = replace(case, lease=lease)

    def _keep_late(self, late: Attempt) -> None:
        """An attempt that ends and is late in one batch, or late again and again, is written once, with all of it."""
        self._rows.attempts[(late.task, late.token)] = late
        for attempts in (self.changes.new_attempts, self.changes.late_attempts):
            for place, known in enumerate(attempts):
                if known.task == late.task and known.token == late.token:
                    attempts[place] = late
                    return
        self.changes.late_attempts.append(late)

    def _close(self, question: Question) -> None:
        """Enter a question that was answered or withdrawn, be it that this batch has asked it."""
        self._rows.questions[question.id] = question
        for place, asked in enumerate(self.changes.new_questions):
            if asked.id == question.id:
                self.changes.new_questions[place] = question
                return
        self.changes.questions.append(question)

    async def write(self, tx: Transaction) -> None:
        """Write what differs; what is decided later is compared with the rows as they then are."""
        stands = self._flush()
        changes = self.changes
        if changes != _NOTHING:
            changes.at, changes.cases = self.now, stands
            self.changes = RowChanges()
            self.news.add(changes)
            await tx.write(changes)

    def _flush(self) -> dict[TaskId, TaskAggregate]:
        """Collect what differs; the cases that do, as they stand now."""
        changes, befores = self.changes, self._before
        stands: dict[TaskId, TaskAggregate] = {}
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
        if self._changed_services:
            self._flush_services()
        if self._runs:
            self._flush_runs()
        if self._agents or self._health:
            self._flush_agents()
        if self._renewed:
            changes.leases += self._renewed.values()
            self._renewed.clear()
        if len(changes.new_tasks) > 1:
            # Two processes that make the same new rows must meet them in the same order, or they wait in a circle.
            changes.new_tasks.sort(key=_by_id)
        if len(changes.new_agents) > 1:
            changes.new_agents.sort(key=_by_name)
        return stands

    def _flush_agents(self) -> None:
        changes, agents = self.changes, self._rows.agents
        for agent, record in self._agents.items():
            known = agents.get(agent)
            if record is known:
                continue
            if record is None:
                changes.drop_agents.append(agent)
                del agents[agent]
            else:
                (changes.new_agents if known is None else changes.agents).append(record)
                agents[agent] = record
        read = self._rows.health
        for name in sorted(self._health):  # in one order, as new tasks are
            if (health := self._health[name]) is not read.get(name):
                (changes.health if name in read else changes.new_health).append((name, health))
                read[name] = health

    def _flush_runs(self) -> None:
        """Runs with their timers: one whose clock stands has none, its question is what it waits for."""
        changes = self.changes
        for id_, before in sorted(self._runs.items()):
            run = self._rows.runs[id_]
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
        changes, known = self.changes, self._rows.services
        for name in sorted(self._changed_services):  # in one order, as new tasks are
            row = self._services[name]
            (changes.services if name in known else changes.new_services).append(row)
            known[name] = row
        self._changed_services.clear()

    def _flush_new(self, id_: TaskId, case: TaskAggregate) -> None:
        changes, new = self.changes, self._made.pop(id_)
        changes.new_tasks.append((case.task, new.payload))
        if new.barred:
            changes.new_bars += [Exclusion(id_, agent) for agent in dict.fromkeys(new.barred)]
        if case.ready is not None:
            changes.new_ready.append(case.ready)
        if case.due is not None:
            changes.timers.append((id_, case.due))
        if case.waits:
            changes.new_waits += case.waits
        if case.lease is not None:
            changes.new_leases.append(case.lease)

    def _flush_place(self, id_: TaskId, before: TaskAggregate, after: TaskAggregate) -> None:
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

    def _flush_lease(self, before: TaskAggregate, after: TaskAggregate) -> None:
        old, new = before.lease, after.lease
        changes = self.changes
        if old is None:
            if new is not None:
                changes.new_leases.append(new)
        elif new is None:
            changes.drop_leases.append((old.task, old.token))
        elif old.token == new.token:
            changes.leases.append(new)
        elif (
            old.task,
            old.token,
        ) in self._rows.attempts:  # a flow is taken up from a holder that is gone, in one batch
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
