"""Messages between a supervisor and a reaper: JSON behind its length in four bytes, on a stream socket."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

Message = dict[str, object]
_HEAD = 4
_to_json = json.JSONEncoder().encode
_from_json = json.JSONDecoder().raw_decode  # without the search for white space, which there is none of


def pack(message: Message) -> bytes:
    """A message as it travels."""
    body = _to_json(message).encode("ascii")
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
            body = self._buffer[_HEAD:end].decode("ascii")
            del self._buffer[:end]
            yield _from_json(body)[0]


def receive_first(channel: int, unpacker: Unpacker) -> tuple[Message, ...]:
    """Wait for the first message; empty if the other side is gone before it was whole."""
    while True:
        try:
            piece = os.read(channel, 16_384)
        except OSError:
            return ()
        if not piece:
            return ()
        found = tuple(unpacker.feed(piece))
        if found:
            return found
