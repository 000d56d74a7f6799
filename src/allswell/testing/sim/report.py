"""What a simulation found and saw: broken promises, situations met, and the figures of a drill."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Iterable, Sequence

import msgspec

from allswell.domain.ids import TaskId
from allswell.domain.lease.model import Agent, LeaseRow
from allswell.domain.rules.command import Command
from allswell.domain.task.model import OPEN
from allswell.errors import Unavailable
from allswell.store.memory import AnswerLost
from allswell.store.memory.tables import Tables
from allswell.store.port import RowChanges


class Broken(msgspec.Struct, frozen=True):
    """A promise that did not hold: which, when (virtual seconds), and what was seen."""

    promise: str
    at: float
    seen: str


class SimReport(msgspec.Struct):
    """The outcome of one simulation; the same seed gives the same bytes."""

    seed: int
    hours: float
    broken: list[Broken] = msgspec.field(default_factory=list)
    """The first promise that was broken ends the run, so there are rarely more."""
    met: dict[str, int] = msgspec.field(default_factory=dict)
    """Situations worth meeting, and how often they were."""
    faults: dict[str, int] = msgspec.field(default_factory=dict)
    """What the weather did, by name."""
    submitted: int = 0
    """Tasks whose submission was acknowledged."""
    finished: int = 0
    lost: int = 0
    duplicated: int = 0
    stale_refused: int = 0
    """Writes of holders that no longer held what they wrote to."""
    commits: int = 0
    detected_p50_ms: int = 0
    """How long after its moment an expired attempt was noticed."""
    detected_max_ms: int = 0
    digest: str = ""
    """Of every committed change and every answer, in order."""

    @property
    def well(self) -> bool:
        """Whether every promise held."""
        return not self.broken


class HistoryRecorder:
    """Gathers what a report will say, and the running digest of the history."""

    def __init__(self, seed: int, hours: float) -> None:
        self.report = SimReport(seed, hours)
        self.delays: list[int] = []
        self._hash = hashlib.blake2b(digest_size=16)
        self._encode = msgspec.msgpack.Encoder().encode

    def met(self, situation: str) -> None:
        """Count a situation worth meeting."""
        seen = self.report.met
        seen[situation] = seen.get(situation, 0) + 1

    def struck(self, fault: str) -> None:
        """Count what the weather did."""
        struck = self.report.faults
        struck[fault] = struck.get(fault, 0) + 1

    def note(self, said: object) -> None:
        """Enter something into the digest."""
        self._hash.update(self._encode(said))

    def close(self) -> SimReport:
        """The finished report."""
        report = self.report
        delays = sorted(self.delays)
        if delays:
            report.detected_p50_ms = delays[len(delays) // 2]
            report.detected_max_ms = delays[-1]
        report.digest = self._hash.hexdigest()
        return report


# What the simulator itself knows about the history, gathered from commits alone.
#
# Nothing here asks the rules what is right: moments, counts and needs are worked out a second time, in the plainest
# way, so that a mistake in the rules shows as a difference.


class FailureCounts(msgspec.Struct):
    """How often a task has ended badly since a human last spoke."""

    bad: dict[str, int] = msgspec.field(default_factory=dict)
    """By what is asked about: timeout, stall, lapse."""
    failures: dict[str, int] = msgspec.field(default_factory=dict)


class SimSpan(msgspec.Struct):
    """The life of one lease, in numbers of commits."""

    agent: str
    first: int
    last: int | None = None


class HistoryModel:
    """The history so far."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.commits = 0
        self.jumped = False
        """Whether the store's clock was ever made to jump."""
        self.sent: dict[str, Command] = {}
        """Every command that a caller has sent, by its id."""
        self.leases: dict[TaskId, LeaseRow] = {}
        self.spans: dict[tuple[TaskId, int], SimSpan] = {}
        self.tokens: dict[TaskId, int] = {}
        self.ended: dict[TaskId, str] = {}
        self.done: dict[TaskId, int] = {}
        """How often each task was completed."""
        self.split: dict[TaskId, list[TaskId]] = {}
        self.counts: dict[TaskId, FailureCounts] = {}
        self.not_until: dict[TaskId, int] = {}
        self.questions_waited_for: dict[str, None] = {}
        self.questions_closed: dict[str, str | None] = {}
        self.agents: dict[str, Agent] = {}
        self.agent_since: dict[str, float] = {}
        """When each agent's row was last written (virtual seconds)."""
        self.parked_since: dict[str, float] = {}
        self.ready_since: dict[TaskId, float] = {}
        self.granted: dict[str, list[tuple[TaskId, int]]] = {}
        """Every lease of each agent, in the order of granting."""

    def settle(self, changes: RowChanges) -> None:
        """Follow a clock that was set: what runs has the time left that it had."""
        for lease in changes.moved.leases if changes.moved is not None else ():
            self.leases[lease.task] = lease
        for event in changes.events:
            if event.kind == "clock_set":
                self.not_until = {task: moment + event.data["by_ms"] for task, moment in self.not_until.items()}

    def counts_of(self, task: TaskId) -> FailureCounts:
        """The counts of a task, made if need be."""
        return self.counts.setdefault(task, FailureCounts())

    def fates(self, needs: Iterable[TaskId]) -> list[str]:
        """What became of these needs (open, good or bad); one that was split is all of its parts."""
        found: list[str] = []
        for need in needs:
            state = self.tables.tasks[need].state
            if state == "split":
                found += self.fates(self.split[need])
            else:
                found.append("open" if state == OPEN else "good" if state == "done" else "bad")
        return found


def over_at(lease: LeaseRow) -> int:
    """The first moment at which this lease is over, from the row alone."""
    ends = [int(lease.deadline)]
    if lease.length is not None:
        ends.append(lease.renewed_at + lease.length)
    if lease.idle is not None:
        ends.append((lease.checkin_at if lease.checkin_at is not None else lease.granted_at) + lease.idle)
    if lease.stalled_at is not None:
        ends.append(lease.stalled_at + lease.grace)
    return min(ends)


def asked_moment(lease: LeaseRow, number: int) -> int:
    """When the holder is asked for its n-th check-in."""
    return lease.granted_at + number * lease.ask_every


def changes_at(lease: LeaseRow) -> int:
    """The first moment at which this lease can change by itself: it is over, or a check-in counts as missed."""
    asked = asked_moment(lease, lease.judged + 1)
    over = over_at(lease)
    return over if asked >= lease.deadline else min(over, asked + lease.ask_wait)


# What can happen to a process and to its connection, and how often.
#
# Every process has a weather of its own; the sky is what they share: the store's outages and the one source of chance.
# A paused process (SIGSTOP) stands still at its next statement. If it stands inside a transaction, the server ends its
# session after a while, as servers are set up to do, so that its locks do not stop everybody else.

_SESSION_PATIENCE = 5.0
"""How long the server lets a standing transaction be, in seconds."""
_OUTSIDE = ("view_", "journal", "cursor", "advance", "outcome", "intern_lanes")
"""Statements that belong to no transaction."""


class Levels(msgspec.Struct, frozen=True):
    """How bad the weather is. Shares are of statements or of commits; the others are how often an hour."""

    slow: float = 0.03
    broken: float = 0.002
    commit_refused: float = 0.004
    answer_lost: float = 0.012
    calls: float = 0.3
    """Wake-up calls that are lost, come late or come twice."""
    cuts: float = 0.5
    outages: float = 0.15
    crashes: float = 0.5
    pauses: float = 0.5
    jumps: float = 0.1

    def scaled(self, factor: float) -> Levels:
        """The same weather, milder or worse."""
        return Levels(**{field: getattr(self, field) * factor for field in self.__struct_fields__})


CALM = Levels().scaled(0)


class FaultPlan:
    """The weather that all processes share."""

    def __init__(self, chance: random.Random, chronicle: HistoryRecorder, levels: Levels) -> None:
        self.chance = chance
        self.chronicle = chronicle
        self.set_in(levels)
        self.outage_until = 0.0

    def set_in(self, levels: Levels) -> None:
        """From now on the weather is this bad."""
        self.levels = levels
        self.trouble = levels.broken + levels.slow
        """The share of statements to which anything happens."""


class FaultInjector:
    """The weather of one connection, and the pulse of the process behind it."""

    def __init__(self, sky: FaultPlan) -> None:
        self._sky = sky
        self.cut_until = 0.0
        self._loop = asyncio.get_running_loop()
        self.paused = False
        """Whether the process stands still."""
        self._awake = asyncio.Event()
        self._awake.set()

    def pause(self) -> None:
        """Stop the process where it is."""
        self.paused = True
        self._awake.clear()

    def resume(self) -> None:
        """Let it go on, believing what it believed before."""
        self.paused = False
        self._awake.set()

    async def awake(self) -> None:
        """Return while the process runs; a paused one waits here."""
        await self._awake.wait()

    def before(self, statement: str) -> Awaitable[None] | None:
        """Every statement: the process may stand still, the line may be cut, slow or lost; mostly it just goes on."""
        sky = self._sky
        now = self._loop.time()
        if self.paused or now < self.cut_until or now < sky.outage_until:
            return self._held_up(statement)
        drawn = sky.chance.random()
        return None if drawn >= sky.trouble else self._trouble(drawn)

    async def _held_up(self, statement: str) -> None:
        if self.paused:
            if statement.startswith(_OUTSIDE):
                await self.awake()
            else:
                await self._stand()
        sky = self._sky
        now = self._loop.time()
        if now < self.cut_until or now < sky.outage_until:
            await asyncio.sleep(1.0)
            raise Unavailable("the store cannot be reached")
        drawn = sky.chance.random()
        if drawn < sky.trouble:
            await self._trouble(drawn)

    async def _trouble(self, drawn: float) -> None:
        if drawn < self._sky.levels.broken:
            self._strike("statement_broken")
            raise Unavailable("the connection broke")
        self._strike("statement_slow")
        await asyncio.sleep(round(10 ** (self._sky.chance.random() * 3.3 - 3), 3))

    async def _stand(self) -> None:
        try:
            async with asyncio.timeout(_SESSION_PATIENCE):
                await self.awake()
        except TimeoutError:
            raise Unavailable("the server ended a session that stood still") from None

    async def before_commit(self) -> None:
        """The commit is on its way."""
        weather = self.before("commit")
        if weather is not None:
            await weather
        drawn = self._sky.chance.random()
        levels = self._sky.levels
        if drawn < levels.commit_refused:
            self._strike("commit_refused")
            raise Unavailable("the connection broke before the commit")
        if drawn < levels.commit_refused + levels.answer_lost / 2:
            self._strike("commit_lost_and_undone")
            raise AnswerLost

    async def after_commit(self) -> None:
        """It has taken place."""
        if self._sky.chance.random() < self._sky.levels.answer_lost / 2:
            self._strike("commit_lost_but_done")
            raise AnswerLost

    def carry(self) -> Sequence[float]:
        """A wake-up call to the other processes: it may arrive, or not, or late, or twice."""
        if self.paused or self._loop.time() < max(self.cut_until, self._sky.outage_until):
            return ()
        chance = self._sky.chance
        if chance.random() >= self._sky.levels.calls:
            return (0.0,)
        late = round(10 ** (chance.random() * 4 - 2), 3)
        fate, delays = chance.choice((("lost", ()), ("late", (late,)), ("twice", (0.0, late))))
        self._strike(f"call_{fate}")
        return delays

    def _strike(self, fault: str) -> None:
        self._sky.chronicle.struck(fault)
