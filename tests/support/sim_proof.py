"""Agents that say done and are not, supervisors that verify and die, operators and humans who decide: on virtual time.

The core and the engine are the real ones, on a memory store that several processes share. Every commit is looked at:
each event that breaks a promise of verification is told with the promise. `simulate_proof(seed, tasks=200)`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from allswell.app import make_watch
from allswell.domain.ids import TaskId
from allswell.domain.lease.verification import NOT_VERIFIED
from allswell.domain.rules.event import Event
from allswell.domain.task.model import OPEN, Policy
from allswell.engine.lease import Held, Lease
from allswell.engine.timings import Timings
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, LeaseLost, Refused
from allswell.store.memory import MemoryStore
from allswell.store.port import RowChanges
from allswell.testing.loop import VirtualClock, run, running_loop

_PROCESSES = 3
_AGENTS = 9
PACE = Timings(follow_poll=120.0, sweep_most=15.0, claim_poll=30.0)
_DAY = 4 * 3_600.0
"""Seconds in which everything may go wrong; within as many more every task must have ended."""
_LENGTH = 30_000


@dataclass
class ProofReport:
    """What has happened, and which promises were broken."""

    broken: list[str] = field(default_factory=list)
    passed: int = 0
    sent_back: int = 0
    asked: int = 0
    accepted: int = 0
    stale: int = 0
    by_hand: int = 0


@dataclass
class _Seen:
    """What the journal has told of one task."""

    most: int
    token: int = 0
    """Of the last claim."""
    held: bool = False
    failed: int = 0
    passed: int | None = None
    """The token of the attempt whose work has passed."""
    accepted: bool = False


class ProofAuditor:
    """Holds every commit to what verification promises."""

    def __init__(self, store: MemoryStore, report: ProofReport) -> None:
        self._store = store
        self._report = report
        self._seen: dict[TaskId, _Seen] = {}

    def __call__(self, written: Sequence[RowChanges]) -> None:
        """Look at what was committed."""
        for changes in written:
            for task, _ in changes.new_tasks:
                self._seen[task.id] = _Seen(task.spec.policy.verify_attempts)
            for event in changes.events:
                if event.task is not None:
                    self._hear(event, self._seen[event.task])
        for id_ in self._store.unaccounted():
            self._breaks("nothing hangs silently", id_)

    def _breaks(self, promise: str, what: object) -> None:
        if len(self._report.broken) < 20:
            self._report.broken.append(f"{promise}: {what}")

    def _hear(self, event: Event, seen: _Seen) -> None:
        hear: Callable[[Event, _Seen], None] | None = {
            "task_claimed": self._claimed,
            "task_verified": self._verified,
            "task_sent_back": self._sent_back,
            "task_completed": self._completed,
            "task_accepted": self._accepted,
            "question_asked": self._asked,
            "question_answered": self._answered,
        }.get(event.kind)
        if hear is not None:
            hear(event, seen)

    def _claimed(self, event: Event, seen: _Seen) -> None:
        seen.token = event.token or 0
        seen.held = True

    def _verified(self, event: Event, seen: _Seen) -> None:
        if event.token is not None and event.token != seen.token:
            self._breaks("a verdict on a lease that is over counts for nothing", event)
        if event.data["passed"]:
            seen.passed = seen.token
            self._report.passed += 1
        elif event.token is not None:
            seen.failed += 1
            if event.data["failed"] != seen.failed:
                self._breaks("failures are counted since a human last decided", f"{event}, not {seen.failed}")

    def _sent_back(self, event: Event, seen: _Seen) -> None:
        self._report.sent_back += 1
        if seen.failed >= seen.most:
            self._breaks("a human is asked after so many failures, and not later", event)

    def _asked(self, event: Event, _: _Seen) -> None:
        if event.data["kind"] == NOT_VERIFIED:
            self._report.asked += 1

    def _answered(self, _: Event, seen: _Seen) -> None:
        seen.failed = 0

    def _accepted(self, _: Event, seen: _Seen) -> None:
        seen.accepted = True
        self._report.accepted += 1

    def _completed(self, event: Event, seen: _Seen) -> None:
        if seen.passed != seen.token:
            self._breaks("what was not verified is not done", event)

    def check_end(self) -> None:
        """Every task has come to its end, and is done only if it was verified or accepted."""
        for id_, seen in self._seen.items():
            task = self._store.database.tables.tasks[id_]
            if task.state == OPEN:
                self._breaks("every task ends", id_)
            if task.state == "done" and seen.passed is None and not seen.accepted:
                self._breaks("what was not verified is not done", id_)


class _Fleet:
    """Everybody who does something."""

    def __init__(self, seed: int, report: ProofReport) -> None:
        self.chance = random.Random(f"proof {seed}")
        self.report = report
        self.calm = False
        self._old: list[Held] = []

    async def work(self, watch: Watch, agent: str) -> None:
        """Claim, say done, have it verified or not; die, or come back with a verdict that is too late."""
        chance = self.chance
        while True:
            lease = await watch.claim(agent=agent, lease=_LENGTH, wait=60_000)
            if lease is None:
                continue
            self._old = [*self._old, watch.held(lease.task, lease.token, agent)][-20:]
            await asyncio.sleep(chance.choice((1, 20, 200)))
            drawn = 1.0 if self.calm else chance.random()
            if drawn < 0.1:  # its process dies, before or after it has said done
                await self._quietly(lease.complete("claimed") if chance.random() < 0.5 else lease.checkin("working"))
                lease.over = True
            elif drawn < 0.2:
                await self._quietly(lease.fail("it broke"))
            elif drawn < 0.3:
                await self._quietly(lease.complete("claimed"))
                await asyncio.sleep(600)  # nobody verifies it; somebody may by hand
                lease.over = True
            else:
                await self._verify(lease)

    async def _verify(self, lease: Lease) -> None:
        chance = self.chance
        if chance.random() < 0.5:
            await self._quietly(lease.complete("claimed"))
        await asyncio.sleep(chance.choice((1, 10, 100)))
        passed = self.calm or chance.random() < 0.3
        hold = chance.random() < 0.2
        await self._quietly(lease.verified(passed=passed, why="so", result="brought", hold=hold))
        if hold and not passed:
            await self._quietly(lease.verified(passed=True, why="mended", result="brought"))
        lease.over = True

    async def haunt(self) -> None:
        """Verdicts of those whose leases are long over."""
        while True:
            await asyncio.sleep(self.chance.choice((50, 500)))
            if self._old and not self.calm:
                try:
                    await self.chance.choice(self._old[:10]).verified(passed=True, why="from the grave", result="stale")
                except LeaseLost:
                    self.report.stale += 1
                except Refused:
                    pass

    async def decide(self, watch: Watch) -> None:
        """Humans answer, and operators verify by hand what waits."""
        while True:
            await asyncio.sleep(self.chance.choice((60, 900)))
            for question in await watch.questions():
                if question.task is None:
                    continue
                row = await watch.task(question.task)
                if row is not None and row.task.record.handover is not None and self.chance.random() < 0.3:
                    held = watch.held(row.task.id, row.task.record.token, row.task.record.handover.agent)
                    passed = self.chance.random() < 0.5
                    self.report.by_hand += await self._quietly(held.verified(passed=passed, why="so", by="op"))
                    continue
                options = [option.key for option in question.options if option.key != "split"]
                choice = "skip" if self.calm and "skip" in options else self.chance.choice(options)
                await self._quietly(watch.answer(question.id, choice, "so it is"))

    async def _quietly(self, saying: Awaitable[object]) -> bool:
        try:
            await saying
        except (LeaseLost, Refused):
            return False
        return True


def simulate_proof(seed: int, *, tasks: int = 200) -> ProofReport:
    """One history; the same seed has the same one."""

    async def main() -> ProofReport:
        report = ProofReport()
        fleet = _Fleet(seed, report)
        clock = VirtualClock()
        store = MemoryStore(clock=clock, turn=running_loop().turn)
        auditor = ProofAuditor(store, report)
        store.on_commit = auditor
        stores = [store, *(store.another() for _ in range(_PROCESSES - 1))]
        watches = [
            make_watch(one, clock=clock, chance=random.Random(f"{seed} {number}"), pace=PACE)
            for number, one in enumerate(stores)
        ]
        for watch in watches:
            await watch.__aenter__()
        made = [
            {"name": f"n{number}", "policy": Policy(verify=("check",), verify_attempts=1 + number % 3)}
            for number in range(tasks)
        ]
        await watches[0].submit_many(made)
        working = [fleet.work(watches[number % _PROCESSES], f"a{number}") for number in range(_AGENTS)]
        living = [asyncio.ensure_future(one) for one in (*working, fleet.haunt(), fleet.decide(watches[0]))]
        for fleet.calm in (False, True):
            until = running_loop().time() + _DAY
            while store.database.tables.open_tasks and running_loop().time() < until:
                await asyncio.sleep(60)
        for one in living:
            one.cancel()
        for ended in await asyncio.gather(*living, return_exceptions=True):
            if isinstance(ended, AllswellError):
                report.broken.append(f"nobody meets a bug of ours: {ended}")
        auditor.check_end()
        for watch in watches:
            await watch.__aexit__(None, None, None)
        return report

    return run(main(), seed=seed, max_steps=500_000_000)
