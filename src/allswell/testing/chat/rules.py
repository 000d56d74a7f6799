"""How strict the chat server is, and in which ways it misbehaves; lengths of time are milliseconds."""

from __future__ import annotations

import msgspec


class ChatRules(msgspec.Struct, frozen=True):
    """What servers do today; tests shorten the pauses, or make it hostile."""

    spacing: int = 1_000
    """A speaker's messages that come faster are thrown away, with `RATE_LIMITED`."""
    window: int = 10_000
    most_frames: int = 60
    """More frames of one connection in a window close it."""
    most_before_welcome: int = 10
    replayed: int = 20
    """So many of a channel's last messages are told to whoever joins; newer servers: 200."""
    message_ids: bool = True
    keyless_may_speak: bool = True
    """Newer servers let agents without a key only read."""
    may_create: bool = True
    """Newer servers let only agents that they know create channels."""
    displacement_delay: int = 0
    """So long a connection waits for its welcome that takes another one's identity over."""

    # What no good server does.
    lost_echoes: int = 0
    """The first so many messages are taken and not sent back to their speaker."""
    lost_messages: int = 0
    """The first so many messages vanish without a word."""
    cut_after_taking: int = 0
    """The first so many messages are taken, and their connection is cut before the echo."""
