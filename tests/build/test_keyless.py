"""Builders with and without a key over real sockets: who comes back under another name must claim again (C2, C6)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

import allswell
from allswell.build.agents import BuildAgent, BuildJob
from allswell.build.coordinator import Coordinator
from allswell.build.state import BuildPlace
from allswell.domain.build.announcements import AnnouncePace
from allswell.domain.build.component import BuildSpec, Component
from allswell.domain.build.hearing import Rights
from allswell.domain.build.limits import BuildLimits
from allswell.interfaces.chat.agentchat import AgentChat, ChatKey, ChatPlace, Reconnecting, read_key
from allswell.testing.chat import ChatRules, ChatServer

HERE = "#build"
SPEC = BuildSpec("shop", (Component("db"),), "https://x/spec")
QUICK = BuildLimits(progress_every=400, claim_window=20)
"""A builder is lost after 1.2 seconds of silence."""


def chat(server: ChatServer, key: ChatKey | None = None) -> AgentChat:
    place = ChatPlace(server.url, HERE, "somebody")
    return AgentChat(place, key, pace=AnnouncePace(spacing=15), reconnecting=Reconnecting(first=10, most=20))


@asynccontextmanager
async def coordinated(
    server: ChatServer, key: ChatKey, rights: Rights, limits: BuildLimits = QUICK
) -> AsyncIterator[str]:
    """A build with its coordinator; as whom it talks."""
    async with AsyncExitStack() as stack:
        watch = await stack.enter_async_context(allswell.open("memory:"))
        channel = await stack.enter_async_context(chat(server, key))
        place = await BuildPlace.find(watch, SPEC.name)
        coordinator = Coordinator(watch, channel, place, spec=lambda: SPEC, rights=rights, limits=limits)
        running = asyncio.ensure_future(coordinator.run())
        try:
            yield channel.who
        finally:
            running.cancel()
            await asyncio.wait({running})


async def told(server: ChatServer, line: str, times: int = 1) -> None:
    def holds() -> bool:
        said = [text.removesuffix(" (PROGRESS every 400ms)") for one in server.said for text in one.content.split("\n")]
        return said.count(line) >= times

    await asyncio.to_thread(server.wait_until, holds)


@pytest.mark.row("C1", "C6", "C8")
def test_a_builder_without_a_key_that_was_cut_off_is_somebody_else_and_claims_again(tmp_path: Path) -> None:
    async def scene() -> None:
        begun: list[str] = []
        with ChatServer(ChatRules(spacing=10, most_frames=10_000)) as server:
            async with coordinated(server, read_key(tmp_path / "c.pem"), Rights()) as boss, chat(server) as channel:

                async def work(_: BuildJob) -> str:
                    begun.append(channel.who)
                    if len(begun) == 1:
                        await asyncio.Event().wait()
                    return "https://x/pr"

                building = BuildAgent(channel, work, coordinator=boss, progress_every=0.2)
                running = asyncio.ensure_future(building.run())
                first = channel.who
                await told(server, f"ACK db {first}")
                server.cut(first)
                await asyncio.to_thread(server.wait_until, lambda: channel.who != first)
                second = channel.who
                await told(server, f'REJECT db {second} "you do not have it; {first} has it now"')
                await told(server, "TIMEOUT db")
                await told(server, f"ACK db {second}")
                await told(server, "READY db https://x/pr")
                server.tell("@auditor", HERE, "AUDIT db PASS")
                await told(server, "BUILD COMPLETE https://x/spec")
                await asyncio.wait_for(running, 10)
                assert begun == [first, second]  # and never both at once: the first was stopped

    asyncio.run(scene())


@pytest.mark.row("C2", "C8")
def test_a_bar_follows_a_key_and_where_keys_are_required_nobody_comes_without(tmp_path: Path) -> None:
    async def scene() -> None:
        with ChatServer(ChatRules(spacing=10, most_frames=10_000)) as server:
            key = read_key(tmp_path / "a.pem")
            rights = Rights(require_keys=True)
            async with coordinated(server, read_key(tmp_path / "c.pem"), rights), chat(server, key) as keyed:
                server.tell("@0123456789abcdef", HERE, "CLAIM db")  # so that there is another builder
                await told(server, "ACK db @0123456789abcdef")
                server.tell("@0123456789abcdef", HERE, "ABORT db enough")
                await told(server, "TASKS https://x/spec db", 2)
                async with chat(server) as nobody:
                    await nobody.send(["CLAIM db"])
                    await told(server, f'REJECT db {nobody.who} "claims need a key here"')
                await keyed.send(["CLAIM db"])
                await told(server, f"ACK db {keyed.who}")
                for number in range(3):
                    await keyed.send([f"READY db https://x/{number}"])
                    server.tell("@abcdef0123456789", HERE, f"AUDIT db FAIL {number}")
                    await told(server, f"AUDIT db FAIL {number}", 2)
                await told(server, "RETRY db")
                before = keyed.who
                server.cut(before)
                await keyed.send(["CLAIM db"])
                assert keyed.who == before
                why = "your work on it has failed 3 audits; leave it to another builder"
                await told(server, f'REJECT db {before} "{why}"')

    asyncio.run(scene())


@pytest.mark.row("C7", "C8")
def test_past_its_limit_a_human_is_asked_in_the_channel_and_agents_cannot_answer(tmp_path: Path) -> None:
    async def scene() -> None:
        with ChatServer(ChatRules(spacing=10, most_frames=10_000)) as server:
            key = read_key(tmp_path / "c.pem")
            limits = BuildLimits(progress_every=60_000, claim_window=20, build=100)
            async with coordinated(server, key, Rights(humans=["@human"]), limits):
                server.tell("@a", HERE, "CLAIM db")  # too late, or not: what counts is that a human is asked
                asked = await asyncio.to_thread(server.wait_for, lambda said: "longer than 100ms" in said.content)
                question, options = asked.content.split(" ANSWER ")[1].split()[:2]
                assert options == "extend|stop"
                server.tell("@a", HERE, f"ANSWER {question} stop")
                server.tell("@human", HERE, f"ANSWER {question} nonsense")
                await asyncio.to_thread(server.wait_for, lambda said: "has no option 'nonsense'" in said.content)
                assert not any("was stopped" in said.content for said in server.said)
                server.tell("@human", HERE, f"ANSWER {question} stop")
                await told(server, 'ERROR "the build was stopped by a human"')

    asyncio.run(scene())
