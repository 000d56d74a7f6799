"""A channel whose talk is shown to whoever started us: in words with the time, or as JSON lines."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from allswell.doors.cli.frame import Frame, Left, flush, write
from allswell.doors.cli.render import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allswell.build.channel import Channel
    from allswell.domain.build.heard import Heard
    from allswell.domain.names import Millis

_SHOWN = 1_000


class Overheard:
    """A `Channel`; what was replayed is not shown again."""

    def __init__(self, channel: Channel, frame: Frame) -> None:
        self._channel = channel
        self._frame = frame

    @property
    def who(self) -> str:
        """As what the others hear us."""
        return self._channel.who

    async def receive(self) -> Heard:
        """The next message."""
        heard = await self._channel.receive()
        if not heard.replay:
            self._tell(heard.who, heard.text[:_SHOWN])
        return heard

    async def send(self, lines: Sequence[str]) -> Millis:
        """Say these lines."""
        at = await self._channel.send(lines)
        self._tell(self._channel.who, "\n".join(lines))
        return at

    def _tell(self, who: str, text: str) -> None:
        from allswell.doors.shapes.moment import moment
        from allswell.doors.shapes.said import SaidShape

        with contextlib.suppress(Left):  # nobody reads any more: the build goes on
            for line in text.split("\n"):
                if self._frame.json:
                    self._frame.say(SaidShape(moment(time.time_ns() // 1_000_000), f"{who}: {line}"))
                else:
                    write(f"{time.strftime('%H:%M:%S')}  {plain(f'{who}: {line}')}\n")
            flush()
