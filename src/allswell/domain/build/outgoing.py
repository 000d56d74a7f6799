"""What waits to be said in a chat: as fast as its server allows, in order, in few messages, and nothing lost (C8).

A chat server takes one message a second from each speaker and throws away what comes faster. It sends every message it
took back to its speaker: the echo. So one message is under way at a time, and the next one goes out a second after the
echo of the last. Meanwhile lines gather, and those for the same place go out together, as many as fit into a message.

    limited     the server said that it threw the message away: it is sent again, later each time.
    overdue     neither echo nor complaint came: the connection is not to be trusted, and is given up.
    cut off     nobody knows whether the message was taken. On joining again the server replays what was said last:
                if the message is there, that is its echo (`echoed`); if the replay ends without it (`caught_up`),
                it is sent again, word for word.

Order is kept for each receiver: a line to one agent may overtake a line to another, but none overtakes a line to a
channel, where both may be listening.
"""

from __future__ import annotations

from collections import deque

import msgspec

from allswell.domain.names import Millis

MESSAGE_BYTES = 4_000
"""No message is longer; servers take 4,096."""
_MOST_PATIENCE = 4
"""How often the pause after a message that was thrown away doubles."""


class Pace(msgspec.Struct, frozen=True):
    """How a server wants to be spoken to, in milliseconds."""

    spacing: int = 1_000
    """Between two messages."""
    echo: int = 10_000
    """So long may an echo take."""


class Message(msgspec.Struct, frozen=True):
    """Lines for one place, as they are sent."""

    place: str
    content: str
    lines: int
    """How many lines those are."""


class Outgoing:
    """The lines that one speaker has yet to say. It never looks at a clock: moments are handed in."""

    def __init__(self, pace: Pace | None = None) -> None:
        self._pace = pace or Pace()
        self._waiting: deque[tuple[str, str]] = deque()
        self._message: Message | None = None
        self._sent_at: Millis | None = None
        self._not_before = Millis(0)
        self._limited = 0
        self._cut_off = False

    def __len__(self) -> int:
        """How many lines have not arrived yet."""
        return len(self._waiting) + (0 if self._message is None else self._message.lines)

    def put(self, place: str, line: str) -> None:
        """Have a line said when its turn comes."""
        self._waiting.append((place, line))

    # --- sending ------------------------------------------------------------------------------------------------------

    def due_at(self) -> Millis | None:
        """When `take` has something to send, or the echo is overdue; None while only others can change that."""
        if self._cut_off or not len(self):
            return None
        if self._sent_at is not None:
            return Millis(self._sent_at + self._pace.echo)
        return self._not_before

    def take(self, now: Millis) -> Message | None:
        """The message to send now, if there is one; it counts as sent."""
        if self._cut_off or self._sent_at is not None or now < self._not_before:
            return None
        if self._message is None:
            self._message = self._gathered()
        if self._message is not None:
            self._sent_at = now
        return self._message

    def is_overdue(self, now: Millis) -> bool:
        """Whether the echo has taken so long that the connection cannot be trusted."""
        return self._sent_at is not None and not self._cut_off and now >= self._sent_at + self._pace.echo

    def _gathered(self) -> Message | None:
        """The first waiting line, and those that may go out with it."""
        if not self._waiting:
            return None
        place = self._waiting[0][0]
        lines: list[str] = []
        size = 0
        left: deque[tuple[str, str]] = deque()
        while self._waiting:
            to, line = self._waiting[0]
            length = len(line.encode()) + (1 if lines else 0)
            if to == place and lines and size + length > MESSAGE_BYTES:
                break
            if to != place and (_is_channel(to) or _is_channel(place)):
                break
            self._waiting.popleft()
            if to == place:
                lines.append(line)
                size += length
            else:
                left.append((to, line))
        self._waiting.extendleft(reversed(left))
        return Message(place, "\n".join(lines), len(lines))

    # --- what came of it ----------------------------------------------------------------------------------------------

    def echoed(self, place: str, content: str, now: Millis) -> int:
        """The server has this message of ours; how many lines have arrived with it, none if it was another message."""
        message = self._message
        if message is None or (self._sent_at is None and not self._cut_off):
            return 0
        if (message.place, message.content) != (place, content):
            return 0
        self._message = None
        self._sent_at = None
        self._limited = 0
        self._not_before = Millis(now + self._pace.spacing)
        return message.lines

    def limited(self, now: Millis) -> None:
        """The server threw the message away: it came too soon."""
        if self._sent_at is None:
            return
        self._sent_at = None
        self._not_before = Millis(now + self._pace.spacing * 2 ** min(self._limited, _MOST_PATIENCE))
        self._limited += 1

    def cut_off(self) -> None:
        """The connection is gone: nothing is sent before `caught_up`."""
        self._cut_off = True

    def caught_up(self, now: Millis) -> None:
        """There is a connection again, and its replay is over: what has no echo by now was not taken."""
        self._cut_off = False
        self._sent_at = None
        self._not_before = Millis(max(self._not_before, now + self._pace.spacing))


def _is_channel(place: str) -> bool:
    return place.startswith("#")
