"""Our client against what real servers have said: it knows itself, its echo and what it missed on each of them (C8).

A tape plays the part of the server: to each frame of ours it answers what the real one answered the recorded client.
"""

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from allswell.domain.build.announcements import AnnouncePace
from allswell.domain.build.line import read
from allswell.errors import Refused
from allswell.interfaces.chat.agentchat import AgentChat, ChatKey, ChatPlace, Reconnecting, read_key
from tests.interfaces.chat.recordings import FROM_SERVER, NAMES, OPENED, TO_SERVER, recording

pytestmark = pytest.mark.row("C8")

OPEN = [name for name in NAMES if not name.endswith("defaults")]
HERE = "#build"


class Tape:
    """What one client of a recording has heard, as answers to what it sent."""

    def __init__(self, name: str, client: str, connection: int = 0) -> None:
        self._answers: dict[str, deque[list[dict[str, Any]]]] = {}
        self.welcome: dict[str, Any] = {}
        opened = -1
        last = ""
        current: list[dict[str, Any]] = []
        for one in recording(name):
            if one.client != client:
                continue
            opened += one.way == OPENED
            if opened != connection:
                continue
            if one.way == TO_SERVER and (last != one.frame["type"] or current):  # a burst is answered as one
                current = []
                last = one.frame["type"]
                self._answers.setdefault(one.frame["type"], deque()).append(current)
            elif one.way == FROM_SERVER and not (opened and _is_of_the_first_connection(one.frame)):
                current.append(one.frame)
                self.welcome = one.frame if one.frame["type"] == "WELCOME" else self.welcome

    @property
    def who(self) -> str:
        return str(self.welcome["agent_id"])

    async def play(self, connection: ServerConnection) -> None:
        try:
            async for raw in connection:
                kind = json.loads(raw)["type"]
                answers = self._answers.get(kind) or deque()
                frames = answers.popleft() if answers else []
                if kind == "PING" and not any(frame["type"] == "PONG" for frame in frames):
                    frames = [*frames, {"type": "PONG", "ts": self.welcome["ts"] + 1}]
                for frame in frames:
                    await connection.send(json.dumps(frame))
        except ConnectionClosed:
            pass

    @asynccontextmanager
    async def client(self, key: ChatKey | None) -> AsyncIterator[AgentChat]:
        async with serve(self.play, "127.0.0.1", 0) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            place = ChatPlace(f"ws://127.0.0.1:{port}", HERE, "us")
            async with AgentChat(place, key, pace=AnnouncePace(10, 2_000), reconnecting=Reconnecting(10, 20)) as chat:
                yield chat


def _is_of_the_first_connection(frame: dict[str, Any]) -> bool:
    """Whether this was sent to the connection that was displaced; both are recorded as one client."""
    if frame["type"] == "MSG":
        return frame["from"] != "@server" and not frame.get("replay")
    return frame["type"] == "SESSION_DISPLACED" or "Disconnected" in frame.get("message", "")


@pytest.fixture
def key(tmp_path: Path) -> ChatKey:
    return read_key(tmp_path / "key")


def play(scene: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scene(), 20))


@pytest.mark.parametrize("name", OPEN)
def test_we_know_ourselves_and_our_echo(name: str, key: ChatKey) -> None:
    async def scene() -> None:
        tape = Tape(name, "coord")
        async with tape.client(key) as chat:  # the channel is not there: it is created
            assert chat.who == tape.who
            assert chat.who.count("@") == 1
            at = await chat.send(["TASKS https://x.example/spec"])
            assert at > tape.welcome["ts"]
            assert chat.hearing.since is None

    play(scene)


@pytest.mark.parametrize("name", OPEN)
def test_every_message_arrives_also_if_the_server_changes_its_text(name: str, key: ChatKey) -> None:
    async def scene() -> None:
        async with Tape(name, "ann").client(key) as chat:
            moments = [await chat.send([line]) for line in ("CLAIM a", "burst 0")]
            moments.append(await chat.send(["key AKIAABCDEFGHIJKLMNOP ends"]))
            assert moments == sorted(set(moments))

    play(scene)


@pytest.mark.parametrize("name", OPEN)
def test_an_agent_that_comes_back_hears_what_was_said_and_how_long_ago(name: str, key: ChatKey) -> None:
    async def scene() -> None:
        tape = Tape(name, "ann", connection=1)
        async with tape.client(key) as chat:
            replayed = [await chat.receive() for _ in range(5)]
            assert all(heard.replay for heard in replayed)
            assert replayed[0].text.startswith("TASKS")
            assert [heard.who == chat.who for heard in replayed] == [False, True, True, True, False]
            assert len(read(replayed[1].text)) == 2
            assert all(heard.keyed for heard in replayed[:-1])
            assert not replayed[-1].keyed  # the guest
            assert chat.hearing.since == replayed[0].at
            ago = [heard.ago for heard in replayed]
            assert ago == sorted(ago, reverse=True)
            assert abs(ago[0] - (tape.welcome["ts"] - replayed[0].at)) < 5_000

    play(scene)


def test_a_server_as_it_comes_is_waited_for_and_that_is_said(
    key: ChatKey, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allswell.interfaces.chat.agentchat._JOIN_AGAIN", 0.01)

    async def scene() -> None:
        tape = Tape("server-0.36.19-defaults", "coord")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5), tape.client(key):
                pass
        assert f"(we are {tape.who[1:]}); waiting until it is there" in caplog.text

    with caplog.at_level(logging.WARNING):
        play(scene)
    assert caplog.text.count("has no channel #build yet and lets only verified agents create one") == 1


def test_an_agent_without_a_key_is_told_that_it_needs_one() -> None:
    async def scene() -> None:
        tape = Tape("server-0.36.19-defaults", "guest")
        tape._answers["JOIN"] = deque([[{"type": "JOINED", "ts": 1, "channel": HERE, "agents": []}]])
        with pytest.raises(Refused, match="lets only agents with a key speak; give one with --key FILE"):
            async with tape.client(None) as chat:
                await chat.send(["hello from a guest"])

    play(scene)
