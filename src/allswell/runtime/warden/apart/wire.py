"""Messages between a supervisor and a reaper: JSON behind its length in four bytes, on a stream socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

Message = dict[str, object]
_HEAD = 4


def pack(message: Message) -> bytes:
    """A message as it travels."""
    body = json.dumps(message).encode("ascii")
    return len(body).to_bytes(_HEAD, "big") + body


class Unpacker:
    """Puts messages together again from whatever pieces come."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> Iterator[Message]:
        """The messages that are whole now."""
        self._buffer += piece
        while len(self._buffer) >= _HEAD:
            end = _HEAD + int.from_bytes(self._buffer[:_HEAD], "big")
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_HEAD:end])
            del self._buffer[:end]
            yield json.loads(body)


def receive_first(channel: socket.socket, unpacker: Unpacker) -> tuple[Message, ...]:
    """Wait for the first message; empty if the other side is gone before it was whole."""
    while True:
        try:
            piece = channel.recv(65_536)
        except OSError:
            return ()
        if not piece:
            return ()
        found = tuple(unpacker.feed(piece))
        if found:
            return found
