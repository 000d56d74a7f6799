"""The chat server for tests answers as real ones have: it is sent what they were sent, and its frames are compared."""

import asyncio
import contextlib
import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from allswell.interfaces.chat.agentchat import ChatKey, read_key
from allswell.testing.chat import NEW_SERVER, OLD_SERVER, ChatRules, ChatServer
from tests.interfaces.chat.recordings import (
    CLOSED,
    CLOSED_BY_US,
    FROM_SERVER,
    OPENED,
    TO_SERVER,
    Recorded,
    heard_by,
    recording,
)

pytestmark = pytest.mark.row("C8")

QUICK = {"displacement_delay": 20, "most_frames": 10_000, "most_before_welcome": 10_000}
SENT = {OPENED, TO_SERVER, CLOSED_BY_US}


class Talker:
    """Sends what a recording's clients have sent, and records what comes, in the same form."""

    def __init__(self, server: ChatServer, keys: dict[str, ChatKey]) -> None:
        self._server = server
        self._keys = keys
        self._connections: dict[str, ClientConnection] = {}
        self._readers: list[asyncio.Task[None]] = []
        self._challenged = asyncio.Event()
        self._welcomed = asyncio.Event()
        self._ponged: dict[ClientConnection, asyncio.Event] = {}
        self._challenge: dict[str, Any] = {}
        self._pinging = False
        """Whether the next PONG answers a ping that was recorded."""
        self.recorded: list[Recorded] = []

    async def do(self, one: Recorded) -> None:
        client = one.client
        if one.way == OPENED:
            self.recorded.append(one)
            self._connections[client] = await connect(self._server.url)
            self._ponged[self._connections[client]] = asyncio.Event()
            self._readers.append(asyncio.ensure_future(self._read(client, self._connections[client])))
        elif one.way == TO_SERVER:
            await self._send(client, one.frame)
        elif one.way == CLOSED_BY_US:
            await self._connections[client].close()

    async def _send(self, client: str, frame: dict[str, Any]) -> None:
        frame = dict(frame)
        if frame["type"] == "IDENTIFY":
            self._challenged.clear()
            self._welcomed.clear()
            if "pubkey" in frame:
                frame["pubkey"] = self._keys[client].public_pem
        elif frame["type"] == "VERIFY_IDENTITY":
            await self._challenged.wait()
            given, now = self._challenge, frame["timestamp"]
            signature = self._keys[client].sign(given["nonce"], given["challenge_id"], now)
            frame |= {"challenge_id": given["challenge_id"], "signature": signature}
        else:
            await self._welcomed.wait()
        self._pinging = frame["type"] == "PING"
        await self._connections[client].send(json.dumps(frame))

    async def settle(self) -> None:
        """Until everything that was sent has its answer: each connection was answered a ping of ours."""
        for connection, ponged in self._ponged.items():
            if connection.state is State.OPEN:
                ponged.clear()
                with contextlib.suppress(ConnectionClosed):
                    await connection.send('{"type": "PING"}')
                    await ponged.wait()

    async def _read(self, client: str, connection: ClientConnection) -> None:
        try:
            async for raw in connection:
                frame = json.loads(raw)
                if frame["type"] == "PONG" and not self._ponged[connection].is_set() and not self._pinging:
                    self._ponged[connection].set()
                    continue
                self._pinging = self._pinging and frame["type"] != "PONG"
                self.recorded.append(Recorded(0, client, FROM_SERVER, frame))
                if frame["type"] == "CHALLENGE":
                    self._challenge = frame
                    self._challenged.set()
                elif frame["type"] == "WELCOME":
                    self._welcomed.set()
        except ConnectionClosed:
            pass
        self._ponged[connection].set()
        if connection.close_code != 1005 and connection.close_reason:
            end = {"code": connection.close_code, "reason": connection.close_reason}
            self.recorded.append(Recorded(0, client, CLOSED, end))

    async def leave(self) -> None:
        for connection in self._connections.values():
            await connection.close()
        await asyncio.gather(*self._readers)


@pytest.mark.parametrize(
    "name, rules",
    [
        ("server-0.21.1", OLD_SERVER),
        ("server-0.36.19", NEW_SERVER),
        ("server-0.36.19-defaults", NEW_SERVER),
    ],
)
def test_the_double_answers_as_the_real_server_has(name: str, rules: ChatRules, tmp_path: Path) -> None:
    real = recording(name)
    keys = {client: read_key(tmp_path / client) for client in ("coord", "ann")}
    values = {field: getattr(rules, field) for field in rules.__struct_fields__} | QUICK
    if name == "server-0.36.19":
        coord = hashlib.sha256(keys["coord"].public_pem.encode()).hexdigest()[:16]
        values |= {"lurkers_speak": True, "verified": (coord,)}

    async def scene() -> Talker:
        with ChatServer(ChatRules(**values)) as server:
            talker = Talker(server, keys)
            passed = 0
            for one in (one for one in real if one.way in SENT):
                if one.at > passed or one.frame.get("type") != "MSG":  # what was sent in one moment is sent so here
                    await talker.settle()
                server.advance(one.at - passed)
                passed = one.at
                await talker.do(one)
            await talker.settle()
            await talker.leave()
            return talker

    ours = asyncio.run(asyncio.wait_for(scene(), 30)).recorded
    for client in ("coord", "ann", "guest"):
        first, later = heard_by(client, ours)
        real_first, real_later = heard_by(client, real)
        assert first[: len(real_first)] == real_first, client  # not everything that came was read there
        assert not Counter(real_later) - Counter(first + later), client
        if client == "coord":
            assert first == real_first
