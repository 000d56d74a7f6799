"""The builder that docs/builds.md shows builds a project with a real coordinator."""

import asyncio
import re
import sys
from pathlib import Path

import allswell
from allswell.build.agents import AuditAgent, AuditTask
from allswell.build.coordinator import Coordinator
from allswell.build.state import BuildPlace
from allswell.domain.build.announcements import AnnouncePace
from allswell.domain.build.component import BuildSpec, Component
from allswell.domain.build.limits import BuildLimits
from allswell.interfaces.chat.agentchat import AgentChat, ChatPlace, read_key
from allswell.testing.chat import ChatRules, ChatServer

DOCS = Path(__file__).parents[2] / "docs" / "builds.md"
SPEC = BuildSpec("shop", (Component("db"), Component("api", ("db",))), "https://x/spec")


async def passes(_: AuditTask) -> tuple[bool, str]:
    return True, ""


def test_the_builder_of_the_documentation_builds_a_project(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(import asyncio, json.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(code.splitlines()) <= 34
    code = code.replace("sleep(1.1)", "sleep(0.05)")  # this server is told to take messages faster

    async def scene() -> None:
        def chat(name: str) -> AgentChat:
            return AgentChat(
                ChatPlace(server.url, "#build", name), read_key(tmp_path / name), pace=AnnouncePace(spacing=30)
            )

        with ChatServer(ChatRules(spacing=20)) as server:
            words = (sys.executable, "-c", code, server.url)
            builder = await asyncio.create_subprocess_exec(*words)  # before the channel is there
            async with allswell.open("memory:") as watch, chat("boss") as boss, chat("auditor") as auditor:
                place = await BuildPlace.find(watch, SPEC.name)
                limits = BuildLimits(claim_window=20)
                coordinator = Coordinator(watch, boss, place, spec=lambda: SPEC, limits=limits)
                auditing = asyncio.ensure_future(AuditAgent(auditor, passes, coordinator=boss.who).run())
                standing = await coordinator.run()
                await auditing
            assert await builder.wait() == 0
            assert {one.state for one in standing.components.values()} == {"merged"}

    asyncio.run(asyncio.wait_for(scene(), 60))
