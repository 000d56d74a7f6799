"""What bad endings must lead to: a retry within the policy, a question at the third time, a stall at the third miss.

The counts are kept a second time here, from the events in their order, and compared with what was decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from allswell.domain.ids import Millis, RunId, TaskId
from allswell.domain.lease.model import NO_LIMIT, Agent, LeaseRow
from allswell.domain.question import Question
from allswell.domain.rules.command import Fail
from allswell.domain.rules.event import Event
from allswell.domain.run.run import Run
from allswell.domain.service.retry import RULES
from allswell.domain.task.model import Attempt, Task
from allswell.store.port import RowChanges
from allswell.testing.sim.report import HistoryModel, HistoryRecorder, asked_moment, over_at

_BAD = {
    "agent_timeout": "timeout",
    "agent_idle": "timeout",
    "agent_stalled": "stall",
    "lease_lapsed": "lapse",
}
_JITTER_AT_MOST = 0.5


class Verdicts:
    """Follows every failure, timeout and miss."""

    def __init__(
        self,
        shadow: HistoryModel,
        breaks: Callable[[str, str], None],
        chronicle: HistoryRecorder,
        time: Callable[[], float],
        limit: Callable[[Task], int | None],
    ) -> None:
        self._shadow = shadow
        self._limit = limit
        self._breaks = breaks
        self._chronicle = chronicle
        self._time = time

    def enter(self, changes: RowChanges) -> None:
        """Check what was decided in one write."""
        answered = {event.task for event in changes.events if event.kind == "question_answered"}
        self._check_misses(changes)
        asked = [
            (event.task, event.data["kind"].removeprefix("repeated_"))
            for event in changes.events
            if event.kind == "question_asked" and event.data["kind"].startswith("repeated_")
        ]
        wanted = []
        for attempt in changes.new_attempts:
            if self._task(attempt.task).spec.flow:
                continue  # whatever ended it, a human is asked (the ledger sees to that)
            if attempt.outcome in _BAD and attempt.task not in answered:
                what = _BAD[attempt.outcome]
                if self._one_more(attempt, what):
                    wanted.append((attempt.task, what))
            elif attempt.outcome.startswith("failed:") or attempt.outcome == "parked":
                self._check_failure(attempt, changes, exact=attempt.task not in answered)
            elif attempt.outcome == "released":
                self._check_release(attempt)
        if not answered and sorted(map(repr, asked)) != sorted(map(repr, wanted)):
            self._breaks("a human is asked at the third bad end, and not before", f"asked {asked}, due {wanted}")
        for _, about in asked:
            self._chronicle.met(f"asked about a repeated {about}")
        for task in answered:
            if task is not None:
                self._start_anew(task)

    def _start_anew(self, task: TaskId) -> None:
        """A human has spoken: the counts begin again, from what the same batch may have added after it."""
        counts = self._shadow.counts_of(task)
        record = self._shadow.tables.tasks[task].record
        counts.failures = dict(record.failures)
        counts.bad = {"timeout": record.timeouts, "stall": record.stalls, "lapse": record.lapses}
        if sum(counts.failures.values()) + sum(counts.bad.values()) > 1:
            self._breaks("an answer starts the counts anew", f"{task}: {counts}")

    def _one_more(self, attempt: Attempt, what: str) -> bool:
        counts = self._shadow.counts_of(attempt.task).bad
        counts[what] = counts.get(what, 0) + 1
        spec = self._task(attempt.task).spec
        return spec.origin is None and counts[what] >= spec.policy.timeout_escalation

    def _task(self, id_: TaskId) -> Task:
        return self._shadow.tables.tasks[id_]

    # --- failures ---------------------------------------------------------------------------------------------------

    def _check_release(self, attempt: Attempt) -> None:
        said = self._shadow.sent.get(attempt.command)
        delay = getattr(said, "delay", 0)
        if delay:
            self._shadow.not_until[attempt.task] = attempt.ended_at + delay

    def _check_failure(self, attempt: Attempt, changes: RowChanges, *, exact: bool) -> None:
        said = self._shadow.sent.get(attempt.command)
        if not isinstance(said, Fail):
            self._breaks("a stale holder changes nothing", f"{attempt.task} failed by {said}")
            return
        task = self._task(attempt.task)
        policy, failure = task.spec.policy.retry, said.failure
        limited = failure.error in ("rate_limit", "overload")
        asked = failure.retry_after
        if limited and asked is not None and asked > policy.retry_after_cap:
            if attempt.outcome == "parked":
                self._parked(attempt, said)
                return
        elif attempt.outcome == "parked":
            self._breaks("only a long wait parks", f"{attempt.task}: {failure}")
            return
        if not exact:
            return
        failures = self._shadow.counts_of(attempt.task).failures
        before = failures.get(failure.error, 0)
        failures[failure.error] = before + 1
        rule = RULES[failure.error]
        retries = rule.retries if policy.retries is None or rule.retries == 0 else policy.retries
        base = policy.backoff << before
        if failure.error == "rate_limit" or (limited and asked is not None):
            base = min(policy.retry_after_default if asked is None else asked, policy.retry_after_cap)
        told = [event for event in changes.events if event.task == attempt.task and event.token == attempt.token]
        retried = next((event for event in told if event.kind == "task_retried"), None)
        limit = self._limit(task)
        left = None if limit is None else limit - attempt.ended_at
        allowed = before < retries and sum(failures.values()) < policy.max_attempts
        if retried is not None:
            self._check_retry(attempt, retried, base, left, allowed=allowed)
        elif allowed and (left is None or base * (1 + policy.jitter) < left) and not (limited and asked is not None):
            self._breaks("what may be retried is retried", f"{attempt.task}: {failure}, {before} before")
        elif rule.then == "escalate" and before >= retries and task.state == "failed" and left is None:
            self._breaks("what only a human can mend is asked", f"{attempt.task}: {failure}")

    def _check_retry(self, attempt: Attempt, retried: Event, base: int, left: int | None, *, allowed: bool) -> None:
        delay = int(retried.data["delay_ms"])
        self._shadow.not_until[attempt.task] = attempt.ended_at + delay
        self._chronicle.met("a failure was retried")
        if not allowed:
            self._breaks("retries stay within the policy", f"{attempt.task}: {attempt.outcome}")
        if not base <= delay <= base * (1 + _JITTER_AT_MOST):
            self._breaks("a pause is its base and at most half more", f"{attempt.task}: {delay} ms for {base} ms")
        if left is not None and delay >= left:
            self._breaks("a retry fits into the time left", f"{attempt.task}: {delay} ms of {left} ms")

    def _parked(self, attempt: Attempt, said: Fail) -> None:
        self._chronicle.met("a service was parked" if said.failure.services else "a task waited out a limit")
        until = attempt.ended_at + (said.failure.retry_after or 0)
        if not said.failure.services:
            self._shadow.not_until[attempt.task] = until
        for service in said.failure.services:
            row = self._shadow.tables.services.get(service)
            if row is None or (row.state.parked_until or 0) < until:
                self._breaks("a parked service is left alone", f"{service} should be parked until {until}: {row}")

    # --- check-ins --------------------------------------------------------------------------------------------------

    def _check_misses(self, changes: RowChanges) -> None:
        shadow = self._shadow
        judged: dict[TaskId, int] = {}
        stalls: dict[TaskId, bool] = {}
        """For each task whose holder must be marked as stalled, whether it was."""
        for event in changes.events:
            if event.task is None or event.agent is None:
                continue
            if event.kind == "checkpoint_timeout":
                self._check_miss(event, changes.at, judged, stalls)
            elif event.kind == "agent_stalled":
                if stalls.get(event.task) is not False:
                    self._breaks("the third miss in a row is a stall", f"{event.task} {event.agent} stalled early")
                stalls[event.task] = True
                self._chronicle.met("an agent stalled")
            elif event.kind == "task_returned" and event.data["reason"] in _BAD:
                # A stall's mark ends with the attempt that time has ended.
                lease = shadow.leases.get(event.task)
                if stalls.get(event.task) or (lease is not None and lease.stalled_at is not None):
                    shadow.agents.pop(event.agent, None)
        if not all(stalls.values()):
            self._breaks("the third miss in a row is a stall", f"{stalls}")

    def _check_miss(self, event: Event, at: int, judged: dict[TaskId, int], stalls: dict[TaskId, bool]) -> None:
        shadow = self._shadow
        task, agent = event.task, event.agent
        if task is None or agent is None:
            return
        lease = shadow.leases.get(task)
        if lease is None or lease.token != event.token:
            self._breaks("a miss belongs to a lease", f"{event}")
            return
        number = judged.get(task, lease.judged) + 1
        while lease.checkin_at is not None and asked_moment(lease, number) <= lease.checkin_at:
            number += 1
        judged[task] = number
        asked = asked_moment(lease, number)
        missed_at = asked + lease.ask_wait
        if asked >= lease.deadline or missed_at > at:
            self._breaks("a deadline is never early", f"{task} {agent}: miss {number} at {at}, due at {missed_at}")
        known = shadow.agents.get(agent)
        before = 0
        if known is not None and not (lease.checkin_at is not None and lease.checkin_at > known.missed_at):
            before = known.misses
        if event.data["checkpoint_count"] != before + 1:
            self._breaks("misses are counted in a row", f"{agent}: {event.data} after {before}")
        threshold = self._task(task).spec.policy.stall_threshold
        shadow.agents[agent] = Agent(agent, before + 1, Millis(missed_at), stalled=before + 1 >= threshold)
        self._chronicle.met("a check-in was missed")
        if before + 1 >= threshold and lease.stalled_at is None:
            stalls.setdefault(task, False)


# The clocks of runs and the limits of attempts, worked out from questions and moments alone.
#
# Which questions a task waits for is seen from who holds what, and for how long they were open from when they were
# asked and closed. So a mistake in how a run's clock stops, goes on, or reaches the leases shows as a difference.

_SETTLED = 120.0
"""Seconds after which nobody can still go by a run's row as it was before."""


class SimClock:
    """One run's clock, as its questions have left it."""

    def __init__(self, deadline: int) -> None:
        self.deadline = deadline
        self.open: dict[str, None] = {}
        self.since = 0
        self.stood = 0
        self.past: list[tuple[float, int | None]] = []
        """Its limit up to now, each with when it was over with it."""
        self.over = False
        self.moved_at = 0

    @property
    def limit(self) -> int | None:
        """When its time is up; None while it stands."""
        return None if self.open else self.deadline + self.stood


class RunClocks:
    """What runs and attempts must come to, by their questions."""

    def __init__(
        self,
        shadow: HistoryModel,
        breaks: Callable[[str, str], None],
        chronicle: HistoryRecorder,
        time: Callable[[], float],
    ) -> None:
        self._shadow = shadow
        self._tables = shadow.tables
        self._breaks = breaks
        self._chronicle = chronicle
        self._time = time
        self._clocks: dict[RunId, SimClock] = {}
        self._own: dict[tuple[TaskId, int], int] = {}
        """The limit that each attempt has of its own."""

    # --- runs ---------------------------------------------------------------------------------------------------------

    def enter(self, changes: RowChanges) -> None:
        """Follow what was asked and closed, and hold the rows of runs to it."""
        touched: dict[RunId, None] = {}
        for run in changes.new_runs:
            if run.deadline is not None:
                self._clocks[run.id] = SimClock(run.deadline)
        for question in changes.new_questions:
            if question.id in self._shadow.questions_waited_for:
                self._open(question, touched)
        for question in (*changes.new_questions, *changes.questions):
            if question.closed_at is not None:
                self._close(question, touched)
        for run in (*changes.new_runs, *changes.runs):
            touched[run.id] = None
            if run.ended_at is not None and run.id in self._clocks:
                self._end(run, self._clocks[run.id])
        for id_ in touched:
            self._check_row(self._tables.runs[id_])
        again = {spread.id for spread in changes.new_spreads}
        for gone in changes.drop_spreads:
            if "~" in gone and gone not in again:
                self._check_leases(RunId(gone.rpartition("~")[0]))

    def settle(self, changes: RowChanges) -> None:
        """The wall was set: what moves with it has as much time left as before."""
        if changes.moved is not None:
            self._move(changes, changes.moved.leases)
        self._shadow.settle(changes)

    def _move(self, changes: RowChanges, leases: Sequence[LeaseRow]) -> None:
        for lease in leases:
            known = self._shadow.leases.get(lease.task)
            if known is not None and (lease.task, lease.token) in self._own:
                self._own[(lease.task, lease.token)] += lease.granted_at - known.granted_at
        for run in changes.runs:
            if run.id in self._clocks and run.deadline is not None:
                clock = self._clocks[run.id]
                clock.past.append((self._time(), clock.limit))
                clock.deadline = run.deadline

    def _open(self, question: Question, touched: dict[RunId, None]) -> None:
        clock = None if question.run is None else self._clocks.get(question.run)
        if clock is None or clock.over or question.run is None:
            return
        touched[question.run] = None
        limit = clock.limit
        if limit is not None:
            clock.past.append((self._time(), limit))
            clock.since = min(question.asked_at, limit)
            clock.moved_at = question.asked_at
        clock.open[question.id] = None

    def _close(self, question: Question, touched: dict[RunId, None]) -> None:
        clock = None if question.run is None else self._clocks.get(question.run)
        if clock is None or clock.over or question.run is None or question.id not in clock.open:
            return
        touched[question.run] = None
        del clock.open[question.id]
        if not clock.open:
            clock.past.append((self._time(), None))
            clock.moved_at = question.closed_at or 0
            clock.stood += clock.moved_at - clock.since
            self._chronicle.met("a question moved the limit of its run")

    def _end(self, run: Run, clock: SimClock) -> None:
        limit = clock.limit
        if run.reason == "run_timeout" and not clock.over and (limit is None or (run.ended_at or 0) < limit):
            self._breaks("no limit takes an answer's place", f"{run} timed out, its limit is {limit}")
        clock.over = True

    def _check_row(self, run: Run) -> None:
        clock = self._clocks.get(run.id)
        if clock is None or run.ended_at is not None:
            return
        if run.limit != clock.limit:
            text = f"{run} has the limit {run.limit}, and its questions make it {clock.limit}"
            self._breaks("a run's clock stands while an answer is waited for", text)
        timer = self._tables.timers.get(run.id)
        if clock.limit is not None and (timer is None or timer > clock.limit):
            self._breaks("an open run has a timer, or a question", f"{run}: its timer is {timer}")

    def _check_leases(self, run: RunId) -> None:
        """All of a run's leases have been told: those that were there before its clock moved have the limit of now."""
        clock = self._clocks.get(run)
        if clock is None or clock.over or self._shadow.jumped:
            return
        for id_ in self._tables.open_by_run.get(run, ()):
            lease = self._tables.leases.get(id_)
            if lease is not None and lease.granted_at < clock.moved_at - _SETTLED * 1_000:
                truth = self.truth(lease)
                if lease.deadline != truth.deadline:
                    text = f"{id_} has the limit {lease.deadline}, and it should be {truth.deadline}"
                    self._breaks("a run's leases move with its clock", text)

    def limit(self, task: Task) -> int | None:
        """When the time of a task's run is up, or its own as a request; None: never, or its clock stands."""
        if task.spec.origin is not None:
            return task.spec.limit_at
        clock = None if task.run is None else self._clocks.get(task.run)
        return None if clock is None else clock.limit

    def _lately(self, task: Task) -> list[int | None]:
        """The limits of a task's run that somebody may still go by: claims read its row without a lock."""
        clock = None if task.run is None else self._clocks.get(task.run)
        if clock is None:
            return [None]
        since = self._time() - _SETTLED
        return [clock.limit, *(limit for until, limit in clock.past if until >= since)]

    # --- attempts -----------------------------------------------------------------------------------------------------

    def grant(self, lease: LeaseRow, task: Task) -> None:
        """A lease has the nearer of its own limit and its run's."""
        length = task.record.timeout_override or task.spec.policy.timeout
        own = lease.granted_at + (NO_LIMIT if length is None else length)
        if task.spec.origin is not None:
            own = task.spec.limit_at or own
        self._own[(lease.task, lease.token)] = own
        allowed = [own if limit is None else min(own, limit) for limit in self._lately(task)]
        if lease.deadline not in allowed:
            self._breaks(
                "the limits are those of task and run", f"{lease.task}: {lease.deadline}, not one of {allowed}"
            )

    def renew(self, known: LeaseRow, lease: LeaseRow, *, jumped: bool) -> None:
        """A hard limit never moves, unless it is that of a run whose clock stands, or the machine slept."""
        key = lease.task, lease.token
        if jumped:
            self._own[key] = max(self._own[key], lease.deadline)
        elif lease.deadline != known.deadline:
            own = self._own[key]
            allowed = [own if limit is None else min(own, limit) for limit in self._lately(self._tables.tasks[key[0]])]
            if lease.deadline not in allowed:
                self._breaks("a hard limit never moves", f"{key}: {lease.deadline}, not one of {allowed}")
            self._chronicle.met("a lease beside a question moved")

    def own(self, lease: LeaseRow) -> int:
        """An attempt's own limit."""
        return self._own.get((lease.task, lease.token), lease.deadline)

    def truth(self, lease: LeaseRow) -> LeaseRow:
        """A lease under the limit that its run has now."""
        limit, own = self.limit(self._tables.tasks[lease.task]), self.own(lease)
        return replace(lease, deadline=Millis(own if limit is None else min(own, limit)))

    def over_at(self, lease: LeaseRow) -> int:
        """When a lease is over: whatever its row says, it lives while its run lets it."""
        return max(over_at(lease), over_at(self.truth(lease)))
