"""What was heard in a channel, and how something that is replayed is known again (C8).

Whoever joins a channel is told its last messages once more. They are what one missed while one was away, and also much
that one has heard before; so each message has a mark by which it is known. Who said it is the word of the server,
never a name in the text.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from allswell.domain.names import Millis

_RECALLED = 120
"""So much of a message without an id is enough to know it again."""


class Heard(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message."""

    who: str
    """Who said it, as the server or the bridge knows them."""
    text: str
    at: Millis
    """When, by the server's clock; on stdio the order in which it was read."""
    id: str = ""
    """The server's name for the message; some give none."""
    replay: bool = False
    keyed: bool = True
    """Whether this speaker keeps its name when it comes back: one without a key is somebody else then."""

    @property
    def mark(self) -> str:
        """By what this message is known again. Without an id it is who said what when."""
        return f"{self.at} {self.who} {(self.id or self.text)[:_RECALLED]}"


class KnownMessages:
    """The messages heard so far. The oldest are forgotten: a server replays a few hundred at most."""

    def __init__(self, most: int = 5_000) -> None:
        self._most = most
        self._marks: OrderedDict[str, None] = OrderedDict()

    def is_new(self, mark: str) -> bool:
        """Whether this is heard for the first time; from now on it is known."""
        if mark in self._marks:
            return False
        self._marks[mark] = None
        if len(self._marks) > self._most:
            self._marks.popitem(last=False)
        return True
