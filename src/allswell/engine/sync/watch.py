"""The working half of a watch, for code that is not async: submit, claim, answer, speak for others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

from allswell.domain.breaker import BreakerPolicy, Outcome, Permit
from allswell.domain.command import NewTask
from allswell.domain.duration import Duration
from allswell.domain.event import Event
from allswell.domain.hold import Orders
from allswell.domain.inbox import InboxItem
from allswell.domain.names import RunId, TaskId
from allswell.domain.policy import Policy
from allswell.domain.retry import ErrorClass
from allswell.domain.serving import Told
from allswell.engine.handle import Lease
from allswell.engine.mesh import Requested, Wishes
from allswell.engine.sync.held import SyncHeld, SyncLease
from allswell.engine.sync.looking import SyncLooking
from allswell.engine.watch import to_nobody
from allswell.errors import AllswellError

if TYPE_CHECKING:
    from allswell.engine.bulk import Submitted


class SyncWatch(SyncLooking):
    """An open watch, for code that is not async."""

    # --- work -------------------------------------------------------------------------------------------------------

    def submit(  # noqa: PLR0913 - all keywords, each a field of the task
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
        verify: str | Sequence[str] | None = None,
        key: str | None = None,
    ) -> TaskId:
        """Hand a task to the watch; when this returns, it is durable. Under the same `key` it is made once.

        What it needs is named by id, or by name where only one task has it.
        """
        submitting = self._open.submit(
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
            verify=verify,
            key=key,
        )
        return self.wait_for(submitting)

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

        As `Watch.submit_all`; `told` and `progress` are called in the watch's own thread.
        """
        submitting = self._open.submit_all(
            tasks, run_timeout=run_timeout, run_cost=run_cost, told=told, progress=progress
        )
        return self.wait_for(submitting)

    def prepare(self, tasks: Iterable[Mapping[str, Any]]) -> tuple[NewTask, ...]:
        """Tasks from plain mappings, with ids, for `submit_prepared`; nothing is handed over yet."""
        return self.wait_for(self._open.prepare(tasks))

    def submit_prepared(self, tasks: Sequence[NewTask]) -> None:
        """Hand over tasks that have their ids already, all or none; those that are there already stay as they are."""
        self.wait_for(self._open.submit_prepared(tasks))

    def policy_for(self, role: str) -> Policy:
        """The policy of a role's tasks that set nothing by themselves."""
        return self._open.policy_for(role)

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
        """Take one task, or None if there is none within `wait`.

        With `task` it is that one or none.
        """
        got = self.claim_many(1, agent=agent, roles=roles, wait=wait, lease=lease, command=command, task=task)
        return got[0] if got else None

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
        claiming = self._open.claim_many(
            count, agent=agent, roles=roles, wait=wait, lease=lease, command=command, task=task
        )
        return [SyncLease(self, got) for got in self.wait_for(claiming)]

    def claim_each(
        self, tasks: Sequence[TaskId], *, agent: str, lease: int | None = None
    ) -> list[SyncLease | AllswellError | None]:
        """Take these tasks, each if it can be had; a lease, None, or what is wrong, for each."""
        got = self.wait_for(self._open.claim_each(tasks, agent=agent, lease=lease))
        return [SyncLease(self, one) if isinstance(one, Lease) else one for one in got]

    def checkin_many(self, leases: Sequence[SyncLease]) -> list[Orders | AllswellError]:
        """Prove progress on many leases at once; orders, or what went wrong, for each."""
        return self.wait_for(self._open.checkin_many([lease.inner for lease in leases]))

    def renew_many(self, leases: Sequence[SyncLease]) -> list[Orders | AllswellError]:
        """Renew many leases at once, without proof of progress; orders, or what went wrong, for each."""
        return self.wait_for(self._open.renew_many([lease.inner for lease in leases]))

    def complete_many(self, done: Sequence[tuple[SyncLease, object]]) -> list[AllswellError | None]:
        """Complete many tasks at once, each with its result; what went wrong, or None, for each."""
        return self.wait_for(self._open.complete_many([(lease.inner, result) for lease, result in done]))

    def cancel(self, task: str, reason: str = "cancelled", *, command: str | None = None) -> None:
        """Call a task off, whoever holds it."""
        self.wait_for(self._open.cancel(task, reason, command=command))

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
        """Hand an ended task over again as a new one, which carries its history; the new ids by the old ones."""
        return self.wait_for(
            self._open.retry(task, dependents=dependents, again=again, run=run, by=by, command=command)
        )

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
        """Open a run; nothing in it outlives its timeout. Under the same `key` or `run` it is opened once."""
        return self.wait_for(
            self._open.open_run(name, timeout=timeout, key=key, run=run, after=after, max_cost_usd=max_cost_usd)
        )

    def end_run(self, run: str, reason: str = "ended", *, command: str | None = None) -> None:
        """End a run and everything in it that is still open."""
        self.wait_for(self._open.end_run(run, reason, command=command))

    def answer(  # noqa: PLR0913 - all but three are keywords
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
    ) -> None:
        """Decide a question; the option acts."""
        said = option, text
        answering = self._open.answer(
            question, *said, subtasks=subtasks, timeout=timeout, by=by, command=command, max_cost_usd=max_cost_usd
        )
        self.wait_for(answering)

    def dismiss(self, what: str, by: str, *, command: str | None = None) -> None:
        """Note that somebody has seen a question, which stays open, or how a task ended: it needs nobody any more."""
        self.wait_for(self._open.dismiss(what, by, command=command))

    # --- for those who speak for others -------------------------------------------------------------------------------

    def held(self, task: str, token: int, agent: str) -> SyncHeld:
        """An attempt that somebody holds, to speak for it: nothing is asked before something is said."""
        return SyncHeld(self, self._open.held(task, token, agent))

    def request(
        self,
        to: str,
        kind: str,
        summary: str,
        *,
        held: SyncHeld,
        roles: Sequence[str] | None = None,
        lease: Duration | None = None,
        **wishes: Unpack[Wishes],
    ) -> Requested:
        """Ask another agent for whoever holds an attempt, and wait for the answer: as `SyncLease.request`."""
        return held.request(to, kind, summary, roles=roles, lease=lease, **wishes)

    def inbox(self, agent: str, *, roles: Sequence[str] = (), wait: Duration = 0) -> list[InboxItem]:
        """The requests that this agent, which has these roles, can answer; `wait` is as of `claim`."""
        return self.wait_for(self._open.inbox(agent, roles=roles, wait=wait))

    def inboxes(self, agents: Mapping[str, Sequence[str]]) -> dict[str, list[InboxItem]]:
        """What each of these agents, with its roles, can answer: one look for all of them."""
        return self.wait_for(self._open.inboxes(agents))

    def respond(
        self, request: str, answer: object = None, *, agent: str, roles: Sequence[str] = (), command: str | None = None
    ) -> None:
        """Answer a request, as this agent; the first answer counts, and a late one too."""
        self.wait_for(self._open.respond(request, answer, agent=agent, roles=roles, command=command))

    def new_run(self) -> RunId:
        """An id for a run that is to be opened later, by `open_run(…, run=…)`."""

        async def new() -> RunId:
            return self._open.new_run()

        return self.wait_for(new())

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

    # --- for guards: the breakers of services -------------------------------------------------------------------------

    def admit(self, service: str, policy: BreakerPolicy) -> Told:
        """May this service be called now? Whoever finds its breaker half-open is the probe."""
        return self.wait_for(self._open.admit(service, policy))

    def report(self, permit: Permit, outcome: Outcome, policy: BreakerPolicy) -> Told:
        """What came of a call that was let through."""
        return self.wait_for(self._open.report(permit, outcome, policy))

    def park(self, service: str, delay: int) -> Told:
        """Nobody calls this service for so many milliseconds."""
        return self.wait_for(self._open.park(service, delay))

    def ask_for_help(self, service: str, cause: ErrorClass, reason: str, message: str = "") -> None:
        """Calls to a service are given up for something that only a human can mend: ask, once per cause."""
        self.wait_for(self._open.ask_for_help(service, cause, reason, message))
