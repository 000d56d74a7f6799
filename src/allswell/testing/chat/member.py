"""One connection to the chat server: its frames, its limits, its identity."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import secrets
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from websockets.asyncio.server import ServerConnection

if TYPE_CHECKING:
    from allswell.testing.chat.server import ChatServer

_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")
_CHANNEL = re.compile(r"#[A-Za-z0-9_-]{1,31}")
_POLICY = 1008
_CONTENT_BYTES = 4_096
_CHALLENGE_MS = 30_000


class _Challenge(msgspec.Struct, frozen=True):
    """What an agent has to sign, and who it says it is."""

    id: str
    nonce: str
    name: str
    pem: str
    key: Ed25519PublicKey


class ChatMember:
    """An agent's connection. It has no identity before its welcome."""

    def __init__(self, server: ChatServer, connection: ServerConnection) -> None:
        self._server = server
        self._connection = connection
        self._frames: deque[float] = deque()
        self._outbox: asyncio.Queue[str | None] = asyncio.Queue()
        self._challenge: _Challenge | None = None
        self.agent_id = ""
        self.name = ""
        self.keyed = False
        self.channels: list[str] = []

    @property
    def name_on_wire(self) -> str:
        """As others see it."""
        return f"@{self.agent_id}"

    # --- the connection -----------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Answer frames until the connection ends."""
        writing = asyncio.ensure_future(self._write())
        try:
            async for raw in self._connection:
                if not self._within_limits():
                    await self._connection.close(_POLICY, "too many messages")
                    return
                await self._handle(raw)
        finally:
            writing.cancel()

    async def _write(self) -> None:
        """Frames leave one after the other, so that a slow reader holds up nobody else."""
        while (text := await self._outbox.get()) is not None:
            await self._connection.send(text)
        await self._connection.close(_POLICY, "displaced")

    def send(self, **frame: Any) -> None:  # noqa: ANN401 - what frames hold is the protocol's business
        """Send a frame."""
        self.put(msgspec.json.encode(frame).decode())

    def put(self, text: str) -> None:
        """Send any text."""
        self._outbox.put_nowait(text)

    def cut(self) -> None:
        """Break the connection without a word."""
        self._connection.transport.abort()

    def leave(self) -> None:
        """Close the connection once what was sent has gone out."""
        self.channels.clear()
        self.agent_id = ""
        self._outbox.put_nowait(None)

    def _within_limits(self) -> bool:
        now = time.monotonic()
        rules = self._server.rules
        self._frames.append(now)
        while self._frames[0] < now - rules.window / 1_000:
            self._frames.popleft()
        return len(self._frames) <= (rules.most_frames if self.agent_id else rules.most_before_welcome)

    # --- frames -------------------------------------------------------------------------------------------------------

    async def _handle(self, raw: str | bytes) -> None:
        try:
            frame = msgspec.json.decode(raw)
        except msgspec.DecodeError:
            frame = None
        kind = frame.get("type") if isinstance(frame, dict) else None
        if kind == "IDENTIFY":
            await self._identify(frame)
        elif kind == "VERIFY_IDENTITY":
            await self._verify(frame)
        elif kind == "PING":
            self.send(type="PONG", ts=self._server.now())
        elif kind not in {"JOIN", "CREATE_CHANNEL", "MSG", "LIST_AGENTS"}:
            self._server.refuse(self, "INVALID_MSG", f"unknown message type: {kind}")
        elif not self.agent_id:
            self._server.refuse(self, "AUTH_REQUIRED", "identify first")
        elif kind == "MSG":
            self._speak(frame)
        else:
            self._enter(kind, frame)

    async def _identify(self, frame: dict[str, Any]) -> None:
        name, pem = frame.get("name"), frame.get("pubkey")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            self._server.refuse(self, "INVALID_NAME", "a name is 1 to 32 letters, digits, '_' and '-'")
        elif pem is None:
            await self._welcome(secrets.token_hex(4), name, keyed=False)
        elif not isinstance(pem, str) or (key := _key_of(pem)) is None:
            self._server.refuse(self, "INVALID_MSG", "the public key is no ed25519 key in PEM")
        else:
            challenge = _Challenge(f"chal_{secrets.token_hex(4)}", secrets.token_hex(16), name, pem, key)
            self._challenge = challenge
            expires = self._server.now() + _CHALLENGE_MS
            self.send(type="CHALLENGE", challenge_id=challenge.id, nonce=challenge.nonce, expires_at=expires)

    async def _verify(self, frame: dict[str, Any]) -> None:
        challenge, self._challenge = self._challenge, None
        if challenge is None or frame.get("challenge_id") != challenge.id:
            self._server.refuse(self, "VERIFICATION_EXPIRED", "there is no such challenge")
            return
        signed = f"AGENTCHAT_AUTH|{challenge.nonce}|{challenge.id}|{frame.get('timestamp')}"
        try:
            challenge.key.verify(base64.b64decode(str(frame.get("signature"))), signed.encode())
        except (InvalidSignature, ValueError):
            self._server.refuse(self, "VERIFICATION_FAILED", "the signature is wrong")
            return
        await self._welcome(hashlib.sha256(challenge.pem.encode()).hexdigest()[:16], challenge.name, keyed=True)

    async def _welcome(self, agent_id: str, name: str, *, keyed: bool) -> None:
        self.agent_id, self.name, self.keyed = agent_id, name, keyed
        if self._server.displace(self):
            await asyncio.sleep(self._server.rules.displacement_delay / 1_000)
        self.send(type="WELCOME", agent_id=agent_id, name=name, server="double", ts=self._server.now())

    def _enter(self, kind: str, frame: dict[str, Any]) -> None:
        server, channel = self._server, frame.get("channel")
        if not isinstance(channel, str) or not _CHANNEL.fullmatch(channel):
            server.refuse(self, "INVALID_MSG", "invalid channel name")
        elif kind == "CREATE_CHANNEL" and not server.rules.may_create:
            server.refuse(self, "NOT_ALLOWED", "only known agents may create channels")
        elif kind == "CREATE_CHANNEL" and channel in server.channels:
            server.refuse(self, "CHANNEL_EXISTS", f"{channel} exists")
        elif kind == "CREATE_CHANNEL":
            server.channels[channel] = deque(maxlen=server.rules.replayed)
            self._join(channel)
        elif channel not in server.channels:
            server.refuse(self, "CHANNEL_NOT_FOUND", f"there is no {channel}")
        elif kind == "LIST_AGENTS":
            self.send(type="AGENTS", channel=channel, list=self._others(channel))
        else:
            self._join(channel)

    def _join(self, channel: str) -> None:
        for member in self._server.members:
            if channel in member.channels:
                member.send(type="AGENT_JOINED", channel=channel, agent=self.name_on_wire)
        if channel not in self.channels:
            self.channels.append(channel)
        self._server.replay(self, channel)
        self.send(type="JOINED", channel=channel, agents=self._others(channel))
        self._server.notify()

    def _others(self, channel: str) -> list[str]:
        return [member.name_on_wire for member in self._server.members if channel in member.channels]

    def _speak(self, frame: dict[str, Any]) -> None:
        server, to, content = self._server, frame.get("to"), frame.get("content")
        now = time.monotonic_ns() // 1_000_000
        if not isinstance(to, str) or not isinstance(content, str) or len(content.encode()) > _CONTENT_BYTES:
            server.refuse(self, "INVALID_MSG", "a message has a receiver and at most 4096 bytes")
        elif not self.keyed and not server.rules.keyless_may_speak:
            server.refuse(self, "AUTH_REQUIRED", "agents without a verified key may only read")
        elif to.startswith("#") and to not in self.channels:
            server.refuse(self, "CHANNEL_NOT_FOUND", f"you are not in {to}")
        elif now - server.last_spoken.get(self.agent_id, now - server.rules.spacing) < server.rules.spacing:
            server.refuse(self, "RATE_LIMITED", "one message per second")
        else:
            server.last_spoken[self.agent_id] = now
            server.take(self.name_on_wire, to, content, self)


def _key_of(pem: str) -> Ed25519PublicKey | None:
    try:
        key = load_pem_public_key(pem.encode())
    except (ValueError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, Ed25519PublicKey) else None
