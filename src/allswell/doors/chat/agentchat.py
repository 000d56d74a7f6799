"""AgentChat: a channel on a chat server, over WebSocket (C8).

A session is one connection (`session.py`). When it breaks, for whatever reason, the next one begins after a pause that
grows; with a key we are the same agent again.

What is said goes through `Outgoing`, which knows the server's limits and what has arrived. What is heard is handed on
once, however often it is replayed. Some answers of a server no patience mends (a name it does not take, a key that it
does not let speak): they end the channel with the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from allswell.build.channel import ChannelClosed
from allswell.domain.build.heard import Heard, KnownMessages
from allswell.domain.build.outgoing import MESSAGE_BYTES, Outgoing, Pace
from allswell.domain.names import Millis
from allswell.doors.chat.frames import Frame, heard_in, write_frame
from allswell.doors.chat.identity import ChatKey
from allswell.doors.chat.place import ChatPlace, Reconnecting
from allswell.doors.chat.session import OPENING, ChatSession
from allswell.errors import Bug, Refused
from allswell.timing.clock import Clock, SystemClock

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

_log = logging.getLogger("allswell.chat")

_LARGEST_FRAME = 1 << 20
_CLOSING = 2
"""Seconds that a server has to say good-bye."""
_PING_EVERY = 30_000
_MOST_HEARD = 10_000
"""So much may be waiting to be received; then the server is read no further."""


class AgentChat:
    """`async with AgentChat(place, key) as channel:`: a `Channel` on a chat server."""

    def __init__(
        self,
        place: ChatPlace,
        key: ChatKey | None = None,
        *,
        pace: Pace | None = None,
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
        self._heard: deque[Heard] = deque()
        self._who = ""
        self._names: set[str] = set()
        """All that we have been called: without a key, each connection has another name."""
        self._in_channel = False
        self._ended: Exception | None = None
        self._changed = asyncio.Condition()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # --- the channel --------------------------------------------------------------------------------------------------

    @property
    def who(self) -> str:
        """As what the others hear us; empty before the first welcome."""
        return self._who

    async def receive(self) -> Heard:
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
            self._outgoing.put(self.place.channel, line)
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
                text = f"{self.place.url!r} is no address of a chat server; write such as ws://localhost:6667"
                await self._end(Refused("bad_chat", text, where="chat"))
                return
            except (OSError, WebSocketException, TimeoutError) as error:
                why = str(error) or type(error).__name__
                _log.warning("%s: the connection is gone (%s); connecting again", self.place.url, why)
            self._outgoing.cut_off()
            if self.now() - began > pause:
                pause = self._reconnecting.first  # it held for a while: this is no series of failures
            await asyncio.sleep(pause * random.uniform(0.5, 1) / 1_000)
            pause = min(pause * 2, self._reconnecting.most)

    # --- what a session tells -----------------------------------------------------------------------------------------

    def now(self) -> Millis:
        """The clock by which messages are spaced."""
        return Millis(self._clock.monotonic())

    def wall(self) -> int:
        """The clock that a server compares with its own."""
        return self._clock.wall()

    def welcomed(self, agent_id: str) -> None:
        """The server has told us who we are."""
        self._who = f"@{agent_id}"
        self._names.add(self._who)

    async def hear(self, frame: Frame) -> None:
        """Somebody said something; our own words come back as echo."""
        heard = heard_in(frame)
        if heard is None or frame.to not in {self.place.channel, self._who} or not self._known.is_new(heard.mark):
            return
        async with self._changed:
            if heard.who in self._names:
                lines = self._outgoing.echoed(frame.to, frame.content, self.now())
                self._arrived += lines
                self._arrived_at = heard.at if lines else self._arrived_at
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

    async def caught_up(self) -> None:
        """We are in the channel, and the replay is over."""
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
        text = "talking over AgentChat needs websockets, which is not installed; run: pip install 'allswell[chat]'"
        raise Refused("missing_extra", text) from None
