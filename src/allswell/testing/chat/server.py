"""A chat server as agents meet it: real sockets, JSON frames, limits, echo, replay, displacement (C8).

    with ChatServer() as chat:
        ...                                    # connect to chat.url
        chat.wait_for(lambda said: said.content == "CLAIM auth")
        chat.cut("@1a2b…")                     # break that agent's connection
        chat.send_raw("@1a2b…", "not json")    # or be hostile

The server runs in a thread with a loop of its own, so that a test whose loop is blocked still gets its answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Self

import msgspec
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from allswell.testing.chat.member import ChatMember
from allswell.testing.chat.rules import ChatRules


class Said(msgspec.Struct, frozen=True):
    """A message that the server took."""

    who: str
    to: str
    content: str
    ts: int
    msg_id: str


class ChatServer:
    """A chat server on 127.0.0.1; `with ChatServer() as chat:`."""

    def __init__(self, rules: ChatRules | None = None, *, port: int = 0) -> None:
        self.rules = rules or ChatRules()
        self.port = port
        self.said: list[Said] = []
        """All messages that were taken, in order."""
        self.refused: list[tuple[str, str]] = []
        """Who was answered with an error, and its code."""
        self.channels: dict[str, deque[Said]] = {}
        self.members: list[ChatMember] = []
        self.refusing = False
        """Whether new connections are closed at once."""
        self.next_ts: int | None = None
        """Where set, the moment of all messages to come: for claims at exactly the same time."""
        self.last_spoken: dict[str, int] = {}
        self.troubles: dict[str, int] = {
            "lost_echoes": self.rules.lost_echoes,
            "lost_messages": self.rules.lost_messages,
            "cut_after_taking": self.rules.cut_after_taking,
        }
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="allswell-chat-double", daemon=True)
        self._changed = threading.Condition()
        self._server: Server | None = None

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
        self._do(self.channels.clear)

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
        return await serve(self._serve, "127.0.0.1", self.port, max_size=256 * 1024, ping_interval=None)

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
        return time.time_ns() // 1_000_000 if self.next_ts is None else self.next_ts

    def notify(self) -> None:
        """Something has changed that a test may be waiting for."""
        with self._changed:
            self._changed.notify_all()

    def refuse(self, member: ChatMember, code: str, message: str) -> None:
        """Answer with an error."""
        self.refused.append((member.name_on_wire, code))
        member.send(type="ERROR", code=code, message=message)
        self.notify()

    def take(self, who: str, to: str, content: str, speaker: ChatMember | None) -> None:
        """Take a message: keep it, and tell everybody it is for, its speaker too."""
        if self._trouble("lost_messages"):
            return
        said = Said(who, to, content, self.now(), f"msg_{len(self.said) + 1}" if self.rules.message_ids else "")
        if to.startswith("#"):
            self.channels.setdefault(to, deque(maxlen=self.rules.replayed)).append(said)
        with self._changed:
            self.said.append(said)
        no_echo = speaker is not None and self._trouble("lost_echoes")
        if speaker is not None and self._trouble("cut_after_taking"):
            speaker.cut()
            no_echo = True
        for member in self.members:
            listens = to in member.channels if to.startswith("#") else member.name_on_wire == to
            if (listens and member is not speaker) or (member is speaker and not no_echo):
                member.send(**frame_of(said))
        self.notify()

    def replay(self, member: ChatMember, channel: str) -> None:
        """Tell somebody the last messages of a channel once more."""
        for said in self.channels[channel]:
            member.send(**frame_of(said), replay=True)

    def displace(self, newcomer: ChatMember) -> bool:
        """End the other connections of the same identity; whether there were any."""
        others = [one for one in self.members if one is not newcomer and one.agent_id == newcomer.agent_id]
        for other in others:
            other.send(type="SESSION_DISPLACED", reason="the same identity has connected again")
            other.leave()
        return bool(others)

    def announce_leaving(self, member: ChatMember) -> None:
        """Tell a member's channels that it has gone."""
        for channel in member.channels:
            for other in self.members:
                if channel in other.channels:
                    with contextlib.suppress(ConnectionClosed):
                        other.send(type="AGENT_LEFT", channel=channel, agent=member.name_on_wire)

    def _trouble(self, name: str) -> bool:
        if self.troubles[name] <= 0:
            return False
        self.troubles[name] -= 1
        return True


def frame_of(said: Said) -> dict[str, Any]:
    """A message as it is sent."""
    frame = {"type": "MSG", "from": said.who, "to": said.to, "content": said.content, "ts": said.ts}
    return {**frame, "msg_id": said.msg_id} if said.msg_id else frame
