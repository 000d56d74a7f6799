"""Where in a chat to talk, as whom, and how often to try."""

from __future__ import annotations

from typing import Self

import msgspec

from allswell.doors.chat.frames import CHANNEL, NAME
from allswell.errors import Refused


class ChatPlace(msgspec.Struct, frozen=True):
    """Where to talk, and as whom."""

    url: str
    channel: str
    name: str

    def checked(self) -> Self:
        """This place, if a server can know it."""
        if not self.url.startswith(("ws://", "wss://")):
            text = f"{self.url!r} is no address of a chat server; write such as ws://localhost:6667"
            raise Refused("bad_chat", text, where="chat")
        if not CHANNEL.fullmatch(self.channel):
            text = f"{self.channel!r} is no channel; write # and up to 31 letters, digits, '_' and '-'"
            raise Refused("bad_channel", text, where="channel")
        if not NAME.fullmatch(self.name):
            text = f"{self.name!r} cannot be our name in a chat; use up to 32 letters, digits, '_' and '-'"
            raise Refused("bad_name", text, where="name")
        return self


class Reconnecting(msgspec.Struct, frozen=True):
    """How long to wait before connecting again, in milliseconds; it doubles up to the most."""

    first: int = 1_000
    most: int = 60_000
