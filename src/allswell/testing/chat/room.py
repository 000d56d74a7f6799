"""A chat in memory, for tests on virtual time: everybody hears everybody, at moments that the room gives out.

What a member says arrives at once, unless the room is told otherwise: it can hold all words back (`mute`), and cut a
member off (`cut`) and let it come back to a replay (`mend`). For the limits and troubles of a real server there is
`ChatServer`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

import msgspec

from allswell.build.channel import ChannelClosed
from allswell.domain.build.heard import Heard, KnownMessages
from allswell.domain.names import Millis
from allswell.timing.clock import Clock


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
        self.said: list[Heard] = []
        """All that was said, in order."""
        self._changed = asyncio.Condition()

    def join(self, name: str) -> RoomChannel:
        """A place in the room; it begins with the replay."""
        member = RoomChannel(self, name)
        for heard in self.said[-self._replayed :]:
            member.put(msgspec.structs.replace(heard, replay=True))
        self._members.append(member)
        return member

    def leave(self, member: RoomChannel) -> None:
        """Somebody is gone."""
        if member in self._members:
            self._members.remove(member)

    async def say(
        self, who: str, text: str, *, at: int | None = None, id_: str | None = None, keyed: bool = True
    ) -> Heard:
        """Somebody says something; `at` and `id_` are the room's own unless given."""
        self._count += 1
        if at is None:  # nobody says two things in the same moment: servers take one message a second
            at = max(self._clock.wall(), self._last.get(who, 0) + 1)
            self._last[who] = at
        moment = Millis(at)
        heard = Heard(who, text, moment, f"{self._count:08}" if id_ is None else id_, keyed=keyed)
        async with self._changed:
            self.said.append(heard)
            for member in self._members:
                if member.who != who:
                    self.deliver(member, heard)
            self._changed.notify_all()
        return heard

    def deliver(self, member: RoomChannel, heard: Heard) -> None:
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

    def replays(self, heard: Heard) -> bool:
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

    def __init__(self, room: Room, name: str) -> None:
        self._room = room
        self._name = name
        self._heard: deque[Heard | None] = deque()
        self._rings = asyncio.Event()
        self._known = KnownMessages()
        self._connected = asyncio.Event()
        self._connected.set()

    @property
    def who(self) -> str:
        """Our name."""
        return self._name

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

    def come_back(self, said: Sequence[Heard]) -> None:
        """It is there again, and is told what it has missed of these."""
        self._connected.set()
        for heard in said:
            if heard.who != self._name and self._known.is_new(heard.mark):
                self.put(msgspec.structs.replace(heard, replay=True))

    def put(self, heard: Heard) -> None:
        """Have this member hear something."""
        self._known.is_new(heard.mark)
        self._heard.append(heard)
        self._rings.set()

    def close(self) -> None:
        """End this member's channel for good."""
        self._heard.append(None)
        self._rings.set()
        self._room.leave(self)

    async def receive(self) -> Heard:
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
