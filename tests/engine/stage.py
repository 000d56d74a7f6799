"""A watch on the memory store, on virtual time; what every test of the engine plays on.

While a scene plays, each commit is held to two promises: every event has exactly the fields of its kind, and no open
task is ever without something that will move it. What broke them is told when the scene is over.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TypeVar

import msgspec

from allswell import Watch, make_watch
from allswell.domain.rules.event import KINDS, Event, Position
from allswell.domain.task.model import Policy
from allswell.engine.timings import DEFAULT_PACE, Timings
from allswell.errors import Unavailable
from allswell.store.memory import AnswerLost, Faults, MemoryStore
from allswell.store.port import RowChanges
from allswell.testing.loop import VirtualClock, run, running_loop

T = TypeVar("T")
MINUTE = 60
Scene = Callable[["Stage"], Coroutine[object, object, T]]


class Stage:
    """What a scene can touch."""

    def __init__(self, *, faults: Faults | None, pace: Timings, policies: Mapping[str, Policy] | None) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(clock=self.clock, faults=faults, turn=running_loop().turn)
        self.store.on_commit = self._committed
        self.pace = pace
        self.commits: list[list[RowChanges]] = []
        self.wrong: list[str] = []
        self.watch = self.another(policies=policies, store=self.store)

    def another(
        self,
        *,
        seed: int = 1,
        faults: Faults | None = None,
        policies: Mapping[str, Policy] | None = None,
        store: MemoryStore | None = None,
    ) -> Watch:
        """A second process's watch on the same rows, not yet open."""
        place = store or self.store.another(faults=faults)
        return make_watch(place, clock=self.clock, chance=random.Random(seed), pace=self.pace, policies=policies)

    def _committed(self, written: list[RowChanges]) -> None:
        self.commits.append(written)
        events = [event for changes in written for event in changes.events]
        self.wrong += [told for event in events for told in check_event(event)]
        self.wrong += [f"{task} would hang silently" for task in self.store.unaccounted()]

    @property
    def seconds(self) -> float:
        """How much virtual time has passed."""
        return running_loop().time()

    def contents(self) -> dict[str, bytes]:
        """Every row there is, as text, to be compared. Lanes and timers' heaps are no rows."""
        tables = self.store.database.tables
        names = ("tasks", "leases", "ready", "timers", "waits", "bars", "agents", "questions", "runs", "services")
        more = ("spreads", "attempts", "payloads", "results")
        rows = {name: repr(sorted(getattr(tables, name).items(), key=repr)).encode() for name in (*names, *more)}
        journal = self.store.database.journal(Position(), 1_000_000)
        return {**rows, "journal": msgspec.json.encode([entry.event for entry in journal])}

    async def told(self, *kinds: str) -> list[Event]:
        """The journal's events of these kinds, or all."""
        return [entry.event async for entry in self.watch.events() if not kinds or entry.event.kind in kinds]


def check_event(event: Event) -> Sequence[str]:
    """What is wrong with an event, held against the catalogue."""
    kind = KINDS.get(event.kind)
    if kind is None:
        return [f"{event.kind} is not in the catalogue"]
    if set(event.data) not in (set(kind.fields), {*kind.fields, "key"}):  # what came with a key is signed with its name
        return [f"{event.kind} has {sorted(event.data)}, not {sorted(kind.fields)}"]
    return []


def play(
    scene: Scene[T],
    *,
    seed: int | None = 1,
    faults: Faults | None = None,
    pace: Timings = DEFAULT_PACE,
    policies: Mapping[str, Policy] | None = None,
    max_steps: int = 2_000_000,
) -> T:
    """Open a watch on virtual time, play the scene, and hold what was committed to the promises above."""

    async def main() -> T:
        stage = Stage(faults=faults, pace=pace, policies=policies)
        async with stage.watch:
            result = await scene(stage)
        assert stage.wrong == [], "; ".join(stage.wrong[:10])
        return result

    return run(main(), seed=seed, max_steps=max_steps)


class Weather:
    """The faults of one connection, set by the scene as it goes."""

    def __init__(self) -> None:
        self.down = False
        """Nothing can be reached."""
        self.lost: list[bool] = []
        """For each of the next commits whose answer is lost: whether it takes place."""
        self.on: Callable[[str], Awaitable[None]] | None = None

    async def before(self, statement: str) -> None:
        if self.on is not None:
            await self.on(statement)
        if self.down:
            raise Unavailable("the store cannot be reached")

    async def before_commit(self) -> None:
        if self.down:
            raise Unavailable("the store cannot be reached")
        if self.lost and not self.lost[0]:
            self.lost.pop(0)
            raise AnswerLost

    async def after_commit(self) -> None:
        if self.lost and self.lost[0]:
            self.lost.pop(0)
            raise AnswerLost
