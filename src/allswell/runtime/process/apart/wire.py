"""Messages between a supervisor and a reaper: JSON after its length in four bytes, on a stream socket."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator

Message = dict[str, object]
PID_BYTES = 8
"""Length of the pid that the warden sends first, on its socket for orders."""
_HEAD = 4
_to_json = json.JSONEncoder().encode
_from_json = json.JSONDecoder().raw_decode  # without its search for white space: there is none


def pack(message: Message) -> bytes:
    """Encode a message: its length, then its JSON."""
    return frame(_to_json(message).encode("ascii"))


def frame(body: bytes) -> bytes:
    """Put the length before JSON that is encoded already."""
    return len(body).to_bytes(_HEAD, "big") + body


class Unpacker:
    """Decodes messages from the pieces that are read."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> Iterator[Message]:
        """Take the next piece; yield the messages that are complete."""
        self._buffer += piece
        while len(self._buffer) >= _HEAD:
            end = _HEAD + int.from_bytes(self._buffer[:_HEAD], "big")
            if len(self._buffer) < end:
                return
            body = self._buffer[_HEAD:end].decode("ascii")
            del self._buffer[:end]
            yield _from_json(body)[0]


def receive_one(channel: int) -> Message:
    """Wait for one message, and read not a byte more; `ConnectionResetError` if the other side closes first."""
    size = int.from_bytes(_exactly(channel, _HEAD), "big")
    message: Message = _from_json(_exactly(channel, size).decode("ascii"))[0]
    return message


def _exactly(channel: int, size: int) -> bytes:
    pieces = bytearray()
    while len(pieces) < size:
        piece = os.read(channel, size - len(pieces))
        if not piece:
            raise ConnectionResetError(errno.ECONNRESET, "the supervisor is gone")
        pieces += piece
    return bytes(pieces)
