"""The chat sink: what happens is said in an AgentChat channel, line by line, in the protocol's own sentences.

The channel is joined for what waits, and left again: nobody is listened to. A line has arrived when the server has
echoed it. An echo that is lost may let a line be said twice; chat servers know no ids of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from allswell.build.channel import ChannelClosed
from allswell.domain.alert import Alert
from allswell.domain.build.outgoing import MESSAGE_BYTES
from allswell.domain.delivery import Delivery, Failure
from allswell.domain.event import Event
from allswell.domain.journal import Entry
from allswell.domain.sink_spec import MESH, SinkSpec, hearing
from allswell.doors.chat.agentchat import AgentChat
from allswell.doors.chat.identity import read_key
from allswell.doors.chat.place import ChatPlace
from allswell.doors.sinks.alerting import alert_of
from allswell.doors.sinks.sink import Message, NotDelivered
from allswell.errors import Refused
from allswell.store.views import Views

_decode = msgspec.json.Decoder(Alert).decode


class ChatSink:
    """Says it in a channel."""

    together = 20
    targets: Sequence[str] = ("",)
    memory = ""

    def __init__(self, spec: SinkSpec) -> None:
        self.name = spec.name
        self.begins: Literal["now", "start"] = spec.begins
        self.limit = spec.timeout / 1_000
        self.patience = spec.patience
        self._mesh = MESH in (spec.hears or (MESH,))
        self._humans = spec.humans
        self._hears = hearing(spec, (MESH,))
        self._place = ChatPlace(spec.url, spec.channel, spec.speaks_as).checked()
        self._key = read_key(Path(spec.key).expanduser()) if spec.key else None

    async def messages(self, entry: Entry, views: Views) -> Sequence[Message]:
        """A line about an event."""
        if entry.event.kind not in self._hears:
            return ()
        alert = await alert_of(entry, views, mesh=self._mesh, humans=self._humans)
        return () if alert is None else [Message(msgspec.json.encode(alert).decode())]

    async def send(self, batch: Sequence[Delivery]) -> None:
        """Say all that waits."""
        lines = [line_of(_decode(one.body)) for one in batch]
        try:
            async with AgentChat(self._place, self._key) as chat:
                await chat.send(lines)
        except (Refused, ChannelClosed) as error:
            raise NotDelivered(Failure(f"{self._place.url}: {error}")) from None

    def free_at(self, target: str, now: int) -> int:
        """It may be told something at any time."""
        del target
        return now

    def made(self, batch: Sequence[Delivery]) -> Sequence[Event]:
        """Of which questions somebody was told."""
        asked = dict.fromkeys(alert.question for alert in (_decode(one.body) for one in batch) if alert.question)
        return [Event("question_told", data={"question": question, "sink": self.name}) for question in asked]

    async def check(self) -> str:
        """Nobody is disturbed: what can be read is right."""
        known = "by its key" if self._key is not None else "as a stranger"
        return f"{self._place.channel} at {self._place.url}, {known}"

    async def close(self) -> None:
        """Nothing stays open between two messages."""


def line_of(alert: Alert) -> str:
    """An alert on one line, no longer than a chat takes."""
    words = " ".join(f"{alert.title}: {alert.text}".removeprefix(": ").split())
    raw = words.encode()
    return words if len(raw) <= MESSAGE_BYTES else raw[: MESSAGE_BYTES - 3].decode("utf-8", "ignore") + "…"
