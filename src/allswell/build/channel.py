"""The door of a build to where its agents talk: one small interface, whatever lies behind it.

Whoever wants to bring another chat (Slack, Discord, Matrix) writes a class with these three, or a bridge that speaks
`name: LINE` on standard input and output (`doors/chat/stdio.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from allswell.domain.build.heard import Heard
from allswell.domain.names import Millis
from allswell.errors import AllswellError


class ChannelClosed(AllswellError):
    """There is nothing more to hear, and nobody to speak to: the other side has ended for good."""


class Channel(Protocol):
    """A place where everybody hears what everybody says."""

    @property
    def who(self) -> str:
        """As what the others hear us."""
        ...

    async def receive(self) -> Heard:
        """The next message, each once; `ChannelClosed` when there will be none.

        One's own messages are left out, except those of an earlier life: replayed, and never sent by this object.
        """
        ...

    async def send(self, lines: Sequence[str]) -> Millis:
        """Say these lines, in order; returns when they have arrived, with the channel's time of that."""
        ...
