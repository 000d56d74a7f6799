"""AgentChat: a channel on a chat server, over WebSocket (C8).

A session is one connection (`ChatSession`). When it breaks, for whatever reason, the next one begins after a pause that
grows; with a key we are the same agent again.

What is said goes through `Outgoing`, which knows the server's limits and what has arrived. What is heard is handed on
once, however often it is replayed. Some answers of a server no patience mends (a name it does not take, a key that it
does not let speak): they end the channel with the reason.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import random
import re
import stat
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from allswell.build.merge import ChannelClosed
from allswell.domain.build.announcements import MESSAGE_BYTES, AnnouncePace, Outgoing
from allswell.domain.build.hearing import ChannelCoverage, HeardMessage, KnownMessages
from allswell.domain.build.line import MESSAGE_MAX
from allswell.domain.duration import show
from allswell.domain.ids import Millis
from allswell.errors import Bug, Refused
from allswell.timing.clock import Clock, SystemClock

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from websockets.asyncio.client import ClientConnection


# Who we are in a chat: an ed25519 key in a file that only its owner can read.
#
# With a key the server gives the same id every time; without one every connection is somebody new. A key that others
# can read is no proof of anything, so such a file is refused.

_LARGEST = 10_000
_PRIVATE = 0o600
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class ChatKey:
    """A private key, and what can be shown of it."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private

    @property
    def public_pem(self) -> str:
        """The public key as the server wants it."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        return self._private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    def sign(self, nonce: str, challenge_id: str, timestamp: int) -> str:
        """The answer to a server's challenge."""
        signed = f"AGENTCHAT_AUTH|{nonce}|{challenge_id}|{timestamp}"
        return base64.b64encode(self._private.sign(signed.encode())).decode()


def read_key(path: Path) -> ChatKey:
    """The key in this file, which is made if it is not there; `Refused` where it is no secret or no key."""
    try:
        opened = os.open(path, _READ)
    except FileNotFoundError:
        return _make_key(path)
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        _check_private(path, os.fstat(opened))
        content = os.read(opened, _LARGEST)
    except OSError as error:
        raise _unreadable(path, error) from None
    finally:
        os.close(opened)
    return ChatKey(_parsed(path, content))


def _unreadable(path: Path, error: OSError) -> Refused:
    return Refused("chat_key", f"the key {path} cannot be read: {error.strerror}", where=str(path))


def _check_private(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise Refused("chat_key", f"the key {path} is not a file", where=str(path))
    if found.st_uid != os.geteuid():
        text = f"the key {path} belongs to another user ({found.st_uid}); use one of your own"
        raise Refused("chat_key", text, where=str(path))
    if stat.S_IMODE(found.st_mode) & 0o077:
        mode = f"{stat.S_IMODE(found.st_mode):04o}"
        text = f"others can read or write the key {path} (mode {mode}); run: chmod 600 {path}"
        raise Refused("chat_key", text, where=str(path))


def _parsed(path: Path, content: bytes) -> Ed25519PrivateKey:
    _signing_library()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        text = f"{path} holds no ed25519 key in PEM without a password; name another file, and one is made there"
        raise Refused("chat_key", text, where=str(path))
    return key


def _make_key(path: Path) -> ChatKey:
    _signing_library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate()
    try:
        opened = os.open(path, _NEW, _PRIVATE)
    except OSError as error:
        text = f"the key {path} cannot be made: {error.strerror}"
        raise Refused("chat_key", text, where=str(path)) from None
    with os.fdopen(opened, "wb") as file:
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        file.flush()
        os.fsync(file.fileno())
    return ChatKey(key)


def _signing_library() -> None:
    try:
        import cryptography  # noqa: F401 - only to see that it is there
    except ModuleNotFoundError:
        text = "a key for a chat needs the extra `chat`: in Allswell's clone, type `uv tool install '.[chat]'`"
        raise Refused("missing_extra", text) from None


# The JSON frames of AgentChat, as far as we need them: what is read strictly, and what is written.

_AGENT = re.compile(r"@[A-Za-z0-9_-]{1,64}", re.ASCII)
_KEYED = re.compile(r"@(?:[0-9a-f]{16}|[0-9a-f]{8})", re.ASCII)
"""The id of a key: 16 digits, on older servers 8. An agent without a key has 8 letters and digits by chance."""
CHANNEL = re.compile(r"#[A-Za-z0-9_-]{1,31}", re.ASCII)
NAME = re.compile(r"[A-Za-z0-9_-]{1,32}", re.ASCII)
_ID = re.compile(r"[!-~]{1,100}", re.ASCII)
_LATEST = 1 << 53
SERVER = "@server"
"""Under this name the server itself talks, for people."""


class ChatFrame(msgspec.Struct, frozen=True, rename={"from_": "from"}):
    """A frame from the server. Which fields it has follows from its type; those that we never use are left out."""

    type: str
    agent_id: str = ""
    challenge_id: str = ""
    nonce: str = ""
    channel: str = ""
    from_: str = ""
    to: str = ""
    content: str = ""
    ts: int = 0
    msg_id: str = ""
    replay: bool = False
    code: str = ""
    message: str = ""
    reason: str = ""
    lurk_until: int = 0


_DECODER = msgspec.json.Decoder(ChatFrame)


def read_frame(raw: str | bytes) -> ChatFrame | None:
    """A frame; None where this is none."""
    try:
        return _DECODER.decode(raw)
    except msgspec.MsgspecError:
        return None


def agent_in(frame: ChatFrame) -> str | None:
    """Who we are, as others hear us; None if that is no name. Servers write the @, and we do not rely on it."""
    name = f"@{frame.agent_id.removeprefix('@')}"
    return name if _AGENT.fullmatch(name) else None


def heard_in(frame: ChatFrame, ago: int = 0) -> HeardMessage | None:
    """What an agent said so many milliseconds ago; None without its name, or with a moment that cannot be one.

    An id that is no plain word is none: it would have to be kept, in stores that do not take every character. Of a text
    that is too long to be read no more is kept than shows that.
    """
    if frame.from_ == SERVER or not _AGENT.fullmatch(frame.from_) or not 0 <= frame.ts <= _LATEST:
        return None
    keyed = _KEYED.fullmatch(frame.from_) is not None
    id_ = frame.msg_id if _ID.fullmatch(frame.msg_id) else ""
    return HeardMessage(frame.from_, frame.content[: MESSAGE_MAX + 1], Millis(frame.ts), id_, frame.replay, keyed, ago)


def write_frame(type_: str, **fields: object) -> str:
    """A frame to the server."""
    return msgspec.json.encode({"type": type_, **fields}).decode()


# Where in a chat to talk, as whom, and how often to try.


class ChatPlace(msgspec.Struct, frozen=True):
    """Where to talk, and as whom."""

    url: str
    channel: str
    name: str

    def checked(self) -> Self:
        """This place, if a server can know it."""
        if not self.url.startswith(("ws://", "wss://")):
            text = f"{self.url!r} is not an address of a chat server; write such as ws://localhost:6667"
            raise Refused("bad_chat", text, where="chat")
        if not CHANNEL.fullmatch(self.channel):
            text = f"{self.channel!r} is not a channel; write # and up to 31 letters, digits, '_' and '-'"
            raise Refused("bad_channel", text, where="channel")
        if not NAME.fullmatch(self.name):
            text = f"{self.name!r} cannot be our name in a chat; use up to 32 letters, digits, '_' and '-'"
            raise Refused("bad_name", text, where="name")
        return self


class Reconnecting(msgspec.Struct, frozen=True):
    """How long to wait before connecting again, in milliseconds; it doubles up to the most."""

    first: int = 1_000
    most: int = 60_000


# One connection to a chat server, from saying who we are to its end.
#
# The order is the server's: identify (where it asks for that, by signing its challenge), join the channel or create it,
# hear the replay, then talk. The replay is over when the server answers a ping that was sent after joining: frames keep
# their order.
#
# What a server refuses ends the channel only where waiting does not help. A channel that is not there and that we may
# not create is waited for. So is the moment from which a new key may speak.


_log = logging.getLogger("allswell.chat")

OPENING = 30
"""Seconds that a server may be silent before we talk."""
_TAKEOVER = 90
"""Seconds until our welcome: a server holds a connection back that takes an identity over, for up to 60."""
_JOIN_AGAIN = 3
"""Seconds between two attempts to join a channel that is not there yet."""

_FOR_GOOD = {
    "NOT_ALLOWED": "it does not let this key in; ask its operator to add the key to its allowlist",
    "BANNED": "it has banned this key; ask its operator",
    "INVALID_NAME": "it does not take this name; choose another with --name",
    "VERIFICATION_FAILED": "it does not accept the signature of our key",
    "CAPTCHA_FAILED": "it wants a captcha solved, which we cannot; ask its operator to let this key in without one",
}
"""Errors that no patience mends, and what to do."""
_NOT_TO_US = {
    "NOT_INVITED": "the channel is closed; ask the agent that made it for an invitation",
    "AUTH_REQUIRED": "the channel is for verified agents; ask the server's operator to verify this key",
}
"""What a server says to an agent that may not join."""
_OUT_OF_CHANNEL = {"CHANNEL_NOT_FOUND", "NOT_INVITED"}
"""What a server says to an agent that speaks where it is not (any more)."""


_DISPLACED = "Another connection claimed this identity"
"""How an older server says so."""


class ConnectionReplaced(ConnectionResetError):
    """Another connection has our identity now."""


class ChatSession:
    """One connection, from identifying to its end."""

    def __init__(self, chat: AgentChat, connection: ClientConnection) -> None:
        self._chat = chat
        self._connection = connection
        self._place = chat.place

    async def run(self) -> None:
        """Talk until the connection ends, which is always by an error."""
        await self._identify()
        await self._join()
        await self._catch_up()
        await self._chat.caught_up()
        speaking = asyncio.ensure_future(self._chat.speak(self._connection))
        listening = asyncio.ensure_future(self._listen())
        try:
            await asyncio.wait({speaking, listening}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (speaking, listening):
                task.cancel()
            ended = await asyncio.gather(speaking, listening, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def _next(self) -> ChatFrame:
        while True:
            frame = read_frame(await self._connection.recv())
            if frame is None:
                _log.warning("%s sent something that is no frame", self._place.url)
                continue
            self._chat.dated(frame)
            if frame.type == "ERROR" and frame.code in _FOR_GOOD:
                raise self._refused(frame.code, _FOR_GOOD[frame.code])
            if frame.type == "CAPTCHA_CHALLENGE":
                raise self._refused(frame.type, _FOR_GOOD["CAPTCHA_FAILED"])
            if frame.type == "KICKED":
                text = f"we were put out of {self._place.channel}; ask the operator of {self._place.url}"
                raise Refused("chat_refused", text, where="chat")
            if frame.type == "SESSION_DISPLACED" or (frame.type == "ERROR" and _DISPLACED in frame.message):
                raise ConnectionReplaced("another connection uses the same key")
            return frame

    async def _next_soon(self) -> ChatFrame:
        async with asyncio.timeout(OPENING):
            return await self._next()

    def _refused(self, code: str, why: str) -> Refused:
        return Refused("chat_refused", f"{self._place.url} refused us ({code[:40]}): {why}", where="chat")

    async def _send(self, type_: str, **fields: object) -> None:
        await self._connection.send(write_frame(type_, **fields))

    async def _identify(self) -> None:
        key = self._chat.key()
        shown = {} if key is None else {"pubkey": key.public_pem}
        await self._send("IDENTIFY", name=self._place.name, **shown)
        async with asyncio.timeout(_TAKEOVER):
            while (frame := await self._next()).type != "WELCOME":
                if frame.type == "CHALLENGE" and key is not None:
                    now = self._chat.wall()
                    signature = key.sign(frame.nonce, frame.challenge_id, now)
                    answer = {"challenge_id": frame.challenge_id, "signature": signature, "timestamp": now}
                    await self._send("VERIFY_IDENTITY", **answer)
                elif frame.type == "ERROR" and frame.code == "INVALID_MSG":
                    raise self._refused(frame.code, f"it does not take who we say we are ({frame.message[:200]})")
                elif frame.type == "ERROR":
                    raise ConnectionResetError(f"the server did not welcome us: {frame.code[:40]}")
        who = agent_in(frame)
        if who is None:
            raise self._refused("WELCOME", f"it calls us {frame.agent_id[:80]!r}, which is not a name")
        self._chat.welcomed(who, frame.lurk_until)

    async def _join(self) -> None:
        """Join the channel; one that is not there is created, or waited for where we may not create it."""
        channel = self._place.channel
        creating = False
        await self._send("JOIN", channel=channel)
        while (frame := await self._next_soon()).type != "JOINED" or frame.channel != channel:
            if frame.type == "MSG":
                await self._chat.hear(frame)
            elif frame.type != "ERROR":
                continue
            elif frame.code == "CHANNEL_NOT_FOUND":
                creating = True
                await self._send("CREATE_CHANNEL", channel=channel)
            elif frame.code == "AUTH_REQUIRED" and creating:
                creating = False
                self._chat.waits_for_channel()
                await asyncio.sleep(_JOIN_AGAIN)
                await self._send("JOIN", channel=channel)
            elif frame.code == "CHANNEL_EXISTS":
                await self._send("JOIN", channel=channel)
            elif frame.code in _NOT_TO_US:
                raise self._refused(frame.code, _NOT_TO_US[frame.code])
            else:
                raise ConnectionResetError(f"the server did not let us into {channel}: {frame.code[:40]}")

    async def _catch_up(self) -> None:
        """Hear the replay to its end: the answer to a ping comes after it."""
        await self._send("PING")
        while (frame := await self._next_soon()).type != "PONG":
            if frame.type == "MSG":
                await self._chat.hear(frame)

    async def _listen(self) -> None:
        while True:
            frame = await self._next()
            if frame.type == "MSG":
                await self._chat.hear(frame)
            elif frame.type == "ERROR":
                self._hear_error(frame)

    def _hear_error(self, frame: ChatFrame) -> None:
        """An error is about the message that is under way: of what we send, nothing else can be wrong."""
        if frame.code == "RATE_LIMITED":
            self._chat.limited()
        elif frame.code == "LURK_MODE":
            self._chat.lurks()
        elif frame.code in _OUT_OF_CHANNEL:
            raise ConnectionResetError(f"the server has lost {self._place.channel} or put us out of it")
        elif frame.code == "INVALID_MSG":
            self._chat.not_taken(frame.message[:200])
        else:
            _log.warning("%s: %s %s", self._place.url, frame.code[:40], frame.message[:200])


_LARGEST_FRAME = 64 << 20
"""Bytes. Servers let messages of 2 MB through, and tell them again to everybody who joins: one that we did not survive
would end every connection of ours. Of a text that long little is kept (`frames.heard_in`)."""
_MARKER, _NO_MARKER = "@@cb:", "@ @cb:"
"""A newer server takes this in a text for an order to itself and cuts it out."""
_CLOSING = 2
"""Seconds that a server has to say good-bye."""
_PING_EVERY = 30_000
_MOST_HEARD = 1_000
"""So much may be waiting to be received; then the server is read no further."""
_LURK_AGAIN = 300_000
"""A new key that may not speak yet tries again so often: an operator may have let it."""
_MOST_REFUSALS = 3
"""A message that the server refuses so often is refused for good."""


class AgentChat:
    """`async with AgentChat(place, key) as channel:`: a `Channel` on a chat server."""

    def __init__(
        self,
        place: ChatPlace,
        key: ChatKey | None = None,
        *,
        pace: AnnouncePace | None = None,
        reconnecting: Reconnecting | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.place = place.checked()
        self._key = key
        self._clock = clock or SystemClock()
        self._reconnecting = reconnecting or Reconnecting()
        self._outgoing = Outgoing(pace)
        self._outgoing.cut_off()
        self._put = 0
        """Lines put so far."""
        self._arrived = 0
        """Lines that have arrived; they arrive in the order in which they were put."""
        self._arrived_at = Millis(0)
        """When the last of them did, by the server's clock."""
        self._known = KnownMessages()
        self._heard: deque[HeardMessage] = deque()
        self._who = ""
        self._names: set[str] = set()
        """All that we have been called: without a key, each connection has another name."""
        self._in_channel = False
        self._is_current = False
        """Whether the replay of this connection is over."""
        self._ahead: int | None = None
        """The server's clock minus ours, as this connection's frames show it."""
        self._lurks_until = 0
        """By the server's clock."""
        self._newest = Millis(0)
        """The newest message of the channel, whoever has said it."""
        self._known_until = Millis(0)
        """The newest of them when the last connection ended."""
        self._replayed_since: Millis | None = None
        """The oldest message that was told again over this connection."""
        self._hearing = ChannelCoverage(is_current=False)
        self._not_taken = 0
        self._said_once: set[str] = set()
        """What the operator of this process was told of."""
        self._ended: Exception | None = None
        self._changed = asyncio.Condition()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # --- the channel --------------------------------------------------------------------------------------------------

    @property
    def who(self) -> str:
        """As what the others hear us; empty before the first welcome."""
        return self._who

    @property
    def hearing(self) -> ChannelCoverage:
        """Whether everything was heard, and what may be missing."""
        current = self._is_current and not self._heard
        return msgspec.structs.replace(self._hearing, is_current=current)

    async def receive(self) -> HeardMessage:
        """The next message."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._heard or self._ended is not None)
            if not self._heard:
                self._raise_end()
            heard = self._heard.popleft()
            self._changed.notify_all()
            return heard

    async def send(self, lines: Sequence[str]) -> Millis:
        """Say these lines in the channel; returns when all have arrived, with the server's time of that."""
        for line in lines:
            if "\n" in line or len(line.encode()) > MESSAGE_BYTES:
                raise Bug(f"a line of {len(line)} characters was to be said that is no line: {line[:80]!r}")
            self._outgoing.put(self.place.channel, line.replace(_MARKER, _NO_MARKER))
        self._put += len(lines)
        last = self._put
        self._wake.set()
        async with self._changed:
            await self._changed.wait_for(lambda: self._arrived >= last or self._ended is not None)
            if self._arrived < last:
                self._raise_end()
            return self._arrived_at

    def _raise_end(self) -> None:
        assert self._ended is not None  # noqa: S101 - only called when it is there
        raise self._ended

    # --- life ---------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        _library()
        self._task = asyncio.create_task(self._run(), name=f"chat {self.place.channel}")
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: self._in_channel or self._ended is not None)
        except BaseException:  # whoever gave up waiting must not leave a connection behind
            await self._stop()
            raise
        if self._ended is not None:
            await self._stop()
            raise self._ended
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._end(ChannelClosed("the channel was left"))

    async def _end(self, why: Exception) -> None:
        async with self._changed:
            self._ended = self._ended or why
            self._changed.notify_all()

    async def _run(self) -> None:
        """Session after session, until something happens that no patience mends."""
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidURI, WebSocketException

        pause = self._reconnecting.first
        while True:
            began = self.now()
            try:
                async with connect(
                    self.place.url, max_size=_LARGEST_FRAME, open_timeout=OPENING, close_timeout=_CLOSING
                ) as connection:
                    await ChatSession(self, connection).run()
            except Refused as refused:
                await self._end(refused)
                return
            except InvalidURI:
                text = f"{self.place.url!r} is not an address of a chat server; write such as ws://localhost:6667"
                await self._end(Refused("bad_chat", text, where="chat"))
                return
            except (OSError, WebSocketException, TimeoutError) as error:
                why = str(error) or type(error).__name__
                _log.warning("%s: the connection is gone (%s); connecting again", self.place.url, why)
                if self.now() - began > pause:
                    pause = self._reconnecting.first  # it held for a while: this is no series of failures
                if isinstance(error, ConnectionReplaced):
                    pause = self._reconnecting.most  # or two with one key would displace each other without end
            self._outgoing.cut_off()
            if self._is_current:
                self._known_until = self._newest
            self._is_current = False
            self._ahead = None
            await asyncio.sleep(pause * random.uniform(0.5, 1) / 1_000)
            pause = min(pause * 2, self._reconnecting.most)

    # --- what a session tells -----------------------------------------------------------------------------------------

    def now(self) -> Millis:
        """The clock by which messages are spaced."""
        return Millis(self._clock.monotonic())

    def wall(self) -> int:
        """The clock that a server compares with its own."""
        return self._clock.wall()

    def dated(self, frame: ChatFrame) -> None:
        """A frame was received: it shows what the server's clock says. The one that took least time shows it best."""
        if frame.ts > 0 and not frame.replay:
            ahead = frame.ts - self.now()
            self._ahead = ahead if self._ahead is None else max(self._ahead, ahead)
        if frame.type == "MSG" and frame.to == self.place.channel:
            self._newest = Millis(max(self._newest, frame.ts))
            if frame.replay:
                oldest = frame.ts if self._replayed_since is None else min(frame.ts, self._replayed_since)
                self._replayed_since = Millis(oldest)

    def _ago(self, frame: ChatFrame) -> int:
        """How long ago a message was said that is told again; what is said now is said now, whatever its date."""
        return 0 if self._ahead is None or not frame.replay else max(self.now() + self._ahead - frame.ts, 0)

    def welcomed(self, who: str, lurks_until: int = 0) -> None:
        """The server has told us who we are, and until when it wants us to be silent."""
        self._who = who
        self._names.add(who)
        self._lurks_until = lurks_until
        self._replayed_since = None

    async def hear(self, frame: ChatFrame) -> None:
        """An agent has said something; our own words come back as echo."""
        heard = heard_in(frame, self._ago(frame))
        if heard is None or frame.to not in {self.place.channel, self._who} or not self._known.is_new(heard.mark):
            return
        async with self._changed:
            if heard.who in self._names:
                lines = self._outgoing.echoed(self.now()) if heard.at > self._arrived_at or not heard.replay else 0
                self._arrived += lines
                self._arrived_at = heard.at if lines else self._arrived_at
                self._not_taken = 0 if lines else self._not_taken
                self._wake.set()
                if lines or not frame.replay:
                    self._changed.notify_all()
                    return
            self._heard.append(heard)
            self._changed.notify_all()
            await self._changed.wait_for(lambda: len(self._heard) < _MOST_HEARD)

    def limited(self) -> None:
        """The server threw our last message away."""
        self._outgoing.limited(self.now())
        self._wake.set()

    def lurks(self) -> None:
        """The server lets us only read, for now or for good."""
        if self._key is None:
            text = f"{self.place.url} lets only agents with a key speak; give one with --key FILE"
            raise Refused("chat_refused", text, where="chat")
        left = self._lurks_until - self.now() - (self._ahead or 0)
        if left > 0:
            text = f"lets this new key speak only in {show(-(-left // 1_000) * 1_000)}; what is to be said waits"
        else:
            text = "does not let this key speak yet; what is to be said waits"
        self._tell_once("lurking", f"{self.place.url} {text}")
        again = min(left, _LURK_AGAIN) if left > 0 else _LURK_AGAIN // 5
        self._outgoing.held(Millis(self.now() + again))
        self._wake.set()

    def not_taken(self, why: str) -> None:
        """The server refuses what we have just said."""
        if not self._outgoing.is_in_doubt:
            _log.warning("%s: %s", self.place.url, why)
            return
        self._not_taken += 1
        if self._not_taken >= _MOST_REFUSALS:
            raise Refused("chat_refused", f"{self.place.url} does not take what we say: {why}", where="chat")
        self.limited()

    def waits_for_channel(self) -> None:
        """The channel is not there, and we may not create it."""
        text = f"{self.place.url} has no channel {self.place.channel} yet and lets only verified agents create one"
        self._tell_once("channel", f"{text} (we are {self._who.removeprefix('@')}); waiting until it is there")

    def _tell_once(self, about: str, text: str) -> None:
        if about not in self._said_once:
            self._said_once.add(about)
            _log.warning("%s", text)

    async def caught_up(self) -> None:
        """We are in the channel, and the replay is over."""
        since, before = self._replayed_since, self._known_until
        if not self._in_channel:
            self._hearing = ChannelCoverage(is_current=True, since=since)
        elif before and (since is None or since > before):
            self._hearing = msgspec.structs.replace(self._hearing, gaps=self._hearing.gaps + 1)
        self._is_current = True
        self._outgoing.caught_up(self.now())
        self._wake.set()
        async with self._changed:
            self._in_channel = True
            self._changed.notify_all()

    async def speak(self, connection: ClientConnection) -> None:
        """Send what is due, for as long as the connection can be trusted."""
        pinged = self.now()
        while True:
            now = self.now()
            if self._outgoing.is_overdue(now):
                raise TimeoutError("the server did not echo our message")
            if (message := self._outgoing.take(now)) is not None:
                await connection.send(write_frame("MSG", to=message.place, content=message.content))
                continue
            if now >= pinged + _PING_EVERY:
                await connection.send(write_frame("PING"))
                pinged = now
            due = self._outgoing.due_at()
            until = pinged + _PING_EVERY if due is None else min(due, pinged + _PING_EVERY)
            self._wake.clear()
            with contextlib.suppress(TimeoutError):  # not wait_for: before Python 3.12 it can swallow a cancel
                async with asyncio.timeout(max(until - now, 1) / 1_000):
                    await self._wake.wait()

    def key(self) -> ChatKey | None:
        """What proves who we are."""
        return self._key


def _library() -> None:
    try:
        import websockets  # noqa: F401 - only to see that it is there
    except ModuleNotFoundError:
        text = "AgentChat needs the extra `chat`: in Allswell's clone, type `uv tool install '.[chat]'`"
        raise Refused("missing_extra", text) from None
