"""The agent's side of an attempt's socket: say one word, hear the answer. Blocking, small, and quick to import."""

from __future__ import annotations

import os
import socket

import msgspec

from allswell.domain.checkin import check_progress
from allswell.errors import AllswellError, Bug, LeaseLost, Refused, Unavailable
from allswell.runtime.speaking.words import LONGEST, AnyWord, CheckIn, Reply, read_reply

VARIABLE = "ALLSWELL_SOCKET"
SECRET = "ALLSWELL_SECRET"  # noqa: S105 - the name of the variable that it stands in
_PATIENCE = 60.0
"""Seconds; longer than the supervisor waits for its store."""


def say(path: str, word: AnyWord, secret: str | None = None) -> Reply:
    """Say a word to the supervisor whose socket this is, with the attempt's secret; raises what it refuses."""
    if isinstance(word, CheckIn):
        check_progress(word.progress)  # before JSON makes nothing of what is no number
    known = os.environ.get(SECRET, "") if secret is None else secret
    message = msgspec.json.encode(msgspec.structs.replace(word, secret=known)) + b"\n"
    if len(message) > LONGEST:
        raise Refused("too_large", f"this is larger than {LONGEST} bytes", where="message")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(_PATIENCE)
            line.connect(path)
            line.sendall(message)
            answer = _line(line)
    except OSError as error:
        why = error.strerror or str(error)
        raise Unavailable(f"the supervisor of this attempt does not answer at {path}: {why}") from error
    try:
        reply = read_reply(answer)
    except msgspec.DecodeError as error:
        raise Unavailable(f"the supervisor of this attempt said something that cannot be read: {error}") from error
    if reply.error is not None:
        raise _error(reply)
    return reply


def _line(line: socket.socket) -> bytes:
    pieces = bytearray()
    while not pieces.endswith(b"\n"):
        piece = line.recv(65_536)
        if not piece or len(pieces) > LONGEST:
            raise ConnectionResetError(104, "it hung up")
        pieces += piece
    return bytes(pieces)


def _error(reply: Reply) -> AllswellError:
    if reply.error == "LeaseLost":
        task, _, token = (reply.where or "").rpartition(":")
        return LeaseLost(task, int(token or 0), reply.message)
    if reply.error == "Refused":
        return Refused(reply.code or "refused", reply.message, where=reply.where)
    if reply.error == "Unavailable":
        return Unavailable(reply.message)
    return Bug(reply.message)
