"""A process of the simulated world: an engine with its own connection, its agents and its follower of the journal.

It can crash (all of it is cancelled where it stands, and its holders vanish without a word), come back, or be paused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar, assert_never

from allswell.app import make_watch
from allswell.domain.ids import AgentId, CommandId, TaskId
from allswell.domain.lease.late import afterwards
from allswell.domain.rules.command import (
    AcquireFlow,
    Admit,
    Answer,
    Ask,
    AskForHelp,
    Cancel,
    CheckIn,
    CheckInAgain,
    Claim,
    Complete,
    Delegate,
    EndIdle,
    EndRun,
    Fail,
    HolderCommand,
    Notice,
    OpenRun,
    Park,
    RecordReceipt,
    RecordStep,
    Recover,
    Release,
    Report,
    SendRequest,
    ServiceCommand,
    Submit,
    Verified,
)
from allswell.domain.rules.event import Entry, Position
from allswell.engine.engine import Engine
from allswell.engine.lease import Lease as Handle
from allswell.engine.timings import Timings
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, Bug, LeaseLost, Refused, Unavailable
from allswell.store.memory import MemoryStore
from allswell.store.port import RowConflict, Transaction
from allswell.testing.loop import VirtualClock
from allswell.testing.sim.ledger import SimLedger
from allswell.testing.sim.report import FaultInjector, FaultPlan, HistoryRecorder, SimSpan, over_at
from allswell.timing.loops import Nursery

# The engine behind a watch, for what tests the engine itself: the simulator, and whoever checks histories.


def engine_of(watch: Watch) -> Engine:
    """The engine behind a watch. Programs and front doors have the watch, and need nothing else."""
    engine = watch._engine  # noqa: SLF001 - this is the one way in
    assert isinstance(engine, Engine)  # noqa: S101 - one that is not reached over a network
    return engine


# The desk through which everybody in the simulation speaks to the watch.
#
# It notes what was sent and holds the answers against the history. What was acknowledged must be there, at once and for
# ever; what was refused must have been wrong.

Sent = Submit | HolderCommand | Cancel | Answer | OpenRun | EndRun | ServiceCommand | AcquireFlow | Notice
"""What callers have decided; claims, check-ins and steps have ways of their own here."""


class SimClient:
    """Sends commands and judges answers."""

    def __init__(self, ledger: SimLedger) -> None:
        self.ledger = ledger
        self.tables = ledger.tables
        self.chronicle = ledger.chronicle
        self.accepted: dict[TaskId, str] = {}
        """Every task whose submission was acknowledged, with its payload."""
        self.completed: dict[TaskId, tuple[CommandId, str]] = {}
        """Every acknowledged completion with its result."""
        self._numbers = 0

    def new_command(self) -> CommandId:
        """A command's id."""
        self._numbers += 1
        return CommandId(f"c{self._numbers}")

    def new_task(self) -> TaskId:
        """A task's id."""
        self._numbers += 1
        return TaskId(f"t_{self._numbers:06d}")

    async def send(self, watch: Watch, command: Sent) -> object:
        """Have a command decided; the answer, or the error as a value."""
        self.ledger.shadow.sent[command.id] = command
        before = self.ledger.shadow.commits
        answer = await self._told(engine_of(watch).do(command))
        kind = type(command).__name__
        self.chronicle.note((kind, command.id, repr(answer)))
        match answer:
            case Unavailable():
                self.chronicle.met("a caller was told to try later")
            case Refused():
                self.chronicle.met(f"refused: {answer.code}")
            case LeaseLost():
                if isinstance(command, Complete | Fail | Release | Ask | Recover | EndIdle | Delegate):
                    self._check_loss(command, before)
                    self._check_late(command)
            case _:
                self._check_done(command)
        return answer

    async def _told(self, waiting: Awaitable[object]) -> object:
        try:
            return await waiting
        except Bug as bug:
            self.ledger.breaks("no rule of our own is broken", str(bug))
            return bug
        except AllswellError as error:
            return error

    # --- what was acknowledged --------------------------------------------------------------------------------------

    def _check_done(self, command: Sent) -> None:
        if isinstance(command, Submit):
            self.accepted.update({new.id: new.payload for new in command.tasks})
        elif isinstance(command, Delegate):
            self.accepted[command.request.id] = command.request.payload
        elif isinstance(command, Complete):
            self.completed[command.task] = (command.id, command.result)
        if not self._is_there(command):
            self.ledger.breaks("acknowledged work is never lost", f"{command} was acknowledged and is not there")

    def _is_there(self, command: Sent) -> bool:
        tables = self.tables
        match command:
            case Submit():
                return all(new.id in tables.tasks for new in command.tasks)
            case RecordReceipt():
                told = [entry.event for entry in self.ledger.database._entries]  # noqa: SLF001 - all of the journal
                return any(event.data.get("receipt") == command.receipt for event in told)
            case Complete() | Fail() | Release() | Recover() | EndIdle():
                attempt = tables.attempts.get((command.task, command.token))
                return attempt is not None and attempt.command == command.id
            case Ask():
                return any(question.task == command.task for question in tables.questions.values())
            case Delegate() | SendRequest():
                return command.request.id in tables.tasks
            case Cancel():
                return tables.tasks[command.task].record.ended_by == command.id
            case Answer():
                return tables.questions[command.question].command == command.id
            case OpenRun():
                return command.run in tables.runs
            case EndRun():
                return tables.runs[command.run].ended_at is not None
            case AcquireFlow():
                return command.flow.id in tables.tasks
            case Admit() | Report() | Park() | AskForHelp() | Notice() | CheckInAgain() | Verified():
                return True  # a success that changes nothing leaves nothing
            case _:
                assert_never(command)

    def check_at_the_end(self) -> None:
        """Nothing that was ever acknowledged is gone."""
        report = self.chronicle.report
        report.submitted = len(self.accepted)
        report.finished = len(self.ledger.shadow.ended)
        for task, payload in self.accepted.items():
            if self.tables.payloads.get(task) != payload:
                report.lost += 1
        for task, (command, result) in self.completed.items():
            row = self.tables.tasks.get(task)
            kept = self.tables.results.get(task)
            if row is None or row.state != "done" or row.record.ended_by != command or kept != result:
                report.lost += 1
        if report.lost:
            self.ledger.breaks("acknowledged work is never lost", f"{report.lost} acknowledged things are gone")

    # --- what was refused -------------------------------------------------------------------------------------------

    def _span(self, task: TaskId, token: int, agent: str) -> SimSpan | None:
        span = self.ledger.shadow.spans.get((task, token))
        return span if span is not None and span.agent == agent else None

    def _check_loss(self, said: HolderCommand | CheckIn, before: int) -> None:
        """A holder is turned away only if it does not hold the task any more, or never did."""
        self.chronicle.report.stale_refused += 1
        span = self._span(said.task, said.token, said.agent)
        if span is None:
            self.chronicle.met("a liar was refused")
            return
        lease = self.ledger.shadow.leases.get(said.task)
        if (
            span.last is None
            and lease is not None
            and self.ledger.database.see()[0] < self.ledger.clocks.over_at(lease)
        ):
            self.ledger.breaks("a holder is heard while it holds", f"{said} was refused, and {lease} lives")
        elif span.last is not None and span.last <= before:
            self.chronicle.met("a zombie was refused")

    def _check_late(self, said: HolderCommand) -> None:
        attempt = self.tables.attempts.get((said.task, said.token))
        if attempt is None or attempt.agent != said.agent or isinstance(said, Recover | EndIdle):
            return
        after = afterwards(attempt)
        if said.id not in {word.command for word in after.words} and not after.more:
            self.ledger.breaks("what came late is kept", f"{said}: {attempt}")
        if isinstance(said, Complete | Fail):
            if attempt.late is None:
                self.ledger.breaks("what came late is kept", f"{said}: {attempt}")
            self.chronicle.met("a late result was kept")
        self.chronicle.met(f"a late word was kept: {type(said).__name__.lower()}")

    def _check_late_check_in(self, said: CheckIn) -> None:
        attempt = self.tables.attempts.get((said.task, said.token))
        if attempt is None or attempt.agent != said.agent or not said.proof:
            return
        if not afterwards(attempt).checkins:
            self.ledger.breaks("what came late is kept", f"{said}: {attempt}")
        self.chronicle.met("a late check-in was kept")

    # --- steps of flows ---------------------------------------------------------------------------------------------

    async def record(self, watch: Watch, said: RecordStep) -> object:
        """Have a step of a flow recorded; None, or the error as a value."""
        self.ledger.shadow.sent[said.id] = said
        before = self.ledger.shadow.commits
        answer = await self._told(engine_of(watch).record(said))
        self.chronicle.note(("RecordStep", said.id, repr(answer)))
        row = self.tables.tasks.get(said.step)
        if answer is None:
            if row is None or row.record.ended_by != said.id or self.tables.results.get(said.step) != said.result:
                self.ledger.breaks("acknowledged work is never lost", f"{said} was acknowledged and is not there")
            self.completed[said.step] = (said.id, said.result)
        elif isinstance(answer, LeaseLost):
            span = self._span(said.flow, said.token, said.agent)
            lease = self.ledger.shadow.leases.get(said.flow)
            if span is None or span.last is not None:
                self.chronicle.met("a step of a flow that was given up was refused")
            elif lease is not None and self.ledger.database.see()[0] < over_at(lease):
                self.ledger.breaks("a holder is heard while it holds", f"{said} was refused, and {lease} lives")
            if span is not None and span.last is not None and span.last <= before and row is not None:
                self.chronicle.met("a flow went on after its holder was given up")
        elif isinstance(answer, Refused):
            self.chronicle.met(f"refused: {answer.code}")
        return answer

    # --- claims and check-ins ---------------------------------------------------------------------------------------

    async def check_in(self, watch: Watch, said: CheckIn) -> object:
        """Renew a lease; the orders, or the error as a value."""
        before = self.ledger.shadow.commits
        answer = await self._told(engine_of(watch).check_in(said))
        self.chronicle.note(("CheckIn", said.task, said.token, repr(answer)))
        if isinstance(answer, LeaseLost):
            self._check_loss(said, before)
            self._check_late_check_in(said)
        elif not isinstance(answer, AllswellError):
            span = self._span(said.task, said.token, said.agent)
            if span is None or (span.last is not None and span.last <= before):
                self.ledger.breaks("a stale holder changes nothing", f"{said} was accepted")
        return answer

    async def claim(self, watch: Watch, claim: Claim, wait: int = 0) -> list[Handle]:
        """Claim tasks; none if the store cannot be reached."""
        if claim.id:
            self.ledger.shadow.sent[claim.id] = claim
        before = len(self.ledger.shadow.granted.get(claim.agent, ()))
        answer = await self._told(
            watch.claim_many(
                claim.count,
                agent=AgentId(claim.agent),
                roles=claim.roles,
                wait=wait,
                lease=claim.length,
                command=claim.id or None,
                task=claim.task,
            )
        )
        if not isinstance(answer, list):
            self.chronicle.note(("Claim", claim.agent, repr(answer)))
            return []
        for handle in answer:
            self.chronicle.note(("Claim", handle.task, handle.token))
            self.ledger.handles[(handle.task, handle.token)] = handle
            if self._span(handle.task, handle.token, claim.agent) is None:
                self.ledger.breaks("what was claimed is held", f"{claim.agent} was given {handle!r}")
            if handle.payload != {"task": handle.task}:
                self.ledger.breaks("a holder gets its payload", f"{handle!r}: {handle.payload}")
        for task, token in self.ledger.shadow.granted.get(claim.agent, [])[before:]:
            if (task, token) not in self.ledger.handles:
                self.ledger.breaks(
                    "what was granted is told", f"{claim.agent} does not know that it holds {task} {token}"
                )
        return answer


PACE = Timings(
    store_patience=60.0,
    retry_first=1.0,
    retry_most=20.0,
    claim_poll=600.0,
    sweep_most=150.0,
    sweep_busy=1.0,
    follow_poll=600.0,
)
"""Slow enough that an hour costs little; every pause keeps its proportion."""

T = TypeVar("T")


class Connection(MemoryStore):
    """A process's own connection to the one store; it counts the conflicts it meets."""

    def __init__(self, store: MemoryStore, weather: FaultInjector, chronicle: HistoryRecorder) -> None:
        super().__init__(
            strict=True,
            faults=weather,
            shared_clock=store.shared_clock,
            database=store.database,
            carry=weather.carry,
        )
        self._chronicle = chronicle

    async def transact(self, work: Callable[[Transaction], Coroutine[Any, Any, T]], *, durable: bool = True) -> T:
        """Run `work` in one transaction and commit; roll back if it raises."""
        try:
            return await super().transact(work, durable=durable)
        except RowConflict:
            self._chronicle.met("two processes made the same row")
            raise


Inhabitant = Callable[["SimProcess"], Coroutine[Any, Any, None]]


class SimProcess:
    """One process, dead or alive."""

    def __init__(self, number: int, store: MemoryStore, desk: SimClient, sky: FaultPlan) -> None:
        self.number = number
        self.desk = desk
        self.sky = sky
        self.chance = sky.chance
        self.clock = VirtualClock()
        self.inhabitants: list[Inhabitant] = []
        self.watch: Watch | None = None
        self.healthy_since = 0.0
        """Since when it has been able to work; infinity while it cannot."""
        self.seen: dict[Position, None] = {}
        """What its follower has been told, in order, without repetitions."""
        self._store = store
        self._end = asyncio.Event()
        self._begin = asyncio.Event()
        self.weather = FaultInjector(sky)

    async def live(self) -> None:
        """Live, die and come back until cancelled."""
        while True:
            self._end.clear()
            self._begin.clear()
            self.weather = FaultInjector(self.sky)
            store = Connection(self._store, self.weather, self.desk.chronicle)
            watch = make_watch(store, clock=self.clock, chance=self.chance, pace=PACE)
            try:
                async with watch:
                    self.watch = watch
                    self.healthy_since = asyncio.get_running_loop().time()
                    watch.follow(f"follower-{self.number}", self._read)
                    async with Nursery() as inside:
                        for inhabitant in self.inhabitants:
                            inside.start(inhabitant(self))
                        await self._end.wait()
                        inside.cancel()
            except Exception as error:  # noqa: BLE001 - an engine must survive all weather
                self.desk.ledger.breaks("an engine survives its store", f"process {self.number} died: {error!r}")
                return
            finally:
                self.watch = None
            await self._begin.wait()

    def crash(self) -> None:
        """End it where it stands."""
        self.healthy_since = float("inf")
        self.weather.resume()
        self._end.set()

    def restart(self) -> None:
        """Bring it back, if it is dead."""
        self._begin.set()

    async def sleep(self, seconds: float) -> None:
        """Sleep as a part of this process: a paused one wakes up late."""
        await asyncio.sleep(seconds)
        await self.weather.awake()

    async def _read(self, entries: Sequence[Entry]) -> None:
        if self.chance.random() < 0.01 and self.sky.levels.slow:
            raise Unavailable("the reader was out")
        for entry in entries:
            last = next(reversed(self.seen), Position())
            if entry.position in self.seen:
                self.desk.chronicle.met("an event was delivered twice")
            elif entry.position < last:
                self.desk.ledger.breaks("followers see every event in order", f"{entry.position} after {last}")
            self.seen[entry.position] = None
