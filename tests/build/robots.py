"""Builders and auditors that do what the protocol says, by chance and with bad luck, on virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine

from allswell.domain.build.hearing import HeardMessage
from allswell.domain.build.line import (
    AckLine,
    AuditLine,
    CompleteLine,
    MergedLine,
    ReadyLine,
    RejectLine,
    RetryLine,
    TasksLine,
    TimeoutLine,
    read,
)
from tests.build.scene import COORDINATOR, BuildScene


class Luck:
    """How bad the world is; each is the chance of it at one message or piece of work."""

    def __init__(self, seed: int, *, lost: float = 0.0, doubled: float = 0.0, late: float = 0.0) -> None:
        self.chance = random.Random(seed)
        self.lost = lost
        """A robot is cut off for a while and does not hear what is said meanwhile."""
        self.doubled = doubled
        self.late = late

    def happens(self, share: float) -> bool:
        return self.chance.random() < share


class Robot:
    """Somebody in the room; what it hears may be lost, and what it says may come late or twice."""

    def __init__(self, build: BuildScene, name: str, luck: Luck) -> None:
        self.build = build
        self.name = name
        self.luck = luck
        self.work: set[asyncio.Task[None]] = set()
        self.channel = build.room.join(name)

    async def live(self) -> None:
        deaf_until = 0.0
        while True:
            heard = await self.channel.receive()
            if self.build.stage.seconds < deaf_until:
                continue
            if self.luck.happens(self.luck.lost):
                deaf_until = self.build.stage.seconds + self.luck.chance.uniform(60, 2_400)
                continue
            self.hear(heard)

    def hear(self, heard: HeardMessage) -> None:
        raise NotImplementedError

    def start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self.work.add(task)
        task.add_done_callback(self.work.discard)

    async def say(self, line: str) -> None:
        await self.channel.connected()
        at = None
        if self.luck.happens(self.luck.late):  # the server has dated it; it arrives later, after others
            at = self.build.stage.clock.wall()
            await asyncio.sleep(self.luck.chance.uniform(0, 5))
        heard = await self.build.room.say(self.name, line, at=at)
        if self.luck.happens(self.luck.doubled):
            await self.build.room.say(self.name, line, at=heard.at, id_=heard.id)


class Builder(Robot):
    """Claims what is free and builds it, badly at times."""

    def __init__(self, build: BuildScene, name: str, luck: Luck, *, fails: float = 0.0) -> None:
        super().__init__(build, name, luck)
        self.fails = fails
        self.holds = ""
        self.wants = ""
        self.never: set[str] = set()
        self.claims = 0

    def hear(self, heard: HeardMessage) -> None:
        if heard.who != COORDINATOR:
            return
        for line in read(heard.text):
            match line:
                case TasksLine(_, free) if not self.holds and not self.wants:
                    wanted = [name for name in free if name not in self.never]
                    if wanted:
                        self.wants = self.luck.chance.choice(wanted)
                        self.start(self._claim(self.wants))
                case AckLine(component, agent) if agent == self.name:
                    self.holds, self.wants = component, ""
                    self.start(self._build(component))
                case AckLine(component, _) if component == self.wants:
                    self.wants = ""
                case RejectLine(component, agent, reason) if agent == self.name:
                    self.wants = self.holds = ""
                    if "failed" in reason:
                        self.never.add(component)
                case TimeoutLine(component) | RetryLine(component) | MergedLine(component) if component == self.holds:
                    self.holds = ""
                    if isinstance(line, RetryLine):
                        self.never.add(component)
                case AuditLine(component, False) if component == self.holds:
                    self.start(self._build(component))
                case _:
                    pass

    async def _claim(self, component: str) -> None:
        self.claims += 1
        mine = self.claims
        await asyncio.sleep(self.luck.chance.uniform(0, 3))
        if mine != self.claims or self.wants != component:
            return  # it was offered anew meanwhile, and is claimed by that; or somebody else has it
        await self.say(f"CLAIM {component}")
        await asyncio.sleep(120)
        if self.wants == component and mine == self.claims:
            self.wants = ""  # nobody answered

    async def _build(self, component: str) -> None:
        for _ in range(self.luck.chance.randrange(4)):
            await asyncio.sleep(self.luck.chance.uniform(30, 500))
            if self.holds != component:
                return
            await self.say(f"PROGRESS {component} {self.luck.chance.randrange(100)}%")
        if self.luck.happens(0.05):
            await self.say(f'ABORT {component} "no luck"')
            self.holds = ""
            return
        if self.holds == component:
            await self.say(f"READY {component} https://x/{self.name[1:]}/{self.luck.chance.randrange(1_000)}")


class Auditor(Robot):
    """Looks at what is ready; the work of some is bad."""

    def __init__(self, build: BuildScene, name: str, luck: Luck, *, fails: float = 0.0) -> None:
        super().__init__(build, name, luck)
        self.fails = fails
        self.seen: Counter[str] = Counter()

    def hear(self, heard: HeardMessage) -> None:
        for line in read(heard.text):
            if isinstance(line, ReadyLine):
                self.start(self._audit(line))

    async def _audit(self, ready: ReadyLine) -> None:
        await asyncio.sleep(self.luck.chance.uniform(1, 400))
        verdict = "FAIL no tests" if self.luck.happens(self.fails) else "PASS"
        await self.say(f"AUDIT {ready.component} {verdict}")


class Human(Robot):
    """Answers every question with its first option, after a while."""

    async def _answer(self, question: str, option: str) -> None:
        await asyncio.sleep(self.luck.chance.uniform(10, 600))
        await self.say(f"ANSWER {question} {option}")

    def hear(self, heard: HeardMessage) -> None:
        if heard.who != COORDINATOR:
            return
        for text in heard.text.split("\n"):
            words = text.rsplit(" ANSWER ", 1)
            if text.startswith("ESCALATE") and len(words) == 2:
                question, options = words[1].split()
                self.start(self._answer(question, options.split("|")[0]))


def is_over(build: BuildScene) -> bool:
    """Whether the coordinator has said that all is merged."""
    return any(isinstance(line, CompleteLine) for text in build.lines[-5:] for line in read(text))
