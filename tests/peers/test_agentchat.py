"""What our client, a coordinator, a builder and an auditor do over our double and over a real AgentChat server.

Where `ALLSWELL_AGENTCHAT` names the script that starts a real one (`make peers`), the same scenes run against it.
"""

import asyncio
import hashlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from allswell.domain.build.announcements import AnnouncePace
from allswell.interfaces.chat.agentchat import AgentChat, ChatKey, ChatPlace, Reconnecting, read_key
from allswell.testing.chat import ChatRules, ChatServer
from tests.patience import SECONDS

pytestmark = pytest.mark.row("C8")

REAL = os.environ.get("ALLSWELL_AGENTCHAT", "")
HERE = "#build"
SPEC = "name: shop\ncomponents:\n  - name: db\n  - name: api\n    depends on: [db]\n"
SECRET = "AUDIT db FAIL it prints AKIAABCDEFGHIJKLMNOP"


class Peer:
    """A server, and the keys of those who talk there; the coordinator's may create channels."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.url = ""
        self.pace = AnnouncePace(spacing=30) if name == "double" else AnnouncePace()

    def key(self, name: str) -> ChatKey:
        return read_key(self.folder / f"{name}.pem")

    @property
    def genesis(self) -> str:
        return hashlib.sha256(self.key("coordinator").public_pem.encode()).hexdigest()[:16]

    def chat(self, name: str) -> AgentChat:
        place = ChatPlace(self.url, HERE, name)
        return AgentChat(place, self.key(name), pace=self.pace, reconnecting=Reconnecting(first=100))


@contextmanager
def real_server(peer: Peer) -> Iterator[None]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    settings = {"LURK_DISABLED": "true", "GENESIS_AGENT_ID": peer.genesis, "DATA_DIR": str(peer.folder)}
    words = ["node", REAL, "serve", "-H", "127.0.0.1", "-p", str(port)]
    with (peer.folder / "server.log").open("wb") as log:
        server = subprocess.Popen(words, cwd=peer.folder, env={**os.environ, **settings}, stdout=log, stderr=log)
    try:
        waiting, tick = time.monotonic() + SECONDS, threading.Event()
        while not _listens(port):
            assert time.monotonic() < waiting, "the server does not listen"
            tick.wait(0.05)
        peer.url = f"ws://127.0.0.1:{port}"
        yield
    finally:
        server.terminate()
        server.wait(20)


def _listens(port: int) -> bool:
    with socket.socket() as trying:
        return trying.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(params=["double", "real"])
def peer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Peer]:
    peer = Peer(tmp_path, request.param)
    if request.param == "double":
        with ChatServer(ChatRules(spacing=20, verified=(peer.genesis,))) as server:
            peer.url = server.url
            yield peer
    elif not REAL:
        pytest.skip("no real AgentChat server: ALLSWELL_AGENTCHAT=/path/to/its/bin.js")
    else:
        with real_server(peer):
            yield peer


def play(scene: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scene(), 100))


def test_agents_hear_each_other_and_know_their_echo(peer: Peer) -> None:
    async def scene() -> None:
        async with peer.chat("coordinator") as boss, peer.chat("ann") as ann:
            assert {boss.who[0], ann.who[0]} == {"@"}
            await ann.send(["CLAIM a", "CLAIM b"])
            heard = await boss.receive()
            assert (heard.who, heard.text, heard.keyed) == (ann.who, "CLAIM a\nCLAIM b", True)
            first = await boss.send([SECRET])  # a newer server changes the text
            second = await boss.send(["ACK a " + ann.who])
            assert second > first
            assert [(await ann.receive()).who for _ in range(2)] == [boss.who] * 2

    play(scene)


def test_an_agent_that_comes_back_is_told_what_it_missed(peer: Peer) -> None:
    async def scene() -> None:
        async with peer.chat("coordinator") as boss:
            async with peer.chat("ann") as ann:
                await ann.send(["CLAIM a"])
            await boss.send(["ACK a @x"])
            async with peer.chat("ann") as ann:
                said = [await ann.receive() for _ in range(2)]
                assert [one.text for one in said] == ["CLAIM a", "ACK a @x"]
                assert all(one.replay and one.ago < 60_000 for one in said)
                assert ann.hearing.since == said[0].at

    play(scene)


def test_who_takes_an_identity_over_is_welcomed_in_the_end(peer: Peer) -> None:
    async def scene() -> None:
        async with peer.chat("coordinator") as first, peer.chat("coordinator") as second:
            await second.send(["MERGED a"])
            assert second.who == first.who

    play(scene)


def test_a_project_is_built_by_processes_over_it(peer: Peer) -> None:
    if peer.name == "double":
        pytest.skip("over the double: tests/interfaces/cli/test_members.py")
    (peer.folder / "spec.yaml").write_text(SPEC)
    for name in ("coordinator", "ann", "bob"):
        peer.key(name)
    words = {
        "ann": ["build-agent", "--", "sh", "-c", "echo https://x/$BUILD_COMPONENT"],
        "bob": ["audit-agent", "--", "true"],
        "coordinator": ["coordinate", "spec.yaml"],
    }
    running = []
    for name, (verb, *rest) in words.items():  # the coordinator last: the others wait for the channel
        chat = ["--chat", peer.url, "--key", str(peer.folder / f"{name}.pem")]
        command = [sys.executable, "-m", "allswell", verb, *chat, *rest]
        running.append(subprocess.Popen(command, cwd=peer.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    try:
        told = [process.communicate(timeout=100)[0].decode() for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait(20)
    assert [process.returncode for process in running] == [0, 0, 0], told
    lines = [line.split(": ", 1)[1] for line in told[2].splitlines() if ": " in line]
    assert [line for line in lines if line.split()[0] in {"MERGED", "BUILD"}] == [
        "MERGED db",
        "MERGED api",
        "BUILD COMPLETE shop",
    ]
