"""The simulated world: several processes on one store, bad weather, a day's work, and a calm evening.

The core and the engine are the real ones. Time is virtual, and all chance comes from one seeded generator, so a seed is
a history: the same seed gives the same commits and the same answers, byte for byte. During the day everything goes
wrong that can. In the evening the weather clears and everybody is honest: then every task must come to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterator

from allswell.domain.rules.event import Position
from allswell.engine import sweeper, watch
from allswell.engine.watch import Watch
from allswell.store.memory import MemoryStore
from allswell.store.port import RowChanges
from allswell.testing.loop import DeterministicLoop, LoopStuck, Runaway, VirtualClock, run, running_loop
from allswell.testing.sim.agents import Program, SimAgent, SimLoad
from allswell.testing.sim.ledger import SimLedger
from allswell.testing.sim.process import PACE, SimClient, SimProcess
from allswell.testing.sim.report import CALM, Broken, FaultPlan, HistoryRecorder, Levels, SimReport
from allswell.timing.loops import Nursery

_STEPS_AN_HOUR = 50_000
_EVENING = 8.0
"""Hours of calm after which every task must have ended."""
_PROMPT = PACE.sweep_most + 90.0
"""Within so many seconds a live sweeper handles what is due."""
_ASLEEP = 1_800_000
"""Milliseconds that a machine sleeps; all other jumps are clocks that are set."""


def simulate(
    seed: int,
    *,
    hours: float = 20.0,
    levels: Levels | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> SimReport:
    """Live through a day with this seed; the same seed gives the same report, to the byte.

    `on_progress` is told the share of the day that has passed; it hears of it at commits, and so changes nothing.
    """
    chronicle = HistoryRecorder(seed, hours)
    world = World(seed, hours, levels, chronicle)
    world.on_progress = on_progress
    steps = int((hours + _EVENING) * _STEPS_AN_HOUR)
    try:
        with _chunks(random.Random(seed).choice((2, 3, 500))), _complaints(world):
            run(world.pass_by(), seed=seed, max_steps=steps)
    except (LoopStuck, Runaway) as stopped:
        chronicle.report.broken.append(Broken("the world goes on", 0.0, str(stopped)))
    return chronicle.close()


@contextlib.contextmanager
def _chunks(size: int) -> Iterator[None]:
    """Make chunks so small that a day's work needs more than one."""
    before = sweeper.CHUNK, watch.CHUNK
    sweeper.CHUNK, watch.CHUNK = size, size * 4
    try:
        yield
    finally:
        sweeper.CHUNK, watch.CHUNK = before


class _Complaints(logging.Handler):
    """What the engine survives and only reports is a bug all the same."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._world.ledger.breaks("no rule of our own is broken", f"{record.getMessage()}: {error!r}")


@contextlib.contextmanager
def _complaints(world: World) -> Iterator[None]:
    """Hear what the engine logs, and keep it from everybody else."""
    logger = logging.getLogger("allswell")
    handler = _Complaints(world)
    passes_on, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = passes_on


class World:
    """Everything there is, for one seed."""

    def __init__(self, seed: int, hours: float, levels: Levels | None, chronicle: HistoryRecorder) -> None:
        self.hours = hours
        self.chronicle = chronicle
        self.chance = random.Random(seed)
        self.levels = levels or Levels().scaled(self.chance.choice((0.2, 1.0, 1.0, 2.0)))
        self.calm = False
        self.callers: list[asyncio.Task[None]] = []
        self.jumped_at = 0.0
        self.last_word = Position()
        self.on_progress: Callable[[float], None] | None = None

    def _committed(self, written: list[RowChanges]) -> None:
        self.ledger.committed(written)
        if self.on_progress is not None:
            self.on_progress(min(1.0, running_loop().time() / 3_600 / self.hours))

    async def pass_by(self) -> None:
        """The whole day, or as much of it as passes before a promise is broken."""
        loop = running_loop()
        self._build(loop)
        broken = asyncio.Event()
        self.ledger.on_break = broken.set
        async with Nursery() as everything:
            for process in self.processes:
                everything.start(process.live(), name=f"process {process.number}")
            everything.start(self.load.answer(), name="humans")
            for work in (self.load.submit(), self.load.submit(), self.load.call_off()):
                self.callers.append(everything.start(work))
            everything.start(self._inspect(), name="inspector")
            day = everything.start(self._day(), name="day")
            stop = everything.start(broken.wait())
            await asyncio.wait((day, stop), return_when=asyncio.FIRST_COMPLETED)
            everything.cancel()
        if not self.chronicle.report.broken:
            self._close()

    def _build(self, loop: DeterministicLoop) -> None:
        shared = self.chance.random() < 0.5
        self.store_clock = VirtualClock()
        store = MemoryStore(clock=self.store_clock, strict=True, shared_clock=shared, turn=loop.turn)
        self.store = store
        self.ledger = SimLedger(store.database, self.chronicle, loop.time)
        store.on_commit = self._committed
        self.desk = SimClient(self.ledger)
        self.sky = FaultPlan(self.chance, self.chronicle, self.levels)
        count = self.chance.randint(2, 4)
        self.processes = [SimProcess(number, store, self.desk, self.sky) for number in range(count)]
        names = []
        for process in self.processes:
            if not shared:
                process.clock = self.store_clock
            for number in range(self.chance.randint(2, 3)):
                names.append(f"agent-{process.number}-{number}")
                agent = SimAgent(names[-1], lambda: self.calm, self.watches)
                process.inhabitants.append(agent.work)
            process.inhabitants.append(Program(process.number, self.chance, lambda: self.calm).work)
        self.load = SimLoad(self.desk, self.chance, self.watches, names)

    def watches(self) -> list[Watch]:
        """The watches of the processes that are alive."""
        return [process.watch for process in self.processes if process.watch is not None]

    async def _day(self) -> None:
        weather = asyncio.create_task(self._chaos())
        await asyncio.sleep(self.hours * 3600)
        weather.cancel()
        self.sky.set_in(CALM)
        self.sky.outage_until = 0.0
        self.calm = self.load.calm = True
        for process in self.processes:
            process.weather.resume()
            process.weather.cut_until = 0.0
            process.restart()
        tables = self.ledger.tables
        for _ in range(int(_EVENING * 60)):
            await asyncio.sleep(60)
            speaking = any(not caller.done() for caller in self.callers)
            if not (speaking or tables.open_tasks or tables.spreads or tables.open_questions):
                break
        else:
            stuck = next(iter(tables.open_tasks), "none")
            left = f"{len(tables.open_tasks)} tasks, {len(tables.spreads)} spreads, questions {tables.open_questions}"
            self.ledger.breaks("every task comes to its end", f"{left}; {stuck}: {self.ledger.story(stuck)}")
        self.last_word = max(entry.position for entry in self.ledger.database._entries)  # noqa: SLF001 - all of them
        await asyncio.sleep(3 * PACE.follow_poll)

    def _close(self) -> None:
        """What must hold when all is over."""
        ledger, tables = self.ledger, self.ledger.tables
        self.desk.check_at_the_end()
        ledger.check_order_at_the_end()
        leases, ready = len(tables.leases), len(tables.ready)
        if leases or ready or tables.waits or any(owner.startswith("t_") for owner in tables.timers):
            ledger.breaks(
                "an ended task leaves no rows behind",
                f"{leases} leases, {list(tables.timers)}, {ready} ready, {tables.waits}",
            )
        told = [entry.position for entry in ledger.database._entries if entry.position <= self.last_word]  # noqa: SLF001
        for process in self.processes:
            seen = [position for position in process.seen if position <= self.last_word]
            if seen != told:
                text = f"follower {process.number} saw {len(seen)} of {len(told)}"
                ledger.breaks("followers see every event in order", text)

    # --- the weather ------------------------------------------------------------------------------------------------

    async def _chaos(self) -> None:
        """One misfortune after another."""
        levels, chance = self.levels, self.chance
        rates = [levels.cuts, levels.outages, levels.crashes, levels.pauses, levels.jumps]
        if not sum(rates):
            return
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(chance.expovariate(sum(rates)) * 3600)
            process = chance.choice(self.processes)
            length = chance.choice((5.0, 20.0, 90.0, 400.0))
            match chance.choices(("cut", "outage", "crash", "pause", "jump"), rates)[0]:
                case "cut":
                    self.chronicle.struck("connection_cut")
                    process.weather.cut_until = loop.time() + length
                case "outage":
                    self.chronicle.struck("store_outage")
                    self.sky.outage_until = loop.time() + length
                case "crash":
                    self.chronicle.struck("process_crashed")
                    process.crash()
                    loop.call_later(length, process.restart)
                case "pause":
                    self.chronicle.struck("process_paused")
                    process.weather.pause()
                    process.healthy_since = float("inf")
                    loop.call_later(length, self._resume, process)
                case "jump":
                    self._jump(process)

    def _resume(self, process: SimProcess) -> None:
        process.weather.resume()
        if process.watch is not None:
            process.healthy_since = asyncio.get_running_loop().time()

    def _jump(self, process: SimProcess) -> None:
        """A wall clock is set, or a machine slept: of the store's machine, or of a client's."""
        self.chronicle.struck("clock_jumped")
        by = self.chance.choice((-20_000, 3_000, 60_000, _ASLEEP))
        if by == _ASLEEP:
            process.clock.suspend(by)
        else:
            process.clock.jump_wall(by)
        if process.clock is self.store_clock:
            self.ledger.shadow.jumped = True
            self.jumped_at = asyncio.get_running_loop().time()

    # --- promptness -------------------------------------------------------------------------------------------------

    async def _inspect(self) -> None:
        """With a live sweeper nothing is late: neither what is due nor the consequences of what has ended."""
        loop = running_loop()
        database = self.ledger.database
        first_seen: dict[str, float] = {}
        while True:
            await asyncio.sleep(60)
            spreads = database.tables.spreads
            first_seen = {id_: first_seen.get(id_, loop.time()) for id_ in spreads}
            since = max(self._sweeping_since(), self.jumped_at)
            if loop.time() - since < _PROMPT:
                continue
            due = database.tables.timer_order[0] if database.tables.timer_order else None
            if due is not None and database.see()[0] - due[0] > _PROMPT * 1000:
                late = f"{due[1]} is {database.see()[0] - due[0]} ms over"
                self.ledger.breaks("a deadline is never late", f"{late}: {self.ledger.story(due[1])}")
            if any(loop.time() - seen > 2 * _PROMPT for seen in first_seen.values()):
                self.ledger.breaks("a deadline is never late", f"spreads {list(first_seen)} are not worked off")

    def _sweeping_since(self) -> float:
        """Since when at least one process could sweep."""
        sky = self.sky.outage_until
        return min(max(process.healthy_since, process.weather.cut_until, sky) for process in self.processes)
