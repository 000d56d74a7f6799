"""The ledger: every commit is entered here, and every promise about rows is checked before the next one.

Rows of ended tasks, fences, tokens, moments and the account of every open task are checked here; what failures and
repeated timeouts must lead to is checked by `invariants.py`, what callers were told by `process.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from allswell.domain.ids import RunId, TaskId
from allswell.domain.lease.model import LeaseRow
from allswell.domain.rules.command import AcquireFlow, RecordStep
from allswell.domain.rules.event import KINDS
from allswell.domain.task.model import OPEN, Attempt, FinishedTask, Task
from allswell.engine.lease import Lease as Handle
from allswell.store.memory import Database
from allswell.store.port import RowChanges
from allswell.testing.sim.invariants import RunClocks, Verdicts
from allswell.testing.sim.report import Broken, HistoryModel, HistoryRecorder, SimSpan, changes_at, over_at

_SETTLED = 120.0
"""Seconds after which no transaction can still be under way that began before."""
_HOLDERS_WORD = ("done", "released", "asked", "parked")
_CLAIMS_TO_JUDGE = 8
"""Claims that must have been compared before the order of claims is judged."""


class SimLedger:
    """Checks each commit against the history."""

    def __init__(self, database: Database, chronicle: HistoryRecorder, time: Callable[[], float]) -> None:
        self.database = database
        self.tables = database.tables
        self.chronicle = chronicle
        self.time = time
        self.shadow = HistoryModel(self.tables)
        self.handles: dict[tuple[TaskId, int], Handle] = {}
        self.on_break: Callable[[], None] = lambda: None
        self.claims_in_order = 0
        self.claims_out_of_order = 0
        self._granted_at = (-1.0, 0)
        self.clocks = RunClocks(self.shadow, self.breaks, chronicle, time)
        self._verdicts = Verdicts(self.shadow, self.breaks, chronicle, time, self.clocks.limit)

    def breaks(self, promise: str, seen: str) -> None:
        """A promise did not hold."""
        self.chronicle.report.broken.append(Broken(promise, self.time(), seen))
        self.on_break()

    def committed(self, written: list[RowChanges]) -> None:
        """The store's hook: called right after each commit, before anybody else can run."""
        if not written:
            return
        self.shadow.commits += 1
        self.chronicle.report.commits += 1
        touched: dict[TaskId, None] = {}
        for changes in written:
            self.chronicle.note(changes)
            self._check_events(changes)
            self._enter(changes, touched)
        for task in touched:
            self._check_place(task)
        if self.tables.unaccounted:
            lost = ", ".join(self.tables.unaccounted)
            self.breaks("every open task is accounted for", f"nothing will ever move {lost}: {self.story(lost[:18])}")

    def _check_events(self, changes: RowChanges) -> None:
        for event in changes.events:
            kind = KINDS.get(event.kind)
            if kind is None or set(event.data) != set(kind.fields):
                self.breaks("events are as the catalogue says", f"{event.kind} with {sorted(event.data)}")

    def _enter(self, changes: RowChanges, touched: dict[TaskId, None]) -> None:
        shadow = self.shadow
        for task, _ in changes.new_tasks:
            self._enter_task(task, None)
            touched[task.id] = None
        for made in changes.recorded:
            self._record(made, changes)
        for event in changes.events:
            if event.kind == "task_split" and event.task is not None:
                shadow.split[event.task] = list(event.data["subtasks"])
        for task, result in changes.tasks:
            if task.id in shadow.ended:
                self.breaks("an ended task never changes again", f"{task.id} was {shadow.ended[task.id]}")
            self._enter_task(task, result)
            touched[task.id] = None
        self._verdicts.enter(changes)
        self.clocks.settle(changes)
        for lease in changes.leases:
            self._renew(lease, changes)
        ended = {(attempt.task, attempt.token): attempt for attempt in changes.new_attempts}
        for held in changes.drop_leases:
            if held not in ended:
                self.breaks("every lease leaves an attempt behind", f"{held} is gone without one")
        for attempt in changes.new_attempts:
            self._end_attempt(attempt, changes)
        for lease in changes.new_leases:
            self._grant(lease)
            touched[lease.task] = None
        self._enter_questions(changes)
        self.clocks.enter(changes)
        self._enter_around(changes)
        touched.update(dict.fromkeys(task for task, _ in changes.drop_leases))
        touched.update(dict.fromkeys(wait.task for wait in (*changes.new_waits, *changes.drop_waits)))
        touched.update(dict.fromkeys(TaskId(owner) for owner, _ in changes.timers if owner.startswith("t_")))

    def _enter_task(self, task: Task, result: str | None) -> None:
        shadow = self.shadow
        if task.state == OPEN:
            return
        shadow.ended[task.id] = task.state
        if task.state == "done" and result is None:
            self.breaks("a completion has its result", f"{task.id} is done without one")
        if task.state == "skipped" and not task.record.ended_by:
            fates = shadow.fates(task.spec.needs)
            if task.spec.if_need_fails != "skip" or "bad" not in fates:
                self.breaks(
                    "a task is skipped only for a need that failed", f"{task.id}: {task.record.reason}, {fates}"
                )
            self.chronicle.met("a dependent was skipped")
            if any(self.tables.tasks[need].state == "skipped" for need in task.spec.needs):
                self.chronicle.met("skips ran down a chain")
        if task.record.reason == "run_timeout":
            limit = self.clocks.limit(task)
            if limit is None or task.ended_at is None or task.ended_at < limit:
                self.breaks("a deadline is never early", f"{task.id} failed as run_timeout before its run's end")
            self.chronicle.met("a run timed out with open tasks")
        if task.spec.origin is not None:
            self._close_request(task)

    def _close_request(self, task: Task) -> None:
        limit, reason = task.spec.limit_at, task.record.reason
        early = limit is None or task.ended_at is None or task.ended_at < limit
        if reason == "delegation_timeout" and early:
            self.breaks("a request ends at its limit", f"{task.id} ended at {task.ended_at} of {limit}: {reason}")
        if task.record.questions and any(
            question.startswith(f"q_{task.id[2:]}.") and self.tables.questions[question].asked_by == "allswell"
            for question in self.tables.questions
        ):
            self.breaks("a request that fails is nobody's question", task.id)
        if task.state == "done":
            self.chronicle.met("a request was answered")
        elif reason == "delegation_timeout":
            self.chronicle.met("a request expired")

    def _record(self, made: FinishedTask, changes: RowChanges) -> None:
        """A step of a flow is finished as it is made: once, and only by whoever holds the flow."""
        shadow, task = self.shadow, made.task
        said = shadow.sent.get(task.record.ended_by)
        if task.id in shadow.ended:
            self.breaks("a task completes once", f"step {task.id} was recorded a second time")
        shadow.ended[task.id] = task.state
        if not isinstance(said, RecordStep) or (said.step, said.result) != (task.id, made.result):
            self.breaks("what is recorded is what was said", f"{made} by {said}")
            return
        lease = shadow.leases.get(said.flow)
        if lease is None or (lease.token, lease.agent) != (said.token, said.agent):
            self.breaks("a stale holder changes nothing", f"{said} was recorded, and {lease} holds the flow")
        elif changes.at >= over_at(lease):
            self.breaks("a lapsed lease is not accepted", f"{said} at {changes.at}")
        self.chronicle.met("a step of a flow was recorded")

    # --- leases -----------------------------------------------------------------------------------------------------

    def _grant(self, lease: LeaseRow) -> None:
        shadow, id_ = self.shadow, lease.task
        task = self.tables.tasks[id_]
        if lease.token != shadow.tokens.get(id_, 0) + 1:
            self.breaks("tokens only grow", f"{id_} got token {lease.token} after {shadow.tokens.get(id_, 0)}")
        if id_ in shadow.leases:
            self.breaks("a task has one holder", f"{id_} was handed out while {shadow.leases[id_].agent} holds it")
        shadow.tokens[id_] = lease.token
        shadow.leases[id_] = lease
        shadow.spans[(id_, lease.token)] = SimSpan(lease.agent, shadow.commits)
        shadow.granted.setdefault(lease.agent, []).append((id_, lease.token))
        if id_ in shadow.ended:
            self.breaks("an ended task never changes again", f"{id_} was {shadow.ended[id_]} and was handed out")
        self.clocks.grant(lease, task)
        self._check_right(lease, task)
        self._check_order(lease, task)
        if lease.command:
            self._count_claim(lease)

    def _check_right(self, lease: LeaseRow, task: Task) -> None:
        """Whether this agent could be given this task now."""
        shadow, tables, id_, at = self.shadow, self.tables, lease.task, lease.granted_at
        # A claim's own clock is read before its pick, so the moment of its commit is what counts here.
        if self.database.see()[0] < max(task.spec.not_before or 0, shadow.not_until.pop(id_, 0)):
            self.breaks("a pause is waited out", f"{id_} was handed out at {at}, before its time: {self.story(id_)}")
        if lease.agent in tables.bars.get(id_, ()):
            self.breaks("a barred agent gets nothing", f"{lease.agent} got {id_}")
        if any(question in shadow.questions_waited_for for question in tables.open_questions.get(id_, ())):
            self.breaks("what waits for an answer is not handed out", id_)
        fates = shadow.fates(task.spec.needs)
        if "open" in fates or ("bad" in fates and task.spec.if_need_fails == "skip"):
            self.breaks("needs come first", f"{id_} was handed out although its needs came to {fates}")
        for service in task.spec.services:
            row = tables.services.get(service)
            since = shadow.parked_since.get(service, self.time())
            until = None if row is None else row.state.parked_until
            if until is not None and until > at and self.time() - since > _SETTLED:
                self.breaks("a parked service is left alone", f"{id_} needs {service}, parked until {until}")
            elif row is not None:
                self.chronicle.met("a service that was parked was used again")

    def _count_claim(self, lease: LeaseRow) -> None:
        """A claim is recognised for as long as what it was granted is held."""
        held = sum(other.command == lease.command for other in self.shadow.leases.values())
        said = self.shadow.sent.get(lease.command)
        wanted = 1 if isinstance(said, AcquireFlow) else getattr(said, "count", 0)
        if held > wanted:
            self.breaks("a repeated command is one command", f"claim {lease.command} got more than {wanted}")

    def _check_order(self, lease: LeaseRow, task: Task) -> None:
        """Higher priority and older first; exact within a batch only, so it is judged over the whole run."""
        self.shadow.ready_since.pop(lease.task, None)
        moment = (self.time(), self.shadow.commits)
        before, self._granted_at = self._granted_at, moment
        if before[0] == moment[0] and before[1] != moment[1]:
            self.chronicle.met("claims were made at the same moment")
        rank = _place(task)
        for _, other in self.tables.lane_order.get(task.lane, ())[:3]:
            row = self.tables.tasks[other]
            if lease.agent in self.tables.bars.get(other, ()):
                continue
            if _place(row) >= rank:
                self.claims_in_order += 1
            elif self.time() - self.shadow.ready_since.get(other, self.time()) > _SETTLED:
                self.claims_out_of_order += 1

    def check_order_at_the_end(self) -> None:
        """The better one went first, nearly always."""
        total = self.claims_in_order + self.claims_out_of_order
        if total >= _CLAIMS_TO_JUDGE and self.claims_out_of_order > total // 4:
            self.breaks("better ranks go first", f"{self.claims_out_of_order} of {total} claims passed a better one by")

    def _renew(self, lease: LeaseRow, changes: RowChanges) -> None:
        shadow = self.shadow
        known = shadow.leases.get(lease.task)
        if known is None or known.token != lease.token or known.agent != lease.agent:
            self.breaks("a stale holder changes nothing", f"{lease.task} {lease.token} was written")
            return
        jumped = any(event.kind == "clock_jumped" and event.task == lease.task for event in changes.events)
        self.clocks.renew(known, lease, jumped=jumped)
        if not jumped and lease.renewed_at > known.renewed_at and changes.at >= self.clocks.over_at(known):
            self.breaks("a lapsed lease is not revived", f"{lease.task} {lease.token} at {changes.at}")
        if lease.checkin_at != known.checkin_at and not jumped:
            self._check_forgiven(lease)
            if known.stalled_at is not None:
                self.chronicle.met("a stalled agent spoke in time")
        shadow.leases[lease.task] = lease

    def _check_forgiven(self, lease: LeaseRow) -> None:
        row = self.tables.agents.get(lease.agent)
        if row is None:
            return
        if self.time() - self.shadow.agent_since.get(lease.agent, self.time()) > _SETTLED:
            self.breaks("an answer clears the misses", f"{lease.agent} answered and still has {row.misses}")
        self.chronicle.met("an answer crossed a miss")

    def _end_attempt(self, attempt: Attempt, changes: RowChanges) -> None:
        shadow = self.shadow
        lease = shadow.leases.pop(attempt.task, None)
        if lease is None or lease.token != attempt.token or lease.agent != attempt.agent:
            self.breaks("a stale holder changes nothing", f"{attempt.task} {attempt.token} ended as {attempt.outcome}")
            return
        shadow.spans[(attempt.task, attempt.token)].last = shadow.commits
        at, outcome = attempt.ended_at, attempt.outcome
        if outcome == "done":
            shadow.done[attempt.task] = shadow.done.get(attempt.task, 0) + 1
            if shadow.done[attempt.task] > 1:
                self.chronicle.report.duplicated += 1
                self.breaks("a task completes once", f"{attempt.task} was completed {shadow.done[attempt.task]} times")
        if (
            outcome in _HOLDERS_WORD
            or outcome.startswith("failed:")
            or (outcome in ("agent_stalled", "agent_idle") and attempt.command)
        ):
            said = shadow.sent.get(attempt.command)
            whose = (getattr(said, "task", None), getattr(said, "token", None), getattr(said, "agent", None))
            if whose != (attempt.task, attempt.token, attempt.agent):
                self.breaks("a stale holder changes nothing", f"{attempt.task} {attempt.token} was ended by {said}")
            if at >= self.clocks.over_at(lease):
                self.breaks("a lapsed lease is not accepted", f"{attempt.task} {attempt.token} as {outcome}")
            return
        if outcome == "agent_stalled" and lease.stalled_at is None:
            # Marked and taken back in one decision: that is so where there is no grace.
            marked = any(event.kind == "agent_stalled" and event.task == lease.task for event in changes.events)
            lease = replace(lease, stalled_at=changes.at if marked else None)
        moment = self._moment(outcome, lease)
        if moment is None:
            return
        if at < moment:
            self.breaks("a deadline is never early", f"{attempt.task} {outcome} at {at}, due at {moment}")
        self.chronicle.delays.append(at - moment)
        self.chronicle.met(f"attempt ended: {outcome}")
        handle = self.handles.get((attempt.task, attempt.token))
        trusted = handle is not None and handle.remaining > 0 and outcome in ("agent_timeout", "lease_lapsed")
        if trusted and not shadow.jumped:
            self.breaks("a holder stops before its work is given away", f"{handle!r} ended as {outcome}")

    def _moment(self, outcome: str, lease: LeaseRow) -> int | None:
        never = 1 << 60
        match outcome:
            case "agent_timeout":
                return self.clocks.own(lease)
            case "run_timeout" | "delegation_timeout":
                return self.clocks.limit(self.tables.tasks[lease.task]) or never
            case "lease_lapsed":
                return never if lease.length is None else lease.renewed_at + lease.length
            case "agent_idle":
                start = lease.granted_at if lease.checkin_at is None else lease.checkin_at
                return never if lease.idle is None else start + lease.idle
            case "agent_stalled":
                return never if lease.stalled_at is None else lease.stalled_at + lease.grace
            case _:
                return None

    # --- questions, agents, services ----------------------------------------------------------------------------------

    def _enter_questions(self, changes: RowChanges) -> None:
        shadow = self.shadow
        for question in changes.new_questions:
            if question.task not in shadow.leases:
                shadow.questions_waited_for[question.id] = None
        for question in changes.questions:
            if question.id in shadow.questions_closed:
                self.breaks("a question is closed once", f"{question.id} was {shadow.questions_closed[question.id]}")
            if question.closed_at is not None:
                shadow.questions_closed[question.id] = question.choice
                self.chronicle.met(f"question closed: {question.choice}")

    def _count_chunks(self, changes: RowChanges) -> None:
        """A consequence that touches tasks in a second commit was worked off in more than one chunk."""
        for wait in changes.drop_waits:
            if wait.target in self.tables.spreads:
                self.chronicle.met("a consequence took more than one chunk")

    def _enter_around(self, changes: RowChanges) -> None:
        shadow, now = self.shadow, self.time()
        for agent in (*changes.new_agents, *changes.agents):
            shadow.agents[agent.id] = agent
            shadow.agent_since[agent.id] = now
        for gone in changes.drop_agents:
            shadow.agents.pop(gone, None)
        for service in (*changes.new_services, *changes.services):
            shadow.parked_since[service.id] = now
        self._count_chunks(changes)
        for ready in changes.new_ready:
            shadow.ready_since[ready.task] = now
        for dropped in changes.drop_spreads:
            if self.tables.waiting.get(dropped) or self.tables.open_by_run.get(RunId(dropped)):
                self.breaks("consequences reach everybody", f"{dropped} is still waited for")
        leased = {lease.task for lease in (*changes.leases, *changes.new_leases)}
        told = {event.task for event in changes.events}
        for owner, _ in changes.timers:
            if owner in shadow.leases and owner not in leased and owner not in told:
                self.chronicle.met("a tick came early")

    # --- where a task stands ----------------------------------------------------------------------------------------

    def _check_place(self, id_: TaskId) -> None:
        tables = self.tables
        lease, due = tables.leases.get(id_), tables.timers.get(id_)
        ready, waits = id_ in tables.ready, tables.waits.get(id_)
        if tables.tasks[id_].spec.flow and tables.tasks[id_].state == OPEN:
            asked = [question for question in tables.open_questions.get(id_, ()) if lease is None]
            if ready or (lease is None and not asked):
                self.breaks("a flow is run by somebody, or a human is asked", f"{id_}: {lease}, {waits}, ready {ready}")
        if tables.tasks[id_].state != OPEN:
            if lease is not None or due is not None or ready or waits:
                self.breaks("an ended task leaves no rows behind", f"{id_}: {lease}, {due}, ready {ready}, {waits}")
            return
        if lease is not None:
            if ready or waits:
                self.breaks("a held task is neither ready nor waiting", f"{id_}: ready {ready}, {waits}")
            if due is not None and due > changes_at(lease):
                self.breaks("a timer is never too late", f"{id_}: {due}, but {lease} changes at {changes_at(lease)}")
        elif ready and waits:
            self.breaks("a ready task waits for nothing", f"{id_}: {waits}")

    def story(self, id_: str) -> str:
        """The journal of one task, in short."""
        return "; ".join(self._journal_of(id_))

    def _journal_of(self, id_: str) -> Iterator[str]:
        for entry in self.database._entries:  # noqa: SLF001 - the whole journal, also what followers may not see yet
            if entry.event.task == id_:
                yield f"{entry.at} {entry.event.kind} {dict(entry.event.data)}"


def _place(task: Task) -> tuple[int, int]:
    """Where a task belongs in the order of claims."""
    return -task.priority, task.created_at - 60_000 * task.spec.unblocks
