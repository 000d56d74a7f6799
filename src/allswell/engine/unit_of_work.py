"""One unit of work on the store: a batch of commands on its way from the locks to the commit.

Look for what the rules want to have found, lock every row that the commands name (kind by kind, sorted), read the clock
and the rows, have the core decide the commands in their order, write; then pick claimable tasks for the claims (nothing
waits after that), have the core decide who gets them, write. The order is the whole art; `store/port.py` says why.

Nothing is decided here, and no command is known by its name: what one locks and reads, its rule says
(domain/rules/rule.py).
Each command gets its own answer. A refused one disturbs no other: a decision changes nothing until it is entered.

What two plans say is also what keeps their commands in order (`meets`). Locks alone would not do: two units of work at
once are decided in whichever order the locks are got, and something that does not exist yet has no lock. Of two
submits, the second of which needs the first one's task, the second would be refused; a claim that is repeated with its
id would be granted twice. A plan does not change, so that a thread may decide by it while others are compared with it.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar, assert_never, cast

import msgspec
from msgspec.structs import replace

from allswell.domain.agents.cost import ExpenseRow
from allswell.domain.ids import NO_COMMAND, AgentId, CommandId, Millis, RunId, TaskId, can_name
from allswell.domain.lease.claim import ClaimResult, Granted, HandOut, open_lanes, outside_shut_runs
from allswell.domain.lease.model import Agent, LeaseRow
from allswell.domain.question import Question
from allswell.domain.rules.command import Claim, Command, NewTask
from allswell.domain.rules.decide import decide, names_of
from allswell.domain.rules.rule import ASKING, AwaitedRequest, Decision, LaneKey, ReadSet, RowSearch, RowSnapshot, Rule
from allswell.domain.run.run import Run, moved
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.aggregate import RunUnread, TaskAggregate, TaskChange
from allswell.domain.task.model import Attempt, Exclusion, Task
from allswell.errors import AllswellError, Bug, Unavailable
from allswell.store.clock import SetBack
from allswell.store.port import (
    NOTHING,
    CommitUnknown,
    Lock,
    LockKind,
    RowChanges,
    RowConflict,
    RowRequest,
    Rows,
    Store,
    Transaction,
    Wakeup,
)
from allswell.timing.clock import MachineClocks

# --- the rows of one transaction: as they were read, as they stand now, and what must be written ----------------------
#
# Decisions return whole cases; the book compares rows by identity and writes those that differ. Rules read
# it (domain/rules/rule.py). A command that is refused never touches it, so it disturbs no other command of its batch.

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


# --- what a batch names -----------------------------------------------------------------------------------------------

Id = TypeVar("Id", bound=str)
Placed = tuple[int, Claim]
"""A claim, and where in its batch it stands."""
_TASKS = ("tasks", "held", "free", "leases", "made")
"""The fields of `ReadSet` that name tasks."""
_LOOKED_FOR = ("searches", "runs_of", "perhaps_runs_of")


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


class BatchPlan:
    """Every row that the commands of a batch name, known before anything is locked."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self.commands = commands
        self.rules: list[Rule[Any]] = []
        self.found: dict[RowSearch, Sequence[str]] = {}
        self.asking: Sequence[AwaitedRequest] = ()
        self.runs_found: dict[TaskId, RunId] = {}
        self._all: dict[str, dict[Any, None]] = {field: {} for field in ReadSet.__annotations__}
        """By the fields of `ReadSet`: what all commands together name."""
        for rule, names in names_of(commands):
            self.rules.append(rule)
            self._add(names)

    def _add(self, names: ReadSet) -> None:
        for field, ids in cast("Mapping[str, Collection[Any]]", names).items():
            known = self._all[field]
            for id_ in ids:
                known[id_] = None

    @property
    def lanes(self) -> Collection[LaneKey]:
        """The lanes of the tasks that are to be made."""
        return self._all["lanes"]

    @property
    def shares_runs(self) -> bool:
        """Whether its runs are locked so that others may read them too: then none of them may change."""
        return not self._all["runs"]

    def _named(self, *fields: str) -> list[Any]:
        """The ids that stand in any of these fields, in the one order of locking."""
        filled = [ids for field in fields if (ids := self._all[field])]
        return ordered(filled[0] if len(filled) == 1 else [*chain(*filled)])

    def meets(self, other: BatchPlan) -> bool:
        """Whether both name the same thing."""
        mine, its = self._all, other._all
        runs_apart = mine["runs"].keys().isdisjoint((*its["runs"], *its["runs_shared"]))
        runs_apart = runs_apart and its["runs"].keys().isdisjoint(mine["runs_shared"])
        tasks = {id_ for field in _TASKS for id_ in mine[field]}
        return not (
            runs_apart
            and all(tasks.isdisjoint(its[field]) for field in _TASKS)
            and mine["services"].keys().isdisjoint(its["services"])
            and mine["questions"].keys().isdisjoint(its["questions"])
            and mine["searches"].keys().isdisjoint(its["searches"])
        )

    async def look(self, tx: Transaction, *, careful: bool) -> BatchPlan:
        """Look for what the rules want to have found, and for the runs of tasks: the plan that names it too.

        `careful`: it was decided before, and did not come to an end; so whatever may be concerned is.
        """
        if not any(self._all[field] for field in _LOOKED_FOR):
            return self
        plan: BatchPlan = copy.copy(self)
        plan._all = {field: dict(ids) for field, ids in self._all.items()}
        await plan._look(tx, careful=careful)
        return plan

    async def _look(self, tx: Transaction, *, careful: bool) -> None:
        if self._all["searches"]:
            # In order: two units of work that look for the same claims must not wait for each other in a circle.
            searches = sorted(search for search in self._all["searches"] if can_name(search.of))
            if ASKING in searches:
                searches.remove(ASKING)
                self.asking = await tx.find_asking()
            self.found = {search: await _find(tx, search) for search in searches}
            for command, rule in zip(self.commands, self.rules, strict=True):
                if rule.found is not None:
                    self._add(rule.found(command, self.found))
        tasks = self._named("runs_of", "perhaps_runs_of") if careful else self._named("runs_of")
        if tasks:
            self.runs_found = await tx.find_runs(tasks)
            self._add(ReadSet(runs=self.runs_found.values()))

    async def take(self, tx: Transaction, *, careful: bool) -> tuple[Millis, Rows]:
        """Lock all of it, in order, and read what exists of it. New tasks are looked for only with care."""
        runs, held = self._named("runs", "runs_shared"), self._named("held", "free")
        tasks = self._named("tasks", "held", "free", "made") if careful else self._named("tasks", "held", "free")
        wanted = RowRequest(
            runs=runs,
            services=self._named("services"),
            agents=self._named("agents"),
            health=self._named("health"),
            questions=self._named("questions"),
            tasks=tasks,
            leases=self._named("held", "free", "leases"),
            awaited=held,
            payloads=self._named("payloads"),
            bars=self._named("bars"),
            expenses=self._named("expenses"),
            whole=True,
        )
        locks = [
            Lock(LockKind.RUN, runs, shared=self.shares_runs),
            Lock(LockKind.SERVICE, wanted.services),
            Lock(LockKind.AGENT, wanted.agents),
            Lock(LockKind.HEALTH, wanted.health),
            Lock(LockKind.QUESTION, wanted.questions),
            Lock(LockKind.TASK, tasks, skip=bool(self._all["free"])),
            Lock(LockKind.LEASE, wanted.leases),
        ]
        locks = [lock for lock in locks if lock.ids]
        if not locks and self._all["made"]:
            wanted.tasks = self._named("made")
            locks = [Lock(LockKind.TASK, wanted.tasks, fresh=True)]
        return await tx.lock_and_read(locks, wanted)

    def reads(self, situation: RowSnapshot) -> RowRequest | None:
        """What only the rows themselves tell to read; None: nothing."""
        wanted = [
            more
            for command, rule in zip(self.commands, self.rules, strict=True)
            if rule.reads is not None and (more := rule.reads(command, situation)) is not None
        ]
        if not wanted:
            return None
        return RowRequest(
            attempts=[attempt for more in wanted for attempt in more.attempts],
            questions=[question for more in wanted for question in more.questions],
        )


async def _find(tx: Transaction, search: RowSearch) -> Sequence[str]:
    match search.what:
        case "claimed":
            return await tx.find_claimed(CommandId(search.of))
        case "held":
            return await tx.find_held(RunId(search.of), search.after, search.limit)
        case "leases":
            return await tx.find_leases(search.after, search.limit)
        case "open":
            return await tx.find_open(RunId(search.of), search.limit)
        case "questions":
            return await tx.find_questions(TaskId(search.of))
        case "target":
            return await tx.find_target(TaskId(search.of))
        case "waiting":
            return await tx.find_waiting(search.of, search.limit)
        case "asking":
            raise Bug("who waits for whom is not found as ids")
        case _:
            assert_never(search.what)


# --- from the locks to the commit -------------------------------------------------------------------------------------


class BatchResult(msgspec.Struct):
    """What a unit of work came to: an answer or an error for each command, and what others should know."""

    answers: list[object]
    news: CommitEffects


async def perform(
    tx: Transaction,
    plan: BatchPlan,
    lanes: Mapping[LaneKey, int],
    rng: Callable[[], float],
    *,
    careful: bool = False,
) -> BatchResult:
    """Have a batch decided; the answers, or the errors, in the order of the commands.

    `careful`: it was tried before, so it may have been done, or rows may be concerned that were not read.
    """
    plan = await plan.look(tx, careful=careful)
    now, rows = await plan.take(tx, careful=careful)
    book = UnitOfWork(now, rows, lanes, plan.found, plan.asking, plan.runs_found, shares_runs=plan.shares_runs)
    if (more := plan.reads(book.situation)) is not None:
        book.add(await tx.read(more))
    answers: list[object] = [None] * len(plan.commands)
    claims: list[Placed] = []
    order: Sequence[int] = range(len(answers))
    if any(rule.last for rule in plan.rules):
        order = sorted(order, key=lambda place: plan.rules[place].last)
    for place in order:
        decision = _decided(book, plan.commands[place], rng() if plan.rules[place].chance else 0.0)
        if decision.claim is not None:
            claims.append((place, decision.claim))
        answers[place] = decision.answer if decision.error is None else decision.error
    if len(claims) < len(plan.commands):  # claims have decided nothing yet
        await book.write(tx)
    if claims:
        await _serve(tx, book, claims, answers)
    return BatchResult(answers, book.news)


def _decided(book: UnitOfWork, command: Command, chance: float = 0.0) -> Decision:
    """What a command comes to, entered; where it is refused nothing is, and the decision is the error alone."""
    try:
        decision = decide(book.situation, command, chance)
        book.enter(decision)
    except AllswellError as error:
        return Decision(error=error)
    except RunUnread as unread:
        raise RowConflict(f"the run of {unread} is concerned too, and was not locked") from unread
    except Exception as error:  # noqa: BLE001 - a bug in one decision must not take its neighbours along
        bug = Bug(f"deciding {type(command).__name__} failed: {error!r}")
        bug.__cause__ = error
        return Decision(error=bug)
    return decision


# --- claims, which come last ------------------------------------------------------------------------------------------


async def _serve(tx: Transaction, book: UnitOfWork, claims: Sequence[Placed], answers: list[object]) -> None:
    """Hand out tasks: first those that a claim names, then, for all others, what the store picks."""
    lanes, services = await tx.lanes()
    named: list[tuple[int, Claim, list[int]]] = []
    groups: dict[tuple[tuple[int, ...], tuple[RunId, ...]], list[Placed]] = {}
    first: dict[str, int] = {}
    repeated: list[tuple[int, int]] = []
    for place, claim in claims:
        if claim.id != NO_COMMAND and first.setdefault(claim.id, place) != place:
            repeated.append((place, first[claim.id]))  # it came twice in this batch
            continue
        among = open_lanes(claim, lanes, services, book.now)
        bounded = outside_shut_runs(claim, services, book.now)
        if bounded.task is not None:
            named.append((place, bounded, among))
        else:
            groups.setdefault((tuple(among), bounded.outside), []).append((place, bounded))
    if named:
        await _serve_named(tx, book, named, answers)
    for (open_to_all, outside), members in groups.items():
        await _serve_from(tx, book, open_to_all, outside, members, answers)
    for place, earlier in repeated:
        answers[place] = answers[earlier]


async def _serve_named(
    tx: Transaction, book: UnitOfWork, claims: Sequence[tuple[int, Claim, list[int]]], answers: list[object]
) -> None:
    """Serve the claims that name their task; its rows were locked with all others."""
    there = {claim.task: None for _, claim, _ in claims if claim.task is not None and claim.task in book.cases}
    await _load(tx, book, [*there], bars=True)
    for place, claim, among in claims:
        decision = _decided(book, HandOut(claim, () if claim.task is None else (claim.task,), among, key=claim.key))
        answers[place] = decision.error if decision.error is not None else _handed(decision).granted
    await book.write(tx)


async def _serve_from(
    tx: Transaction,
    book: UnitOfWork,
    among: tuple[int, ...],
    outside: tuple[RunId, ...],
    claims: Sequence[Placed],
    answers: list[object],
) -> None:
    """Claims that may be served from the same lanes share one pick."""
    given: dict[int, list[Granted]] = {}
    for place, _ in claims:
        answers[place] = given[place] = []
    agents = {claim.agent for _, claim in claims}
    alone = claims[0][1].agent if len(agents) == 1 else None
    left: Sequence[TaskId] = []
    if among:
        left = await tx.pick(among, sum(claim.count for _, claim in claims), alone, outside)
    await _load(tx, book, left, bars=alone is None)
    shared = alone is None
    for place, claim in claims:
        left = _hand_out(book, HandOut(claim, left, among, further=shared, key=claim.key), given[place])
    for place, claim in claims:
        missing = claim.count - len(given[place])
        if missing <= 0 or not shared or not (left or claim.after):
            continue
        more: Sequence[TaskId] = ()
        if left:
            # What is left is barred for this agent; look further down its lanes for it alone.
            await book.write(tx)
            more = [id_ for id_ in await tx.pick(among, missing, claim.agent, outside) if id_ not in book.cases]
            await _load(tx, book, more, bars=False)
        _hand_out(book, HandOut(replace(claim, count=missing), more, among, key=claim.key), given[place])
    await book.write(tx)  # or the next pick would find what this one has handed out


def _hand_out(book: UnitOfWork, command: HandOut, given: list[Granted]) -> Sequence[TaskId]:
    """Have what was picked handed out to one claim; what is left of it for others."""
    decision = _decided(book, command)
    if decision.error is not None:
        raise decision.error
    handed = _handed(decision)
    given += handed.granted
    return handed.left


def _handed(decision: Decision) -> ClaimResult:
    handed = decision.answer
    assert isinstance(handed, ClaimResult)  # noqa: S101 - for the type checker
    return handed


async def _load(tx: Transaction, book: UnitOfWork, picked: Sequence[TaskId], *, bars: bool) -> None:
    """Read what was picked, and who may not have it: needed only where the pick was not for one agent alone."""
    if not picked:
        return
    fresh = [id_ for id_ in picked if id_ not in book.cases]
    book.add(await tx.read(RowRequest(tasks=fresh, payloads=picked, bars=picked if bars else (), whole=True)))
    runs = {run: None for id_ in picked if (run := book.cases[id_].task.run) is not None}
    if runs:
        book.see_runs(await tx.runs(list(runs)))


# --- to a known end ---------------------------------------------------------------------------------------------------

Work = Callable[[Transaction], Coroutine[Any, Any, BatchResult]]
Wait = Callable[[Unavailable], Awaitable[bool]]
"""Pauses while the store cannot be reached; whether a caller still waits for the outcome."""
CONFLICTS_MOST = 20


async def commit(
    store: Store,
    work: Work,
    *,
    clocks: MachineClocks | None = None,
    call: Callable[[CommitEffects], Wakeup] = lambda _: NOTHING,
    durable: bool = True,
    wait: Wait | None = None,
) -> BatchResult:
    """Run one unit of work to a known end: committed, or an error that says nothing was.

    With `clocks` it is `SetBack`, and not committed, if the clock that it was decided by had been set, or was set
    meanwhile. `call` is the wake-up call to other processes; the store may send it along with the commit.

    Work that cannot be recognised when it is done twice (a claim without an id) gives `wait`: then the store is asked
    again and again what became of a lost commit, for as long as a caller waits.
    """
    done: list[BatchResult] = []

    async def remember(tx: Transaction) -> BatchResult:
        performed = await work(tx)
        if clocks is not None and clocks.jumped:  # the clock that it was decided by was read before this
            raise SetBack("the clock was set, or the machine has slept")
        tx.call = call(performed.news)
        done.append(performed)
        return performed

    conflicts = 0
    while True:
        done.clear()
        try:
            return await store.transact(remember, durable=durable)
        except CommitUnknown as lost:
            if await _took_place(store, lost.ticket, wait):
                store.announce(call(done[0].news))
                return done[0]
        except RowConflict as conflict:
            conflicts += 1
            if conflicts >= CONFLICTS_MOST:
                raise Bug(f"a batch met the same conflict {conflicts} times: {conflict}") from conflict


async def _took_place(store: Store, ticket: str, wait: Wait | None) -> bool:
    while True:
        try:
            return await store.outcome(ticket)
        except Unavailable as error:
            if wait is None or not await wait(error):
                raise
