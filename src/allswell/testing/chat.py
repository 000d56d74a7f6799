"""Chats for tests: `ChatServer` has real sockets and real limits, `Room` is in memory, on virtual time."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from allswell.build.merge import ChannelClosed
from allswell.domain.build.hearing import ChannelCoverage, HeardMessage, KnownMessages
from allswell.domain.ids import Millis
from allswell.timing.clock import Clock

# A chat in memory, for tests on virtual time: everybody hears everybody, at moments that the room gives out.
#
# What a member says arrives at once, unless the room is told otherwise: it can hold all words back (`mute`), and cut a
# member off (`cut`) and let it come back to a replay (`mend`). For the limits and troubles of a real server there is
# `ChatServer`.


class Room:
    """Where members meet."""

    def __init__(self, clock: Clock, *, replayed: int = 200, echo: float = 0.0) -> None:
        self._clock = clock
        self.echo = echo
        """Seconds until a speaker knows that its words have arrived."""
        self._open = asyncio.Event()
        self._open.set()
        self._replayed = replayed
        self._members: list[RoomChannel] = []
        self._count = 0
        self._last: dict[str, int] = {}
        self.said: list[HeardMessage] = []
        """All that was said, in order."""
        self._changed = asyncio.Condition()

    def join(self, name: str) -> RoomChannel:
        """A place in the room; it begins with the replay."""
        said = self.said[-self._replayed :]
        member = RoomChannel(self, name, said[0].at if said else None)
        for heard in said:
            member.put(self.again(heard))
        self._members.append(member)
        return member

    def again(self, heard: HeardMessage) -> HeardMessage:
        """A message as somebody is told it who was not there."""
        return msgspec.structs.replace(heard, replay=True, ago=max(self._clock.wall() - heard.at, 0))

    def leave(self, member: RoomChannel) -> None:
        """Somebody is gone."""
        if member in self._members:
            self._members.remove(member)

    async def say(
        self, who: str, text: str, *, at: int | None = None, id_: str | None = None, keyed: bool = True
    ) -> HeardMessage:
        """Somebody says something; `at` and `id_` are the room's own unless given."""
        self._count += 1
        if at is None:  # nobody says two things in the same moment: servers take one message a second
            at = max(self._clock.wall(), self._last.get(who, 0) + 1)
            self._last[who] = at
        moment = Millis(at)
        heard = HeardMessage(who, text, moment, f"{self._count:08}" if id_ is None else id_, keyed=keyed)
        async with self._changed:
            self.said.append(heard)
            for member in self._members:
                if member.who != who:
                    self.deliver(member, heard)
            self._changed.notify_all()
        return heard

    def deliver(self, member: RoomChannel, heard: HeardMessage) -> None:
        """Have a member hear what was said, if it is there."""
        if member.is_connected:
            member.put(heard)

    def cut(self, name: str) -> None:
        """Cut a member off: it hears nothing, and what it says waits."""
        for member in self._members:
            if member.who == name:
                member.disconnect()

    def mend(self, name: str) -> None:
        """Let a member come back: what it has not heard of the last messages is replayed."""
        for member in self._members:
            if member.who == name:
                member.come_back(self.said[-self._replayed :])

    def replays(self, heard: HeardMessage) -> bool:
        """Whether a message is among those that somebody who comes now is told."""
        return heard in self.said[-self._replayed :]

    def mute(self) -> None:
        """Let nobody's words through: whoever speaks by its channel waits until `unmute`."""
        self._open.clear()

    def unmute(self) -> None:
        """Let words through again."""
        self._open.set()

    async def opened(self) -> None:
        """Wait while the room is muted."""
        await self._open.wait()

    def lines(self, who: str) -> list[str]:
        """Every line that somebody has said."""
        return [line for heard in self.said if heard.who == who for line in heard.text.split("\n")]

    async def wait_for_more(self, count: int) -> None:
        """Wait until more than so many messages were said."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.said) > count)

    async def wait_for(self, who: str, line: str, *, times: int = 1, seconds: float = 100_000.0) -> None:
        """Wait until somebody has said this line so often; `TimeoutError` with what was said instead."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: self.lines(who).count(line) >= times)
        except TimeoutError:
            told = "\n".join(f"  {heard.who}: {heard.text}" for heard in self.said[-20:])
            raise TimeoutError(f"{who} has not said {line!r} {times} times; the last were:\n{told}") from None


class RoomChannel:
    """A member's `Channel`."""

    def __init__(self, room: Room, name: str, since: Millis | None = None) -> None:
        self._room = room
        self._since = since
        self._gaps = 0
        self._last = Millis(0)
        self._name = name
        self._heard: deque[HeardMessage | None] = deque()
        self._rings = asyncio.Event()
        self._known = KnownMessages()
        self._connected = asyncio.Event()
        self._connected.set()

    @property
    def who(self) -> str:
        """Our name."""
        return self._name

    @property
    def hearing(self) -> ChannelCoverage:
        """Whether it has heard everything."""
        return ChannelCoverage(self.is_connected and not self._heard, self._since, self._gaps)

    @property
    def is_connected(self) -> bool:
        """Whether it hears what is said."""
        return self._connected.is_set()

    async def connected(self) -> None:
        """Wait while this member is cut off."""
        await self._connected.wait()

    def disconnect(self) -> None:
        """It is cut off."""
        self._connected.clear()

    def come_back(self, said: Sequence[HeardMessage]) -> None:
        """It is there again, and is told what it has missed of these."""
        self._connected.set()
        self._gaps += not said or said[0].at > self._last
        for heard in said:
            if heard.who != self._name and self._known.is_new(heard.mark):
                self.put(self._room.again(heard))

    def put(self, heard: HeardMessage) -> None:
        """Have this member hear something."""
        self._known.is_new(heard.mark)
        self._last = max(self._last, heard.at)
        self._heard.append(heard)
        self._rings.set()

    def close(self) -> None:
        """End this member's channel for good."""
        self._heard.append(None)
        self._rings.set()
        self._room.leave(self)

    async def receive(self) -> HeardMessage:
        """The next message."""
        while not self._heard:
            self._rings.clear()
            await self._rings.wait()
        heard = self._heard[0]
        if heard is None:
            raise ChannelClosed("the room was closed")
        self._heard.popleft()
        return heard

    async def send(self, lines: Sequence[str]) -> Millis:
        """Say these lines in one message."""
        while True:
            await self._room.opened()
            await self.connected()
            said = await self._room.say(self._name, "\n".join(lines))
            await asyncio.sleep(self._room.echo)
            if self.is_connected:
                return said.at
            await self.connected()  # the replay says whether it was taken
            if self._room.replays(said):
                return said.at


# One connection to the chat server: its frames, its limits, its identity.


_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")
_CHANNEL = re.compile(r"#[A-Za-z0-9_-]{1,31}")
_POLICY = 1008
_NORMAL = 1000
_CHALLENGE_MS = 60_000
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
_DISCLAIMER = "WARNING: All messages are unsanitized agent-generated content."


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
        self._rules = server.rules
        self._connection = connection
        self._frames: deque[float] = deque()
        self._outbox: asyncio.Queue[str | None] = asyncio.Queue()
        self._challenge: _Challenge | None = None
        self._last_spoken: int | None = None
        self._lurks_until: int | None = 0
        """By the server's clock; None: for ever."""
        self.agent_id = ""
        self.name = ""
        self.keyed = False
        self.verified = False

    @property
    def name_on_wire(self) -> str:
        """As others see it."""
        return f"@{self.agent_id}"

    @property
    def channels(self) -> list[str]:
        """Where it is."""
        return [name for name, channel in self._server.channels.items() if self in channel.members]

    # --- the connection -----------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Answer frames until the connection ends."""
        writing = asyncio.ensure_future(self._write())
        try:
            async for raw in self._connection:
                if not self._within_limits():
                    await self._connection.close(_POLICY, "Rate limit exceeded")
                    return
                await self._handle(raw)
        finally:
            writing.cancel()

    async def _write(self) -> None:
        """Frames leave one after the other, so that a slow reader holds up nobody else."""
        while (text := await self._outbox.get()) is not None:
            await self._connection.send(text)
        by = "verified" if self._rules.is_new else "new"
        await self._connection.close(_NORMAL, f"Identity claimed by {by} connection")

    def send(self, type_: str, **fields: Any) -> None:  # noqa: ANN401 - what frames hold is the protocol's business
        """Send a frame, dated now unless it has a date."""
        self.put(msgspec.json.encode({"type": type_, "ts": self._server.now(), **fields}).decode())

    def put(self, text: str) -> None:
        """Send any text."""
        self._outbox.put_nowait(text)

    def cut(self) -> None:
        """Break the connection without a word."""
        self._connection.transport.abort()

    def displace(self) -> None:
        """Another connection has this identity now: close this one once what was sent has gone out."""
        if self._rules.is_new:
            why = "Another connection verified this identity"
            self.send("SESSION_DISPLACED", reason=why, new_ip="127.0.0.1")
        else:
            self.send("ERROR", code="INVALID_MSG", message="Disconnected: Another connection claimed this identity")
        self._server.announce_leaving(self)
        self.agent_id = ""
        self._outbox.put_nowait(None)

    def _within_limits(self) -> bool:
        now = time.monotonic()
        rules = self._rules
        self._frames.append(now)
        while self._frames[0] < now - rules.window / 1_000:
            self._frames.popleft()
        return len(self._frames) <= (rules.most_frames if self.agent_id else rules.most_before_welcome)

    def _refuse(self, code: str, message: str) -> None:
        self._server.refuse(self, code, message)

    # --- frames -------------------------------------------------------------------------------------------------------

    async def _handle(self, raw: str | bytes) -> None:
        try:
            frame = msgspec.json.decode(raw)
        except msgspec.DecodeError:
            self._refuse("INVALID_MSG", "Invalid JSON")
            return
        kind = frame.get("type") if isinstance(frame, dict) else None
        if kind == "IDENTIFY":
            await self._identify(frame)
        elif kind == "VERIFY_IDENTITY" and self._rules.is_new:
            await self._verify(frame)
        elif kind == "PING":
            self.send("PONG")
        elif kind not in {"JOIN", "CREATE_CHANNEL", "MSG", "LIST_AGENTS"}:
            self._refuse("INVALID_MSG", f"Unknown message type: {kind}" if kind else "Missing message type")
        elif not self.agent_id:
            self._refuse("AUTH_REQUIRED", "Must IDENTIFY first")
        elif kind == "MSG":
            self._speak(frame)
        else:
            self._enter(kind, frame)

    async def _identify(self, frame: dict[str, Any]) -> None:
        name, pem = frame.get("name"), frame.get("pubkey")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            self._refuse("INVALID_MSG", "Invalid agent name")
        elif pem is None:
            await self._welcome("".join(secrets.choice(_LETTERS) for _ in range(8)), name, keyed=False)
        elif not isinstance(pem, str) or (key := _key_of(pem)) is None:
            self._refuse("INVALID_MSG", "Invalid public key format (must be Ed25519 PEM)")
        elif not self._rules.is_new:
            await self._welcome(self._id_of(pem), name, keyed=True)
        else:
            challenge = _Challenge(f"chal_{secrets.token_hex(4)}", secrets.token_hex(16), name, pem, key)
            self._challenge = challenge
            expires = self._server.now() + _CHALLENGE_MS
            self.send("CHALLENGE", challenge_id=challenge.id, nonce=challenge.nonce, expires_at=expires)

    def _id_of(self, pem: str) -> str:
        return hashlib.sha256(pem.encode()).hexdigest()[: self._rules.id_digits]

    async def _verify(self, frame: dict[str, Any]) -> None:
        challenge, self._challenge = self._challenge, None
        if challenge is None or frame.get("challenge_id") != challenge.id:
            self._refuse("VERIFICATION_EXPIRED", "Challenge not found or expired")
            return
        signed = f"AGENTCHAT_AUTH|{challenge.nonce}|{challenge.id}|{frame.get('timestamp')}"
        try:
            challenge.key.verify(base64.b64decode(str(frame.get("signature"))), signed.encode())
        except (InvalidSignature, ValueError):
            self._refuse("VERIFICATION_FAILED", "Invalid signature")
            return
        agent_id = self._id_of(challenge.pem)
        await asyncio.sleep(self._server.takeover_delay(agent_id) / 1_000)
        await self._welcome(agent_id, challenge.name, keyed=True)

    async def _welcome(self, agent_id: str, name: str, *, keyed: bool) -> None:
        server, rules = self._server, self._rules
        server.displace(agent_id)
        self.agent_id, self.name, self.keyed = agent_id, name, keyed
        self.verified = rules.verified is None or agent_id in rules.verified
        shown: dict[str, Any] = {"agent_id": self.name_on_wire, "server": "agentchat"}
        if rules.is_new:
            self._lurks_until = server.lurks_until(agent_id) if keyed else None
            shown |= {"name": name, "disclaimer": _DISCLAIMER} | ({"verified": self.verified} if keyed else {})
            if self._lurks_until is None:
                shown |= {"lurk": True, "lurk_reason": "Persistent identity required to send messages."}
            elif self._lurks_until:
                reason = "New identities must wait 1 hour before sending messages."
                shown |= {"lurk": True, "lurk_until": self._lurks_until, "lurk_reason": reason}
        self.send("WELCOME", **shown)
        server.identified.append(self.name_on_wire)
        for channel in server.channels.values() if rules.is_new else ():
            channel.enter(self)
        server.say_itself("#general", f"{name} came online")
        server.notify()

    def _enter(self, kind: str, frame: dict[str, Any]) -> None:
        server, name = self._server, frame.get("channel")
        if not isinstance(name, str) or not _CHANNEL.fullmatch(name):
            self._refuse("INVALID_MSG", "Invalid channel name")
            return
        channel = server.channels.get(name)
        if kind == "CREATE_CHANNEL":
            self._create(name)
        elif channel is None:
            self._refuse("CHANNEL_NOT_FOUND", f"Channel {name} not found")
        elif kind == "LIST_AGENTS":
            self.send("AGENTS", channel=name, list=[one.described() for one in channel.members])
        else:
            self._join(channel)
        server.notify()

    def _create(self, name: str) -> None:
        if self._rules.is_new and not self.verified:
            self._refuse("AUTH_REQUIRED", "Only verified agents can create channels")
        elif name in self._server.channels:
            self._refuse("CHANNEL_EXISTS", f"Channel {name} already exists")
        else:
            self._server.create(name).members[self] = None
            self.send("JOINED", channel=name, agents=[self.name_on_wire])

    def _join(self, channel: ChatChannel) -> None:
        is_new = self._rules.is_new
        before = self in channel.members
        channel.enter(self, again=not is_new)
        agents = [one.shown() if is_new else one.name_on_wire for one in channel.members]
        self.send("JOINED", channel=channel.name, agents=agents)
        for frame in channel.kept:
            self.send(**frame, replay=True)
        if not is_new:
            self._greet(channel)
        elif not before:
            self._server.say_itself(channel.name, f"{self.name} joined {channel.name}")

    def _greet(self, channel: ChatChannel) -> None:
        """An older server asks everybody to say hello, and keeps nothing of it."""
        me, where = self.name_on_wire, {"from": "@server", "to": channel.name}
        text = f"Welcome to {channel.name}, {me}! Say hello to introduce yourself and start collaborating"
        self.send("MSG", **where, content=f"{text} with other agents.")
        others = [one for one in channel.members if one is not self]
        names = ", ".join(one.name_on_wire for one in others)
        for one in others:
            text = f"Hey {names} - new agent {me} just joined! Say hi and share what you're working on."
            one.send("MSG", **where, content=text)

    def shown(self) -> dict[str, object]:
        """As a newer server shows it to others."""
        return {"id": self.name_on_wire, "name": self.name, "verified": self.verified}

    def described(self) -> dict[str, object]:
        """As it stands in a list of agents."""
        known = {"id": self.name_on_wire, "name": self.name, "presence": "online", "status_text": None}
        return known | ({"verified": self.verified} if self._rules.is_new else {})

    def _speak(self, frame: dict[str, Any]) -> None:
        server, rules, to, content = self._server, self._rules, frame.get("to"), frame.get("content")
        if not isinstance(to, str) or not to.startswith(("#", "@")) or not isinstance(content, str):
            self._refuse("INVALID_MSG", "Missing or invalid content")
            return
        if len(content) > rules.longest:
            most = "2MB" if rules.is_new else f"{rules.longest} chars"
            self._refuse("INVALID_MSG", f"Content too long (max {most})")
            return
        if server.unwanted and server.unwanted in content:
            self._refuse("INVALID_MSG", "Message blocked")
            return
        if self._lurks_until is None and not rules.lurkers_speak:
            self._refuse("LURK_MODE", "Persistent identity required to send messages")
            return
        if self._lurks_until and server.now() < self._lurks_until and not rules.lurkers_speak:
            moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self._lurks_until // 1_000))
            text = f"New identity — sending unlocks at {moment}.{self._lurks_until % 1_000:03}Z"
            self._refuse("LURK_MODE", text)
            return
        now = server.monotonic()
        if self._last_spoken is not None and now - self._last_spoken < rules.spacing:
            self._refuse("RATE_LIMITED", "Rate limit exceeded (max 1 message per second)")
            return
        self._last_spoken = now
        if not to.startswith("#"):
            self._refuse("INVALID_MSG", "Direct messages are disabled. Use a channel instead.")
        elif to not in server.channels:
            self._refuse("CHANNEL_NOT_FOUND", f"Channel {to} not found")
        elif self not in server.channels[to].members:
            self._refuse("NOT_INVITED", f"Not a member of {to}")
        else:
            server.take(self.name_on_wire, to, content, self)


def _key_of(pem: str) -> Ed25519PublicKey | None:
    try:
        key = load_pem_public_key(pem.encode())
    except (ValueError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, Ed25519PublicKey) else None


# How strict the chat server is, and in which ways it misbehaves; lengths of time are milliseconds.

_HOUR = 3_600_000
PUBLIC = ("#general", "#engineering", "#pull-requests", "#help", "#love", "#agents", "#discovery", "#bounties")
"""The channels that every agent of a newer server is in from its welcome on."""


class ChatRules(msgspec.Struct, frozen=True):
    """What servers do; tests shorten the pauses, or make it hostile.

    As it comes this is a newer server whose operator has opened it: agents speak at once and create channels.
    `OLD_SERVER` and `NEW_SERVER` are the servers as they are installed.
    """

    version: Literal["0.21", "0.36"] = "0.36"
    """0.21: ids of 8 digits, keys that are not checked, no message ids, no names. 0.36: all of them, and redaction."""
    spacing: int = 1_000
    """A connection's messages that come faster are thrown away, with `RATE_LIMITED`."""
    window: int = 10_000
    most_frames: int = 60
    """More frames of one connection in a window close it."""
    most_before_welcome: int = 10
    replayed: int = 20
    """So many of a channel's last messages are told to an agent that joins; some servers are told to keep 200."""
    lurking: int = _HOUR
    """So long a new key is said to read only; an agent without one for ever."""
    lurkers_speak: bool = True
    """Whether they may speak all the same (`LURK_DISABLED=true`)."""
    verified: tuple[str, ...] | None = None
    """The ids, without @, of the agents that create channels; None: all of them."""
    displacement_delay: int = 0
    """So long a connection waits for its welcome that takes another one's identity over; twice as long the next time,
    up to twelve times."""

    # What no good server does.
    lost_echoes: int = 0
    """The first so many messages are taken and not sent back to their speaker."""
    lost_messages: int = 0
    """The first so many messages vanish without a word."""
    cut_after_taking: int = 0
    """The first so many messages are taken, and their connection is cut before the echo."""

    @property
    def is_new(self) -> bool:
        """Whether this is a newer server."""
        return self.version == "0.36"

    @property
    def id_digits(self) -> int:
        """How long the id of a key is."""
        return 16 if self.is_new else 8

    @property
    def longest(self) -> int:
        """The most characters of one message."""
        return 2 * 1024 * 1024 if self.is_new else 4_096

    @property
    def public(self) -> tuple[str, ...]:
        """The channels that are there from the beginning."""
        return PUBLIC if self.is_new else ()


OLD_SERVER = ChatRules(version="0.21")
NEW_SERVER = ChatRules(lurkers_speak=False, verified=(), displacement_delay=5_000)


_SECRET = re.compile(r"AKIA[A-Z0-9]{16}")
"""What a newer server replaces, of the many kinds that it knows."""
_LARGEST_FRAME = 2 * 1024 * 1024


class Said(msgspec.Struct, frozen=True):
    """A message that the server took."""

    who: str
    to: str
    content: str
    ts: int
    msg_id: str


class ChatChannel:
    """A channel: who is in it, and what is told again."""

    def __init__(self, name: str, replayed: int, *, new: bool) -> None:
        self.name = name
        self.members: dict[ChatMember, None] = {}
        self.kept: deque[dict[str, Any]] = deque(maxlen=replayed)
        self._new = new

    def enter(self, member: ChatMember, *, again: bool = False) -> None:
        """Let somebody in, and tell the others; an older server does so as often as it joins."""
        if member in self.members and not again:
            return
        self.members[member] = None
        known = {"name": member.name, "verified": member.verified} if self._new else {}
        for other in self.members:
            if other is not member:
                other.send("AGENT_JOINED", channel=self.name, agent=member.name_on_wire, **known)


class ChatServer:
    """A chat server on 127.0.0.1; `with ChatServer() as chat:`.

        with ChatServer() as chat:
            ...                                    # connect to chat.url
            chat.wait_for(lambda said: said.content == "CLAIM auth")
            chat.cut("@1a2b…")                     # break that agent's connection
            chat.send_raw("@1a2b…", "not json")    # or be hostile

    The server runs in a thread with a loop of its own, so that a test whose loop is blocked still gets its answers.
    """

    def __init__(self, rules: ChatRules | None = None, *, port: int = 0) -> None:
        self.rules = rules or ChatRules()
        self.port = port
        self.said: list[Said] = []
        """All messages that were taken, in order."""
        self.refused: list[tuple[str, str]] = []
        """Who was answered with an error, and its code."""
        self.channels: dict[str, ChatChannel] = {}
        self.members: list[ChatMember] = []
        self.identified: list[str] = []
        """Who was welcomed, in order."""
        self.unwanted = ""
        """Messages with this in them are refused."""
        self.refusing = False
        """Whether new connections are closed at once."""
        self.next_ts: int | None = None
        """Where set, the moment of all messages to come: for claims at exactly the same time."""
        self._ahead = 0
        self._first_seen: dict[str, int] = {}
        self._takeovers: dict[str, int] = {}
        self.troubles: dict[str, int] = {
            "lost_echoes": self.rules.lost_echoes,
            "lost_messages": self.rules.lost_messages,
            "cut_after_taking": self.rules.cut_after_taking,
        }
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="allswell-chat-double", daemon=True)
        self._changed = threading.Condition()
        self._server: Server | None = None
        self._make_channels()

    def _make_channels(self) -> None:
        self.channels.clear()
        for name in self.rules.public:
            self.create(name)

    @property
    def url(self) -> str:
        """Where agents connect."""
        return f"ws://127.0.0.1:{self.port}"

    # --- being told ---------------------------------------------------------------------------------------------------

    def wait_for(self, wanted: Callable[[Said], bool], seconds: float = 20.0) -> Said:
        """The first message of this kind, once it was taken; `TimeoutError` if it does not come."""
        with self._changed:
            self._changed.wait_for(lambda: any(map(wanted, self.said)), seconds)
            for said in self.said:
                if wanted(said):
                    return said
            heard = "\n".join(f"  {said.who}: {said.content}" for said in self.said[-20:])
            raise TimeoutError(f"nobody said it within {seconds} s; the last were:\n{heard}")

    def wait_until(self, holds: Callable[[], bool], seconds: float = 20.0) -> None:
        """Wait until something holds that changes only with what arrives here."""
        with self._changed:
            if not self._changed.wait_for(holds, seconds):
                raise TimeoutError(f"it does not hold after {seconds} s")

    def cut(self, agent: str = "") -> None:
        """Break an agent's connection without a word; without a name, everybody's."""
        self._do(lambda: self._cut(agent))

    def _cut(self, agent: str) -> None:
        for member in list(self.members):
            if agent in {"", member.name_on_wire}:
                member.cut()

    def send_raw(self, agent: str, text: str) -> None:
        """Send an agent any text whatever."""
        self._do(lambda: self._send_raw(agent, text))

    def _send_raw(self, agent: str, text: str) -> None:
        for member in self.members:
            if member.name_on_wire == agent:
                member.put(text)

    def send_frame(self, agent: str, **frame: object) -> None:
        """Send an agent any frame whatever; `from_` stands for `from`."""
        named = {key.rstrip("_"): value for key, value in frame.items()}
        self.send_raw(agent, msgspec.json.encode(named).decode())

    def tell(self, who: str, channel: str, content: str) -> None:
        """Have somebody say something who has no connection: a human, or a stranger."""
        self._do(lambda: self.take(who, channel, content, None))

    def forget(self) -> None:
        """Lose all channels and what was said in them, as a server does that is started again."""
        self._do(self._make_channels)

    def _do(self, work: Callable[[], None]) -> None:
        async def done() -> None:
            work()

        asyncio.run_coroutine_threadsafe(done(), self._loop).result(10)

    # --- life ---------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        self.port = next(iter(self._server.sockets)).getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _listen(self) -> Server:
        return await serve(self._serve, "127.0.0.1", self.port, max_size=_LARGEST_FRAME, ping_interval=None)

    async def _end(self) -> None:
        if self._server is not None:
            for member in list(self.members):
                member.cut()
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, connection: ServerConnection) -> None:
        if self.refusing:
            return
        member = ChatMember(self, connection)
        self.members.append(member)
        try:
            await member.serve()
        except ConnectionClosed:
            pass
        finally:
            self.members.remove(member)
            self.announce_leaving(member)
            self.notify()

    # --- what its members do ------------------------------------------------------------------------------------------

    def now(self) -> int:
        """The server's clock."""
        return time.time_ns() // 1_000_000 + self._ahead if self.next_ts is None else self.next_ts

    def monotonic(self) -> int:
        """The clock by which messages are spaced."""
        return time.monotonic_ns() // 1_000_000 + self._ahead

    def advance(self, length: int) -> None:
        """Let the server's clocks go ahead by so many milliseconds."""
        self._ahead += length

    def notify(self) -> None:
        """Something has changed that a test may be waiting for."""
        with self._changed:
            self._changed.notify_all()

    def refuse(self, member: ChatMember, code: str, message: str) -> None:
        """Answer with an error."""
        self.refused.append((member.name_on_wire, code))
        member.send("ERROR", code=code, message=message)
        self.notify()

    def create(self, name: str) -> ChatChannel:
        """A channel that is there from now on."""
        channel = ChatChannel(name, self.rules.replayed, new=self.rules.is_new)
        return self.channels.setdefault(name, channel)

    def take(self, who: str, to: str, content: str, speaker: ChatMember | None) -> None:
        """Take a message: keep it, and tell everybody in its channel, its speaker too."""
        if self._trouble("lost_messages"):
            return
        now = self.now()
        id_ = f"{now}-{secrets.token_hex(3)}" if self.rules.is_new else ""
        text = _SECRET.sub("[REDACTED:aws_access_key]", content) if self.rules.is_new else content
        said = Said(who, to, text, now, id_)
        name, verified = (who.removeprefix("@"), False) if speaker is None else (speaker.name, speaker.verified)
        frame: dict[str, Any] = {"type_": "MSG", "ts": now, "from": who, "to": to, "content": text}
        if self.rules.is_new:
            frame |= {"from_name": name, "msg_id": id_, "verified": verified}
        with self._changed:
            self.said.append(said)
        no_echo = speaker is not None and self._trouble("lost_echoes")
        if speaker is not None and self._trouble("cut_after_taking"):
            speaker.cut()
            no_echo = True
        channel = self.create(to)
        for member in channel.members:
            if member is not speaker or not no_echo:
                member.send(**frame)
        channel.kept.append(frame)
        self.notify()

    def say_itself(self, channel: str, content: str) -> None:
        """A newer server tells people what happens, and keeps it with the rest."""
        if not self.rules.is_new:
            return
        frame: dict[str, Any] = {
            "type_": "MSG",
            "ts": self.now(),
            "from": "@server",
            "from_name": "Server",
            "to": channel,
        }
        frame["content"] = content
        for member in self.channels[channel].members:
            member.send(**frame)
        self.channels[channel].kept.append(frame)

    def lurks_until(self, agent_id: str) -> int:
        """Until when a key may only read; 0 if it may speak."""
        first = self._first_seen.setdefault(agent_id, self.now())
        return first + self.rules.lurking if self.now() < first + self.rules.lurking else 0

    def takeover_delay(self, agent_id: str) -> int:
        """How long a connection waits that takes over another one's identity."""
        if all(one.agent_id != agent_id for one in self.members):
            return 0
        first = self.rules.displacement_delay
        self._takeovers[agent_id] = min(self._takeovers.get(agent_id, first // 2) * 2, 12 * first)
        return self._takeovers[agent_id]

    def displace(self, agent_id: str) -> None:
        """End the connection that this identity has."""
        for member in [one for one in self.members if one.agent_id == agent_id]:
            member.displace()

    def announce_leaving(self, member: ChatMember) -> None:
        """Tell a member's channels that it has gone."""
        if not member.agent_id:
            return
        for channel in self.channels.values():
            if member in channel.members:
                del channel.members[member]
                for other in channel.members:
                    with contextlib.suppress(ConnectionClosed):
                        other.send("AGENT_LEFT", channel=channel.name, agent=member.name_on_wire)
        self.say_itself("#general", f"{member.name} went offline")

    def _trouble(self, name: str) -> bool:
        if self.troubles[name] <= 0:
            return False
        self.troubles[name] -= 1
        return True


__all__ = ["NEW_SERVER", "OLD_SERVER", "ChatRules", "ChatServer", "Room", "RoomChannel", "Said"]
