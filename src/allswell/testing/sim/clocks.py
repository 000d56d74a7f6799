"""The clocks of runs and the limits of attempts, worked out from questions and moments alone.

Which questions a task waits for is seen from who holds what, and for how long they were open from when they were asked
and closed. So a mistake in how a run's clock stops, goes on, or reaches the leases shows as a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from allswell.domain.lease import Lease
from allswell.domain.names import Millis, RunId, TaskId
from allswell.domain.question import Question
from allswell.domain.run import Run
from allswell.domain.task import Task
from allswell.store.port import Changes
from allswell.testing.sim.report import Chronicle
from allswell.testing.sim.shadow import Shadow, over_at

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
        self, shadow: Shadow, breaks: Callable[[str, str], None], chronicle: Chronicle, time: Callable[[], float]
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

    def enter(self, changes: Changes) -> None:
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

    def settle(self, changes: Changes) -> None:
        """The wall was set: what moves with it has as much time left as before."""
        if changes.moved is not None:
            self._move(changes, changes.moved.leases)
        self._shadow.settle(changes)

    def _move(self, changes: Changes, leases: Sequence[Lease]) -> None:
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

    def grant(self, lease: Lease, task: Task) -> None:
        """A lease has the nearer of its own limit and its run's."""
        own = lease.granted_at + (task.record.timeout_override or task.spec.policy.timeout)
        if task.spec.origin is not None:
            own = task.spec.limit_at or own
        self._own[(lease.task, lease.token)] = own
        allowed = [own if limit is None else min(own, limit) for limit in self._lately(task)]
        if lease.deadline not in allowed:
            self._breaks(
                "the limits are those of task and run", f"{lease.task}: {lease.deadline}, not one of {allowed}"
            )

    def renew(self, known: Lease, lease: Lease, *, jumped: bool) -> None:
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

    def own(self, lease: Lease) -> int:
        """An attempt's own limit."""
        return self._own.get((lease.task, lease.token), lease.deadline)

    def truth(self, lease: Lease) -> Lease:
        """A lease under the limit that its run has now."""
        limit, own = self.limit(self._tables.tasks[lease.task]), self.own(lease)
        return replace(lease, deadline=Millis(own if limit is None else min(own, limit)))

    def over_at(self, lease: Lease) -> int:
        """When a lease is over: whatever its row says, it lives while its run lets it."""
        return max(over_at(lease), over_at(self.truth(lease)))
