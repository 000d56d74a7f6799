"""What is held, for code that is not async: an attempt known by its task, token and agent, and a lease of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, Unpack

from msgspec import UNSET
from msgspec.structs import replace

from allswell.domain.duration import Duration
from allswell.domain.expense import Expense
from allswell.domain.hold import Orders
from allswell.domain.inbox import InboxItem
from allswell.domain.names import QuestionId, RunId, TaskId
from allswell.domain.question import Option, Question
from allswell.domain.retry import ErrorClass, Failure
from allswell.domain.task import Attempt, Handover
from allswell.domain.verification import AfterCheck
from allswell.engine.handle import Lease
from allswell.engine.held import Held
from allswell.engine.mesh import Requested, Wishes
from allswell.engine.sync.thread import OwnThread

T = TypeVar("T")


class SyncHeld:
    """One attempt at one task, held by somebody."""

    def __init__(self, watch: OwnThread, held: Held) -> None:
        self._watch = watch
        self._wait_for = watch.wait_for
        self._held = held
        self.task = held.task
        self.token = held.token
        self.agent = held.agent

    def checkin(self, note: str = "", *, progress: float | None = None) -> Orders:
        """Prove progress; the answer says how much time is left and whether a check-in is owed."""
        return self._wait_for(self._held.checkin(note, progress=progress))

    def renew(self) -> Orders:
        """Prove life, not progress."""
        return self._wait_for(self._held.renew())

    def complete(self, result: object = None, *, command: str | None = None) -> None:
        """The task is done."""
        self._wait_for(self._held.complete(result, command=command))

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
        said = self._held.fail(
            error, error_class=error_class, retry_after=retry_after, services=services, command=command
        )
        self._wait_for(said)

    def release(self, reason: str = "released", *, delay: Duration = 0, command: str | None = None) -> None:
        """Give the task back: neither a failure nor a timeout."""
        self._wait_for(self._held.release(reason, delay=delay, command=command))

    def recover(self) -> None:
        """The agent was marked as stalled and has been ended for real: take its task back."""
        self._wait_for(self._held.recover())

    def end_idle(self, idle: int | None = None, said: str = "") -> None:
        """This attempt showed no progress for so long and has been ended: back to the pool, and counted."""
        self._wait_for(self._held.end_idle(idle, said))

    def spend(self, expense: Expense) -> bool:
        """What this attempt has cost so far; whether its task has reached what it may."""
        return self._wait_for(self._held.spend(expense))

    def end_costly(self) -> None:
        """The task has cost what it may, and this attempt was ended for it: a human is asked."""
        self._wait_for(self._held.end_costly())

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
    ) -> AfterCheck:
        """What the verification of this attempt's work came to, by whoever supervises it; what follows from that."""
        return self._wait_for(
            self._held.verified(passed=passed, why=why, said=said, elapsed=elapsed, by=by, result=result, hold=hold)
        )

    def keep(self, receipt: str, status: str, path: str = "") -> None:
        """Have the journal know of a receipt; also after the lease has ended."""
        self._wait_for(self._held.keep(receipt, status, path))

    def ask(
        self, text: str, options: Sequence[Option] = (), *, hold: bool = False, command: str | None = None
    ) -> QuestionId:
        """Ask a human; unless `hold`, this attempt ends and the task waits for the answer."""
        return self._wait_for(self._held.ask(text, options, hold=hold, command=command))

    def delegate(
        self, role: str, name: str, *, payload: object = None, timeout: Duration | None = None, key: str | None = None
    ) -> TaskId:
        """Hand a focused request to an expert of this role, and keep working; the request is a task of its own."""
        return self._wait_for(self._held.delegate(role, name, payload=payload, timeout=timeout, key=key))

    def request(
        self,
        to: str,
        kind: str,
        summary: str,
        *,
        roles: Sequence[str] | None = None,
        lease: Duration | None = None,
        **wishes: Unpack[Wishes],
    ) -> Requested:
        """Ask another agent, whoever has a role (`role:NAME`), or an address, and wait for the answer."""
        asking = self._held.request(to, kind, summary, roles=roles, lease=lease, **wishes)
        return self._with_next(self._wait_for(asking))

    def send_request(self, to: str, kind: str, summary: str, *, waits: int = 0, **wishes: Unpack[Wishes]) -> TaskId:
        """Ask, and go on; `waits` is how long, in ms, whoever waits may take to come when nobody has answered."""
        return self._wait_for(self._held.send_request(to, kind, summary, waits=waits, **wishes))

    def wait_for(
        self,
        request: str,
        *,
        roles: Sequence[str] | None = None,
        lease: Duration | None = None,
        claims: bool = True,
    ) -> Requested:
        """Wait for a request that this attempt has asked; without `claims` nothing else is claimed if it blocks."""
        waiting = self._held.wait_for(request, roles=roles, lease=lease, claims=claims)
        return self._with_next(self._wait_for(waiting))

    def is_exhausted(self, request: str) -> bool | None:
        """Whether nobody has answered a request, and it is about to block the task; None: it has ended, or has."""
        return self._wait_for(self._held.is_exhausted(request))

    def inbox(self, *, roles: Sequence[str] = ()) -> list[InboxItem]:
        """The requests that the holder of this attempt, which has these roles, can answer."""
        return self._wait_for(self._held.inbox(roles=roles))

    def respond(self, request: str, answer: object = None, *, roles: Sequence[str] = ()) -> None:
        """Answer a request as the holder of this attempt."""
        self._wait_for(self._held.respond(request, answer, roles=roles))

    def _with_next(self, ended: Requested) -> Requested:
        following = ended.next
        return ended if following is None else replace(ended, next=SyncLease(self._watch, following))

    def requested(self, request: TaskId) -> tuple[str, str | None]:
        """How a request of this task's stands: `open` or its end, and its result or the reason, as JSON."""
        return self._wait_for(self._held.requested(request))

    def question(self, question: QuestionId) -> Question | None:
        """A question as it stands: what became of one that was asked while the task was kept."""
        return self._wait_for(self._held.question(question))

    def past(self) -> Attempt | None:
        """How the store has ended this attempt; None while it has not."""
        return self._wait_for(self._held.past())


class SyncLease(SyncHeld):
    """The right to one attempt at one task, for code that is not async."""

    def __init__(self, watch: OwnThread, lease: Lease) -> None:
        super().__init__(watch, lease)
        self.inner = lease
        """The lease behind it, which belongs to the watch's own loop."""
        self.attempt: int = lease.attempt
        self.name: str = lease.name
        self.role: str = lease.role
        self.run: RunId | None = lease.run
        self.payload: Any = lease.payload
        self.handover: Handover | None = lease.handover
        self.notes: Sequence[str] = lease.notes

    def payload_as(self, shape: type[T]) -> T:
        """What was submitted with the task, as this; `msgspec.ValidationError` where it is something else."""
        return self.inner.payload_as(shape)

    @property
    def remaining(self) -> int:
        """How long the lease can still be trusted, in ms."""

        async def look() -> int:
            return self.inner.remaining

        return self._wait_for(look())
