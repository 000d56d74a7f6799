"""A holder's handle on its lease: what it may say, how long it may trust it, and that it is renewed in time.

A holder trusts its lease only until the moment it *sent* its last accepted renewal plus the lease's length, on its own
monotonic clock, so it stops before the store gives the work to someone else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from allswell.domain.checkin import tells_every
from allswell.domain.claim import Granted
from allswell.domain.command import CheckIn, HolderCommand
from allswell.domain.duration import Duration
from allswell.domain.hold import Orders
from allswell.domain.names import RunId, TaskId
from allswell.domain.paying import EndCostly, limit_of
from allswell.domain.task import Handover
from allswell.domain.verification import verify_of
from allswell.engine.backend import Backend
from allswell.engine.budgeting import Budgets, hold_to_budgets
from allswell.engine.held import Held
from allswell.engine.ids import Ids
from allswell.engine.mesh import Mesh, Requested
from allswell.errors import AllswellError, Bug, LeaseLost

T = TypeVar("T")
_CONFIRM = 2.0
"""Seconds in which the store must have said that a limit has moved."""


class Lease(Held):
    """The right to one attempt at one task."""

    __slots__ = (
        "_deadline",
        "_ends",
        "_lost",
        "_over",
        "_renewed",
        "attempt",
        "blocked_on",
        "by_run",
        "granted",
        "length",
        "on_end",
    )

    def __init__(self, engine: Backend, ids: Ids, granted: Granted, sent: float, mesh: Mesh | None = None) -> None:
        lease = granted.lease
        super().__init__(engine, ids, lease.task, lease.token, lease.agent, mesh)
        self.granted = granted
        """What the claim was answered with."""
        self.length = lease.length
        self.attempt: int = lease.token
        self._deadline: int = lease.deadline
        self.by_run = lease.own is not None
        """Whether its limit is that of its run, which moves while the run's clock stands."""
        self._ends = sent + (lease.deadline - granted.told_at) / 1000
        self._renewed = sent - (granted.told_at - lease.renewed_at) / 1000
        self._lost: LeaseLost | None = None
        self._over = False
        self.blocked_on: TaskId | None = None
        """The request that nobody has answered, for which its holder was ended."""
        self.on_end: Callable[[], None] | None = None
        """Called when it is lost or over, so that nobody has to look again and again."""

    def __repr__(self) -> str:
        return f"<Lease {self.name!r} task={self.task} token={self.token} remaining={self.remaining} ms>"

    @property
    def lost(self) -> LeaseLost | None:
        """Why it is somebody else's, or nobody's, once the store has said so."""
        return self._lost

    @lost.setter
    def lost(self, lost: LeaseLost) -> None:
        self._lost = lost
        self._tell_end()

    @property
    def over(self) -> bool:
        """Whether the attempt has been ended under it."""
        return self._over

    @over.setter
    def over(self, over: bool) -> None:
        self._over = over
        self._tell_end()

    def _tell_end(self) -> None:
        if self.on_end is not None:
            self.on_end()

    @property
    def store(self) -> str:
        """The URL of the store that it is from."""
        return self._engine.store.url

    @property
    def name(self) -> str:
        """The task's name."""
        return self.granted.task.name

    @property
    def payload(self) -> Any:  # noqa: ANN401 - whatever the submitter put in
        """What was submitted with the task."""
        return msgspec.json.decode(self.granted.payload)

    def payload_as(self, shape: type[T]) -> T:
        """What was submitted with the task, as this; `msgspec.ValidationError` where it is something else."""
        return msgspec.json.decode(self.granted.payload, type=shape)

    @property
    def handover(self) -> Handover | None:
        """What the last attempt left behind."""
        return self.granted.task.record.handover

    @property
    def notes(self) -> Sequence[str]:
        """What humans added for this attempt."""
        return self.granted.task.record.notes

    @property
    def deadline(self) -> int:
        """When the attempt's hard limit falls, on the store's clock (ms since the epoch), as far as is known here.

        It moves only where it is that of a run whose clock stands while an answer is waited for.
        """
        return self._deadline

    @property
    def remaining(self) -> int:
        """How long the lease can still be trusted, in ms; 0 when it is over."""
        if self._over or self._lost is not None:
            return 0
        end = self._ends
        if self.length is not None:
            end = min(end, self._renewed + self.length / 1000)
        return max(0, int((end - asyncio.get_running_loop().time()) * 1000))

    @property
    def limit(self) -> int:
        """How long the attempt may take in all, in ms."""
        return self._deadline - self.granted.lease.granted_at

    @property
    def until_limit(self) -> int:
        """How long it is to the attempt's hard limit, in ms, whether or not the lease can be trusted until then."""
        return max(0, int((self._ends - asyncio.get_running_loop().time()) * 1000))

    @property
    def own_limit(self) -> int:
        """What the task itself gives an attempt, in ms; its run may leave it less."""
        return self.granted.task.timeout

    @property
    def role(self) -> str:
        """The task's role."""
        return self.granted.task.role

    @property
    def asks(self) -> tuple[int, int]:
        """How often the holder is asked for a check-in, and how long it has to answer, in milliseconds."""
        return self.granted.lease.ask_every, self.granted.lease.ask_wait

    @property
    def idle_override(self) -> int | None:
        """How long a human lets it go without progress, in milliseconds, where one has raised that."""
        return self.granted.task.record.idle_override

    @property
    def max_cost(self) -> int | None:
        """What the attempts at the task may cost together, in millionths of a dollar; None: anything."""
        return limit_of(self.granted.task)

    @property
    def verify(self) -> tuple[str, ...]:
        """The command that must pass before "done" counts; empty: the holder's word is enough."""
        return verify_of(self.granted.task)

    @property
    def verify_timeout(self) -> int:
        """How long that may take, in milliseconds."""
        return self.granted.task.spec.policy.verify_timeout

    async def hold_to_budgets(self, budgets: Budgets) -> list[str]:
        """Shut what has cost what it may, of its role, its run and the day; in words what was reached."""
        return await hold_to_budgets(self._engine, self._ids, self.role, self.run, budgets)

    @property
    def tells_every(self) -> int:
        """How often a watcher tells the store that the holder's protocol shows progress, in milliseconds."""
        return tells_every(self.granted.lease)

    @property
    def run(self) -> RunId | None:
        """The run that the task belongs to."""
        return self.granted.task.run

    @property
    def renew_at(self) -> float | None:
        """When the next renewal is due on the loop's clock: a third of the length after the last."""
        return None if self.length is None or self.over else self._renewed + self.length / 3000

    def heard(self, answer: object, sent: float) -> Orders | AllswellError:
        """Take note of the answer to a renewal that was sent at this moment."""
        if isinstance(answer, Orders):
            self._obey(answer, sent)
            return answer
        if isinstance(answer, LeaseLost):
            self.lost = answer
        return answer if isinstance(answer, AllswellError) else Bug(f"a check-in was answered with {answer!r}")

    async def _check_in(self, said: CheckIn) -> Orders:
        sent = asyncio.get_running_loop().time()
        try:
            orders = await self._engine.check_in(said)
        except LeaseLost as lost:
            self.lost = lost
            raise
        self._obey(orders, sent)
        return orders

    def _obey(self, orders: Orders, sent: float) -> None:
        self._renewed = max(self._renewed, sent)
        if orders.deadline != self._deadline:
            self._deadline, self.by_run = orders.deadline, orders.by_run
            self._ends = sent + orders.remaining_ms / 1000

    async def confirm(self) -> bool:
        """The limit is reached: ask once whether it has moved, as a run's does while its clock stands."""
        known = self._deadline
        if not self.by_run or self.lost is not None or self.over:
            return False
        with contextlib.suppress(AllswellError, TimeoutError):
            async with asyncio.timeout(_CONFIRM):
                await self.renew()
        return self._deadline > known

    async def _say(self, said: HolderCommand | EndCostly) -> object:
        try:
            return await self._engine.do(said)
        except LeaseLost as lost:
            self.lost = lost
            raise

    async def _end(self, said: HolderCommand | EndCostly) -> object:
        answer = await self._say(said)
        self.over = True
        return answer

    async def wait_for(
        self,
        request: str,
        *,
        roles: Sequence[str] | None = None,
        lease: Duration | None = None,
        claims: bool = True,
    ) -> Requested:
        """Wait for a request that this attempt has asked; what is claimed instead is renewed as this lease is."""
        return await super().wait_for(
            request, roles=roles, lease=self.length if lease is None else lease, claims=claims
        )

    def _blocked(self) -> None:
        self.over = True

    def ended(self, answer: object) -> AllswellError | None:
        """Take note of the answer to a command that ends the attempt."""
        if not isinstance(answer, AllswellError):
            self.over = True
            return None
        if isinstance(answer, LeaseLost):
            self.lost = answer
        return answer
