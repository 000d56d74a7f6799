"""Where the steps of one run are done: what all attempts of this process share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from allswell.domain.agents.cost import Tokens
from allswell.domain.agents.fleet import AgentSpec
from allswell.domain.receipts.receipt import Verification
from allswell.domain.receipts.snapshot import Snapshot
from allswell.domain.receipts.step import StepReceipt, StepStatus
from allswell.domain.run.run import Run, time_left
from allswell.domain.scopes import ScopeKind
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.engine.lease import Lease
from allswell.engine.watch import Watch
from allswell.flows.run.folder import FlowEvent, RunBase
from allswell.flows.run.plan import MemberJob
from allswell.flows.run.timeouts import BaselineNotes, TimeoutCut
from allswell.runtime.attempt.runner import in_thread
from allswell.runtime.workspace.files import stamp
from allswell.timing.clock import Clock

_KEEPERS = 2
"""How many threads write receipts: while one waits for the disk, the other writes the next group."""
_TOGETHER = 64
"""How many receipts one of them writes and flushes together."""
GRACE = 10_000
"""Milliseconds between SIGTERM and SIGKILL."""


@dataclass
class RunContext:
    """One process that runs steps of a run."""

    base: RunBase
    watch: Watch
    agent: str
    """Who holds the leases."""
    clock: Clock
    run_began: int
    """When the store's run was opened, on the monotonic clock."""
    run: Run
    """Its row, as it was last looked at."""
    aside: Callable[[Callable[[], Any]], Awaitable[Any]] = in_thread
    """How what blocks is done: in a thread, unless a test wants it here and now."""
    grace: int = GRACE
    agents: Mapping[str, AgentSpec] = field(default_factory=dict)
    """The agents that steps may name."""
    finished: list[str] = field(default_factory=list)
    """Steps that ended well, in the order in which they did."""
    heard: Callable[[FlowEvent], None] | None = None
    """Is told of every line of the log as it is written."""
    noting: BaselineNotes | None = None
    """Notes what is in the folder when functions begin."""
    _lines: list[FlowEvent] = field(default_factory=list)
    _writing: asyncio.Future[None] | None = None
    _receipts: list[tuple[StepReceipt, asyncio.Future[None]]] = field(default_factory=list)
    _keepers: list[asyncio.Future[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.noting = self.noting or BaselineNotes(self.clock)

    def last_good(self) -> str | None:
        """The last step that ended well."""
        return self.finished[-1] if self.finished else None

    def cut(self, lease: Lease, job: MemberJob) -> TimeoutCut:
        """Whose limit an attempt would reach: its own, or the flow's, where that is nearer."""
        if lease.by_run:
            return TimeoutCut(ScopeKind.FLOW, job.timeouts.flow, self.run_began)
        limit = lease.limit or 0  # a step always has one
        began = self.clock.monotonic() - (limit - lease.until_limit)  # when it was given, by the store's clock
        return TimeoutCut(ScopeKind.STEP, lease.own_limit or limit, began)

    def time_left(self) -> int | None:
        """How much of the run's time is left, in milliseconds; its clock stands while an answer is waited for."""
        return time_left(self.run, self.run.created_at + self.clock.monotonic() - self.run_began)

    async def look_at_run(self) -> bool:
        """Look at the run's row again; whether its clock has stopped or gone on since."""
        before, row = self.run, await self.watch.run(self.run.id)
        self.run = before if row is None else row
        return self.run.moves != before.moves

    def tell(self, event: str, step: str = "", attempt: int = 0, **data: object) -> None:
        """Add a line to the run's log, together with others that come while the last ones are written."""
        line = FlowEvent(stamp(self.clock.wall()), event, step, attempt, data)
        self._lines.append(line)
        if self.heard is not None:
            self.heard(line)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.ensure_future(self._write())

    async def _write(self) -> None:
        while self._lines:
            lines, self._lines = self._lines, []
            await self.aside(partial(self.base.keep_events, lines))

    async def keep(self, receipt: StepReceipt) -> None:
        """Write a receipt, together with others that come while the last are written; durable when this returns."""
        kept = asyncio.get_running_loop().create_future()
        self._receipts.append((receipt, kept))
        self._keepers = [keeper for keeper in self._keepers if not keeper.done()]  # one that has ended looks no more
        if len(self._keepers) < _KEEPERS:
            self._keepers.append(asyncio.ensure_future(self._keep_all()))
        await kept

    async def _keep_all(self) -> None:
        while self._receipts:
            some, self._receipts = self._receipts[:_TOGETHER], self._receipts[_TOGETHER:]
            error: BaseException | None = None
            try:
                await self.aside(partial(self.base.keep_receipts, [receipt for receipt, _ in some]))
            except BaseException as raised:  # noqa: BLE001 - it goes to all who wait for it
                error = raised
            for _, kept in some:
                if not kept.done():
                    kept.set_result(None) if error is None else kept.set_exception(error)

    async def written(self) -> None:
        """Wait until all that was told is on the disk."""
        if self._writing is not None:
            await self._writing


# What the work of a step came to, whichever kind of work it was.


class StepOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one try."""

    status: StepStatus
    error: str | None = None
    failure: Failure | None = None
    """What the store is told, where it failed."""
    cut: TimeoutCut | None = None
    """Whose limit was reached, where it was one."""
    result: Any = None
    stdout: str = ""
    printed_more: bool = False
    exit_code: int | None = None
    streams: tuple[tuple[str, Path], ...] = ()
    """The files of what it printed, by stream; `llm` is what models were asked and answered."""
    tokens: Tokens | None = None
    """What was told of them; None: nothing."""
    snapshot: Snapshot | None = None
    recovery: Path | None = None
    said: bool = False
    """The agent has said its own last word, so that the lease is over."""
    verification: Verification | None = None
    """What came of the verification of its work, where the step wants one."""
    brought: bool = False
    """The agent has said itself what it brought, and that is verified: the lease goes on."""
    warning: str = ""
    """What a human should know of it although it is done: calls that were refused."""
    late: bool = False
    """It had ended by itself, after its lease was lost."""


def failed(error: str, kind: ErrorClass = ErrorClass.VALIDATION) -> StepOutcome:
    """Work that cannot be done."""
    return StepOutcome(status=StepStatus.FAILED, error=error, failure=Failure(kind, error[:4_000]))
