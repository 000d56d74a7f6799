"""What bad endings must lead to: a retry within the policy, a question at the third time, a stall at the third miss.

The counts are kept a second time here, from the events in their order, and compared with what was decided.
"""

from __future__ import annotations

from collections.abc import Callable

from allswell.domain.checkin import Agent
from allswell.domain.command import Fail
from allswell.domain.event import Event
from allswell.domain.names import Millis, TaskId
from allswell.domain.retry import RULES
from allswell.domain.task import Attempt, Task
from allswell.store.port import Changes
from allswell.testing.sim.report import Chronicle
from allswell.testing.sim.shadow import Shadow, asked_moment

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
        shadow: Shadow,
        breaks: Callable[[str, str], None],
        chronicle: Chronicle,
        time: Callable[[], float],
        limit: Callable[[Task], int | None],
    ) -> None:
        self._shadow = shadow
        self._limit = limit
        self._breaks = breaks
        self._chronicle = chronicle
        self._time = time

    def enter(self, changes: Changes) -> None:
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

    def _check_failure(self, attempt: Attempt, changes: Changes, *, exact: bool) -> None:
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

    def _check_misses(self, changes: Changes) -> None:
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
