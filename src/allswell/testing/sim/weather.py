"""What can happen to a process and to its connection, and how often.

Every process has a weather of its own; the sky is what they share: the store's outages and the one source of chance.
A paused process (SIGSTOP) stands still at its next statement. If it stands inside a transaction, the server ends its
session after a while, as servers are set up to do, so that its locks do not stop everybody else.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Sequence

import msgspec

from allswell.errors import Unavailable
from allswell.store.memory import AnswerLost
from allswell.testing.sim.report import Chronicle

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


class Sky:
    """The weather that all processes share."""

    def __init__(self, chance: random.Random, chronicle: Chronicle, levels: Levels) -> None:
        self.chance = chance
        self.chronicle = chronicle
        self.set_in(levels)
        self.outage_until = 0.0

    def set_in(self, levels: Levels) -> None:
        """From now on the weather is this bad."""
        self.levels = levels
        self.trouble = levels.broken + levels.slow
        """The share of statements to which anything happens."""


class Weather:
    """The weather of one connection, and the pulse of the process behind it."""

    def __init__(self, sky: Sky) -> None:
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
