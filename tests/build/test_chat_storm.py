"""A build over sockets while everything goes wrong that real chat servers do: nothing is lost, nothing is done twice.

Secrets in texts are replaced, new keys must wait, messages of megabytes are in every replay, connections break, the
server forgets its channels, and the coordinator is started anew. `ALLSWELL_CHAT_BUILDERS=20` is for `make chaos`.
"""

import asyncio
import os
import random
from collections import Counter
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path

import pytest

import allswell
from allswell.build.agents import AuditAgent, AuditTask, BuildAgent, BuildJob
from allswell.build.coordinator import Coordinator
from allswell.build.state import BuildPlace
from allswell.domain.build.announcements import AnnouncePace
from allswell.domain.build.component import BuildSpec, Component
from allswell.domain.build.limits import BuildLimits
from allswell.domain.task.model import TaskFilter
from allswell.engine.watch import Watch
from allswell.interfaces.chat.agentchat import AgentChat, ChatPlace, Reconnecting, read_key
from allswell.testing.chat import ChatRules, ChatServer

BUILDERS = int(os.environ.get("ALLSWELL_CHAT_BUILDERS", "4"))
HERE = "#build"
SECRET = "AKIAABCDEFGHIJKLMNOP"
RULES = ChatRules(spacing=15, most_frames=100_000, replayed=200, lurking=200, lurkers_speak=False)
LIMITS = BuildLimits(claim_window=20, audit_timeout=1_500, tasks_every=1_500, progress_every=20_000, audit_failures=99)


def spec_of(count: int) -> BuildSpec:
    parts = [Component(f"c{number}", (f"c{number // 2}",) if number else ()) for number in range(count)]
    return BuildSpec("storm", tuple(parts), "https://x/spec")


class Storm:
    """A server, a crew, and what befalls them."""

    def __init__(self, server: ChatServer, folder: Path, stack: AsyncExitStack) -> None:
        self.server = server
        self.folder = folder
        self.store = f"sqlite:///{folder}/store.db"
        self.stack = stack
        self.chance = random.Random(1)
        self.spec = spec_of(BUILDERS * 2)
        self.failed: set[str] = set()
        self.crew: list[asyncio.Task[None]] = []

    def chat(self, name: str) -> AgentChat:
        pace = AnnouncePace(spacing=20, echo=1_000)
        key = read_key(self.folder / name)
        return AgentChat(ChatPlace(self.server.url, HERE, name), key, pace=pace, reconnecting=Reconnecting(5, 40))

    async def coordinate(self) -> bool:
        """One life of the coordinator; whether the build is over."""
        async with allswell.open(self.store) as watch, self.chat("boss") as channel:
            place = await BuildPlace.find(watch, self.spec.name, lease=2_000)
            standing = await Coordinator(watch, channel, place, spec=lambda: self.spec, limits=LIMITS).run()
            return standing.is_over

    async def build(self, job: BuildJob) -> str:
        await asyncio.sleep(self.chance.uniform(0, 0.1))
        return f"https://x/{job.component}"

    async def audit(self, task: AuditTask) -> tuple[bool, str]:
        if task.component not in self.failed:
            self.failed.add(task.component)
            return False, f"{task.component} prints {SECRET}"
        return True, ""

    async def join(self, boss: str) -> None:
        for number in range(BUILDERS):
            channel = await self.stack.enter_async_context(self.chat(f"builder-{number}"))
            self.crew.append(asyncio.ensure_future(BuildAgent(channel, self.build, coordinator=boss).run()))
        channel = await self.stack.enter_async_context(self.chat("auditor"))
        self.crew.append(asyncio.ensure_future(AuditAgent(channel, self.audit, coordinator=boss).run()))

    async def rage(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(self.chance.uniform(0.05, 0.3))
            members = [member.name_on_wire for member in self.server.members if member.agent_id]
            match self.chance.randrange(6):
                case 0:
                    self.server.tell("@noise", HERE, "x" * 2_000_000)
                case 1:
                    self.server.tell("@noise", HERE, f"CLAIM {self.chance.choice(self.spec.components).name} {SECRET}")
                case _:
                    self.server.cut(self.chance.choice(members or ["@nobody"]))


async def everything_once(watch: Watch, said: Counter[str], spec: BuildSpec) -> None:
    for row in await watch.tasks(TaskFilter(role="build.component", limit=1_000)):
        attempts = await watch.attempts(row.task.id)
        assert all(one.ended_at <= following.granted_at for one, following in pairwise(attempts))
        assert row.task.state == "done"
    for component in spec.components:
        assert said[f"MERGED {component.name}"] == 1, component.name


@pytest.mark.row("C6", "C8")
def test_a_build_over_a_chat_that_does_all_that_real_ones_do_ends_with_everything_merged_once(tmp_path: Path) -> None:
    async def scene() -> None:
        with ChatServer(RULES) as server:
            async with AsyncExitStack() as stack:
                storm = Storm(server, tmp_path, stack)
                over = False
                raging: asyncio.Task[None] | None = None
                lives = 0
                boss = ""
                while not over:
                    living = asyncio.ensure_future(storm.coordinate())
                    lives += 1
                    if raging is None:
                        offered = await asyncio.to_thread(
                            server.wait_for, lambda said: said.content.startswith("TASKS")
                        )
                        boss = offered.who
                        await storm.join(boss)
                        raging = asyncio.ensure_future(storm.rage())
                    await asyncio.wait({living}, timeout=storm.chance.uniform(0.5, 2) if lives < 6 else None)
                    over = living.done() and living.result()
                    if not living.done():
                        living.cancel()
                        await asyncio.wait({living})
                assert raging is not None
                raging.cancel()
                await asyncio.wait_for(asyncio.gather(*storm.crew), 30)  # everybody has heard that it is over
                said = Counter(line for one in server.said if one.who == boss for line in one.content.split("\n"))
                async with allswell.open(storm.store) as watch:
                    await everything_once(watch, said, storm.spec)
                assert any("[REDACTED" in line for line in said)
                assert lives > 1

    asyncio.run(asyncio.wait_for(scene(), 60 + BUILDERS * 20))
