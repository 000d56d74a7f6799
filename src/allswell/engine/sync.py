"""The watch for code that is not async: the same calls, each waiting for its answer.

Generated from `watch.py` and `lease.py`, with their parameters and sentences: change those, and then run
`python -m tests.tidy.sync_watch`. What cannot be generated is in `sync_base.py`.
"""

# ruff: noqa: ANN401, PLR0913 - as the calls have it that these are made of

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Unpack

from msgspec import UNSET

from allswell.domain.agents.cost import Expense
from allswell.domain.agents.denied import Denied
from allswell.domain.duration import Duration
from allswell.domain.ids import Millis, QuestionId, RunId, TaskId
from allswell.domain.lease.holder import Orders
from allswell.domain.lease.model import Agent
from allswell.domain.lease.verification import AfterCheck
from allswell.domain.mesh.request import InboxItem
from allswell.domain.question import Option, Question
from allswell.domain.rules.command import NewTask
from allswell.domain.rules.event import Event
from allswell.domain.run.run import Run
from allswell.domain.service.breaker import BreakerPolicy, CallOutcome, Permit
from allswell.domain.service.calls import ServiceReply
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.model import Attempt, Policy, RequestAnswer, TaskFilter, TaskRow
from allswell.engine.mesh import Requested, RequestOptions
from allswell.engine.submission import Submitted
from allswell.engine.sync_base import AttemptHandle, LeaseFields, OwnThread, unwrap
from allswell.engine.watch import to_nobody
from allswell.errors import AllswellError


class SyncHeld(AttemptHandle):
    """One attempt at one task, held by an agent."""

    def checkin(self, note: str = "", *, progress: float | None = None) -> Orders:
        """Prove progress; the answer says how much time is left and whether a check-in is owed."""
        return self._wait_for(self._held.checkin(note, progress=progress))

    def renew(self) -> Orders:
        """Prove life, not progress."""
        return self._wait_for(self._held.renew())

    def suspend(self, by: str, *, ago: int = 0) -> None:
        """A person has stopped the command, with this signal, so many milliseconds ago: its limit stands."""
        self._wait_for(self._held.suspend(by, ago=ago))

    def go_on(self) -> Orders:
        """The command goes on, if it was stopped; its limit is later by the time that it stood."""
        return self._wait_for(self._held.go_on())

    def note_refusal(self, words: str) -> None:
        """The provider refuses the command's client, which tries again by itself; nothing: it goes on."""
        self._wait_for(self._held.note_refusal(words))

    def note_repeats(
        self, words: str, *, asks: bool = False, question: QuestionId | None = None, command: str | None = None
    ) -> QuestionId | None:
        """The agent does the same again and again; nothing: it does so no more, and the `question` is taken back.

        With `asks` a human is asked about it, and the answer is the question; the attempt goes on meanwhile.
        """
        return self._wait_for(self._held.note_repeats(words, asks=asks, question=question, command=command))

    def complete(self, result: object = None, *, command: str | None = None, warning: str = "") -> None:
        """The task is done; `warning` is what a human should know of the attempt all the same."""
        self._wait_for(self._held.complete(result, command=command, warning=warning))

    def verified(
        self,
        *,
        passed: bool,
        why: str,
        said: str = "",
        elapsed: int = 0,
        by: str = "",
        result: object = UNSET,
        hold: bool = False,
        warning: str = "",
    ) -> AfterCheck:
        """Report the verdict of this attempt's verification; the answer says what follows from it.

        `why` is its exit code in words, `said` the end of what it printed, `elapsed` in ms. Without `result`, what the
        holder brought when it said that it was done stands. With `hold` the holder keeps a task that it has to mend.
        """
        return self._wait_for(
            self._held.verified(
                passed=passed, why=why, said=said, elapsed=elapsed, by=by, result=result, hold=hold, warning=warning
            )
        )

    def fail(
        self,
        error: BaseException | str | Failure,
        *,
        error_class: ErrorClass | str | None = None,
        retry_after: Duration | None = None,
        services: Sequence[str] = (),
        command: str | None = None,
    ) -> None:
        """This attempt failed; the error's class decides what follows."""
        self._wait_for(
            self._held.fail(error, error_class=error_class, retry_after=retry_after, services=services, command=command)
        )

    def release(
        self, reason: str = "released", *, delay: Duration = 0, command: str | None = None, awaits: str | None = None
    ) -> None:
        """Give the task back: neither a failure nor a timeout. With `awaits` it waits for that task's end."""
        self._wait_for(self._held.release(reason, delay=delay, command=command, awaits=awaits))

    def recover(self) -> None:
        """The agent was marked as stalled and has been ended for real: take its task back (O8)."""
        self._wait_for(self._held.recover())

    def end_idle(self, idle: int | None = None, said: str = "", repeats: str = "") -> None:
        """This attempt was ended without progress for `idle`: its task is ready again, and the end is counted (O4).

        `said` is what it printed last, for the human who is asked about it; `repeats` what it did again.
        """
        self._wait_for(self._held.end_idle(idle, said, repeats))

    def spend(self, expense: Expense) -> bool:
        """What this attempt has cost so far, also after its end; whether its task has reached what it may."""
        return self._wait_for(self._held.spend(expense))

    def end_costly(self) -> None:
        """The task has cost what it may, and this attempt was ended for it: a human is asked."""
        self._wait_for(self._held.end_costly())

    def keep(self, receipt: str, status: str, path: str = "") -> None:
        """Have the journal know of a receipt; also after the lease has ended."""
        self._wait_for(self._held.keep(receipt, status, path))

    def ask(
        self,
        text: str,
        options: Sequence[Option] = (),
        *,
        hold: bool = False,
        command: str | None = None,
        denied: Denied | None = None,
        result: object = UNSET,
    ) -> QuestionId:
        """Ask a human; unless `hold`, this attempt ends and the task waits for the answer.

        `denied` are calls that the agent's program refused: the human may allow one of them for the next attempt.
        `result` is what the attempt brought: the human may accept that instead of an answer.
        """
        return self._wait_for(self._held.ask(text, options, hold=hold, command=command, denied=denied, result=result))

    def delegate(
        self, role: str, name: str, *, payload: object = None, timeout: Duration | None = None, key: str | None = None
    ) -> TaskId:
        """Hand a focused request to an expert of this role, and keep working; the request is a task of its own.

        It is tried once, and has `delegation_timeout` if nothing else is said, but at most what this attempt has left.
        Under the same `key` a task delegates it once.
        """
        return self._wait_for(self._held.delegate(role, name, payload=payload, timeout=timeout, key=key))

    def request(
        self,
        to: str,
        kind: str,
        summary: str,
        *,
        roles: Sequence[str] | None = None,
        lease: Duration | None = None,
        **wishes: Unpack[RequestOptions],
    ) -> Requested:
        """Ask another agent, any agent of a role (`role:NAME`), or an address, and wait for the answer.

        If no answer comes, this attempt is over and its task waits for the request. `next` is then another task, of
        `roles` (by default this task's role), claimed with `lease`.
        """
        handed: Requested = self._handed(
            self._wait_for(self._held.request(to, kind, summary, roles=roles, lease=lease, **wishes))
        )
        return handed

    def kind_for(self, to: str) -> str:
        """What is meant by a request of which only whom it is for was said: an agent that is known is asked itself."""
        return self._wait_for(self._held.kind_for(to))

    def send_request(
        self, to: str, kind: str, summary: str, *, waits: int = 0, **wishes: Unpack[RequestOptions]
    ) -> TaskId:
        """Ask, and go on. `waits` is how long, in ms, the caller may take to come back when no answer has come."""
        return self._wait_for(self._held.send_request(to, kind, summary, waits=waits, **wishes))

    def wait_for(
        self,
        request: str,
        *,
        roles: Sequence[str] | None = None,
        lease: Duration | None = None,
        claims: bool = True,
        wait: Duration | None = None,
    ) -> Requested:
        """Wait for a request that this attempt has asked; without `claims` nothing else is claimed if it blocks.

        With `wait` the call waits that long at most; a request without an answer is then `open`.
        """
        handed: Requested = self._handed(
            self._wait_for(self._held.wait_for(request, roles=roles, lease=lease, claims=claims, wait=wait))
        )
        return handed

    def is_exhausted(self, request: str) -> bool | None:
        """Whether a request has no answer and is about to block the task; None: it has ended, or has blocked it."""
        return self._wait_for(self._held.is_exhausted(request))

    def inbox(self, *, roles: Sequence[str] = (), mesh: bool = False) -> list[InboxItem]:
        """The requests for the holder of this attempt, which has these roles; with `mesh` those for others."""
        return self._wait_for(self._held.inbox(roles=roles, mesh=mesh))

    def respond(self, request: str, answer: object = None, *, roles: Sequence[str] = ()) -> None:
        """Answer a request as the holder of this attempt."""
        self._wait_for(self._held.respond(request, answer, roles=roles))

    def decline(self, request: str, reason: str = "", *, roles: Sequence[str] = ()) -> None:
        """Decline a request that is addressed to the holder of this attempt."""
        self._wait_for(self._held.decline(request, reason, roles=roles))

    def requested(self, request: TaskId) -> tuple[str, str | None]:
        """How a request of this task's stands: `open`, `blocked` or its end, and its result or the reason, as JSON."""
        return self._wait_for(self._held.requested(request))

    def answered(self) -> list[RequestAnswer]:
        """What other agents have answered during this attempt that it did not wait for."""
        return self._wait_for(self._held.answered())

    def question(self, question: QuestionId) -> Question | None:
        """A question as it stands: what became of one that was asked while the task was kept."""
        return self._wait_for(self._held.question(question))

    def past(self) -> Attempt | None:
        """How the store has ended this attempt; None while it has not."""
        return self._wait_for(self._held.past())


class SyncLease(LeaseFields, SyncHeld):
    """The right to one attempt at one task, for code that is not async."""


class SyncWatch(OwnThread):
    """An open watch, for code that is not async."""

    def now(self) -> Millis:
        """The store's clock, in milliseconds since the epoch."""
        return self.wait_for(self._open.now())

    def task(self, task: str) -> TaskRow | None:
        """One task as it stands."""
        return self.wait_for(self._open.task(task))

    def payload(self, task: str) -> Any:
        """What was submitted with a task; None for what is no task."""
        return self.wait_for(self._open.payload(task))

    def result(self, task: str) -> Any:
        """The result of a task that is done; what its holder reports counts only once it is verified."""
        return self.wait_for(self._open.result(task))

    def tasks(self, which: TaskFilter | None = None) -> list[TaskRow]:
        """Tasks by id, a page at a time."""
        return self.wait_for(self._open.tasks(which))

    def attempts(self, task: str) -> list[Attempt]:
        """How each attempt at a task ended."""
        return self.wait_for(self._open.attempts(task))

    def counts(self) -> dict[str, int]:
        """How many tasks stand where."""
        return self.wait_for(self._open.counts())

    def question(self, question: str) -> Question | None:
        """One question as it stands."""
        return self.wait_for(self._open.question(question))

    def questions(self, *, open_only: bool = True) -> list[Question]:
        """What waits for a human, the oldest first."""
        return self.wait_for(self._open.questions(open_only=open_only))

    def run(self, run: str) -> Run | None:
        """One run as it stands."""
        return self.wait_for(self._open.run(run))

    def runs(self) -> list[Run]:
        """Runs, the newest first."""
        return self.wait_for(self._open.runs())

    def agents(self) -> list[Agent]:
        """Agents that have missed check-ins."""
        return self.wait_for(self._open.agents())

    def services(self) -> list[ServiceRow]:
        """Services that something is, or was, held against."""
        return self.wait_for(self._open.services())

    def unaccounted(self) -> list[TaskId]:
        """Open tasks that nothing will ever move again. There are none: that is the promise, and this checks it."""
        return self.wait_for(self._open.unaccounted())

    def admit(self, service: str, policy: BreakerPolicy) -> ServiceReply:
        """May this service be called now? The first caller that finds its breaker half-open makes the probe."""
        return self.wait_for(self._open.admit(service, policy))

    def report(self, permit: Permit, outcome: CallOutcome, policy: BreakerPolicy) -> ServiceReply:
        """What came of a call that was let through."""
        return self.wait_for(self._open.report(permit, outcome, policy))

    def park(self, service: str, delay: int) -> ServiceReply:
        """No call to this service for so many milliseconds."""
        return self.wait_for(self._open.park(service, delay))

    def ask_for_help(
        self, service: str, cause: ErrorClass, reason: str, message: str = "", *, holds: bool = False
    ) -> None:
        """Calls to a service are given up for something that only a human can mend: ask, once per cause.

        With `holds` it is an account of agents, and they get nothing to do before the answer.
        """
        self.wait_for(self._open.ask_for_help(service, cause, reason, message, holds=holds))

    def held(self, task: str, token: int, agent: str) -> SyncHeld:
        """A handle on an attempt that is held. The store is not asked before the first call on it."""
        handed: SyncHeld = self._handed(self._open.held(task, token, agent))
        return handed

    def request(
        self,
        to: str,
        kind: str,
        summary: str,
        *,
        held: SyncHeld,
        roles: Sequence[str] | None = None,
        lease: Duration | None = None,
        **wishes: Unpack[RequestOptions],
    ) -> Requested:
        """Ask another agent on behalf of an attempt's holder, and wait for the answer: as `SyncLease.request`."""
        handed: Requested = self._handed(
            self.wait_for(self._open.request(to, kind, summary, held=unwrap(held), roles=roles, lease=lease, **wishes))
        )
        return handed

    def inbox(
        self, agent: str, *, roles: Sequence[str] = (), wait: Duration = 0, mesh: bool = False
    ) -> list[InboxItem]:
        """The requests that are addressed to this agent, which has these roles; `wait` is as of `claim`.

        With `mesh` also those addressed to others for which all agents were asked for help. A delivery that was listed
        before is not `new`, and ends no wait.
        """
        return self.wait_for(self._open.inbox(agent, roles=roles, wait=wait, mesh=mesh))

    def inboxes(self, agents: Mapping[str, Sequence[str]], *, payloads: bool = True) -> dict[str, list[InboxItem]]:
        """What each of these agents, with its roles, can answer: one look for all of them.

        Without `payloads` these are not read, and None.
        """
        return self.wait_for(self._open.inboxes(agents, payloads=payloads))

    def respond(
        self, request: str, answer: object = None, *, agent: str, roles: Sequence[str] = (), command: str | None = None
    ) -> None:
        """Answer a request, as this agent; the first answer counts, and a late one too."""
        self.wait_for(self._open.respond(request, answer, agent=agent, roles=roles, command=command))

    def decline(
        self, request: str, reason: str = "", *, agent: str, roles: Sequence[str] = (), command: str | None = None
    ) -> None:
        """Decline a request that is addressed to this agent; the agent that asked learns of it at once."""
        self.wait_for(self._open.decline(request, reason, agent=agent, roles=roles, command=command))

    def claim(
        self,
        *,
        agent: str,
        roles: Sequence[str] | None = None,
        wait: Duration = 0,
        lease: Duration | None = None,
        command: str | None = None,
        task: str | None = None,
    ) -> SyncLease | None:
        """Take one task; None if none becomes ready within `wait`.

        With `task` it is that one or none.
        """
        handed: SyncLease | None = self._handed(
            self.wait_for(
                self._open.claim(agent=agent, roles=roles, wait=wait, lease=lease, command=command, task=task)
            )
        )
        return handed

    def claim_many(
        self,
        count: int,
        *,
        agent: str,
        roles: Sequence[str] | None = None,
        wait: Duration = 0,
        lease: Duration | None = None,
        command: str | None = None,
        task: str | None = None,
    ) -> list[SyncLease]:
        """Take up to `count` tasks. With `lease`, they are renewed for as long as this watch is open, or else lapse."""
        handed: list[SyncLease] = self._handed(
            self.wait_for(
                self._open.claim_many(
                    count, agent=agent, roles=roles, wait=wait, lease=lease, command=command, task=task
                )
            )
        )
        return handed

    def claim_each(
        self, tasks: Sequence[TaskId], *, agent: str, lease: int | None = None
    ) -> list[SyncLease | AllswellError | None]:
        """Take these tasks, each if it can be had; a lease, None, or what is wrong, for each."""
        handed: list[SyncLease | AllswellError | None] = self._handed(
            self.wait_for(self._open.claim_each(tasks, agent=agent, lease=lease))
        )
        return handed

    def checkin_many(self, leases: Sequence[SyncLease]) -> list[Orders | AllswellError]:
        """Prove progress on many leases at once; orders, or what went wrong, for each."""
        return self.wait_for(self._open.checkin_many(unwrap(leases)))

    def renew_many(self, leases: Sequence[SyncLease]) -> list[Orders | AllswellError]:
        """Renew many leases at once, without proof of progress; orders, or what went wrong, for each."""
        return self.wait_for(self._open.renew_many(unwrap(leases)))

    def complete_many(self, done: Sequence[tuple[SyncLease, object]]) -> list[AllswellError | None]:
        """Complete many tasks at once, each with its result; what went wrong, or None, for each."""
        return self.wait_for(self._open.complete_many(unwrap(done)))

    def retry(
        self,
        task: str,
        *,
        dependents: bool = False,
        again: bool = False,
        run: str | None = None,
        by: str = "",
        command: str | None = None,
    ) -> dict[TaskId, TaskId]:
        """Hand an ended task over again as a new one, which carries its history; the new ids by the old ones.

        With `dependents`, those that were skipped because of it, too; one that is done only with `again`. The new ones
        are in the run of the old ones, which must be open, or in `run`. Under the same `command` it is done once, and
        answered with the same ids.
        """
        return self.wait_for(
            self._open.retry(task, dependents=dependents, again=again, run=run, by=by, command=command)
        )

    def dismiss(self, what: str, by: str, *, command: str | None = None) -> None:
        """Mark a question (it stays open) or the end of a task as seen: it is no longer listed as needing a human."""
        self.wait_for(self._open.dismiss(what, by, command=command))

    def unpark(self, service: str, by: str, *, command: str | None = None) -> None:
        """Have a service called again that asked to wait, or that failed: a human knows that it works."""
        self.wait_for(self._open.unpark(service, by, command=command))

    def submit(
        self,
        name: str,
        *,
        payload: object = None,
        role: str = "",
        services: Iterable[str] = (),
        priority: int = 0,
        needs: Iterable[str] = (),
        barred: Iterable[str] = (),
        run: str | None = None,
        not_before: int | None = None,
        critical: bool = False,
        if_need_fails: Literal["skip", "run"] = "skip",
        policy: Policy | None = None,
        timeout: Duration | None = None,
        idle: Duration | None = None,
        retries: int | None = None,
        max_cost_usd: float | None = None,
        max_tokens: int | None = None,
        verify: str | Sequence[str] | None = None,
        key: str | None = None,
    ) -> TaskId:
        """Hand a task to the watch; when this returns, it is durable. Under the same `key` it is made once.

        What it needs is named by id, or by name where only one task has it.
        """
        return self.wait_for(
            self._open.submit(
                name,
                payload=payload,
                role=role,
                services=services,
                priority=priority,
                needs=needs,
                barred=barred,
                run=run,
                not_before=not_before,
                critical=critical,
                if_need_fails=if_need_fails,
                policy=policy,
                timeout=timeout,
                idle=idle,
                retries=retries,
                max_cost_usd=max_cost_usd,
                max_tokens=max_tokens,
                verify=verify,
                key=key,
            )
        )

    def submit_many(self, tasks: Iterable[Mapping[str, Any]]) -> list[TaskId]:
        """Hand over many tasks at once, all or none."""
        return self.wait_for(self._open.submit_many(tasks))

    def submit_all(
        self,
        tasks: Iterable[Mapping[str, Any]],
        *,
        run_timeout: Duration | None = None,
        run_cost: float | None = None,
        told: Callable[[Sequence[TaskId]], None] = to_nobody,
        progress: Callable[[int, int | None], None] = to_nobody,
    ) -> Submitted:
        """Hand over any number of tasks in parcels; all are looked at before the first is handed over.

        `tasks` is gone through more than once, and where it can be, no more than a parcel is held at a time; a parcel
        is accepted whole or not at all. A task's `run` may be a name here: the run that is open under it is joined, or
        a new one opened, with `run_timeout` and `run_cost` (USD). `told` hears the ids, in the order of the tasks;
        `progress` how many were looked at, and then how many of how many were submitted.
        """
        return self.wait_for(
            self._open.submit_all(tasks, run_timeout=run_timeout, run_cost=run_cost, told=told, progress=progress)
        )

    def prepare(self, tasks: Iterable[Mapping[str, Any]]) -> tuple[NewTask, ...]:
        """Tasks from plain mappings, with ids, for `submit_prepared`; nothing is handed over yet."""
        return self.wait_for(self._open.prepare(tasks))

    def submit_prepared(self, tasks: Sequence[NewTask]) -> None:
        """Hand over tasks that have their ids already, all or none; those that are there already stay as they are."""
        self.wait_for(self._open.submit_prepared(tasks))

    def cancel(self, task: str, reason: str = "cancelled", *, command: str | None = None) -> None:
        """Cancel a task, held or not."""
        self.wait_for(self._open.cancel(task, reason, command=command))

    def open_run(
        self,
        name: str,
        *,
        timeout: Duration | None = None,
        key: str | None = None,
        run: str | None = None,
        after: str | None = None,
        max_cost_usd: float | None = None,
    ) -> RunId:
        """Open a run; nothing in it outlives its timeout. Under the same `key` or `run` it is opened once.

        It goes on with the work of a run that has ended, if `after` names one.
        """
        return self.wait_for(
            self._open.open_run(name, timeout=timeout, key=key, run=run, after=after, max_cost_usd=max_cost_usd)
        )

    def end_run(self, run: str, reason: str = "ended", *, command: str | None = None) -> None:
        """End a run and everything in it that is still open."""
        self.wait_for(self._open.end_run(run, reason, command=command))

    def answer(
        self,
        question: str,
        option: str,
        text: str = "",
        *,
        subtasks: Iterable[Mapping[str, Any]] = (),
        timeout: Duration | None = None,
        by: str = "",
        command: str | None = None,
        max_cost_usd: float | None = None,
        max_tokens: int | None = None,
    ) -> None:
        """Decide a question; the option acts."""
        self.wait_for(
            self._open.answer(
                question,
                option,
                text,
                subtasks=subtasks,
                timeout=timeout,
                by=by,
                command=command,
                max_cost_usd=max_cost_usd,
                max_tokens=max_tokens,
            )
        )

    def notice(self, event: Event) -> None:
        """Write into the journal what was seen or done; it changes nothing else."""
        self.wait_for(self._open.notice(event))

    def recall(self, key: str) -> str | None:
        """What the watch keeps about itself under a key."""
        return self.wait_for(self._open.recall(key))

    def swap(self, key: str, before: str | None, after: str) -> bool:
        """Keep something in the place of what was kept under a key; False if that is not there any more."""
        return self.wait_for(self._open.swap(key, before, after))

    def sweep_once(self) -> bool:
        """Do now what is due: lapsed leases, reached limits, consequences. Whether nothing is left to do."""
        return self.wait_for(self._open.sweep_once())


__all__ = ["SyncHeld", "SyncLease", "SyncWatch"]
